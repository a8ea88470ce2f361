// Transformations of data frames: the promises of each, and of the list as a whole.

import assert from 'node:assert/strict';
import test from 'node:test';
import { ROWS_MAX } from '../../src/ui/assets/model/frame.js';
import { TRANSFORMATION_IDS, transform } from '../../src/ui/assets/model/transformations/index.js';

/** @param {string} name @param {any[] | Float64Array} values @param {any} [more] @returns {any} */
const field = (name, values, more) => ({
  name, values, config: {}, type: name.startsWith('Time') ? 'time' : typeof values[0] === 'string' ? 'string'
    : 'number', ...more,
});
/** @param {any[]} fields @param {any} [more] */
const frame = (fields, more) => ({ refId: 'A', name: '', length: fields[0].values.length, fields, ...more });
/** @param {any[]} frames @returns {any[]} `[name, ...values]` of all fields of all frames */
const read = (frames) => frames.flatMap((one) =>
  one.fields.map((/** @type {any} */ made) => [made.config.displayName ?? made.name, ...made.values]));
/** @param {string} id @param {any} options @param {any[]} frames */
const apply = (id, options, frames) => read(transform(frames, [{ id, options }]).frames);

const series = () => [
  frame([field('Time', Float64Array.of(1, 2, 3)),
    field('Value', Float64Array.of(10, 20, 30), { labels: { host: 'a' } })], { name: 'x' }),
  frame([field('Time', Float64Array.of(2, 3, 4)), field('Value', Float64Array.of(5, 6, 7), { labels: { host: 'b' } })],
    { name: 'y', refId: 'B' }),
];
const table = () => [frame([field('Time', [1, 1, 2]), field('host', ['a', 'b', 'a']), field('Value', [3, 1, 2])])];

test('organize leaves out, orders and renames fields', () => {
  assert.deepEqual(apply('organize',
    { excludeByName: { host: true }, indexByName: { Value: 0, Time: 1 }, renameByName: { Value: 'CPU' } }, table()),
    [['CPU', 3, 1, 2], ['Time', 1, 1, 2]]);
});

test('an outer join has all times, an inner join the common ones', () => {
  assert.deepEqual(apply('joinByField', { byField: 'Time', mode: 'outer' }, series()),
    [['Time', 1, 2, 3, 4], ['x', 10, 20, 30, undefined], ['y', undefined, 5, 6, 7]]);
  assert.deepEqual(apply('joinByField', { byField: 'Time', mode: 'inner' }, series()),
    [['Time', 2, 3], ['x', 20, 30], ['y', 5, 6]]);
  assert.deepEqual(apply('seriesToColumns', {}, series()), apply('joinByField', {}, series()));
});

test('a gap of a joined series reaches to its next values', () => {
  const gap = frame([field('Time', [1, 3, 5]), field('Value', [1, null, 2])], { name: 'gap' });
  const other = frame([field('Time', [2, 4]), field('Value', [7, 8])], { name: 'other' });
  assert.deepEqual(apply('joinByField', {}, [gap, other])[1], ['gap', 1, null, null, null, 2]);
});

test('series become rows, newest first, and merged tables share rows with equal keys', () => {
  assert.deepEqual(apply('seriesToRows', {}, series()),
    [['Time', 4, 3, 3, 2, 2, 1], ['Metric', 'y', 'x', 'y', 'x', 'y', 'x'], ['Value', 7, 30, 6, 20, 5, 10]]);
  const other = frame([field('host', ['b', 'c']), field('Load', [8, 9])]);
  assert.deepEqual(apply('merge', {}, [table()[0], other]),
    [['Time', 1, 1, 2, null], ['host', 'a', 'b', 'a', 'c'], ['Value', 3, 1, 2, null], ['Load', null, 8, null, 9]]);
});

test('filters keep fields, frames and rows', () => {
  assert.deepEqual(apply('filterFieldsByName', { include: { pattern: '/^V/' } }, table()), [['Value', 3, 1, 2]]);
  assert.deepEqual(apply('filterFields', { exclude: { id: 'byType', options: 'string' } }, table()),
    [['Time', 1, 1, 2], ['Value', 3, 1, 2]]);
  assert.deepEqual(transform(series(),
    [{ id: 'filterByRefId', options: { include: 'B' } }]).frames.map((one) => one.name), ['y']);
  const filters = [{ fieldName: 'Value', config: { id: 'greater', options: { value: 1 } } },
    { fieldName: 'host', config: { id: 'regex', options: { value: '^a' } } }];
  assert.deepEqual(apply('filterByValue', { type: 'include', match: 'all', filters }, table())[2], ['Value', 3, 2]);
  assert.deepEqual(apply('filterByValue', { type: 'exclude', match: 'any', filters }, table())[2], ['Value', 1]);
  assert.deepEqual(apply('limit', { limitField: '2' }, table())[2], ['Value', 3, 1]);
  assert.deepEqual(apply('limit', { limitField: -1 }, table())[2], ['Value', 2]);
});

test('groups have one row, with the calculations of their values', () => {
  const fields = { host: { operation: 'groupby' },
    Value: { operation: 'aggregate', aggregations: ['sum', 'max', 'nope'] } };
  assert.deepEqual(apply('groupBy', { fields }, table()),
    [['host', 'a', 'b'], ['Value (sum)', 5, 1], ['Value (max)', 3, 1]]);
});

test('values of different types are different groups', () => {
  const mixed = [frame([field('key', ['1', 1, null, 'null']), field('Value', [1, 2, 3, 4])])];
  assert.equal(apply('groupBy', { fields: { key: { operation: 'groupby' } } }, mixed)[0].length, 5);
});

test('calculations add a field from a row, two fields, one field, or the rows before', () => {
  const rows = () => [frame([field('Time', [1, 2]), field('p', [1, 4]), field('q', [2, 0])])];
  const added = (/** @type {any} */ options) => apply('calculateField', options, rows())[3];
  assert.deepEqual(added({ mode: 'reduceRow', reduce: { reducer: 'max' } }), ['Max', 2, 4]);
  assert.deepEqual(added({ mode: 'binary', binary: { left: 'p', operator: '/', right: 'q' }, alias: 'ratio' }),
    ['ratio', 0.5, Infinity]);
  assert.deepEqual(added({ mode: 'binary',
    binary: { left: { matcher: { id: 'byName', options: 'p' } }, operator: '*', right: { fixed: '2' } } }),
    ['p * 2', 2, 8]);
  assert.deepEqual(added({ mode: 'unary', unary: { fieldName: 'p', operator: 'ln' } }), ['ln(p)', 0, Math.log(4)]);
  assert.deepEqual(added({ mode: 'index' }), ['Row', 0, 1]);
  assert.deepEqual(added({ mode: 'cumulativeFunctions', cumulative: { field: 'p', reducer: 'sum' } }),
    ['cumulative sum(p)', 1, 5]);
  assert.equal(added({ mode: 'nope' }), undefined);
  assert.deepEqual(apply('calculateField', { mode: 'index', replaceFields: true }, rows()), [['Row', 0, 1]]);
});

test('labels become columns or rows', () => {
  assert.deepEqual(apply('labelsToFields', {}, series().slice(0, 1)),
    [['Time', 1, 2, 3], ['Value', 10, 20, 30], ['host', 'a', 'a', 'a']]);
  assert.deepEqual(apply('labelsToFields', { valueLabel: 'host' }, series().slice(0, 1)),
    [['Time', 1, 2, 3], ['a', 10, 20, 30]]);
  assert.deepEqual(apply('labelsToFields', { mode: 'rows' }, series().slice(0, 1)),
    [['label', 'host'], ['value', 'a']]);
});

test('reduce gives a row a field, or one row a frame', () => {
  assert.deepEqual(apply('reduce', { reducers: ['max', 'lastNotNull'], labelsToFields: true }, series()),
    [['Field', 'Value', 'Value'], ['host', 'a', 'b'], ['Max', 30, 7], ['Last *', 30, 7]]);
  assert.deepEqual(apply('reduce', { reducers: ['sum'], mode: 'reduceFields' }, series()),
    [['Value', 60], ['Value', 18]]);
});

test('rows are sorted by a field, and fields are renamed by an expression', () => {
  assert.deepEqual(apply('sortBy', { sort: [{ field: 'Value', desc: true }] }, table()),
    [['Time', 1, 2, 1], ['host', 'a', 'a', 'b'], ['Value', 3, 2, 1]]);
  assert.deepEqual(apply('renameByRegex', { regex: '/V(.*)/', renamePattern: 'W$1' }, table())[2], ['Walue', 3, 1, 2]);
  assert.deepEqual(apply('renameByRegex', { regex: '/(a+)+$/', renamePattern: 'X' }, table()), read(table()));
});

test('types are converted, frames are concatenated, and values are counted in buckets', () => {
  assert.deepEqual(apply('convertFieldType', { conversions: [{ targetField: 'n', destinationType: 'number' }] },
    [frame([field('n', ['1', '2,000', 'x', ''])])]), [['n', 1, 2000, null, 0]]);
  assert.deepEqual(apply('concatenate', { frameNameMode: 'drop' }, [table()[0], frame([field('z', [1])])])[3],
    ['z', 1, null, null]);
  assert.deepEqual(apply('histogram', { bucketSize: 10 }, [frame([field('v', [1, 9, 10, 25, NaN])])]),
    [['xMin', 0, 10, 20], ['xMax', 10, 20, 30], ['v', 2, 1, 1]]);
  assert.deepEqual(apply('histogram', {}, [frame([field('v', [0, 0.3])])])[1], ['xMax', 0.4]);
});

test('series become a table of trends, and prepared series wide or multi', () => {
  const [made] = transform(series(), [{ id: 'timeSeriesTable', options: { A: { stat: 'max' } } }]).frames;
  assert.deepEqual(made.fields.map((one) => one.name), ['host', 'Trend #A']);
  assert.equal(made.fields[1].values[0].value, 30);
  assert.deepEqual([...made.fields[1].values[0].fields[1].values], [10, 20, 30]);
  assert.equal(transform(series(), [{ id: 'prepareTimeSeries', options: { format: 'wide' } }]).frames.length, 1);
  assert.equal(transform(series(), [{ id: 'prepareTimeSeries', options: { format: 'multi' } }]).frames.length, 2);
});

test('disabled transformations and those of annotations are left out, and a filter chooses frames', () => {
  const limit = { id: 'limit', options: { limitField: 1 } };
  const lengths = (/** @type {any} */ item) => transform(series(), [item]).frames.map((one) => one.length);
  assert.deepEqual(lengths(limit), [1, 1]);
  assert.deepEqual(lengths({ ...limit, disabled: true }), [3, 3]);
  assert.deepEqual(lengths({ ...limit, topic: 'annotations' }), [3, 3]);
  assert.deepEqual(lengths({ ...limit, topic: 'series' }), [1, 1]);
  assert.deepEqual(lengths({ ...limit, filter: { id: 'byRefId', options: 'B' } }), [1, 3]);
  assert.deepEqual(lengths({ ...limit, filter: { id: 'byRefId', options: 'Z' } }), [3, 3]);
});

test('unknown transformations are listed once and leave frames as they are', () => {
  const { frames, unsupported } =
    transform(table(), [{ id: 'spatial' }, { id: 'constructor' }, { id: 'spatial' }, null, 7]);
  assert.deepEqual(unsupported, ['spatial', 'constructor', 'undefined']);
  assert.deepEqual(read(frames), read(table()));
  assert.deepEqual(transform(table(), 'x').unsupported, []);
});

test('no transformation changes its input or fails on options of any form', () => {
  const hostile = [undefined, null, 7, 'x', [], JSON.parse('{"__proto__": {"a": 1}}'),
    ...['fields', 'sort', 'filters', 'conversions', 'include', 'exclude', 'binary', 'reduce', 'reducers', 'byField',
      'regex', 'mode',
      'excludeByName', 'renameByName', 'indexByName', 'limitField', 'window', 'keepLabels', 'bucketSize']
      .flatMap((key) => [null, 7, 'x', [null], [{}], { constructor: 1 },
        { x: null }].map((value) => ({ [key]: value })))];
  for (const id of TRANSFORMATION_IDS) {
    for (const options of hostile) {
      for (const frames of [series(), table(), [], [frame([field('v', [])])]]) {
        const before = JSON.stringify(frames);
        const { frames: made } = transform(frames, [{ id, options }]);
        assert.equal(JSON.stringify(frames), before, `${id} ${JSON.stringify(options)}`);
        for (const one of made) {
          for (const each of one.fields) assert.equal(each.values.length, one.length,
            `${id} ${JSON.stringify(options)}`);
        }
      }
    }
  }
});

test('a chain of transformations makes at most the columns of a table, with a notice', () => {
  const double = { id: 'reduce', options: { mode: 'reduceFields', reducers: ['min', 'max'] } };
  const { frames } = transform(table(), new Array(20).fill(double));
  assert.deepEqual([frames[0].fields.length, frames[0].notice], [2000, 'Shows the first 2000 columns.']);
});

test('a joined frame has at most the rows of a table, with a notice', () => {
  const keys = (/** @type {string} */ name) =>
    frame([field('k', new Array(300).fill('same')), field(name, new Array(300).fill(1))]);
  const [joined] = transform([keys('p'), keys('q')],
    [{ id: 'joinByField', options: { byField: 'k', mode: 'inner' } }]).frames;
  assert.deepEqual([joined.length, joined.notice], [ROWS_MAX, `Shows the first ${ROWS_MAX} joined rows.`]);
});
