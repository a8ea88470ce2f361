// Reducers give one value of many, with missing values treated as Grafana treats them.

import assert from 'node:assert/strict';
import test from 'node:test';
import { REDUCER_IDS, reduceField, reduceValues, reducerOf } from '../../src/ui/assets/model/reduce.js';

/** @param {any[] | Float64Array} values @param {string} id @param {any} [mode] */
const one = (values, id, mode) => reduceValues(values, [id], mode).get(id);

test('each reducer gives its value', () => {
  const values = [2, 4, null, 3, 1, 7];
  const expected = {
    lastNotNull: 7, last: 7, firstNotNull: 2, first: 2, min: 1, max: 7, mean: 3.4, median: 3, sum: 17, count: 5,
      range: 6,
    delta: 9, step: -2, diff: 5, diffperc: 250, logmin: 1, minAboveZero: 1, allIsZero: false, allIsNull: false,
      changeCount: 4,
    distinctCount: 5, variance: 4.24, p1: 1, p50: 3, p99: 7, current: 7, avg: 3.4, total: 17,
  };
  for (const [id, value] of Object.entries(expected)) assert.equal(one(values, id), value, id);
  assert.ok(Math.abs(one(values, 'stdDev') - Math.sqrt(4.24)) < 1e-12);
  assert.deepEqual(one(values, 'allValues'), values);
  assert.deepEqual(one([1, 1, null, 2], 'uniqueValues'), [1, null, 2]);
});

test('NaN of a missing step is no number, first, last or count of numbers', () => {
  const values = Float64Array.of(NaN, 3, NaN, 1, NaN);
  assert.deepEqual(['lastNotNull', 'firstNotNull', 'min', 'max', 'mean', 'sum', 'median', 'variance', 'p50', 'diff']
    .map((id) => one(values, id)), [1, 3, 1, 3, 2, 4, 2, 1, 3, -2]);
  assert.ok(Number.isNaN(one(values, 'last')));
});

test('the null mode leaves nulls out, counts them, or counts them as 0', () => {
  const values = [4, null, 2];
  assert.deepEqual([one(values, 'mean'), one(values, 'count'), one(values, 'min')], [3, 2, 2]);
  assert.deepEqual([one(values, 'mean', 'null'), one(values, 'count', 'null')], [3, 3]);
  assert.deepEqual([one(values, 'mean', 'null as zero'), one(values, 'count', 'null as zero'),
    one(values, 'min', 'null as zero')],
    [2, 3, 0]);
});

test('no values have no result, but a sum and a count of 0', () => {
  for (const id of REDUCER_IDS) {
    const expected = { sum: 0, count: 0, allIsZero: false, allIsNull: true }[id];
    assert.equal(one([], id), expected, id);
  }
  assert.equal(one([null, null], 'mean'), null);
  assert.equal(one([null, null], 'logmin'), null);
  assert.equal(one([null], 'allIsNull'), true);
  assert.equal(one([0, 0, null], 'allIsZero'), true);
  assert.equal(one([], 'p50'), undefined);
});

test('a counter that is reset adds its value after the reset to delta', () => {
  assert.equal(one([5, 9, 2, 4], 'delta'), 8);
  assert.equal(one([5, 9, 2], 'delta'), 6);
});

test('unknown reducers have no result, and percentiles have names', () => {
  for (const id of ['p0', 'p100', 'constructor', '__proto__', 'nope', '']) assert.equal(reducerOf(id), null, id);
  assert.deepEqual(['p1', 'p2', 'p3', 'p11', 'p12', 'p22', 'p90'].map((id) => reducerOf(id)?.name),
    ['1st %', '2nd %', '3rd %', '11th %', '12th %', '22nd %', '90th %']);
  assert.deepEqual([...reduceValues([1], ['nope', 'max'])], [['max', 1]]);
  assert.equal(reduceField({ name: 'v', type: 'number', values: [null, 2], config: { nullValueMode: 'null as zero' } },
    'min'), 0);
});
