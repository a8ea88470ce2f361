// The rows and columns that a bar chart draws, and its bars.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { barRows, COLUMNS_MAX, ROWS_MAX } from '../../src/ui/assets/model/bar_rows.js';
import { applyFieldConfig } from '../../src/ui/assets/model/fields.js';
import { framesOf } from '../../src/ui/assets/model/frame.js';
import { barChart } from '../../src/ui/assets/plot/bars.js';

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

/** The rectangles of each series and the texts of a chart. @param {any} options @param {number[][]} values */
function bars(options, values) {
  const before = globalThis.document;
  const element = (/** @type {string} */ tag) => ({
    tag, attributes: /** @type {any} */ ({}), children: /** @type {any[]} */ ([]),
    setAttribute(/** @type {string} */ name, /** @type {string} */ value) { this.attributes[name] = value; },
    append(/** @type {any} */ child) { this.children.push(child); },
  });
  globalThis.document = /** @type {any} */ ({ createElementNS: (/** @type {string} */ _, /** @type {string} */ tag) => element(tag) });
  try {
    const chart = /** @type {any} */ (barChart({
      width: 400, height: 300, theme: 'light', label: 'Bars', categories: values[0].map((_, at) => `c${at}`),
      series: values.map((one, at) => ({ name: `s${at}`, color: `#${at}`, values: one, texts: one.map(String) })),
      ...options,
    }));
    const shapes = chart.children;
    return {
      heights: values.map((_, at) => shapes.filter((/** @type {any} */ { tag, attributes }) =>
        tag === 'rect' && attributes.fill === `#${at}`).map((/** @type {any} */ { attributes }) => Number(attributes.height))),
      texts: shapes.filter((/** @type {any} */ { attributes }) => attributes['text-anchor'] === 'end')
        .flatMap((/** @type {any} */ { children }) => children),
    };
  } finally {
    globalThis.document = before;
  }
}

test('bars_stacked_in_percent_are_parts_of_their_category_on_an_axis_from_0_to_100_percent', () => {
  const { heights: [one, two], texts } = bars({ stacked: true, percent: true, unit: 'bytes', max: 7 }, [[1, 30, 0], [3, 10, 0]]);
  const whole = one[0] + two[0];
  assert.ok(Math.abs(whole - one[1] - two[1]) < 1e-6, 'every category has the same height');
  assert.deepEqual([one[0] / whole, one[1] / whole].map((part) => part.toFixed(6)), ['0.250000', '0.750000']);
  assert.deepEqual([texts[0], texts.at(-1)], ['0%', '100%']);
  assert.ok([one[2], two[2]].every((height) => height < 1), 'a category of zeros has no bars');
  const plain = bars({ stacked: true }, [[1, 30, 0], [3, 10, 0]]);
  assert.ok(plain.heights[0][1] > 10 * plain.heights[0][0], 'values keep their size');
});

test('missing_and_negative_values_of_a_stack_in_percent', () => {
  const { heights: [one, two], texts } = bars({ stacked: true, percent: true }, [[NaN, 1], [5, -1]]);
  assert.deepEqual([one.length, two.length], [1, 2]);
  assert.ok(Math.abs(one[0] - two[1]) < 1e-6 && Math.abs(two[0] - 2 * one[0]) < 1e-6, `${one} ${two}`);
  assert.ok(texts[0].startsWith('-') && texts.at(-1) === '100%', texts.join());
  // The parts of these add up to 0.9999999999999999 or 1.0000000000000002 without rounding.
  const many = Array.from({ length: 49 }, (_, at) => [at * 0.1 + 0.3, at + 7 / 3]);
  assert.equal(bars({ stacked: true, percent: true }, many).texts.at(-1), '100%');
});
