// Reducers: one value of all values of a field, as Grafana's calculations are defined.

/** @typedef {import('./frame.js').Field} Field */

/**
 * `connected` leaves nulls out, `null` counts them as values that differ from numbers, and
 * `null as zero` as 0.
 * @typedef {'null' | 'connected' | 'null as zero'} NullMode
 */

/**
 * @typedef {{values: ArrayLike<any>, mode: NullMode, stats?: Stats, sorted?: number[]}} Input
 * @typedef {{sum: number, numbers: number, count: number, min: number | null, max: number | null,
 *   logmin: number | null, first: any, last: any, firstNumber: number | null, lastNumber: number | null,
 *   allIsZero: boolean, step: number | null, delta: number}} Stats
 */

/** @param {any} value */
const isNumber = (value) => typeof value === 'number' && !Number.isNaN(value);
/** @param {any} value */
const present = (value) => value !== null && value !== undefined && !Number.isNaN(value);
/** @param {Input} input @param {number} index */
const nullable = (input, index) =>
  input.values[index] ?? (input.mode === 'null as zero' ? 0 : null);
/** @param {Input} input @param {any} value */
const leftOut = (input, value) => value === null && input.mode !== 'null';

/** @param {Input} input @returns {Stats} everything that one pass over the values finds */
function statsOf(input) {
  if (input.stats) return input.stats;
  /** @type {Stats} */
  const stats = {
    sum: 0, numbers: 0, count: 0, min: null, max: null, logmin: null, first: null, last: null, firstNumber: null,
    lastNumber: null, allIsZero: true, step: null, delta: 0,
  };
  const { length } = input.values;
  let rising = true;
  for (let index = 0; index < length; index += 1) {
    const value = nullable(input, index);
    if (leftOut(input, value)) continue;
    stats.count += 1;
    if (!isNumber(value)) {
      stats.allIsZero &&= typeof value !== 'number';
      continue;
    }
    stats.sum += value;
    stats.numbers += 1;
    if (stats.min === null || value < stats.min) stats.min = value;
    if (stats.max === null || value > stats.max) stats.max = value;
    if (value > 0 && (stats.logmin === null || value < stats.logmin)) stats.logmin = value;
    if (value !== 0) stats.allIsZero = false;
    const before = stats.lastNumber;
    if (before === null) stats.firstNumber = value;
    else {
      const step = value - before;
      if (stats.step === null || step < stats.step) stats.step = step;
      // After a reset of the counter its next value counts in full.
      if (value < before) {
        rising = false;
        if (index === length - 1) stats.delta += value;
      } else {
        stats.delta += rising ? step : value;
        rising = true;
      }
    }
    stats.lastNumber = value;
  }
  stats.allIsZero &&= stats.numbers > 0;
  input.stats = stats;
  return stats;
}

/** @param {Input} input @returns {number[]} numbers in ascending order; NaN is left out */
function sortedOf(input) {
  input.sorted ??= Array.from({ length: input.values.length }, (_, index) => nullable(input, index))
    .filter(isNumber).sort((a, b) => a - b);
  return input.sorted;
}

/** @param {Input} input @param {number} from @param {number} by */
function firstPresent({ values }, from, by) {
  for (let index = from; index >= 0 && index < values.length; index += by) {
    if (present(values[index])) return values[index];
  }
  return null;
}

/** @param {Input} input */
function variance({ values }) {
  let [count, mean, squares] = [0, 0, 0];
  for (let index = 0; index < values.length; index += 1) {
    if (!isNumber(values[index])) continue;
    count += 1;
    const off = values[index] - mean;
    mean += off / count;
    squares += off * (values[index] - mean);
  }
  return count ? squares / count : 0;
}

/** @param {Input} input */
function median(input) {
  const sorted = sortedOf(input);
  const middle = Math.floor(sorted.length / 2);
  if (!sorted.length) return null;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** @param {Input} input */
function changes(input) {
  let [count, before] = [0, /** @type {any} */ (undefined)];
  for (let index = 0; index < input.values.length; index += 1) {
    const value = nullable(input, index);
    if (leftOut(input, value)) continue;
    if (before !== undefined && value !== before) count += 1;
    before = value;
  }
  return count;
}

/** @param {Input} input */
function distinct(input) {
  const found = new Set(Array.from({ length: input.values.length }, (_, index) => nullable(input, index)));
  if (input.mode !== 'null') found.delete(null);
  return found.size;
}

/** @param {Input} input */
function difference(input) {
  const { firstNumber, lastNumber } = statsOf(input);
  return firstNumber === null || lastNumber === null ? null : lastNumber - firstNumber;
}

/** @param {Input} input the difference as a multiple of the first value, times 100 */
function percentDifference(input) {
  const off = difference(input);
  return off === null ? 0 : (off / /** @type {number} */ (statsOf(input).firstNumber)) * 100;
}

/** @param {Input} input */
function range(input) {
  const { min, max } = statsOf(input);
  return min === null || max === null ? null : max - min;
}

/**
 * @typedef {{name: string, of: (input: Input) => any, empty?: any}} Reducer
 * `empty` is the result for a field without values.
 * @type {Map<string, Reducer>}
 */
const REDUCERS = new Map(Object.entries({
  lastNotNull: { name: 'Last *', of: (input) => firstPresent(input, input.values.length - 1, -1) },
  last: { name: 'Last', of: ({ values }) => values[values.length - 1] ?? null },
  firstNotNull: { name: 'First *', of: (input) => firstPresent(input, 0, 1) },
  first: { name: 'First', of: ({ values }) => values[0] ?? null },
  min: { name: 'Min', of: (input) => statsOf(input).min },
  max: { name: 'Max', of: (input) => statsOf(input).max },
  mean: {
    name: 'Mean',
    of: (input) => (statsOf(input).numbers ? statsOf(input).sum / statsOf(input).numbers : null),
  },
  median: { name: 'Median', of: median },
  variance: { name: 'Variance', of: variance },
  stdDev: { name: 'StdDev', of: (input) => Math.sqrt(variance(input)) },
  sum: { name: 'Total', of: (input) => statsOf(input).sum, empty: 0 },
  count: { name: 'Count', of: (input) => statsOf(input).count, empty: 0 },
  range: { name: 'Range', of: range },
  delta: { name: 'Delta', of: (input) => statsOf(input).delta },
  step: { name: 'Step', of: (input) => statsOf(input).step },
  diff: { name: 'Difference', of: difference },
  logmin: { name: 'Min (above zero)', of: (input) => statsOf(input).logmin },
  allIsZero: { name: 'All Zeros', of: (input) => statsOf(input).allIsZero, empty: false },
  allIsNull: { name: 'All Nulls', of: (input) => statsOf(input).numbers === 0, empty: true },
  changeCount: { name: 'Change Count', of: changes },
  distinctCount: { name: 'Distinct Count', of: distinct },
  diffperc: { name: 'Difference percent', of: percentDifference },
  allValues: { name: 'All values', of: ({ values }) => Array.from(values) },
  uniqueValues: { name: 'All unique values', of: ({ values }) => [...new Set(Array.from(values))] },
}));

/** Names of reducers in old dashboards. */
const ALIASES = new Map([['current', 'lastNotNull'], ['avg', 'mean'], ['total', 'sum'], ['minAboveZero', 'logmin']]);

/** @param {number} percent @returns {string} `1st`, `22nd`, `90th` */
function ordinal(percent) {
  const last = percent % 10;
  const teen = percent > 10 && percent < 14;
  return `${percent}${teen ? 'th' : ['th', 'st', 'nd', 'rd'][last] ?? 'th'}`;
}

/**
 * @param {string} id
 * @returns {Reducer | null}
 */
export function reducerOf(id) {
  const known = REDUCERS.get(ALIASES.get(id) ?? id);
  if (known) return known;
  const percent = /^p([1-9]\d?)$/.exec(id);
  if (!percent) return null;
  const part = Number(percent[1]);
  return {
    name: `${ordinal(part)} %`,
    of: (input) => sortedOf(input)[Math.round(((sortedOf(input).length - 1) * part) / 100)] ?? null,
  };
}

/** @param {string} id @returns {string} the current id of a reducer that old dashboards name otherwise */
export const reducerId = (id) => ALIASES.get(id) ?? id;

/** Ids of all reducers but the percentiles, in Grafana's order. */
export const REDUCER_IDS = [...REDUCERS.keys()];

/**
 * Applies several reducers to one list of values. Unknown ids are left out.
 * @param {ArrayLike<any>} values
 * @param {string[]} ids
 * @param {NullMode} [mode]
 * @returns {Map<string, any>} result by id; undefined for a reducer without a result on no values
 */
export function reduceValues(values, ids, mode = 'connected') {
  /** @type {Input} */
  const input = { values, mode };
  const results = new Map();
  for (const id of ids) {
    const reducer = reducerOf(id);
    if (reducer) results.set(id, values.length ? reducer.of(input) : reducer.empty);
  }
  return results;
}

/**
 * @param {Field} field
 * @param {string} id
 * @returns {any} null without a result
 */
export function reduceField(field, id) {
  return reduceValues(field.values, [id], field.config.nullValueMode).get(id) ?? null;
}
