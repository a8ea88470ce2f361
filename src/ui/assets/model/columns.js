// Columns of data frames: their limits, how they are made, and the times that several share.

/** @typedef {import('./frame.js').Frame} Frame */
/** @typedef {import('./frame.js').Field} Field */
/** @typedef {import('./frame.js').FieldType} FieldType */

/** The most rows and columns of a table frame. */
export const ROWS_MAX = 10000;
export const COLUMNS_MAX = 2000;

/** @param {string} text a number as the query API writes it; the start of a native bucket too */
export function numberOf(text) {
  const number = Number(text);
  if (!Number.isNaN(number)) return number;
  return text === '+Inf' || text === 'Inf' ? Infinity : text === '-Inf' ? -Infinity : NaN;
}

/**
 * @param {string} name
 * @param {FieldType} type
 * @param {Float64Array | any[]} values
 * @param {Partial<Field>} [more]
 * @returns {Field}
 */
export const field = (name, type, values, more) => ({ name, type, values, config: {}, ...more });

/**
 * @param {Field[]} fields
 * @param {Partial<Frame>} [more]
 * @returns {Frame}
 */
export const frameOf = (fields, more) =>
  ({ refId: '', name: '', length: fields[0]?.values.length ?? 0, fields, ...more });

/** @param {Float64Array[]} lists each in any order @returns {Float64Array} ascending, without repetition */
export function mergeTimes(lists) {
  const first = lists[0] ?? new Float64Array();
  const rising = first.every((time, index) => index === 0 || time > first[index - 1]);
  const same = (/** @type {Float64Array} */ list) =>
    list === first || (list.length === first.length && list.every((time, index) => time === first[index]));
  if (rising && lists.every(same)) return first;
  const all = new Float64Array(lists.reduce((sum, list) => sum + list.length, 0));
  let filled = 0;
  for (const list of lists) {
    all.set(list, filled);
    filled += list.length;
  }
  all.sort();
  let kept = 0;
  for (const time of all) {
    if (Number.isNaN(time) || (kept > 0 && all[kept - 1] === time)) continue;
    all[kept++] = time;
  }
  return all.slice(0, kept);
}
