// Time of a dashboard: `now-6h`, time zones, query intervals. Times are ms since 1970.

import { formatDuration } from './duration.js';
import { numberOf, textOf } from './limits.js';
import { utcParts, wallTime, zoned } from './time_zone.js';

/** @typedef {import('./time_zone.js').Wall} Wall */

/**
 * @typedef {{from: string | number, to: string | number}} RawRange as the time picker shows it
 * @typedef {{from: number, to: number, raw: RawRange, info?: string}} Range both ends inclusive
 * @typedef {{now?: number, timeZone?: string, weekStart?: number}} Clock
 * `weekStart` is the first day of a week, 0 (Sunday, the default of Grafana) to 6.
 */

/** Longest text of a time. */
const TEXT_MAX = 128;
/** Largest time that a Date can hold. */
const TIME_MAX = 8.64e15;
/** Fixed lengths of units in ms; days and longer units follow the calendar of the time zone. */
const FIXED = new Map([['ms', 1], ['s', 1000], ['m', 60_000], ['h', 3_600_000]]);
const DAY = 86_400_000;
/** Lengths of units in a duration, in ms: a month has 30 days, a year 365. */
const LENGTHS = new Map([...FIXED, ['d', DAY], ['w', 7 * DAY], ['M', 30 * DAY], ['Q', 91 * DAY], ['y', 365 * DAY]]);

/**
 * The time that an expression means, or null for text that is none: `now`, `now-1d/d`, ISO 8601
 * (without an offset: in the time zone), or epoch ms.
 * @param {unknown} text
 * @param {Clock & {roundUp?: boolean}} [options] `roundUp`: `/d` means the last ms of the unit
 * @returns {number | null}
 */
export function parseTime(text, options = {}) {
  if (typeof text === 'number') return bounded(text);
  const trimmed = textOf(text).trim();
  if (trimmed.length > TEXT_MAX) return null;
  if (trimmed.startsWith('now')) return shifted(options.now ?? Date.now(), trimmed.slice(3), options);
  const bars = trimmed.indexOf('||');
  if (bars > 0) {
    const base = absolute(trimmed.slice(0, bars), options.timeZone);
    return base === null ? null : shifted(base, trimmed.slice(bars + 2), options);
  }
  return absolute(trimmed, options.timeZone);
}

/** @param {number} time @returns {number | null} */
function bounded(time) {
  return Math.abs(time) <= TIME_MAX ? Math.trunc(time) : null;
}

/** @param {string} text @param {string} [timeZone] @returns {number | null} */
function absolute(text, timeZone) {
  if (/^-?\d{5,16}$/.test(text)) return bounded(Number(text));
  const found = /^(\d{4})-?(\d\d)-?(\d\d)(?:[T ]?(\d\d):?(\d\d)(?::?(\d\d)(?:[.,](\d{1,9}))?)?)?\s*(Z|[+-]\d\d:?\d\d)?$/
    .exec(text);
  if (!found) return null;
  const [year, month, day, hour, minute, second] = found.slice(1, 7).map((part) => Number(part ?? 0));
  const ms = Number(`${found[7] ?? ''}000`.slice(0, 3));
  const wall = { year, month, day, hour, minute, second, ms };
  const utc = Date.UTC(year, month - 1, day, hour, minute, second, ms);
  const check = new Date(utc);
  if (check.getUTCMonth() !== month - 1 || check.getUTCDate() !== day || hour > 23 || minute > 59 || second > 59) {
    return null;
  }
  const offset = found[8];
  if (!offset) return zoned(wall, timeZone);
  if (offset === 'Z') return utc;
  const minutes = Number(offset.slice(1, 3)) * 60 + Number(offset.slice(-2));
  return utc - (offset[0] === '-' ? -1 : 1) * minutes * 60_000;
}

/**
 * @param {number} time
 * @param {string} math
 * @param {Clock & {roundUp?: boolean}} options
 * @returns {number | null}
 */
function shifted(time, math, options) {
  const text = math.replace(/\s+/g, '');
  const term = /([+-]|\/)(\d*)(fQ|fy|ms|[smhdwMQy])/gy;
  let at = 0;
  /** @type {number | null} */
  let result = time;
  while (at < text.length && result !== null) {
    term.lastIndex = at;
    const found = term.exec(text);
    if (!found) return null;
    at = term.lastIndex;
    const [, sign, digits, named] = found;
    const unit = named.replace('fQ', 'Q').replace('fy', 'y');
    const count = digits === '' ? 1 : Number(digits);
    if (digits.length > 9 || (sign === '/' && count !== 1)) return null;
    if (sign === '/') result = options.roundUp ? ceiling(result, unit, options) : floor(result, unit, options);
    else result = moved(result, sign === '-' ? -count : count, unit, options.timeZone);
    result = bounded(result);
  }
  return result;
}

/** @param {number} time @param {number} count @param {string} unit @param {string} [timeZone] */
function moved(time, count, unit, timeZone) {
  const fixed = FIXED.get(unit);
  if (fixed !== undefined) return time + count * fixed;
  if (Math.abs(count) > 1e6) return NaN;
  const wall = wallTime(time, timeZone);
  if (unit === 'd') return zoned({ ...wall, day: wall.day + count }, timeZone);
  if (unit === 'w') return zoned({ ...wall, day: wall.day + count * 7 }, timeZone);
  const months = wall.month - 1 + count * ({ M: 1, Q: 3, y: 12 }[unit] ?? 1);
  const [year, month] = [wall.year + Math.floor(months / 12), ((months % 12) + 12) % 12];
  const last = new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
  return zoned({ ...wall, year, month: month + 1, day: Math.min(wall.day, last) }, timeZone);
}

/**
 * Start of the unit that the time is in.
 * @param {number} time
 * @param {string} unit
 * @param {Clock} options
 */
function floor(time, unit, { timeZone, weekStart = 0 }) {
  if (unit === 'ms') return time;
  if (unit === 's') return Math.floor(time / 1000) * 1000;
  const wall = wallTime(time, timeZone);
  if (unit === 'm' || unit === 'h') {
    // Subtracting keeps the right one of two equal hours at the end of daylight saving time.
    const past = wall.second * 1000 + wall.ms + (unit === 'h' ? wall.minute * 60_000 : 0);
    return time - past;
  }
  const start = { ...wall, hour: 0, minute: 0, second: 0, ms: 0 };
  if (unit === 'w') start.day -= (utcParts(wall).getUTCDay() - weekStart + 7) % 7;
  if (unit === 'M' || unit === 'Q' || unit === 'y') start.day = 1;
  if (unit === 'Q') start.month -= (start.month - 1) % 3;
  if (unit === 'y') start.month = 1;
  return zoned(start, timeZone);
}

/**
 * Last ms of the unit that the time is in.
 * @param {number} time
 * @param {string} unit
 * @param {Clock} options
 */
function ceiling(time, unit, options) {
  if (unit === 'ms') return time;
  return moved(floor(time, unit, options), 1, unit, options.timeZone) - 1;
}

/**
 * The range of a dashboard. Invalid ends fall back to the last six hours; ends in the wrong order
 * are swapped.
 * @param {{from?: unknown, to?: unknown} | null | undefined} raw
 * @param {Clock} [clock]
 * @returns {Range}
 */
export function resolveRange(raw, clock = {}) {
  const now = clock.now ?? Date.now();
  const wanted = { from: rawOf(raw?.from, 'now-6h'), to: rawOf(raw?.to, 'now') };
  let from = parseTime(wanted.from, { ...clock, now });
  let to = parseTime(wanted.to, { ...clock, now, roundUp: true });
  if (from === null || to === null) {
    [wanted.from, wanted.to] = ['now-6h', 'now'];
    [from, to] = [now - 6 * 3_600_000, now];
  }
  return from <= to ? { from, to, raw: wanted } : { from: to, to: from, raw: wanted };
}

/** @param {unknown} value @param {string} fallback @returns {string | number} */
function rawOf(value, fallback) {
  return typeof value === 'number' ? value : textOf(value) || fallback;
}

/**
 * Length of a duration such as `1h30m`, `15s`, `>10s` (Grafana's minimum) or plain seconds, in ms;
 * null for other text.
 * @param {unknown} text
 * @returns {number | null}
 */
export function durationMs(text) {
  const trimmed = textOf(text).trim().replace(/^>\s*/, '');
  if (trimmed === '' || trimmed.length > TEXT_MAX) return null;
  const seconds = numberOf(trimmed);
  if (seconds !== null) return seconds > 0 ? seconds * 1000 : null;
  if (!/^(?:\d+(?:\.\d+)?(?:ms|[smhdwMQy]))+$/.test(trimmed)) return null;
  let total = 0;
  for (const [, count, unit] of trimmed.matchAll(/(\d+(?:\.\d+)?)(ms|[smhdwMQy])/g)) {
    total += Number(count) * (LENGTHS.get(unit) ?? 0);
  }
  return total > 0 && total <= TIME_MAX ? total : null;
}

/** A duration in PromQL: 5,400,000 is `1h30m`. @param {number} ms at least 1 */
export const durationText = (ms) => formatDuration(Math.max(1, Math.round(ms)) / 1000);

/**
 * Grafana's table of intervals in ms: a raw interval below `below` becomes `interval`.
 * @type {[below: number, interval: number][]}
 */
const ROUNDING = [[10, 1], [15, 10], [35, 20], [75, 50], [150, 100], [350, 200], [750, 500], [1500, 1000],
  [3500, 2000], [7500, 5000], [12_500, 10_000], [17_500, 15_000], [25_000, 20_000], [45_000, 30_000],
  [90_000, 60_000], [210_000, 120_000], [450_000, 300_000], [750_000, 600_000], [1_050_000, 900_000],
  [1_500_000, 1_200_000], [2_700_000, 1_800_000], [5_400_000, 3_600_000], [9_000_000, 7_200_000],
  [16_200_000, 10_800_000], [32_400_000, 21_600_000], [DAY, 43_200_000], [7 * DAY, DAY], [21 * DAY, 7 * DAY],
  [42 * DAY, 30 * DAY]];
/** The most points of a series that Prometheus returns. */
const POINTS_MAX = 11_000;

/** Grafana's rounding of an interval. @param {number} ms */
export function roundInterval(ms) {
  return ROUNDING.find(([below]) => ms < below)?.[1] ?? 365 * DAY;
}

/**
 * `$__interval` and `$__rate_interval` of a query.
 * @param {{from: number, to: number, maxDataPoints?: number, minInterval?: string | number | null,
 *   scrapeInterval?: string | number | null, intervalFactor?: number}} query `minInterval` (without
 *   variables) and `scrapeInterval`: a duration, or a number of ms; 15 s by default.
 * @returns {{interval: string, intervalMs: number, rateInterval: string, rateIntervalMs: number}}
 */
export function intervalFor({ from, to, maxDataPoints = 1000, minInterval, scrapeInterval, intervalFactor = 1 }) {
  const range = Math.max(0, to - from);
  const given = lengthOf(minInterval);
  const scrape = given ?? lengthOf(scrapeInterval) ?? 15_000;
  const points = Math.max(1, numberOf(maxDataPoints) ?? 1000);
  const wanted = Math.max(roundInterval(range / points), scrape) * Math.max(1, numberOf(intervalFactor) ?? 1);
  const least = Math.ceil(range / POINTS_MAX);
  const intervalMs = least > wanted ? Math.max(roundInterval(least), least) : wanted;
  const rateIntervalMs = Math.max(intervalMs + scrape, 4 * scrape);
  return {
    interval: durationText(intervalMs), intervalMs, rateInterval: durationText(rateIntervalMs), rateIntervalMs,
  };
}

/** @param {unknown} value @returns {number | null} */
function lengthOf(value) {
  if (typeof value === 'number') return value > 0 && value <= TIME_MAX ? value : null;
  return durationMs(value);
}

/**
 * The range of a panel with `timeFrom` (relative ranges only, as in Grafana) and `timeShift`.
 * `info` is the text for the panel's header; it is empty with `hideTimeOverride`.
 * @param {Range} range
 * @param {{timeFrom?: string | null, timeShift?: string | null, hideTimeOverride?: boolean}} panel
 * @param {Clock} [clock]
 * @returns {Range}
 */
export function applyPanelTime(range, panel, clock = {}) {
  let result = range;
  /** @type {string[]} */
  const info = [];
  const timeFrom = textOf(panel.timeFrom).trim();
  if (timeFrom) {
    const relative = durationMs(timeFrom) === null ? timeFrom : `now-${timeFrom}`;
    const roundedTo = /^now\/[smhdwMQy]$/.test(relative) ? relative : 'now';
    const own = { from: parseTime(relative, clock), to: parseTime(roundedTo, { ...clock, roundUp: true }) };
    if (own.from === null || own.to === null || own.from > own.to) info.push(`invalid time ${timeFrom}`);
    else if (String(range.raw.from).includes('now')) {
      result = { from: own.from, to: own.to, raw: { from: relative, to: roundedTo } };
      info.push(relative === `now-${timeFrom}` ? `last ${timeFrom}` : relative);
    }
  }
  const timeShift = textOf(panel.timeShift).trim();
  if (timeShift) {
    const math = /^\d/.test(timeShift) ? `-${timeShift}` : timeShift;
    const from = shifted(result.from, math, clock);
    const to = shifted(result.to, math, { ...clock, roundUp: true });
    if (from === null || to === null || from > to) info.push(`invalid time shift ${timeShift}`);
    else {
      result = { from, to, raw: { from, to } };
      info.push(`time shift ${math}`);
    }
  }
  return { ...result, info: panel.hideTimeOverride ? '' : info.join(', ') };
}

const WEEK_STARTS = ['sunday', 'monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday'];

/** First day of the week, 0 to 6, from a dashboard's `weekStart`. @param {unknown} name */
export function weekStartOf(name) {
  return Math.max(0, WEEK_STARTS.indexOf(textOf(name).toLowerCase()));
}

export { dateText, wallTime } from './time_zone.js';
