// Transformation `histogram`: how often values fall into buckets of equal size.

import { COLUMNS_MAX, ROWS_MAX, noticed } from './tools.js';

/** @typedef {import('./tools.js').Transformation} Transformation */
/** @typedef {import('../frame.js').Field} Field */

const BUCKETS_DEFAULT = 30;
/** Sizes within a power of ten; 2.5 is left out between 1 and 10. */
const SIZES = [1, 2, 4, 5];
const SIZES_MORE = [1, 2, 2.5, 4, 5];

/** @param {any} value */
const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

/**
 * Returns the smallest round size that needs at most `count` buckets and is not below the smallest
 * distance of two values.
 * @param {number[]} values finite
 * @param {number} count
 */
export function bucketSize(values, count) {
  const sorted = [...new Set(values)].sort((a, b) => a - b);
  if (sorted.length < 2) return 1;
  let least = Infinity;
  for (let index = 1; index < sorted.length; index += 1) least = Math.min(least, sorted[index] - sorted[index - 1]);
  const wanted = Math.max(least, (sorted[sorted.length - 1] - sorted[0]) / count);
  for (let power = Math.floor(Math.log10(wanted)) - 1; power < 309; power += 1) {
    const base = Number(`1e${power}`);
    for (const size of power !== 0 ? SIZES_MORE : SIZES) {
      // Differences of decimals are not exact: 0.3 - 0.2 is less than 0.1.
      if (Number((size * base).toPrecision(12)) >= wanted * (1 - 1e-9)) return Number((size * base).toPrecision(12));
    }
  }
  return 1;
}

/** Options: `bucketSize`, `bucketCount` (without a size), `bucketOffset`, `combine`. @type {Transformation} */
export function histogram(frames, options) {
  const sources = frames.flatMap((frame) => frame.fields.filter((field) => field.type === 'number'));
  if (!sources.length) return [];
  const lists = sources.map((field) => Array.from(field.values).filter(isNumber));
  const all = lists.flat();
  const given = Number(options.bucketSize);
  const size = given > 0 && Number.isFinite(given) ? given
    : bucketSize(all, Number(options.bucketCount) || BUCKETS_DEFAULT);
  const offset = Number(options.bucketOffset) || 0;
  const place = (/** @type {number} */ value) => Math.floor((value - offset) / size + 1e-9);
  const counted = lists.map((values) => {
    /** @type {Map<number, number>} */
    const counts = new Map();
    for (const value of values) counts.set(place(value), (counts.get(place(value)) ?? 0) + 1);
    return counts;
  });
  const places = [...new Set(counted.flatMap((counts) => [...counts.keys()]))].sort((a, b) => a - b);
  const kept = places.slice(0, ROWS_MAX);
  const { unit, decimals } = sources[0].config;
  const config = { ...(unit ? { unit } : {}), ...(decimals === undefined ? {} : { decimals }) };
  /** @type {Field[]} */
  const fields = [
    { name: 'xMin', type: 'number', config, values: kept.map((at) => at * size + offset) },
    { name: 'xMax', type: 'number', config, values: kept.map((at) => (at + 1) * size + offset) },
  ];
  if (options.combine) {
    const values = kept.map((at) => counted.reduce((sum, counts) => sum + (counts.get(at) ?? 0), 0));
    fields.push({ name: 'count', type: 'number', config: {}, values });
  } else {
    sources.slice(0, COLUMNS_MAX - 2).forEach((field, index) => {
      const { unit: _, ...rest } = field.config;
      fields.push({ ...field, config: rest, values: kept.map((at) => counted[index].get(at) ?? 0) });
    });
  }
  const notice = places.length > kept.length ? `Shows the first ${kept.length} of ${places.length} buckets.` : '';
  return [{ refId: 'histogram', name: '', length: kept.length, fields, ...noticed(notice, frames) }];
}
