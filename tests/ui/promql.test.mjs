// The context of the caret, units of results, and the families of a metric list.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { counted, families, hasOwnMetrics, matchesFilter } from '../../src/ui/assets/model/metrics.js';
import { atCaret, firstQuery, metricsOf, unitOf } from '../../src/ui/assets/model/promql.js';
import { isRangeSelector } from '../../src/ui/assets/model/promql_tokens.js';

/** The context at the sign `|`. */
const at = (text) => atCaret(...text.split('|', 2));

test('label lists offer the labels of the metric that is aggregated', () => {
  assert.deepEqual(at('sum by (rou|) (rate(shop_requests_total[5m]))'), {
    kind: 'label',
    word: 'rou',
    list: true,
    metric: 'shop_requests_total',
  });
  assert.deepEqual(at('sum(rate(shop_requests_total{a="b"}[5m])) by (|'), {
    kind: 'label',
    word: '',
    list: true,
    metric: 'shop_requests_total',
  });
  assert.deepEqual(at('sum by (rou|'), { kind: 'label', word: 'rou', list: true });
  assert.deepEqual(at('a_x / on (job, ins|) b_x'), { kind: 'label', word: 'ins', list: true, metric: 'b_x' });
  assert.deepEqual(at('a_x * on(i) group_left(ver|'), { kind: 'label', word: 'ver', list: true, metric: 'a_x' });
  assert.deepEqual(at('sum without(x|'), { kind: 'label', word: 'x', list: true });
});

test('matchers offer labels and values, with and without a metric', () => {
  assert.deepEqual(at('x{|'), { kind: 'label', word: '', metric: 'x' });
  assert.deepEqual(at('x{a="b", c|'), { kind: 'label', word: 'c', metric: 'x' });
  assert.deepEqual(at('{jo|'), { kind: 'label', word: 'jo' });
  assert.deepEqual(at('x{a=~"b|c'), { kind: 'value', word: 'b', metric: 'x', label: 'a' });
  assert.deepEqual(atCaret('x{a=~"b|c'), { kind: 'value', word: 'c', metric: 'x', label: 'a' });
  assert.deepEqual(at('{a="b|'), { kind: 'value', word: 'b', label: 'a' });
  assert.equal(at('"x|'), null);
});

test('after an aggregation, a metric or a bracket only keywords are offered', () => {
  for (const text of ['sum b|', 'sum(x) b|', 'x{a="b"} of|', 'x[5m] off|', 'some_metric o|', 'sum by (a) (x) an|'])
    assert.equal(at(text)?.operator, true, text);
  for (const text of ['ra|', '(ra|', 'x + ra|', 'x and ra|', 'f(1, ra|', 'x > bool ra|'])
    assert.deepEqual([at(text)?.kind, at(text)?.operator], ['name', undefined], text);
});

test('names are completed outside lists, and durations are not names', () => {
  assert.deepEqual(at('sum(ra|'), { kind: 'name', word: 'ra' });
  assert.deepEqual(at('rate(x[5m|'), { kind: 'duration', word: '5m' });
  assert.deepEqual(at('max_over_time(x[1h:|'), { kind: 'duration', word: '' });
  assert.deepEqual(at('sum by (a) (ra|'), { kind: 'name', word: 'ra' });
  assert.equal(at('clamp(x, 1|'), null);
});

test('the metrics of an expression are its selectors', () => {
  assert.deepEqual(metricsOf('sum by (le) (rate(a_bucket{x="y_z"}[5m])) / on (job) b and c_d offset 5m'), [
    'a_bucket',
    'b',
    'c_d',
  ]);
  assert.deepEqual(metricsOf('{__name__="x"}'), []);
  assert.deepEqual(metricsOf('1e3 + 5'), []);
});

test('a range selector is told from other expressions by its end', () => {
  for (const text of ['x[5m]', 'x{a="b"}[5m] offset 1d ', 'rate(x[5m])[1h:1m]', 'x[5m] @ end() offset -1h', 'x[1m]\n'])
    assert.ok(isRangeSelector(text), text);
  for (const text of ['x', 'rate(x[5m])', '"[5m]"', 'x[5m] + 1', 'rate(x[5m]', '']) assert.ok(!isRangeSelector(text), text);
});

test('buckets count, and only their quantiles have the unit', () => {
  assert.equal(unitOf('a_seconds_bucket'), '');
  assert.equal(unitOf('a_seconds_count'), '');
  assert.equal(unitOf('histogram_quantile(0.9, rate(a_seconds_bucket[5m]))'), 'seconds');
  assert.equal(unitOf('a_seconds_sum'), 'seconds');
  assert.equal(unitOf('sum(rate(a_bytes_total{x="/"}[5m]))'), 'bytes/s');
  assert.equal(unitOf('a_bytes / b_bytes'), '');
});

test('a histogram is one family, and its query is a quantile', () => {
  const metric = (name, type, series = 1, help = '') => ({ name, type, series, help });
  const list = [
    metric('a_bucket', 'histogram', 10),
    metric('a_count', 'histogram'),
    metric('a_sum', 'histogram', 1, 'Time'),
    metric('b_count', 'counter'),
    metric('c', 'summary', 3),
    metric('c_count', 'summary'),
    metric('c_sum', 'summary'),
    metric('up', 'gauge'),
  ];
  const found = families(list);
  assert.deepEqual(
    found.map(({ name, type, series }) => [name, type, series]),
    [
      ['a', 'histogram', 12],
      ['b_count', 'counter', 1],
      ['c', 'summary', 5],
      ['up', 'gauge', 1],
    ],
  );
  assert.equal(firstQuery(found[0].first), 'histogram_quantile(0.95, sum by (le) (rate(a_bucket[5m])))');
  assert.equal(found[0].help, 'Time');
  assert.equal(
    found.reduce((sum, { members }) => sum + members.length, 0),
    list.length,
  );
});

test('the filter ignores the case of letters and searches names, types and help', () => {
  const [family] = families([{ name: 'host_memory_used_bytes', type: 'gauge', series: 1, help: 'Memory in use.' }]);
  assert.ok(matchesFilter(family, 'MEMORY use'));
  assert.ok(matchesFilter(family, 'GAUGE'));
  assert.ok(matchesFilter(family, ''));
  assert.ok(!matchesFilter(family, 'disk'));
});

test('counts agree with their nouns', () => {
  assert.deepEqual(
    [counted(0, 'metric'), counted(1, 'metric'), counted(1200, 'metric')],
    ['0 metrics', '1 metric', '1,200 metrics'],
  );
  assert.equal(counted(2, 'query', 'queries'), '2 queries');
});

test('long and unbalanced expressions are read in linear time', () => {
  const begun = performance.now();
  for (const text of [
    '('.repeat(100_000),
    '{'.repeat(100_000),
    'by ('.repeat(50_000),
    `${'a'.repeat(100_000)}(`,
    '"'.repeat(99_999),
  ]) {
    atCaret(text);
    metricsOf(text);
  }
  assert.ok(performance.now() - begun < 2_000, `${performance.now() - begun} ms`);
});

test('the home page explains the samples of the day if a promlet is among the metrics', () => {
  const metric = (/** @type {string} */ name) => ({ name, type: 'gauge', series: 1 });
  assert.equal(hasOwnMetrics(['node_load1', 'promlet_build_info', 'up'].map(metric)), true);
  assert.equal(hasOwnMetrics(['node_load1', 'shop_promlet_total', 'up'].map(metric)), false);
  assert.equal(hasOwnMetrics([]), false);
});
