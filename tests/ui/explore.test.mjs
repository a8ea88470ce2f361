// The explore page's state, history, exports, plans and costs.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { formatMoment, timeTicks, useTimeZone } from '../../src/ui/assets/chart/scale.js';
import { costText } from '../../src/ui/assets/model/cost.js';
import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { planRows } from '../../src/ui/assets/model/explain.js';
import {
  moved, newestSpan, rangeChange, readAddress, spanOf, widened, writeAddress,
} from '../../src/ui/assets/model/explore_state.js';
import {
  csvCell, csvOf, curlOf, fileName, panelOf, withPanel,
} from '../../src/ui/assets/model/exports.js';
import { shellWord } from '../../src/ui/assets/model/shell.js';
import { newDashboard } from '../../src/ui/assets/model/new_panel.js';
import { selectorOf } from '../../src/ui/assets/model/promql.js';
import { HISTORY_MAX, foundQueries, remembered, withStar } from '../../src/ui/assets/model/query_history.js';

test('an address keeps the state, and what it does not understand is the default', () => {
  const state = { org: 'a b', expr: 'x{y="&"}', range: '6h', zoom: { start: 10, end: 20 }, tab: 'explain' };
  assert.deepEqual(readAddress(writeAddress(state)), state);
  assert.deepEqual(readAddress('?tab=__proto__&range=x&start=5&end=3'), {
    org: '', expr: '', range: '1h', zoom: null, tab: 'chart',
  });
});

test('the_newest_sample_is_offered_only_if_the_range_lacks_it', () => {
  const now = 1_000_000;
  const hour = { range: '1h', zoom: null };
  assert.equal(newestSpan(now - 60, hour, now), null);
  assert.equal(newestSpan(now - 3600, hour, now), null, 'the start is inclusive');
  assert.equal(newestSpan(now + 2, hour, now), null, 'it arrived after the query');
  assert.deepEqual(newestSpan(now - 7200, hour, now), { start: now - 7200 - 2700, end: now - 7200 + 900 });
  assert.deepEqual(newestSpan(now - 4000, { range: '1d', zoom: null }, now), null);
  assert.equal(newestSpan(150, { range: '1h', zoom: { start: 100, end: 200 } }, now), null);
  // The range ends now at the latest, and contains the sample.
  const late = newestSpan(now - 10, { range: '1h', zoom: { start: 100, end: 200 } }, now);
  assert.deepEqual(late, { start: now - 10 - 2700, end: now });
});

test('a range moves by half, widens around its middle, and never ends after now', () => {
  const now = 10_000;
  assert.deepEqual(spanOf({ range: '1h', zoom: null }, now + 0.7), { start: 6400, end: 10_000 });
  assert.deepEqual(moved({ start: 6400, end: 10_000 }, -0.5, now), { start: 4600, end: 8200 });
  assert.deepEqual(moved({ start: 4600, end: 8200 }, 0.5, now), { start: 6400, end: 10_000 });
  assert.deepEqual(moved({ start: 8000, end: 9000 }, 5, now), { start: 9000, end: 10_000 });
  assert.deepEqual(widened({ start: 4000, end: 5000 }, now), { start: 3500, end: 5500 });
  assert.deepEqual(widened({ start: 9000, end: 10_000 }, now), { start: 8000, end: 10_000 });
  const year = 365 * 86400;
  assert.deepEqual(widened({ start: year, end: 2 * year }, 9 * year), { start: year, end: 2 * year });
});

test('a relative range stays relative, and other ends are fixed', () => {
  const span = { start: 1.5, end: 2.5 };
  assert.deepEqual(rangeChange('now-90d', 'now', span), { range: '90d', zoom: null });
  assert.deepEqual(rangeChange('now-3h', 'now-1h', span), { zoom: { start: 1, end: 3 } });
  assert.deepEqual(rangeChange('now-1M', 'now', span), { zoom: { start: 1, end: 3 } });
});

test('the time zone changes texts and ticks, and a named one comes first', () => {
  const at = Date.UTC(2026, 0, 15, 22, 30) / 1000;
  try {
    useTimeZone('Asia/Kolkata');
    assert.match(formatMoment(at), /Fri, Jan 16.*04:00:00/);
    const days = timeTicks(at, at + 86400, 8).filter(({ major }) => major);
    assert.deepEqual(days.map((tick) => tick.at), [Date.UTC(2026, 0, 16, 18, 30) / 1000]);
    // A zone that is named comes before that of the page, and an unknown one is UTC.
    assert.match(formatMoment(at, 'utc'), /Thu, Jan 15.*22:30:00/);
    assert.match(formatMoment(at, 'No/Where'), /22:30:00/);
    // Across the end of summer time, days begin at midnight of the zone.
    useTimeZone('Europe/Berlin');
    const autumn = Date.UTC(2026, 9, 24, 22) / 1000;
    const ticks = timeTicks(autumn, autumn + 3 * 86400, 3).map((tick) => tick.at - autumn);
    assert.deepEqual(ticks, [0, 86400 + 3600, 2 * 86400 + 3600]);
    const months = timeTicks(Date.UTC(2026, 0, 31, 23) / 1000, Date.UTC(2026, 5, 1) / 1000, 5);
    assert.equal(months[0].at, Date.UTC(2026, 0, 31, 23) / 1000);
    assert.equal(months[0].text, 'Feb 2026');
  } finally {
    useTimeZone('');
  }
});

test('the history has each query once, the newest last, and at most a hundred', () => {
  assert.deepEqual(remembered(['a', 'b'], 'a'), ['b', 'a']);
  assert.deepEqual(remembered(['a'], ''), ['a']);
  assert.deepEqual(remembered({ broken: true }, 'x'), ['x']);
  const many = Array.from({ length: 150 }, (_, index) => `q${index}`);
  assert.equal(remembered(many, 'x').length, HISTORY_MAX);
  assert.equal(remembered(many, 'x').at(-1), 'x');
});

test('starred queries come first, survive the history, and a search needs every word', () => {
  const starred = withStar(withStar(['old'], 'b', true), 'c', true);
  assert.deepEqual(withStar(starred, 'b', false), ['old', 'c']);
  assert.deepEqual(foundQueries(['a', 'b', 7], ['b', 'old'], ''), [
    { expr: 'old', star: true }, { expr: 'b', star: true }, { expr: 'a', star: false },
  ]);
  assert.deepEqual(foundQueries(['rate(Foo[5m])', 'foo'], [], 'FOO rate').map(({ expr }) => expr), ['rate(Foo[5m])']);
});

test('cells of CSV are quoted, and formulas are text', () => {
  assert.equal(csvCell('a,"b"\r\n'), '"a,""b""\r\n"');
  for (const formula of ['=1+1', '+cmd', '-cmd', '@x', '\tx']) assert.ok(csvCell(formula).startsWith("'"), formula);
  for (const number of ['-1.5', '+Inf', '-Inf', '1e-9', '-2e+30']) assert.equal(csvCell(number), number);
  assert.equal(csvCell('-1+cmd|x'), "'-1+cmd|x");
});

test('a matrix is a row a time and a column a series, with empty cells', () => {
  const csv = csvOf({
    resultType: 'matrix',
    result: [
      { metric: { __name__: 'x', a: '=1' }, values: [[1.5, '1'], [2.5, 'NaN']] },
      { metric: { __name__: '=x' }, values: [[0.5, '-7']] },
      { metric: {}, histograms: [[2.5, { count: '3', sum: '1' }]] },
    ],
  });
  assert.equal(csv, [
    'time,"x{a=""=1""}",\'=x,{}',
    '1970-01-01T00:00:00.500Z,,-7,',
    '1970-01-01T00:00:01.500Z,1,,',
    '1970-01-01T00:00:02.500Z,NaN,,"{""count"":""3"",""sum"":""1""}"',
    '',
  ].join('\r\n'));
  assert.equal(csvOf({ resultType: 'scalar', result: [1, '2'] }), 'time,value\r\n1970-01-01T00:00:01.000Z,2\r\n');
  assert.equal(csvOf({ resultType: 'vector', result: [{ metric: {}, value: [1, '2'] }] }).split('\r\n')[1],
    '1970-01-01T00:00:01.000Z,2');
});

test('the curl command survives a shell with hostile text, and has no secret', () => {
  const expr = "x{a='b', c=\"$(touch /no) `no`\"}\n# \\";
  const command = curlOf({
    base: 'https://host/p', org: 'a', expr, params: { start: 1, end: 2, step: 1 },
  });
  const script = `curl() { printf '%s\\0' "$@"; }\nPROMLET_API_KEY=key\n${command}`;
  const words = execFileSync('sh', ['-c', script], { encoding: 'utf8' }).split('\0');
  assert.ok(words.includes(`query=${expr}`), JSON.stringify(words));
  assert.ok(words.includes('https://host/p/api/v1/orgs/a/prometheus/api/v1/query_range'));
  assert.ok(words.includes('Authorization: Bearer key') && words.includes('step=1'));
  assert.match(curlOf({ base: 'b', org: 'a', expr: 'x', params: { time: 1 } }), /v1\/query \\/);
  assert.equal(shellWord("it's"), "'it'\\''s'");
});

test('a panel has the unit of its metric and the kind of its query', () => {
  const panel = panelOf({ kind: 'timeseries', title: ' ', expr: 'rate(a_bytes_total[5m])' });
  assert.equal(panel.fieldConfig.defaults.unit, 'binBps');
  assert.equal(panel.title, 'rate(a_bytes_total[5m])');
  assert.deepEqual([panel.targets[0].instant, panel.targets[0].range], [false, true]);
  const table = panelOf({ kind: 'table', title: 'T', expr: 'up' });
  assert.deepEqual([table.targets[0].instant, table.targets[0].format, table.title], [true, 'table', 'T']);
});

test('a panel is added below the others, also in rows of old dashboards, and nothing else changes', () => {
  const wish = { kind: 'stat', title: 'New', expr: 'up' };
  const document = {
    title: 'D', unknown: { kept: 1 }, schemaVersion: 39,
    panels: [{ id: 4, type: 'text', title: 'Old', gridPos: { x: 0, y: 3, w: 4, h: 5 }, odd: [1] }],
  };
  const added = withPanel(document, wish);
  assert.deepEqual(added.panels[0], document.panels[0]);
  assert.deepEqual(added.unknown, { kept: 1 });
  assert.equal(added.panels[1].gridPos.y, 8);
  assert.equal(added.panels[1].id, 5);
  assert.equal(document.panels.length, 1);
  const rows = withPanel({ title: 'R', rows: [{ panels: [{ id: 1, type: 'graph', title: 'G', span: 12 }] }] }, wish);
  const titles = readDashboard(rows).dashboard.panels.map(({ title, type }) => `${type} ${title}`);
  assert.equal(titles.at(-1), 'stat New');
  const [made] = readDashboard(withPanel(newDashboard('N'), wish)).dashboard.panels;
  assert.deepEqual([made.type, made.targets[0].expr, made.targets[0].refId], ['stat', 'up', 'A']);
});

test('names of files are letters, digits and dashes', () => {
  assert.equal(fileName('sum(rate(x[5m])) / "../y"', 'csv'), 'sum-rate-x-5m-y.csv');
  assert.equal(fileName('{}', 'png'), 'query.png');
});

test('a selector names one series, with quotes where names need them', () => {
  assert.equal(selectorOf({ __name__: 'up', job: 'a"b' }), 'up{job="a\\"b"}');
  assert.equal(selectorOf({ __name__: 'up' }), 'up');
  assert.equal(selectorOf({ __name__: 'a.b', 'c-d': 'e' }), '{"a.b", "c-d"="e"}');
  assert.equal(selectorOf({}), '{}');
});

test('a plan lists each node before its inputs, with its own time', () => {
  const leaf = { node: 'x', estimated: { series: 2, samples: 5 }, actual: { series: 2, samples: 4, elapsed_ms: 6 } };
  const whole = { series: 1, samples: 4, elapsed_ms: 10 };
  const { rows } = planRows({ node: 'sum', actual: whole, inputs: [leaf, { node: '2' }] });
  assert.deepEqual(rows.map(({ node, depth, ownMs, share }) => [node, depth, ownMs, share]), [
    ['sum', 0, 4, 0.4], ['x', 1, 6, 0.6], ['2', 1, 0, 0],
  ]);
  assert.equal(rows[2].actual, null);
  assert.deepEqual(planRows(null).rows, []);
  /** @type {any} */
  let deep = { node: 'leaf' };
  for (let depth = 0; depth < 20_000; depth += 1) deep = { node: 'n', inputs: [deep, 7] };
  assert.equal(planRows(deep).truncated, true);
});

test('a cost over a limit names the limit', () => {
  const cheap = costText({ series: 45, samples: 11_700, memory_bytes: 2 ** 21 }, 0.001);
  assert.deepEqual(cheap, { text: 'About 45 series, 11.7k samples, 2 MiB, 12 ms', over: false });
  assert.deepEqual(costText({ series: 1, samples: 1, memory_bytes: 0 }, null).text, 'About 1 series, 1 sample, 0 B');
  const dear = costText({ series: 1, samples: 12_000_000, memory_bytes: 2 ** 30 }, 1);
  assert.ok(!/ s\b/.test(dear.text), dear.text);
  assert.ok(dear.over && dear.text.includes('10,000,000 samples') && dear.text.includes('256 MiB'), dear.text);
  assert.ok(costText({ series: 1, samples: 11, memory_bytes: 0 }, null, 10).text.includes('hold 10 samples'));
});
