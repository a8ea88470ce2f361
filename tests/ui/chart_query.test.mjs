// The steps that a chart requests, and the columns that it draws of the responses.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SERIES_MAX, bounds, columns } from '../../src/ui/assets/chart/columns.js';
import { chartQuery, splitMatchers, timeGrid } from '../../src/ui/assets/chart/query.js';
import { formatValue, fullName, niceStep, timeTicks, valueAxis } from '../../src/ui/assets/chart/scale.js';

/** A small generator of numbers below 2^32 (xorshift). */
function generator(seed) {
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state;
  };
}

const element = (attributes) => ({ getAttribute: (name) => attributes[name] ?? null });

test('the last step or the tail is at most 15 seconds old, and never in the future', () => {
  const seed = Number(process.env.SEED ?? 17);
  const next = generator(seed);
  for (let round = 0; round < 5_000; round += 1) {
    const now = 1_700_000_000 + (next() % 100_000_000) + (next() % 1000) / 1000;
    const range = 60 + (next() % (90 * 86_400));
    const step = niceStep(range, 60 + (next() % 1000));
    const grid = timeGrid({ now, range, step });
    const newest = grid.tail ?? grid.end;
    const shown = `seed ${seed}, round ${round}: ${JSON.stringify({ now, range, step, grid })}`;
    assert.ok(newest <= now && now - newest < 16, shown);
    assert.equal(grid.start % step, 0, shown);
    assert.equal(grid.end % step, 0, shown);
    assert.ok(grid.end - grid.start >= range, shown);
    if (grid.tail !== null) assert.ok(grid.tail > grid.end && grid.tail - grid.end < step, shown);
  }
});

test('a fixed range covers both ends, and stops at now', () => {
  assert.deepEqual(timeGrid({ now: 10_000, range: 0, step: 60, fixed: { start: 130, end: 250 } }), {
    start: 120,
    end: 300,
    step: 60,
    tail: null,
  });
  // Both ends in the last step: the tail is now.
  assert.deepEqual(timeGrid({ now: 250, range: 0, step: 60, fixed: { start: 130, end: 250 } }), {
    start: 120,
    end: 240,
    step: 60,
    tail: 250,
  });
  assert.deepEqual(timeGrid({ now: 100, range: 0, step: 60, fixed: { start: 130, end: 250 } }), {
    start: 120,
    end: 300,
    step: 60,
    tail: null,
  });
});

test('the tail asks for one point of the same query', () => {
  const query = chartQuery(element({ org: 'a/b', expr: 'up', range: '30d' }), 600, 'http://x', 1_700_000_123);
  assert.equal(query.path, '/api/v1/orgs/a%2Fb/query/expr-range');
  assert.equal(query.tailForm.get('start'), '1700000123');
  assert.equal(query.tailForm.get('end'), '1700000123');
  assert.equal(query.tailForm.get('expr'), 'up');
  assert.equal(
    chartQuery(element({ org: 'a', expr: 'up', range: '15m' }), 600, 'http://x', 1_700_000_123).tailForm,
    null,
  );
  assert.equal(chartQuery(element({ org: 'a' }), 600, 'http://x'), null);
});

test('matchers are split at the commas outside quotes', () => {
  assert.deepEqual(splitMatchers('a="x, y", b=~"c|d"'), ['a="x, y"', 'b=~"c|d"']);
});

test('the tail is one more step, also of series that the grid does not have', () => {
  const grid = { start: 100, end: 120, step: 10 };
  const matrix = [
    {
      metric: { job: 'a' },
      values: [
        [100, '1'],
        [120, '3'],
      ],
    },
  ];
  const tail = {
    time: 123,
    matrix: [
      { metric: { job: 'a' }, values: [[123, '4']] },
      { metric: { job: 'b' }, values: [[123, '+Inf']] },
    ],
  };
  const made = columns(matrix, grid, null, tail);
  assert.deepEqual([...made.times], [100, 110, 120, 123]);
  assert.deepEqual(
    made.series.map(({ values }) => [...values]),
    [
      [1, NaN, 3, 4],
      [NaN, NaN, NaN, Infinity],
    ],
  );
  assert.deepEqual([made.total, made.end, made.series[1].infinite], [2, 123, 1]);
  assert.equal(bounds([made.series[1]]), null);
  assert.deepEqual(bounds(made.series), { low: 1, high: 4 });
  // A tail that is not after the grid adds nothing.
  assert.equal(columns(matrix, grid, null, { ...tail, time: 120 }).count, 3);
});

test('a response with more series than are drawn counts all of them', () => {
  const matrix = Array.from({ length: SERIES_MAX + 50 }, (_, index) => ({
    metric: { i: String(index) },
    values: [[0, '1']],
  }));
  const tail = { time: 5, matrix: matrix.map((row) => ({ ...row, values: [[5, '2']] })) };
  const made = columns(matrix, { start: 0, end: 0, step: 10 }, null, tail);
  assert.equal(made.series.length, SERIES_MAX);
  assert.equal(made.total, SERIES_MAX + 50);
});

test('hostile label names change no prototype', () => {
  const made = columns([{ metric: JSON.parse('{"__proto__":"x","constructor":"y"}'), values: [[0, '1']] }], {
    start: 0,
    end: 0,
    step: 1,
  });
  assert.equal({}.x, undefined);
  assert.equal(made.series[0].full, fullName(JSON.parse('{"__proto__":"x","constructor":"y"}')));
});

test('ticks of durations are whole seconds, minutes, hours and days', () => {
  const texts = (low, high) => {
    const axis = valueAxis(low, high, 5, 'seconds');
    return axis.ticks.map((tick) => formatValue(tick, 'seconds', axis.step));
  };
  assert.deepEqual(texts(0, 100_000), ['0', '6 h', '12 h', '18 h', '24 h', '30 h']);
  for (const text of texts(0, 25_000)) assert.match(text, /^0$|^\d+ (h|min)$/);
  for (const text of texts(0, 90)) assert.match(text, /^0$|^\d+ s$/);
});

test('there are never more ticks than asked for, plus one', () => {
  for (const span of [60, 3600, 86_400, 30 * 86_400, 400 * 86_400])
    assert.ok(timeTicks(1_700_000_000, 1_700_000_000 + span, 8).length <= 9, `${span}`);
});
