// Durations as text: scaled units of time, units in words, and clocks.

import { fixed } from './number.js';

/**
 * Steps of a unit of time, ascending: values below `limit` are shown divided by `divisor` (then
 * multiplied by `factor`). A suffix with a plus has a plural above 1. The last step has no limit.
 * The limits are Grafana's, also where they do not fit the divisors ("m" has weeks for 14 months).
 * @typedef {[limit: number, suffix: string, divisor: number, factor?: number]} Step
 * @type {Map<string, Step[]>}
 */
export const LADDERS = new Map(Object.entries({
  ns: [[1e3, ' ns', 1], [1e6, ' µs', 1e3], [1e9, ' ms', 1e6], [6e10, ' s', 1e9], [36e11, ' min+', 6e10],
    [864e11, ' hour+', 36e11], [Infinity, ' day+', 864e11]],
  µs: [[1e3, ' µs', 1], [1e6, ' ms', 1e3], [Infinity, ' s', 1e6]],
  ms: [[1e3, ' ms', 1], [6e4, ' s', 1e3], [36e5, ' min+', 6e4], [864e5, ' hour+', 36e5], [31536e6, ' day+', 864e5],
    [Infinity, ' year+', 31536e6]],
  s: [[1e-6, ' ns', 1, 1e9], [1e-3, ' µs', 1, 1e6], [1, ' ms', 1, 1e3], [60, ' s', 1], [3600, ' min+', 60],
    [86400, ' hour+', 3600], [604800, ' day+', 86400], [31536e3, ' week+', 604800], [Infinity, ' year+', 31556900]],
  m: [[60, ' min', 1], [1440, ' hour+', 60], [10080, ' day+', 1440], [604800, ' week+', 10080],
    [Infinity, ' year+', 525948]],
  h: [[24, ' hour', 1], [168, ' day+', 24], [8760, ' week+', 168], [Infinity, ' year+', 8760]],
  d: [[7, ' day+', 1], [365, ' week+', 7], [Infinity, ' year+', 365]],
}));

/**
 * Returns a duration in the largest unit of a ladder that is not above it.
 * @param {number} value
 * @param {number|null|undefined} decimals
 * @param {string} unit a key of `LADDERS`
 * @returns {import('./number.js').Written}
 */
export function scaledTime(value, decimals, unit) {
  if (value === 0 && unit === 's') return { text: '0', suffix: ' s' };
  const ladder = LADDERS.get(unit) ?? [];
  const [, name, divisor, factor = 1] = ladder.find(([limit]) => Math.abs(value) < limit) ?? ladder[ladder.length - 1];
  const shown = (value * factor) / divisor;
  return { text: fixed(shown, decimals), suffix: name.replace('+', Math.abs(shown) > 1 ? 's' : '') };
}

/** Milliseconds of the units in words. A month has 30 days. @type {[string, number][]} */
const WORDS = [['year', 31536e6], ['month', 2592e6], ['week', 6048e5], ['day', 864e5], ['hour', 36e5], ['minute', 6e4],
  ['second', 1e3], ['millisecond', 1]];

/**
 * Returns a duration in words, "1 hour, 30 minutes", with `decimals` units after the first one.
 * @param {number} value
 * @param {number|null|undefined} decimals
 * @param {string} unit "second" or "millisecond": what the value counts, and the word for zero
 * @returns {import('./number.js').Written}
 */
export function words(value, decimals, unit) {
  if (value === 0) return { text: '0', suffix: ` ${unit}s` };
  let left = Math.abs(value) * (unit === 'second' ? 1000 : 1);
  let more = decimals ?? 0;
  const texts = [];
  for (const [word, size] of WORDS) {
    if (more < 0) break;
    if (!texts.length && !(left >= size)) continue;
    const whole = Math.floor(left / size);
    texts.push(`${whole} ${word}${whole === 1 ? '' : 's'}`);
    left %= size;
    more -= 1;
  }
  return { text: texts.join(', '), suffix: value < 0 ? ' ago' : '' };
}

/** @param {number} number */
const two = (number) => (number > 9 ? `${number}` : `0${number}`);

/**
 * Returns seconds as hours, minutes and seconds, "01:02:03"; hours have two digits or more.
 * @param {number} value
 * @param {boolean} days whether full days stand in front, "2 d 01:02:03"
 * @returns {import('./number.js').Written}
 */
export function hoursMinutesSeconds(value, days) {
  let left = Math.abs(value);
  const suffix = value < 0 ? ' ago' : '';
  const full = days ? Math.floor(left / 86400) : 0;
  left = Math.abs(left - full * 24 * 3600);
  const parts = [left / 3600, (left % 3600) / 60, (left % 3600) % 60];
  return { text: (full > 0 ? `${full} d ` : '') + parts.map((part) => two(Math.floor(part))).join(':'), suffix };
}

/**
 * Returns milliseconds as "1h:02m:03s:004ms", without the parts before the first that is not zero.
 * A negative value counts back from one second.
 * @param {number|undefined} value
 * @param {number|null|undefined} decimals 0, 1 or 2: how many parts follow the first; else all
 * @param {number} now unix milliseconds, shown for an undefined value
 * @returns {string}
 */
export function clock(value, decimals, now) {
  const size = Number(value);
  const time = new Date(value ?? now);
  const first = size < 1e3 ? 3 : size < 6e4 ? 2 : size < 36e5 ? 1 : 0;
  const last = decimals === 0 || decimals === 1 || decimals === 2 ? first + decimals + 1 : 4;
  /** @type {[number, number, string][]} */
  const parts = [[time.getUTCMinutes(), 2, 'm'], [time.getUTCSeconds(), 2, 's'], [time.getUTCMilliseconds(), 3, 'ms']];
  const shown = parts.slice(Math.max(0, first - 1), last - 1);
  const tail = Number.isNaN(time.getTime()) ? 'Invalid date'
    : shown.map(([number, width, name]) => `${number}`.padStart(width, '0') + name).join(':');
  if (first > 0) return tail;
  return `${Math.floor((value ?? 0) / 36e5)}h${shown.length ? `:${tail}` : ''}`;
}
