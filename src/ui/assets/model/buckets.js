// Frames of histograms for heatmaps: classic buckets by their label `le`, and native histograms.

import { COLUMNS_MAX, field, frameOf, mergeTimes, numberOf } from './columns.js';
import { fullName } from './names.js';

/** @typedef {import('./frame.js').Frame} Frame */
/** @typedef {import('./frame.js').Field} Field */
/** @typedef {import('./frame.js').Row} Row */
/** @typedef {import('./frame.js').Target} Target */

/** @param {number} bound @returns {string} as Prometheus writes it */
const boundText = (bound) => (bound === Infinity ? '+Inf' : bound === -Infinity ? '-Inf' : String(bound));

/**
 * One frame for each set of labels other than `le`: `Time` and a field a bucket, by ascending bound.
 * Cumulative counts become counts of each bucket, at least 0. A bucket without a sample at a time has
 * NaN there.
 * @param {Row[]} rows
 * @param {Target} target
 * @returns {Frame[]}
 */
export function bucketFrames(rows, target) {
  /** @type {Map<string, {labels: Record<string, string>, classic: Row[], native: Row[]}>} */
  const groups = new Map();
  for (const row of rows) {
    const { le, ...labels } = row.metric ?? {};
    const key = JSON.stringify(Object.entries(labels).sort());
    const group = groups.get(key) ?? { labels, classic: [], native: [] };
    groups.set(key, group);
    if (row.histograms || row.histogram) group.native.push(row);
    else group.classic.push(row);
  }
  const frames = [];
  for (const { labels, classic, native } of groups.values()) {
    for (const made of [classic.length && classicFields(classic), native.length && nativeFields(native)]) {
      if (!made) continue;
      const { times, buckets } = made;
      const cut = buckets.slice(0, COLUMNS_MAX - 1);
      frames.push(frameOf([field('Time', 'time', times), ...cut], {
        refId: target.refId ?? '', name: fullName(labels) === '{}' ? '' : fullName(labels), kind: 'heatmap',
        ...(cut.length < buckets.length ? { notice: `Shows the first ${cut.length} of ${buckets.length} buckets.` }
          : {}),
      }));
    }
  }
  return frames;
}

/** @param {Float64Array} times @param {[number, number][]} points @returns {Float64Array} */
function spread(times, points) {
  const places = new Map(Array.from(times, (time, index) => [time, index]));
  const values = new Float64Array(times.length).fill(NaN);
  for (const [at, value] of points) values[places.get(at * 1000) ?? 0] = value;
  return values;
}

/** @param {Row[]} rows */
function classicFields(rows) {
  const series = rows.map((row) => {
    const points = row.values ?? (row.value ? [row.value] : []);
    const high = row.metric?.le === undefined ? NaN : numberOf(row.metric.le);
    return { row, high, points: /** @type {[number, number][]} */ (points.map(([at, text]) => [at, numberOf(text)])) };
  }).sort((a, b) => a.high - b.high || 0);
  const times = mergeTimes(series.map(({ points }) => Float64Array.from(points, ([at]) => at * 1000)));
  let below = new Float64Array(times.length);
  let low = -Infinity;
  const buckets = series.map(({ row, high, points }) => {
    const total = spread(times, points);
    const labels = { ...row.metric };
    if (Number.isNaN(high)) return field(fullName(labels), 'number', total, { labels });
    const under = below;
    const counts = total.map((count, index) => Math.max(0, count - under[index]));
    below = total.map((count, index) => (Number.isNaN(count) ? under[index] : count));
    const made = field(boundText(high), 'number', counts, { labels, bucket: { low, high } });
    low = high;
    return made;
  });
  return { times, buckets };
}

/** @param {Row[]} rows native histograms of the same labels */
function nativeFields(rows) {
  const samples = rows.flatMap((row) => row.histograms ?? (row.histogram ? [row.histogram] : []));
  const times = mergeTimes([Float64Array.from(samples, ([at]) => at * 1000)]);
  /** @type {Map<string, {low: number, high: number, points: [number, number][]}>} */
  const found = new Map();
  for (const [at, { buckets }] of samples) {
    for (const [, low, high, count] of buckets ?? []) {
      const bucket = found.get(`${low} ${high}`) ?? { low: numberOf(low), high: numberOf(high), points: [] };
      found.set(`${low} ${high}`, bucket);
      bucket.points.push([at, numberOf(count)]);
    }
  }
  const present = samples.map(([at]) => at);
  const buckets = [...found.values()].sort((a, b) => a.high - b.high || a.low - b.low).map(({ low, high, points }) => {
    // A native histogram leaves out empty buckets: they count 0 at the times of its samples.
    const values = spread(times, [...present.map((at) => /** @type {[number, number]} */ ([at, 0])), ...points]);
    return field(boundText(high), 'number', values, { labels: { le: boundText(high) }, bucket: { low, high } });
  });
  return { times, buckets };
}
