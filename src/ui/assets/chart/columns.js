// A query's matrix as columns over one grid of times, and short names for its series.

import { fullName } from './scale.js';

/**
 * @typedef {Object} Series
 * @property {Object<string, string>} labels
 * @property {string} name what the legend shows
 * @property {string} full the selector that names exactly this series
 * @property {Float64Array} values one a step; NaN where the series has no point
 * @property {number} low the lowest finite value; Infinity without one
 * @property {number} high the highest finite value; -Infinity without one
 * @property {number} mean of the finite values
 * @property {number} last the last value, which may be infinite; NaN without one
 * @property {number} present the number of points, infinite values included
 * @property {number} infinite the number of infinite values
 * @property {number} colour index of the colour
 * @property {number} dash index of the dash pattern
 *
 * @typedef {Object} Columns
 * @property {number} start unix seconds of the first step
 * @property {number} end unix seconds of the last step, inclusive
 * @property {number} step seconds between two steps; the last gap is shorter if `tail` is set
 * @property {Float64Array} times unix seconds of each step
 * @property {number} count number of steps
 * @property {Series[]} series at most `SERIES_MAX`
 * @property {number} total number of series in the response
 *
 * @typedef {{metric?: Object<string, string>, values?: [number, string][]}} MatrixRow
 */

/** More lines are not drawn: they would be unreadable and exhaust a phone. */
export const SERIES_MAX = 300;
/** The server answers at most 11,000 steps; one more for a grid that includes both ends. */
const STEPS_MAX = 11001;

/**
 * The number that a response writes as text.
 * @param {string} text
 */
export function parseValue(text) {
  const number = Number(text);
  // NaN differs from itself; the server writes infinities in a form that JavaScript does not read.
  return number === number ? number : text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : NaN;
}

/**
 * Columns of a matrix response. A step without a point holds NaN, which is drawn as a gap.
 * @param {MatrixRow[]} matrix
 * @param {{start: number, end: number, step: number}} grid
 * @param {string|null} [template] legend text with {{label}} in it
 * @param {{time: number, matrix: MatrixRow[]}|null} [tail] one more step after the grid's last one
 * @returns {Columns}
 */
export function columns(matrix, { start, end, step }, template, tail = null) {
  const regular = Math.max(0, Math.min(STEPS_MAX, Math.floor((end - start) / step + 1e-6) + 1));
  const last = tail && regular > 0 && tail.time > start + (regular - 1) * step ? tail.time : null;
  const count = regular + (last === null ? 0 : 1);
  const times = Float64Array.from({ length: count }, (_, index) =>
    index < regular ? start + index * step : Number(last),
  );
  /** @type {Map<string, {labels: Object<string, string>, values: Float64Array}>} */
  const rows = new Map();
  const rowOf = (/** @type {string} */ full, /** @type {MatrixRow} */ row) => {
    let known = rows.get(full);
    if (!known) {
      known = { labels: row.metric ?? {}, values: new Float64Array(count).fill(NaN) };
      rows.set(full, known);
    }
    return known.values;
  };
  const names = matrix.map((row) => fullName(row.metric ?? {}));
  const total = new Set(names);
  matrix.slice(0, SERIES_MAX).forEach((row, at) => fill(rowOf(names[at], row), row.values ?? [], start, step, regular));
  for (const row of last === null ? [] : (tail?.matrix ?? [])) {
    const full = fullName(row.metric ?? {});
    const known = total.has(full);
    total.add(full);
    const point = row.values?.at(-1);
    if (point && (rows.has(full) || (!known && rows.size < SERIES_MAX)))
      rowOf(full, row)[count - 1] = parseValue(point[1]);
  }
  const series = [...rows].map(([full, { labels, values }]) => ({
    labels,
    name: '',
    full,
    values,
    colour: 0,
    dash: 0,
    ...summary(values),
  }));
  nameSeries(series, template);
  return { start, end: times[count - 1] ?? start, step, times, count, series, total: total.size };
}

/**
 * Writes points into the steps that they belong to.
 * @param {Float64Array} values
 * @param {[number, string][]} points
 * @param {number} start
 * @param {number} step
 * @param {number} count of steps
 */
function fill(values, points, start, step, count) {
  for (let at = 0; at < points.length; at += 1) {
    const point = points[at];
    const index = Math.round((point[0] - start) / step);
    if (index >= 0 && index < count) values[index] = parseValue(point[1]);
  }
}

/** @param {Float64Array} values */
function summary(values) {
  let low = Infinity;
  let high = -Infinity;
  let sum = 0;
  let present = 0;
  let infinite = 0;
  let last = NaN;
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index];
    if (Number.isNaN(value)) continue;
    last = value;
    present += 1;
    if (value - value !== 0) {
      infinite += 1;
      continue;
    }
    if (value < low) low = value;
    if (value > high) high = value;
    sum += value;
  }
  return { low, high, mean: sum / (present - infinite), last, present, infinite };
}

/**
 * Sets names with only the labels that differ: a label that all series share is no help in a
 * legend.
 * @param {Series[]} series
 * @param {string|null} [template]
 */
function nameSeries(series, template) {
  const labels = new Set(series.flatMap((one) => Object.keys(one.labels)));
  const differing = [...labels].filter((label) => series.some((one) => one.labels[label] !== series[0].labels[label]));
  const metric = differing.includes('__name__');
  const rest = differing.filter((label) => label !== '__name__').sort();
  for (const one of series) {
    const values = rest
      .filter((label) => one.labels[label] !== undefined)
      .map((label) => (rest.length === 1 ? one.labels[label] || '""' : `${label}=${one.labels[label]}`));
    const short = [metric ? one.labels.__name__ : '', ...values].filter(Boolean).join(' ');
    one.name = template
      ? template.replaceAll(/\{\{\s*([\w.]+)\s*\}\}/g, (_, label) => one.labels[label] ?? '')
      : short || (series.length === 1 ? one.full.replace(/^\{\}$/, 'value') : one.full);
  }
}

/**
 * The lowest and the highest finite value of some series; null if there is none.
 * @param {Series[]} series
 */
export function bounds(series) {
  let [low, high] = [Infinity, -Infinity];
  for (const one of series) {
    low = Math.min(low, one.low);
    high = Math.max(high, one.high);
  }
  return low <= high ? { low, high } : null;
}
