// Frames of Prometheus answers: series, tables, heatmaps, and one grid of their times.

import assert from 'node:assert/strict';
import test from 'node:test';
import { COLUMNS_MAX, ROWS_MAX, align, framesOf } from '../../src/ui/assets/model/frame.js';
import { fieldNames, fullName } from '../../src/ui/assets/model/names.js';

/** @typedef {import('../../src/ui/assets/model/frame.js').Field} Field */

/** @param {any[]} result */
const matrix = (result) => ({ resultType: 'matrix', result });
/** @param {Field} field */
const values = (field) => Array.from(field.values);
const UP = [
  { metric: { __name__: 'up', job: 'a' }, values: [[1, '1'], [3, 'NaN']] },
  { metric: { __name__: 'up', job: 'b' }, values: [[2, '+Inf'], [3, '-Inf']] },
];

test('a matrix becomes one frame a series, with times in milliseconds and missing steps left out', () => {
  const frames = framesOf(matrix(UP), { refId: 'A' });
  assert.deepEqual(frames.map((frame) => [frame.refId, frame.name, frame.length]), [
    ['A', 'up{job="a"}', 2], ['A', 'up{job="b"}', 2],
  ]);
  assert.deepEqual(frames[0].fields.map((field) => [field.name, field.type, values(field)]), [
    ['Time', 'time', [1000, 3000]], ['Value', 'number', [1, NaN]],
  ]);
  assert.deepEqual(values(frames[1].fields[1]), [Infinity, -Infinity]);
  assert.deepEqual(frames[1].fields[1].labels, { __name__: 'up', job: 'b' });
});

test('vectors, scalars and strings become frames, too', () => {
  const vector = framesOf({ resultType: 'vector', result: [{ metric: { job: 'a' }, value: [1.5, '2'] }] }, {});
  assert.deepEqual([values(vector[0].fields[0]), values(vector[0].fields[1])], [[1500], [2]]);
  const [scalar] = framesOf({ resultType: 'scalar', result: [1, '7'] }, { expr: '3 + 4' });
  assert.deepEqual([scalar.name, values(scalar.fields[1])], ['3 + 4', [7]]);
  const [text] = framesOf({ resultType: 'string', result: [1, 'hello'] }, {});
  assert.deepEqual([text.fields[1].type, values(text.fields[1])], ['string', ['hello']]);
  assert.deepEqual(framesOf({ resultType: 'matrix', result: null }, {}), []);
});

test('the legend is a template, the value of the only label, or the full name', () => {
  const name = (/** @type {any} */ metric, /** @type {any} */ target) =>
    framesOf(matrix([{ metric, values: [] }]), target)[0].name;
  assert.equal(name({ job: 'a', x: '1' }, { legendFormat: '{{job}} on {{ x }}{{none}}' }), 'a on 1');
  assert.equal(name({ job: 'a' }, { legendFormat: '{{constructor}}|{{__proto__}}' }), '|');
  assert.equal(name({ job: 'a' }, { legendFormat: '__auto' }), 'a');
  assert.equal(name({ job: 'a', x: '1' }, { legendFormat: '__auto' }), '{job="a", x="1"}');
  assert.equal(name({}, { legendFormat: '__auto', expr: 'vector(1)' }), 'vector(1)');
  assert.equal(fullName({ __name__: 'up', b: 'x"y', a: '\\' }), 'up{a="\\\\", b="x\\"y"}');
});

test('a table has a column a label in order, and its value is named after the query among several', () => {
  const rows = [{ metric: { b: '1' }, values: [[1, '5'], [2, '6']] },
    { metric: { a: 'x', le: '+Inf' }, values: [[1, '7']] }];
  const [frame] = framesOf(matrix(rows), { refId: 'B', format: 'table' }, { several: true });
  assert.deepEqual(frame.fields.map((field) => [field.name, field.type, values(field)]), [
    ['Time', 'time', [1000, 2000, 1000]], ['a', 'string', ['', '', 'x']], ['b', 'string', ['1', '1', '']],
    ['le', 'number', [NaN, NaN, Infinity]], ['Value #B', 'number', [5, 6, 7]],
  ]);
  assert.equal(framesOf(matrix(rows), { refId: 'B', format: 'table' })[0].fields[4].name, 'Value');
});

test('a table is cut at its most rows and columns, with a notice', () => {
  const many = Array.from({ length: ROWS_MAX + 5 }, (_, at) => [at, '1']);
  const labels = Object.fromEntries(Array.from({ length: COLUMNS_MAX + 5 }, (_, at) => [`l${at}`, 'v']));
  const [frame] = framesOf(matrix([{ metric: {}, values: many }]), { format: 'table' });
  assert.deepEqual([frame.length, frame.notice], [ROWS_MAX, 'Shows the first 10000 of 10005 rows.']);
  const [wide] = framesOf(matrix([{ metric: labels, values: [[1, '1']] }]), { format: 'table' });
  assert.deepEqual([wide.fields.length, wide.notice], [COLUMNS_MAX, 'Shows the first 1998 of 2005 labels.']);
});

test('classic buckets are sorted by their bounds, and cumulative counts become counts of each', () => {
  const rows = [
    { metric: { le: '+Inf' }, values: [[1, '10'], [2, '12']] }, { metric: { le: '0.5' }, values: [[1, '2'], [2, '3']] },
    { metric: { le: '10' }, values: [[1, '7']] }, { metric: { le: '2' }, values: [[1, '6'], [2, '2']] },
  ];
  const [frame] = framesOf(matrix(rows), { format: 'heatmap', refId: 'A' });
  assert.equal(frame.kind, 'heatmap');
  assert.deepEqual(frame.fields.map((field) => [field.name, values(field)]), [
    ['Time', [1000, 2000]], ['0.5', [2, 3]], ['2', [4, 0]], ['10', [1, NaN]], ['+Inf', [3, 10]],
  ]);
  assert.deepEqual(frame.fields.slice(1).map((field) => field.bucket),
    [{ low: -Infinity, high: 0.5 }, { low: 0.5, high: 2 }, { low: 2, high: 10 }, { low: 10, high: Infinity }]);
});

test('each set of other labels has a heatmap of its own', () => {
  const rows = ['a', 'b'].flatMap((job) => [{ metric: { job, le: '1' }, values: [[1, '1']] }]);
  assert.deepEqual(framesOf(matrix(rows), { format: 'heatmap' }).map((frame) => frame.name),
    ['{job="a"}', '{job="b"}']);
});

test('native histograms become buckets of a heatmap, and counts in other formats', () => {
  const histograms = [
    [1, { count: '3', sum: '4', buckets: [[0, '1', '2', '2'], [0, '0.5', '1', '1']] }],
    [2, { count: '5', sum: '9', buckets: [[0, '2', '4', '5']] }],
  ];
  const [frame] = framesOf(matrix([{ metric: {}, histograms }]), { format: 'heatmap' });
  assert.deepEqual(frame.fields.map((field) => [field.name, values(field), field.bucket]), [
    ['Time', [1000, 2000], undefined], ['1', [1, 0], { low: 0.5, high: 1 }], ['2', [2, 0], { low: 1, high: 2 }],
    ['4', [0, 5], { low: 2, high: 4 }],
  ]);
  assert.deepEqual(values(framesOf(matrix([{ metric: {}, histograms }]), {})[0].fields[1]), [3, 5]);
});

test('aligned frames share ascending times and have NaN for missing steps', () => {
  const { times, columns, fields } = align(framesOf(matrix(UP), {}));
  assert.deepEqual([...times], [1000, 2000, 3000]);
  assert.deepEqual(columns.map((column) => [...column]), [[1, NaN, NaN], [NaN, Infinity, -Infinity]]);
  assert.deepEqual(fields.map(({ frame }) => frame.name), ['up{job="a"}', 'up{job="b"}']);
});

test('aligning equals a look-up of each time, whatever the times are', () => {
  for (let seed = 1; seed < 200; seed += 1) {
    let state = seed;
    const below = (/** @type {number} */ count) => {
      state = (state * 48271) % 2147483647;
      return state % count;
    };
    const rows = Array.from({ length: 1 + below(4) }, (_, index) => ({
      metric: { index: String(index) },
      values: Array.from({ length: below(6) }, () => below(8)).filter((at, place, all) => all.indexOf(at) === place)
        .sort((a, b) => (seed % 3 ? a - b : b - a)).map((at) => [at, String(below(100))]),
    }));
    const { times, columns } = align(framesOf(matrix(rows), {}));
    const expected = [...new Set(rows.flatMap((row) => row.values.map(([at]) => Number(at) * 1000)))].sort((a, b) =>
      a - b);
    assert.deepEqual([...times], expected, `seed ${seed}`);
    rows.forEach((row, index) => assert.deepEqual([...columns[index]], expected.map((time) =>
      Number(row.values.find(([at]) => Number(at) * 1000 === time)?.[1] ?? NaN)), `seed ${seed}`));
  }
});

test('frames that share their times are aligned without a copy', () => {
  const frames = framesOf(matrix([UP[0], { ...UP[0], metric: { job: 'c' } }]), {});
  const { columns } = align(frames);
  assert.equal(columns[0], frames[0].fields[1].values);
});

test('fields without a configured name are named after what tells them apart', () => {
  const value = (/** @type {any} */ labels) =>
    ({ name: 'Value', type: /** @type {const} */ ('number'), values: [], config: {}, labels });
  const frame = (/** @type {string} */ name, /** @type {any[]} */ ...fields) =>
    ({ refId: 'A', name, length: 0, fields });
  assert.deepEqual(fieldNames([frame('', value({ a: '1' })), frame('', value({ a: '2' }))]), [['1'], ['2']]);
  assert.deepEqual(fieldNames([frame('f', value({})), frame('g', value({}))]), [['f'], ['g']]);
  assert.deepEqual(fieldNames([frame('', value({}), value({}))]), [['Value 1', 'Value 2']]);
});
