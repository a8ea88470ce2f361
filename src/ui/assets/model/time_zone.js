// Wall clock times in a time zone, and their text in the patterns of Grafana's date format.

/**
 * @typedef {{year: number, month: number, day: number, hour: number, minute: number,
 *   second: number, ms: number}} Wall
 * `month` is 1 to 12. A wall time to convert may have parts beyond their range: day 0 is the day
 * before day 1.
 */

/** The most time zones whose formatter is kept. */
const ZONES_MAX = 64;
/** Longest date pattern. */
const PATTERN_MAX = 256;

/** @type {Map<string, Intl.DateTimeFormat | null>} null is UTC */
const formatters = new Map();

/**
 * @param {string} [timeZone] `utc`, `browser`, empty, or an IANA name; an unknown one counts as UTC
 */
function formatterOf(timeZone) {
  const name = timeZone || 'browser';
  const known = formatters.get(name);
  if (known !== undefined) return known;
  /** @type {Intl.DateTimeFormat | null} */
  let formatter = null;
  if (name.toLowerCase() !== 'utc') {
    try {
      formatter = new Intl.DateTimeFormat('en-US', {
        timeZone: name === 'browser' || name === 'default' ? undefined : name,
        calendar: 'gregory', numberingSystem: 'latn', hourCycle: 'h23', era: 'short',
        year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric', second: 'numeric',
      });
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
    }
  }
  if (formatters.size >= ZONES_MAX) formatters.clear();
  formatters.set(name, formatter);
  return formatter;
}

/** @param {Wall} wall @returns {Date} the date with these parts in UTC */
export function utcParts(wall) {
  const date = new Date(0);
  date.setUTCFullYear(wall.year, wall.month - 1, wall.day);
  date.setUTCHours(wall.hour, wall.minute, wall.second, wall.ms);
  return date;
}

/** @param {number} time @param {string} [timeZone] @returns {Wall} */
export function wallTime(time, timeZone) {
  const formatter = formatterOf(timeZone);
  const ms = ((time % 1000) + 1000) % 1000;
  const date = new Date(time);
  if (!formatter || Number.isNaN(date.getTime())) {
    return { year: date.getUTCFullYear(), month: date.getUTCMonth() + 1, day: date.getUTCDate(),
      hour: date.getUTCHours(), minute: date.getUTCMinutes(), second: date.getUTCSeconds(), ms };
  }
  /** @type {Record<string, string>} */
  const parts = {};
  for (const { type, value } of formatter.formatToParts(date)) parts[type] = value;
  const year = parts.era === 'BC' || parts.era === 'B' ? 1 - Number(parts.year) : Number(parts.year);
  return { year, month: Number(parts.month), day: Number(parts.day), hour: Number(parts.hour),
    minute: Number(parts.minute), second: Number(parts.second), ms };
}

/**
 * Distance of the zone's wall clock from UTC, in ms.
 * @param {number} time
 * @param {string} [timeZone]
 */
function offsetAt(time, timeZone) {
  return utcParts(wallTime(time, timeZone)).getTime() - time;
}

/**
 * The time at which the zone's clock shows `wall`. A time that daylight saving skips is read as one
 * hour later, and an ambiguous time as the earlier of the two.
 * @param {Wall} wall
 * @param {string} [timeZone]
 */
export function zoned(wall, timeZone) {
  const utc = utcParts(wall).getTime();
  if (!formatterOf(timeZone) || Number.isNaN(utc)) return utc;
  const before = offsetAt(utc - 86_400_000, timeZone);
  const after = offsetAt(utc + 86_400_000, timeZone);
  for (const offset of before === after ? [before] : [before, after]) {
    if (offsetAt(utc - offset, timeZone) === offset) return utc - offset;
  }
  return utc - before;
}

/** Literal text in brackets, or one token of a date pattern. */
const TOKEN =
  /\[([^\]]*)\]|YYYY|YY|Y|MMMM|MMM|MM|Mo|M|Q|DD|Do|D|dddd|ddd|dd|d|E|HH|H|hh|h|mm|m|SSS|ss|s|A|a|ZZ|Z|x|X/g;

const MONTHS = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October',
  'November', 'December'];
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** @param {number} value @param {number} [width] */
function padded(value, width = 2) {
  return `${value < 0 ? '-' : ''}${String(Math.abs(value)).padStart(width, '0')}`;
}

/** @param {number} count */
function ordinal(count) {
  const last = count % 10;
  const teen = Math.floor((count % 100) / 10) === 1;
  return `${count}${!teen && last >= 1 && last <= 3 ? ['st', 'nd', 'rd'][last - 1] : 'th'}`;
}

/** @param {number} offset in ms @param {string} separator */
function offsetText(offset, separator) {
  const minutes = Math.round(Math.abs(offset) / 60_000);
  return `${offset < 0 ? '-' : '+'}${padded(Math.floor(minutes / 60))}${separator}${padded(minutes % 60)}`;
}

/**
 * A time as text. The pattern is `iso` (UTC, with ms), `seconds`, `ms`, or letters such as
 * `YYYY-MM-DD HH:mm:ss`; text in square brackets stays as it is.
 * @param {number} time
 * @param {string} [pattern]
 * @param {string} [timeZone]
 */
export function dateText(time, pattern = 'iso', timeZone = 'browser') {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return '';
  if (pattern === '' || pattern === 'iso') return date.toISOString();
  if (pattern === 'seconds') return String(Math.round(time / 1000));
  if (pattern === 'ms') return String(time);
  const wall = wallTime(time, timeZone);
  const weekday = utcParts(wall).getUTCDay();
  const offset = offsetAt(time, timeZone);
  const hour12 = wall.hour % 12 === 0 ? 12 : wall.hour % 12;
  /** @type {Map<string, () => string | number>} */
  const tokens = new Map(Object.entries({
    YYYY: () => padded(wall.year, 4), YY: () => padded(((wall.year % 100) + 100) % 100), Y: () => wall.year,
    MMMM: () => MONTHS[wall.month - 1], MMM: () => MONTHS[wall.month - 1].slice(0, 3),
    MM: () => padded(wall.month), M: () => wall.month, Mo: () => ordinal(wall.month),
    Q: () => Math.ceil(wall.month / 3), DD: () => padded(wall.day), D: () => wall.day, Do: () => ordinal(wall.day),
    dddd: () => DAYS[weekday], ddd: () => DAYS[weekday].slice(0, 3), dd: () => DAYS[weekday].slice(0, 2),
    d: () => weekday, E: () => weekday || 7, HH: () => padded(wall.hour), H: () => wall.hour,
    hh: () => padded(hour12), h: () => hour12, mm: () => padded(wall.minute), m: () => wall.minute,
    ss: () => padded(wall.second), s: () => wall.second, SSS: () => padded(wall.ms, 3),
    A: () => (wall.hour < 12 ? 'AM' : 'PM'), a: () => (wall.hour < 12 ? 'am' : 'pm'),
    Z: () => offsetText(offset, ':'), ZZ: () => offsetText(offset, ''), x: () => time,
    X: () => Math.floor(time / 1000),
  }));
  return pattern.slice(0, PATTERN_MAX).replace(TOKEN, (match, literal) => (
    literal === undefined ? String(tokens.get(match)?.() ?? match) : literal));
}
