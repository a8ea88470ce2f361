// The pages Add data and Metrics: snippets, arriving samples, reasons of refusals, cardinality.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { after, arrivalText, waiting } from '../../src/ui/assets/model/arrival.js';
import { pairOf, selectorOf, seriesOf, signed, topMetrics } from '../../src/ui/assets/model/cardinality.js';
import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { reasonOf, refusedSince } from '../../src/ui/assets/model/refusals.js';
import { NO_KEY, isKey, sources } from '../../src/ui/assets/model/snippets.js';

const base = 'http://127.0.0.1:8095/promlet/api/v1/orgs/acme';
const texts = (key) => sources({ base, key }).flatMap(({ snippets }) => snippets.map(({ text }) => text));

test('every snippet has the address and the key, and says so while there is none', () => {
  for (const text of texts('msk_abc-1')) {
    assert.ok(text.includes(base), text);
    assert.ok(text.includes('msk_abc-1') && !text.includes(NO_KEY), text);
  }
  for (const text of texts('')) assert.ok(text.includes(NO_KEY), text);
});

test('snippets_for_influx_write_to_the_path_of_the_organisation', () => {
  const found = sources({ base, key: 'msk_abc-1' }).find(({ id }) => id === 'influx');
  const [telegraf, lines] = found.snippets.map(({ text }) => text);
  // Telegraf adds /api/v2/write.
  assert.ok(telegraf.includes(`urls = ["${base}/influx"]\n  token = "msk_abc-1"\n`), telegraf);
  assert.ok(lines.includes(`'Authorization: Token msk_abc-1'`) && lines.includes(`'${base}/influx/write?db=lab'`), lines);
  assert.ok(lines.includes("--data-binary @- \\\n  '"), 'the line goes on after a backslash');
});

test('a text that a shell or YAML would read otherwise is no key', () => {
  for (const text of ["a'b", 'a b', 'a\nb', '$(x)', 'a"b', '', 'x'.repeat(201)]) {
    assert.equal(isKey(text), false, text);
    for (const snippet of texts(text)) assert.ok(!text || !snippet.includes(`Bearer ${text}`), snippet);
  }
  assert.equal(isKey('msk_0123456789abcdef_AZ-az'), true);
});

test('the first sample is told with its age and the number of series', () => {
  const empty = waiting({ series: 0, samples: 0 });
  assert.equal(arrivalText(empty, 0), 'Waiting for the first sample…');
  const still = after(empty, { series: 0, samples: 0 }, 1000);
  assert.equal(arrivalText(still, 2000), 'Waiting for the first sample…');
  const first = after(still, { series: 526, samples: 526 }, 3000);
  assert.equal(arrivalText(first, 5000), 'First sample 2 s ago, 526 series');
  const more = after(first, { series: 1526, samples: 9000 }, 6000);
  assert.equal(arrivalText(more, 64_000), 'First sample 1 min ago, 1,526 series', 'the first one stays the first');
});

test('with earlier samples only those since the page was opened are counted', () => {
  const before = waiting({ series: 10, samples: 5000 });
  assert.equal(arrivalText(before, 0), 'Waiting for new samples…');
  const next = after(before, { series: 10, samples: 6234 }, 1000);
  assert.equal(arrivalText(next, 4000), 'New samples since 3 s ago: 1,234 stored, 10 series');
  // The count of the day starts again at midnight.
  assert.equal(after(next, { series: 10, samples: 7 }, 5000).stored, 1241);
});

test('refusals have reasons in words, and older ones are left out', () => {
  assert.equal(reasonOf('series_limit'), 'Limit of series reached');
  assert.equal(reasonOf('histogram_of_a_kind'), 'Histogram of a kind');
  assert.equal(reasonOf('constructor'), 'Constructor', 'a name of Object.prototype is a code as any other');
  const rows = [{ at: '2026-11-26T10:00:01Z' }, { at: '2026-11-26T09:59:59Z' }];
  assert.deepEqual(refusedSince(rows, Date.parse('2026-11-26T10:00:00Z')), [rows[0]]);
});

test('the metrics with the most series come first, with the change of the last hour', () => {
  const metric = (name, series, more) => ({ name, series, type: 'gauge', last_seen: 5, ...more });
  const all = [metric('a', 1), metric('b', 30), metric('c', 30, { last_queried: 7 })];
  const rows = topMetrics(all, [metric('b', 30)], [metric('b', 10), metric('c', 4)], seriesOf(all), 2);
  assert.deepEqual(rows, [
    { name: 'b', series: 30, share: 30 / 61, change: 20, seen: 5, queried: null },
    { name: 'c', series: 30, share: 30 / 61, change: -4, seen: 5, queried: 7 },
  ]);
  assert.equal(topMetrics(all, null, null, 0, 1)[0].change, null);
  assert.deepEqual([signed(1200), signed(-3), signed(0), signed(null)], ['+1,200', '−3', '0', '']);
});

test('a label pair becomes a selector that means exactly this pair', () => {
  assert.deepEqual(pairOf('path=/a=b'), ['path', '/a=b']);
  assert.equal(selectorOf('__name__', 'up'), 'up');
  assert.equal(selectorOf('__name__', 'http.requests'), '{__name__="http.requests"}');
  assert.equal(selectorOf('job', 'a"b\\'), '{job="a\\"b\\\\"}');
  assert.equal(selectorOf('service.name', 'x'), '{"service.name"="x"}');
});

test('every built-in dashboard is drawn without a remark', () => {
  for (const name of ['host', 'promlet', 'shop']) {
    const text = readFileSync(new URL(`../../src/ui/assets/dashboards/${name}.json`, import.meta.url), 'utf8');
    const json = JSON.parse(text);
    const { dashboard, report } = readDashboard(json);
    assert.ok(dashboard.panels.length > 15, name);
    assert.deepEqual(report, [], name);
  }
});
