// Data frames: columns of equal length, made from Prometheus answers.

import { bucketFrames } from './buckets.js';
import { COLUMNS_MAX, ROWS_MAX, field, frameOf, mergeTimes, numberOf } from './columns.js';
import { fullName } from './names.js';

export { COLUMNS_MAX, ROWS_MAX, mergeTimes };

/**
 * @typedef {'time' | 'number' | 'string' | 'boolean' | 'other'} FieldType
 * @typedef {Record<string, any>} FieldConfig unit, decimals, displayName, ... as in a dashboard
 * @typedef {{name: string, type: FieldType, values: Float64Array | any[], labels?: Record<string, string>,
 *   config: FieldConfig, bucket?: {low: number, high: number}, range?: {min: number, max: number}}} Field
 * Times are in milliseconds since 1970. A missing number is NaN or null.
 * `bucket` has the bounds of a histogram's bucket, the lower one exclusive; `range` those of a scale.
 * @typedef {{refId: string, name: string, length: number, fields: Field[], kind?: 'series' | 'table' | 'heatmap',
 *   notice?: string}} Frame
 */

/**
 * An answer of Prometheus' query API: its `data`.
 * @typedef {{count: string, sum: string, buckets?: [number, string, string, string][]}} Histogram
 * `buckets` holds [boundary rule, lower bound, upper bound, count].
 * @typedef {{metric?: Record<string, string>, value?: [number, string], values?: [number, string][],
 *   histogram?: [number, Histogram], histograms?: [number, Histogram][]}} Row
 * @typedef {{resultType: string, result: any}} Answer
 * @typedef {{refId?: string, legendFormat?: string, format?: string, expr?: string}} Target
 */

/**
 * Legend text of a series: `{{label}}` holds its value, `__auto` is the value of the only label key
 * that the answer has, or else the full name.
 * @param {Record<string, string>} labels
 * @param {Target} target
 * @param {string | null} only the only label key of the answer
 */
export function legendOf(labels, target, only) {
  const template = target.legendFormat ?? '';
  if (template !== '' && template !== '__auto') {
    return template.replaceAll(/\{\{([^{}]*)\}\}/g, (_, label) => {
      const key = label.trim();
      return Object.hasOwn(labels, key) ? labels[key] : '';
    });
  }
  if (template === '__auto' && only !== null && labels[only]) return labels[only];
  const name = fullName(labels);
  return name === '{}' ? target.expr || 'Value' : name;
}

/** @param {Answer} answer @returns {Row[]} rows of any kind of answer */
function rowsOf({ resultType, result }) {
  if (resultType === 'scalar' || resultType === 'string') return [{ metric: {}, values: [result] }];
  return Array.isArray(result) ? result : [];
}

/** @param {[number, unknown][]} points @param {Float64Array} times milliseconds */
function hasTimes(points, times) {
  if (points.length !== times.length) return false;
  for (let index = 0; index < times.length; index += 1) if (points[index][0] * 1000 !== times[index]) return false;
  return true;
}

/** @param {Row} row @returns {[number, string | Histogram][]} points by time, histograms among them */
function points(row) {
  const numbers = row.values ?? (row.value ? [row.value] : []);
  const histograms = row.histograms ?? (row.histogram ? [row.histogram] : []);
  if (!histograms.length) return numbers;
  return [...numbers, ...histograms].sort((a, b) => a[0] - b[0]);
}

/** @param {string | Histogram} value @returns {number} the count of a native histogram */
const valueOf = (value) => numberOf(typeof value === 'string' ? value : value.count);

/**
 * Converts an answer of Prometheus to frames. `series` has one frame a series, `table` one with a
 * column a label, `heatmap` one with a field a bucket. The value of a native histogram is its count,
 * except in a heatmap.
 * @param {Answer} answer
 * @param {Target} target
 * @param {{several?: boolean}} [options] `several`: the panel has other queries, too
 * @returns {Frame[]}
 */
export function framesOf(answer, target, { several = false } = {}) {
  const rows = rowsOf(answer);
  if (target.format === 'table') return [table(rows, answer.resultType === 'string', target, several)];
  if (target.format === 'heatmap') return bucketFrames(rows, target);
  const keys = new Set(rows.flatMap((row) => Object.keys(row.metric ?? {})));
  const only = keys.size === 1 ? [...keys][0] : null;
  let shared = new Float64Array(0);
  return rows.map((row) => {
    const labels = { ...row.metric };
    const all = points(row);
    const text = answer.resultType === 'string';
    const values = text ? all.map(([, value]) => value) : new Float64Array(all.length);
    // Rows with the same times share them, so that nothing has to compare them again.
    const times = hasTimes(all, shared) ? shared : Float64Array.from(all, ([at]) => at * 1000);
    shared = times;
    if (!text) for (let index = 0; index < all.length; index += 1) values[index] = valueOf(all[index][1]);
    const name = legendOf(labels, target, only);
    return frameOf([
      field('Time', 'time', times),
      field('Value', text ? 'string' : 'number', values, { labels, config: { displayNameFromDS: name } }),
    ], { refId: target.refId ?? '', name, kind: 'series' });
  });
}

/**
 * @param {Row[]} rows
 * @param {boolean} text
 * @param {Target} target
 * @param {boolean} several
 * @returns {Frame}
 */
function table(rows, text, target, several) {
  const found = [...new Set(rows.flatMap((row) => Object.keys(row.metric ?? {})))].sort();
  const labels = found.slice(0, COLUMNS_MAX - 2);
  const times = [];
  const values = [];
  /** @type {any[][]} */
  const columns = labels.map(() => []);
  let total = 0;
  for (const row of rows) {
    const all = points(row);
    total += all.length;
    for (const [at, value] of all.slice(0, Math.max(0, ROWS_MAX - times.length))) {
      times.push(at * 1000);
      values.push(text ? value : valueOf(value));
      labels.forEach((label, index) => {
        const held = row.metric && Object.hasOwn(row.metric, label) ? row.metric[label] : '';
        columns[index].push(label === 'le' ? numberOf(held || 'NaN') : held);
      });
    }
  }
  const notices = [];
  if (total > times.length) notices.push(`Shows the first ${times.length} of ${total} rows.`);
  if (found.length > labels.length) notices.push(`Shows the first ${labels.length} of ${found.length} labels.`);
  const name = several && target.refId ? `Value #${target.refId}` : 'Value';
  return frameOf([
    field('Time', 'time', Float64Array.from(times)),
    ...labels.map((label, index) => field(label, label === 'le' ? 'number' : 'string', columns[index])),
    field(name, text ? 'string' : 'number', text ? values : Float64Array.from(values)),
  ], { refId: target.refId ?? '', kind: 'table', ...(notices.length ? { notice: notices.join(' ') } : {}) });
}

/** @param {Float64Array | any[]} values @returns {Float64Array} with NaN for everything but numbers */
const floats = (values) => (values instanceof Float64Array ? values
  : Float64Array.from(values, (value) => (typeof value === 'number' ? value : NaN)));

/** @param {Float64Array} times ascending @param {number} time @returns {number} index of `time` in them */
function indexOf(times, time) {
  let [low, high] = [0, times.length - 1];
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (times[middle] === time) return middle;
    if (times[middle] < time) low = middle + 1;
    else high = middle - 1;
  }
  return -1;
}

/**
 * Puts the number fields of frames with a time field onto one grid: the times of all of them,
 * ascending. A field without a value at a time has NaN there.
 * @param {Frame[]} frames
 * @returns {{times: Float64Array, columns: Float64Array[], fields: {frame: Frame, field: Field}[]}}
 */
export function align(frames) {
  const timed = frames.flatMap((frame) => {
    const time = frame.fields.find((one) => one.type === 'time');
    return time ? [{ frame, own: floats(time.values) }] : [];
  });
  const times = mergeTimes(timed.map(({ own }) => own));
  /** @type {Float64Array[]} */
  const columns = [];
  /** @type {{frame: Frame, field: Field}[]} */
  const fields = [];
  for (const { frame, own } of timed) {
    const places = own === times ? null : aligned(own, times);
    for (const one of frame.fields) {
      if (one.type !== 'number') continue;
      const values = floats(one.values);
      fields.push({ frame, field: one });
      columns.push(places ? placed(values, places, times.length) : values);
    }
  }
  return { times, columns, fields };
}

/** @param {Float64Array} own @param {Float64Array} times @returns {Int32Array | null} null for equal times */
function aligned(own, times) {
  if (own.length === times.length && own.every((time, index) => time === times[index])) return null;
  let next = 0;
  return Int32Array.from(own, (time) => {
    const index = times[next] === time ? next : indexOf(times, time);
    next = index + 1;
    return index;
  });
}

/** @param {Float64Array} values @param {Int32Array} places @param {number} count */
function placed(values, places, count) {
  const column = new Float64Array(count).fill(NaN);
  values.forEach((value, index) => {
    if (places[index] >= 0) column[places[index]] = value;
  });
  return column;
}
