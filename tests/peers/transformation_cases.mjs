// Options of each transformation that are compared with the peer, and where the two differ on purpose.

import { fieldNames } from '../../src/ui/assets/model/names.js';

/**
 * `options` makes random options; `differs` is true for options on which the two differ on purpose.
 * @typedef {{id: string, options: (pick: any, frames: any[], names: string[]) => any,
 *   differs?: (options: any, frames: any[]) => boolean, compare?: any}} Case
 */

const REDUCERS = ['sum', 'mean', 'min', 'max', 'lastNotNull', 'last', 'first', 'firstNotNull', 'count', 'range',
  'delta', 'diff',
  'distinctCount', 'changeCount', 'stdDev', 'variance', 'allIsZero', 'allIsNull'];
const flags = (pick, names) => Object.fromEntries(pick.some(names).map((name) => [name, pick.chance(0.7)]));

const repeats = (frame) => frame.fields.some((field) => new Set(field.values).size < field.values.length);
const hasHost = (frame) => frame.fields.some(({ name }) => name === 'host');
const isPlain = (frame) => frame.fields.every((field) => field.type === 'time' || field.type === 'number');

const isRising = ({ fields: [{ values }] }) => values.length > 0
  && values.every((time, row) => row === 0 || time > values[row - 1]);
const values = (frames) => frames.flatMap((frame) => frame.fields.filter((field) => field.type === 'number'))
  .flatMap((field) => field.values).filter((value) => value !== null);
const usesText = (options) =>
  /host|zone|\bon"/.test(JSON.stringify([options.binary?.left, options.binary?.right, options.window,
  options.cumulative, options.reduce?.include]));

/** @type {Case[]} */
export const CASES = [
  {
    // The peer names fields anew after it left out frames: if it has a list of fields to include, or
    // if all fields of a frame are excluded.
    id: 'organize',
    differs: ({ includeByName, excludeByName }, frames) => frames.length > 1
      && (Object.values(includeByName).includes(true) || fieldNames(frames).some((names, index) =>
        names.every((name, at) => excludeByName[name] || excludeByName[frames[index].fields[at].name]))),
    options: (pick, _, names) => ({
      excludeByName: flags(pick, pick.some(names)),
      includeByName: pick.chance(0.2) ? flags(pick, names) : {},
      indexByName: pick.chance(0.5) ? Object.fromEntries(names.map((name) => [name, pick.below(9)])) : {},
      renameByName: pick.chance(0.5)
        ? Object.fromEntries(pick.some(names).map((name) => [name, pick.one(['r1', 'r2', ''])])) : {},
    }),
  },
  { id: 'order', options: (pick, _, names) =>
    ({ indexByName: Object.fromEntries(names.map((name) => [name, pick.below(9)])) }) },
  { id: 'rename', options: (pick, _, names) => ({ renameByName: { [pick.one(names)]: 'r1' } }) },
  {
    id: 'renameByRegex',
    options: (pick) => ({
      regex: pick.one(['(.*)alue', '/a/', '/(.)(.)/', '/host="(.*?)"/', '/$^/', '/.*/', '/e/g', 'Value']),
      renamePattern: pick.one(['$1', 'X', '$2-$1', '$$', '$&']),
    }),
  },
  { id: 'filterFieldsByName', options: (pick, _, names) => ({
    ...(pick.chance(0.7) ? { include: { names: pick.some(names), ...(pick.chance(0.3) ? { pattern: '/a/' } : {}) } }
      : {}),
    ...(pick.chance(0.4) ? { exclude: { names: pick.some(names), ...(pick.chance(0.3) ? { pattern: '/o/' } : {}) } }
      : {}),
  }) },
  { id: 'filterFields', options: (pick, _, names) => ({ [pick.one(['include', 'exclude'])]: pick.one([
    { id: 'byType', options: pick.one(['number', 'string', 'time', 'boolean']) },
    { id: 'byName', options: pick.one(names) },
    { id: 'byRegexp', options: pick.one(['/a/', 'Value', 'V.*']) },
    { id: 'byRegexpOrNames', options: { pattern: '/o/', names: pick.some(names) } },
    { id: 'byNames', options: { mode: pick.one(['include', 'exclude']), names: pick.some(names) } },
    { id: 'byFrameRefID', options: pick.one(['A', 'B']) },
    { id: 'numeric' }, { id: 'time' }, { id: 'first' }, { id: 'firstTimeField' },
    { id: 'invertMatch', options: { id: 'byName', options: pick.one(names) } },
    { id: 'anyMatch', options: [{ id: 'numeric' }, { id: 'byName', options: pick.one(names) }] },
    { id: 'allMatch', options: [{ id: 'numeric' }, { id: 'byName', options: pick.one(names) }] },
    { id: 'byValue', options: { reducer: pick.one(['min', 'max', 'lastNotNull']),
      op: pick.one(['gt', 'gte', 'lt', 'eq']), value: 2 } },
  ]) }) },
  { id: 'filterByRefId', options: (pick) =>
    ({ [pick.one(['include', 'exclude'])]: pick.one(['A', 'B', 'A|B', '/[AC]/', 'Z']) }) },
  {
    // The peer looks a name up in all frames and then takes the field at the same place of each.
    id: 'filterByValue',
    differs: (_, frames) => frames.length > 1,
    options: (pick, _, names) => ({
      type: pick.one(['include', 'exclude']),
      match: pick.one(['any', 'all']),
      filters: Array.from({ length: 1 + pick.below(2) }, () => ({ fieldName: pick.one(names), config: pick.one([
        { id: 'greater', options: { value: 2 } }, { id: 'greaterOrEqual', options: { value: 2 } },
        { id: 'lower', options: { value: 2 } }, { id: 'lowerOrEqual', options: { value: 2 } },
        { id: 'equal', options: { value: pick.one([2, '2', 'a', null]) } },
        { id: 'notEqual', options: { value: pick.one([2, '2', 'a']) } },
        { id: 'between', options: { from: 0, to: 5 } }, { id: 'isNull', options: {} }, { id: 'isNotNull', options: {} },
        { id: 'regex', options: { value: pick.one(['^a', '1', '.*', 'x.']) } },
        { id: 'substring', options: { value: pick.one(['A', '1']) } }, { id: 'notSubstring', options: { value: 'a' } },
      ]) })),
    }),
  },
  // The peer adds empty rows to frames with fewer rows than a negative limit.
  { id: 'limit', differs: ({ limitField }, frames) => frames.some((frame) => frame.length < -limitField),
    options: (pick) => ({ limitField: pick.one([0, 1, 2, 10, '3', -1, -2]) }) },
  { id: 'sortBy', options: (pick, _, names) => ({ sort: [{ field: pick.one(names), desc: pick.chance(0.5) }] }) },
  {
    // With three frames the peer's tabular outer join repeats rows, and further matches of a key come last;
    // texts that repeat are in the order of their last rows. If one frame alone has the field,
    // the peer's tabular outer join returns no rows.
    id: 'joinByField',
    differs: ({ mode, byField }, frames) => (mode === 'outerTabular'
      && (frames.length > 2 || frames.some(repeats) || (byField === 'host' && frames.filter(hasHost).length === 1)))
      || (byField === 'host' && frames.some(repeats)),
    options: (pick, _, names) => ({
      mode: pick.one(['outer', 'inner', 'outerTabular']),
        ...(pick.chance(0.5) ? { byField: pick.one(['Time', 'host']) } : {}),
    }),
  },
  { id: 'seriesToColumns', options: () => ({ byField: 'Time' }) },
  // The peer takes columns of text for the values of a series, returns no fields without rows,
  // and leaves frames alone whose first times are equal.
  { id: 'seriesToRows', differs: (_, frames) => !frames.every((frame) => isPlain(frame) && isRising(frame)),
    options: () => ({}) },
  { id: 'merge', options: () => ({}) },
  { id: 'concatenate', options: (pick) =>
    ({ frameNameMode: pick.one(['field', 'label', 'drop']), frameNameLabel: pick.one(['frame', 'fn']) }) },
  {
    // The peer keeps the type of the field, whatever a reducer makes of it.
    id: 'groupBy',
    compare: { types: false },
    options: (pick) => ({
      fields: Object.fromEntries(['Time', 'host', 'zone', 'Value', 'cpu', 'on'].flatMap((name) => (pick.chance(0.3)
        ? [[name, { operation: 'groupby', aggregations: [] }]]
        : pick.chance(0.6) ? [[name, { operation: 'aggregate', aggregations: pick.some(REDUCERS) }]] : []))),
    }),
  },
  {
    // Types as for groupBy; and the peer names the last reducer in the labels of all results of a field.
    // In a table it leaves out results of another type than the first and those of no values.
    id: 'reduce',
    differs: ({ mode }, frames) => mode !== 'reduceFields'
      && !frames.every((frame) => isPlain(frame) && frame.length > 0),
    compare: { types: false, labels: false },
    options: (pick) => ({
      reducers: pick.some(REDUCERS),
        ...(pick.chance(0.3) ? { mode: 'reduceFields', includeTimeField: pick.chance(0.5) } : {}),
      labelsToFields: pick.chance(0.4),
    }),
  },
  {
    // Text in a calculation is joined or converted by the peer, depending on the operation. A step that
    // a joined series does not have counts as 0 in its moving calculations and as a value in its counts.
    // A frame without rows stays as it is.
    id: 'calculateField',
    differs: (options, frames) => usesText(options) || frames.some((frame) => frame.length === 0)
      || (frames.length > 1 && (options.mode === 'windowFunctions'
      || ['count', 'changeCount', 'distinctCount'].includes(options.reduce?.reducer))),
    options: (pick, _, names) => ({
      replaceFields: pick.chance(0.3),
      ...(pick.chance(0.3) ? { alias: 'total' } : {}),
      ...pick.one([
        { mode: 'reduceRow', reduce: { reducer: pick.one(REDUCERS),
          ...(pick.chance(0.4) ? { include: pick.some(names) } : {}) } },
        { mode: 'binary', binary: { left: pick.one(names), operator: pick.one(['+', '-', '*', '/']),
          right: pick.one([...names, '2', '0.5']) } },
        { mode: 'binary', binary: {
          left: { matcher: { id: 'byName', options: pick.one(names) } }, operator: '*',
            right: { fixed: pick.one(['3', 'x']) },
        } },
        { mode: 'binary', binary: { left: { matcher: { id: 'byType', options: 'number' } }, operator: '-',
          right: { fixed: '3' } } },
        { mode: 'unary', unary: { fieldName: pick.one(names),
          operator: pick.one(['abs', 'exp', 'ln', 'floor', 'ceil', 'round']) } },
        { mode: 'index', index: { asPercentile: pick.chance(0.5) } },
        { mode: 'cumulativeFunctions', cumulative: { field: pick.one(names), reducer: pick.one(['sum', 'mean']) } },
        { mode: 'windowFunctions', window: {
          field: pick.one(names), reducer: pick.one(['mean', 'stdDev', 'variance']),
            windowSizeMode: pick.one(['fixed', 'percentage']),
          windowSize: pick.one([2, 3, 0.5]), windowAlignment: pick.one(['trailing', 'centered']),
        } },
      ]),
    }),
  },
  {
    // An empty list of labels to keep leaves out all rows of the peer; here it means all labels.
    id: 'labelsToFields',
    options: (pick) => ({
      ...pick.one([{}, { mode: 'columns' }, { mode: 'rows' }]),
      ...(pick.chance(0.4) ? { keepLabels: ['none', ...pick.some(['host', 'job'])] } : {}),
      ...(pick.chance(0.3) ? { valueLabel: 'host' } : {}),
    }),
  },
  {
    // The peer makes times of any text with a digit, such as year 9 of `x9`, quotes text that becomes text,
    // and has no time 0.
    id: 'convertFieldType',
    differs: ({ conversions }) => conversions.length > 1
      || (conversions[0].destinationType === 'string' && /host|zone/.test(conversions[0].targetField))
      || (conversions[0].destinationType === 'time' && conversions[0].targetField !== 'Time'),
    options: (pick, _, names) => ({ conversions: Array.from({ length: 1 + pick.below(2) }, () => ({
      targetField: pick.one(names), destinationType: pick.one(['number', 'string', 'boolean', 'time', 'other']),
      ...(pick.chance(0.3) ? { dateFormat: pick.one(['YYYY-MM-DD', 'HH:mm:ss', 'X']) } : {}),
    })) }),
  },
  {
    // The peer leaves the labels of the first field at the count of all.
    // Without two distinct values it has no size of buckets; here that is 1.
    id: 'histogram',
    differs: ({ bucketSize }, frames) => !bucketSize && new Set(values(frames)).size < 2,
    compare: { labels: false },
    options: (pick) => ({
      ...(pick.chance(0.6) ? { bucketSize: pick.one([1, 2, 10, 0.5]) } : {}),
      ...(pick.chance(0.3) ? { bucketOffset: pick.one([0, 1]) } : {}), combine: pick.chance(0.5),
    }),
  },
];
