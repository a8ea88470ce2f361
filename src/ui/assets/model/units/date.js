// Dates as text: patterns in the notation of moment.js 2.30, English names, and times from now.

import { abbreviation, offsetText, wallClock } from './zone.js';

/**
 * @typedef {object} DateOptions
 * @property {string} [timeZone] "utc", an IANA name, or (also by default) "browser"
 * @property {boolean} [milliseconds] whether the default format has milliseconds
 * @property {readonly string[]} [languages] for the local formats; by default the browser's
 * @property {number} [now] unix milliseconds; by default the clock's
 */

/** Characters of a pattern that are read; the rest of a longer one is ignored. */
const PATTERN_MAX = 1000;
const INVALID = 'Invalid date';
const DATE = 'YYYY-MM-DD';
const TIME = 'HH:mm:ss';
const US_TIME = 'h:mm:ss a';

/** Patterns of the date units, and of those that leave the date out today. */
const PATTERNS = new Map([
  ['dateTimeAsIso', [`${DATE} ${TIME}`]],
  ['dateTimeAsIsoNoDateIfToday', [`${DATE} ${TIME}`, TIME]],
  ['dateTimeAsUS', [`MM/DD/YYYY ${US_TIME}`]],
  ['dateTimeAsUSNoDateIfToday', [`MM/DD/YYYY ${US_TIME}`, US_TIME]],
]);

const MONTHS = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October',
  'November', 'December'];
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** Patterns that stand for longer ones; their lower-case forms use short names and no zeros. */
const LONG = { LTS: 'h:mm:ss A', LT: 'h:mm A', L: 'MM/DD/YYYY', LL: 'MMMM D, YYYY', LLL: 'MMMM D, YYYY h:mm A',
  LLLL: 'dddd, MMMM D, YYYY h:mm A' };
const LONG_TOKENS = /\[[^[]*\]|\\?(?:LTS|LT|L{1,4}|l{1,4})/g;
const TOKENS = new RegExp(String.raw`\[[^[]*\]|\\?(?:[Hh]mm(?:ss)?|Mo|M{1,4}|DDDo|Do|D{1,4}|d{2,4}|do?|w[ow|]?|W[oW|]?|`
  + 'Qo?|N{1,5}|Y{4,6}|YY|y{2,4}|yo?|g{4,5}|gg|G{4,5}|GG|hh?|HH?|kk?|mm?|ss?|S{1,9}|zz?|ZZ?|.)', 'g');

/** @param {number} number @param {number} width */
const pad = (number, width) => (number >= 0 ? '' : '-') + `${Math.abs(number)}`.padStart(width, '0');

/** @param {number} number @returns {string} "1st", "22nd", "13th" */
function ordinal(number) {
  const ten = Math.trunc((number % 100) / 10);
  return `${number}${(ten !== 1 && ['', 'st', 'nd', 'rd'][number % 10]) || 'th'}`;
}

/** The zero-based day of the year. @param {Date} date */
function dayOfYear(date) {
  const start = new Date(0);
  start.setUTCFullYear(date.getUTCFullYear(), 0, 1);
  return Math.floor((date.getTime() - start.getTime()) / 864e5);
}

/**
 * The day that decides to which year a week belongs: its Saturday, in ISO weeks its Thursday.
 * @param {Date} date
 * @param {boolean} iso
 */
const decidingDay = (date, iso) => new Date(date.getTime()
  + (iso ? 4 - (date.getUTCDay() || 7) : 6 - date.getUTCDay()) * 864e5);

/**
 * Numbers of one-letter tokens; doubled letters have two digits.
 * @type {Object<string, (date: Date) => number>}
 */
const NUMBERS = {
  M: (date) => date.getUTCMonth() + 1,
  D: (date) => date.getUTCDate(),
  d: (date) => date.getUTCDay(),
  e: (date) => date.getUTCDay(),
  E: (date) => date.getUTCDay() || 7,
  H: (date) => date.getUTCHours(),
  h: (date) => date.getUTCHours() % 12 || 12,
  k: (date) => date.getUTCHours() || 24,
  m: (date) => date.getUTCMinutes(),
  s: (date) => date.getUTCSeconds(),
  Q: (date) => Math.floor(date.getUTCMonth() / 3) + 1,
  w: (date) => Math.floor(dayOfYear(decidingDay(date, false)) / 7) + 1,
  W: (date) => Math.floor(dayOfYear(decidingDay(date, true)) / 7) + 1,
};

/**
 * Returns the text of a token, or null if it is none.
 * @param {string} token
 * @param {Date} time
 * @param {import('./zone.js').WallClock} clock
 * @returns {string|null}
 */
function tokenText(token, time, clock) {
  const date = clock.local;
  const letter = token[0];
  const width = token.length;
  const year = date.getUTCFullYear();
  const number = Object.hasOwn(NUMBERS, letter) ? NUMBERS[letter](date) : 0;
  switch (token) {
    case 'MMM': case 'MMMM': return MONTHS[number - 1].slice(0, width === 3 ? 3 : undefined);
    case 'dd': case 'ddd': case 'dddd': return DAYS[number].slice(0, width === 4 ? undefined : width);
    case 'DDD': return `${dayOfYear(date) + 1}`;
    case 'DDDD': return pad(dayOfYear(date) + 1, 3);
    case 'DDDo': return ordinal(dayOfYear(date) + 1);
    case 'a': return NUMBERS.H(date) < 12 ? 'am' : 'pm';
    case 'A': return NUMBERS.H(date) < 12 ? 'AM' : 'PM';
    case 'hmm': case 'Hmm': return `${number}${pad(NUMBERS.m(date), 2)}`;
    case 'hmmss': case 'Hmmss': return `${number}${pad(NUMBERS.m(date), 2)}${pad(NUMBERS.s(date), 2)}`;
    case 'Y': return year > 9999 ? `+${year}` : pad(year, 4);
    case 'YY': return pad(year % 100, 2);
    case 'YYYYYY': return year < 0 ? pad(year, 6) : `+${pad(year, 6)}`;
    case 'yo': return ordinal(year > 0 ? year : 1 - year);
    case 'z': case 'zz': return abbreviation(time, clock);
    case 'Z': return offsetText(clock.offset, ':');
    case 'ZZ': return offsetText(clock.offset, '');
    case 'X': return `${Math.floor(time.getTime() / 1000)}`;
    case 'x': return `${time.getTime()}`;
    default:
  }
  switch (letter) {
    case 'Y': return pad(year, width);
    // The years before the year 1 count backwards in their own era.
    case 'y': return pad(year > 0 ? year : 1 - year, width);
    case 'N': return width === 4 ? (year > 0 ? 'Anno Domini' : 'Before Christ') : year > 0 ? 'AD' : 'BC';
    case 'g': case 'G': {
      if (width === 1) return null;
      const weekYear = decidingDay(date, letter === 'G').getUTCFullYear();
      return pad(width === 2 ? weekYear % 100 : weekYear, width);
    }
    case 'S': return `${date.getUTCMilliseconds()}`.padStart(3, '0').padEnd(9, '0').slice(0, width);
    default:
  }
  if (!Object.hasOwn(NUMBERS, letter)) return null;
  if (width === 1) return `${number}`;
  if (token === `${letter}o`) return ordinal(number);
  return token === letter + letter ? pad(number, 2) : null;
}

/** @param {string} token @returns {string} */
function longForm(token) {
  if (Object.hasOwn(LONG, token)) return LONG[/** @type {keyof typeof LONG} */ (token)];
  const upper = token.toUpperCase();
  if (token === upper || !Object.hasOwn(LONG, upper)) return token;
  return LONG[/** @type {keyof typeof LONG} */ (upper)].replace(/MMMM|MM|DD|dddd/g, (name) => name.slice(1));
}

/**
 * Returns a moment in a pattern of moment.js: `[text]` and `\x` stand for themselves. An empty
 * pattern is ISO 8601.
 * @param {number|null} at unix milliseconds
 * @param {string} pattern
 * @param {string} [timeZone]
 * @returns {string} "Invalid date" beyond the range of dates
 */
export function formatDate(at, pattern, timeZone) {
  const time = new Date(at ?? NaN);
  if (Number.isNaN(time.getTime())) return INVALID;
  const clock = wallClock(time, timeZone);
  const standard = `YYYY-MM-DDTHH:mm:ss${clock.zone && !clock.offset ? '[Z]' : 'Z'}`;
  const full = (pattern.slice(0, PATTERN_MAX) || standard).replace(LONG_TOKENS, longForm);
  let text = '';
  for (const [token] of full.matchAll(TOKENS)) {
    text += tokenText(token, time, clock)
      ?? (/^\[./s.test(token) ? token.replace(/^\[|\]$/g, '') : token.replaceAll('\\', ''));
  }
  return text;
}

/** @type {Object<string, string>} */
const PART_TOKENS = { year: 'YYYY', month: 'MM', day: 'DD', minute: 'mm', second: 'ss', dayPeriod: 'A' };

/** The last patterns of `localPattern`, by its arguments. @type {Map<string, string>} */
const localPatterns = new Map();

/**
 * Returns the pattern that dates have in the reader's language.
 * @param {readonly string[]} languages in order of preference
 * @param {boolean} date whether the date stands before the time
 * @returns {string}
 */
function localPattern(languages, date) {
  const key = `${date} ${languages}`;
  const known = localPatterns.get(key);
  if (known !== undefined) return known;
  const two = '2-digit';
  const day = date ? /** @type {const} */ ({ year: 'numeric', month: two, day: two }) : {};
  const format = new Intl.DateTimeFormat([...languages], { ...day, hour: two, minute: two, second: two });
  const hour = format.resolvedOptions().hour12 ? 'hh' : 'HH';
  const pattern = format.formatToParts(0).map(({ type, value }) => (type === 'hour' ? hour
    : Object.hasOwn(PART_TOKENS, type) ? PART_TOKENS[type] : value)).join('');
  if (localPatterns.size > 10) localPatterns.clear();
  localPatterns.set(key, pattern);
  return pattern;
}

/**
 * Returns a moment in one of the date units.
 * @param {number|null|undefined} value unix milliseconds; undefined is now
 * @param {string} unit
 * @param {DateOptions} options
 * @returns {string}
 */
export function dateUnit(value, unit, options) {
  const now = options.now ?? Date.now();
  const at = value === undefined ? now : value;
  if (unit === 'dateTimeFromNow') return fromNow(at, now);
  if (unit === 'dateTimeAsSystem') {
    return formatDate(at, `${DATE} ${TIME}${options.milliseconds ? '.SSS' : ''}`, options.timeZone);
  }
  const local = unit.startsWith('dateTimeAsLocal');
  const languages = options.languages ?? globalThis.navigator?.languages ?? [];
  const [full, short] = PATTERNS.get(unit) ?? [localPattern(languages, true)];
  const today = local ? unit.endsWith('Today') && localPattern(languages, false) : short;
  // As in Grafana, "today" is the browser's day, in every time zone of the dashboard.
  const pattern = today && new Date(at ?? NaN).toDateString() === new Date(now).toDateString() ? today : full;
  return formatDate(at, pattern, options.timeZone);
}

/** @param {Date} date @param {number} months */
function addMonths(date, months) {
  const later = new Date(date);
  later.setDate(1);
  later.setMonth(date.getMonth() + months);
  const last = new Date(later.getFullYear(), later.getMonth() + 1, 0).getDate();
  later.setDate(Math.min(date.getDate(), last));
  return later.getTime();
}

/**
 * Returns the distance of a moment from now, "in 3 days" or "2 months ago".
 * Months are those of the browser's calendar, as in moment.js.
 * @param {number|null} at unix milliseconds
 * @param {number} now
 * @returns {string}
 */
function fromNow(at, now) {
  const time = new Date(at ?? NaN);
  if (Number.isNaN(time.getTime())) return INVALID;
  const [early, late] = time.getTime() < now ? [time, new Date(now)] : [new Date(now), time];
  let months = (late.getFullYear() - early.getFullYear()) * 12 + late.getMonth() - early.getMonth();
  if (addMonths(early, months) > late.getTime()) months -= 1;
  const rest = late.getTime() - addMonths(early, months);
  if (Number.isNaN(rest)) return INVALID;
  // 400 years have 4,800 months and 146,097 days.
  const days = Math.round((months * 146097) / 4800);
  const allMonths = months + ((rest / 864e5) * 4800) / 146097;
  const counts = [days * 86400 + rest / 1e3, days * 1440 + rest / 6e4, days * 24 + rest / 36e5, days + rest / 864e5,
    allMonths, allMonths / 12].map(Math.round);
  const text = distance(counts);
  return time.getTime() > now ? `in ${text}` : `${text} ago`;
}

/** @param {number[]} counts whole seconds, minutes, hours, days, months and years */
function distance([seconds, minutes, hours, days, months, years]) {
  if (seconds < 45) return 'a few seconds';
  if (minutes < 45) return minutes <= 1 ? 'a minute' : `${minutes} minutes`;
  if (hours < 22) return hours <= 1 ? 'an hour' : `${hours} hours`;
  if (days < 26) return days <= 1 ? 'a day' : `${days} days`;
  if (months < 11) return months <= 1 ? 'a month' : `${months} months`;
  return years <= 1 ? 'a year' : `${years} years`;
}
