// The scale of an axis of values: its ends, its ticks and their texts.

import { formatUnit, unitTicks } from '../model/units.js';

/**
 * @typedef {{low: number, high: number, log: number, ticks: number[], texts: string[],
 *   at: (value: number) => number, value: (at: number) => number}} Scale
 * `log` is the base, 0 for a linear scale. `at`: 0 for the low end, 1 for the high one.
 * @typedef {{unit?: string, decimals?: number, min?: number, max?: number, softMin?: number, softMax?: number,
 *   centered?: boolean, log?: number, zero?: boolean}} ScaleOptions
 */

/** Space beyond the values, as a part of their range. */
const PAD = 0.1;

/**
 * Ends around the values as Grafana's plots have them: a tenth more on both sides, but not beyond
 * zero.
 * @param {number} low
 * @param {number} high
 * @param {ScaleOptions} options
 * @returns {[number, number]}
 */
function ends(low, high, { min, max, softMin, softMax, centered, zero }) {
  if (!(low <= high)) [low, high] = [0, 100];
  if (zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  if (softMin !== undefined) low = Math.min(low, softMin);
  if (softMax !== undefined) high = Math.max(high, softMax);
  const delta = high - low || Math.max(Math.abs(low), Math.abs(high)) || 1000;
  const pad = delta * (high > low ? PAD : low === 0 ? PAD : 1);
  const unit = 10 ** Math.floor(Math.log10(delta)) / 10;
  let bottom = Math.floor((low - pad) / unit) * unit;
  let top = Math.ceil((high + pad) / unit) * unit;
  if (low >= 0 && bottom < 0) bottom = 0;
  if (high <= 0 && top > 0) top = 0;
  if (softMin !== undefined && low >= softMin) bottom = Math.max(bottom, softMin);
  if (softMax !== undefined && high <= softMax) top = Math.min(top, softMax);
  if (centered) [bottom, top] = [-Math.max(-bottom, top), Math.max(-bottom, top)];
  if (min !== undefined) bottom = min;
  if (max !== undefined) top = max;
  return bottom < top ? [bottom, top] : [bottom, bottom + (Math.abs(bottom) || 1)];
}

/** @param {string} text @returns {string} without zeros at the end of its fraction */
const trimmed = (text) => (/^-?[\d,]*\.\d+$/.test(text) ? text.replace(/\.?0+$/, '') : text);

/**
 * Texts of ticks with as many decimals as they need to differ.
 * @param {number[]} ticks
 * @param {string | undefined} unit
 * @param {number | undefined} decimals
 */
export function tickTexts(ticks, unit, decimals) {
  const write = (/** @type {number} */ value, /** @type {number | undefined} */ places) => {
    const { prefix, text, suffix } = formatUnit(value, unit, places);
    return prefix + (decimals === undefined ? trimmed(text) : text) + suffix;
  };
  if (decimals !== undefined) return ticks.map((tick) => write(tick, decimals));
  for (let places = 0; places < 6; places += 1) {
    const texts = ticks.map((tick) => write(tick, places));
    if (ticks.every((tick, index) => write(tick, places + 3) === texts[index])) return texts;
  }
  return ticks.map((tick) => write(tick, 2));
}

/**
 * @param {number} low lowest value; greater than `high` without values
 * @param {number} high
 * @param {number} count wished number of intervals
 * @param {ScaleOptions} options
 * @returns {Scale}
 */
export function valueScale(low, high, count, options) {
  const { unit, decimals } = options;
  const base = options.log ?? 0;
  if (base > 1) {
    const first =
      options.min !== undefined && options.min > 0 ? options.min : low > 0 ? low : high > 0 ? high / 1e3 : 1;
    const last = Math.max(options.max ?? high, first);
    const power = (/** @type {number} */ value) => Math.log(value) / Math.log(base);
    let from = Math.floor(power(first) + 1e-9);
    let to = Math.ceil(power(last) - 1e-9);
    if (to <= from) to = from + 1;
    from = Math.max(from, to - 300);
    const every = Math.max(1, Math.ceil((to - from) / Math.max(1, count)));
    const ticks = [];
    for (let exponent = from; exponent <= to; exponent += every) ticks.push(base ** exponent);
    return {
      low: base ** from,
      high: base ** to,
      log: base,
      ticks,
      texts: tickTexts(ticks, unit, decimals),
      at: (value) => (value > 0 ? (power(value) - from) / (to - from) : 0),
      value: (at) => base ** (from + at * (to - from)),
    };
  }
  const [bottom, top] = ends(low, high, options);
  const ticks = unitTicks(bottom, top, Math.max(1, count), unit);
  return {
    low: bottom,
    high: top,
    log: 0,
    ticks,
    texts: tickTexts(ticks, unit, decimals),
    at: (value) => (value - bottom) / (top - bottom),
    value: (at) => bottom + at * (top - bottom),
  };
}
