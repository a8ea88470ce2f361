// The rows and columns that a bar chart draws.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { barRows, COLUMNS_MAX, ROWS_MAX } from '../../src/ui/assets/model/bar_rows.js';
import { applyFieldConfig } from '../../src/ui/assets/model/fields.js';
import { framesOf } from '../../src/ui/assets/model/frame.js';

/** Frames of series, as a panel has them. @param {Record<string, [number, number][]>} series */
function frames(series) {
  const result = Object.entries(series).map(([name, points]) =>
    ({ metric: { name }, values: points.map(([at, value]) => [at, String(value)]) }));
  return applyFieldConfig(framesOf({ resultType: 'matrix', result }, { refId: 'A', legendFormat: '{{name}}' }), {});
}

/** @param {any[]} fields */
const table = (fields) => [{ refId: 'A', name: '', length: fields[0].values.length,
  fields: fields.map((field) => ({ config: {}, ...field })) }];

/** @param {any} rows */
const drawn = ({ category, numbers, from, to }) => ({
  x: [...category.values].slice(from, to),
  series: Object.fromEntries(numbers.map((/** @type {any} */ one) =>
    [one.config.displayName || one.name, [...one.values].slice(from, to)])),
});

test('all_series_of_a_query_are_drawn_over_the_times_of_all', () => {
  const rows = barRows(frames({ a: [[10, 1], [20, 2]], b: [[20, 3], [30, 4]] }), undefined);
  assert.deepEqual(drawn(rows), {
    x: [10_000, 20_000, 30_000],
    series: { a: [1, 2, undefined], b: [undefined, 3, 4] },
  });
  assert.deepEqual([rows?.category?.type, rows?.note], ['time', '']);
});

test('the_newest_rows_stay_and_a_note_counts_them', () => {
  const rows = barRows(frames({ a: Array.from({ length: 240 }, (_, at) => [at, at]) }), undefined);
  assert.ok(rows);
  assert.deepEqual([rows.from, rows.to, ROWS_MAX], [40, 240, 200]);
  assert.equal(rows.note, 'The newest 200 of 240 rows are shown.');
  const falling = Array.from({ length: 240 }, (_, at) => 240 - at);
  const sorted = barRows(table([{ name: 'Time', type: 'time', values: falling },
    { name: 'v', type: 'number', values: falling }]), undefined);
  assert.deepEqual([sorted?.from, sorted?.to], [0, 200]);
});

test('rows_with_names_keep_their_order_and_the_first_frame_counts', () => {
  const names = Array.from({ length: 240 }, (_, at) => `n${at}`);
  const [one] = table([{ name: 'Time', type: 'time', values: names.map((_, at) => at) },
    { name: 'job', type: 'string', values: names }, { name: 'v', type: 'number', values: names.map(() => 1) }]);
  const rows = barRows([one, ...frames({ a: [[1, 1]] })], undefined);
  assert.deepEqual([rows?.category?.name, rows?.from, rows?.to, rows?.numbers.length], ['job', 0, 200, 1]);
  assert.equal(rows?.note, '200 of 240 rows are shown.');
});

test('a_chosen_field_names_the_groups', () => {
  const fields = [{ name: 'Time', type: 'time', values: [1, 2] }, { name: 'job', type: 'string', values: ['a', 'b'] },
    { name: 'v', type: 'number', values: [5, 6] }];
  assert.equal(barRows(table(fields), 'Time')?.category?.name, 'Time');
  const numbered = barRows(table([{ name: 'v', type: 'number', values: [5] }, { name: 'w', type: 'number', values: [6] }]), 'v');
  assert.deepEqual([numbered?.category?.name, numbered?.numbers.map(({ name }) => name)], ['v', ['w']]);
});

test('nothing_to_draw_is_null_and_more_series_than_fit_are_counted', () => {
  assert.equal(barRows([], undefined), null);
  assert.equal(barRows(table([{ name: 'job', type: 'string', values: ['a'] }]), undefined), null);
  const hidden = { custom: { hideFrom: { viz: true } } };
  assert.equal(barRows(table([{ name: 'v', type: 'number', values: [1], config: hidden }]), undefined), null);
  const many = Object.fromEntries(Array.from({ length: 120 }, (_, at) =>
    [`s${at}`, /** @type {[number, number][]} */ ([[1, at]])]));
  const rows = barRows(frames(many), undefined);
  assert.deepEqual([rows?.numbers.length, rows?.note], [COLUMNS_MAX, '100 of 120 series are shown.']);
});
