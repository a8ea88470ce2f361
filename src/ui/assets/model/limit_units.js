// Limits in the units that people use: sizes, durations and counts, as text and back.

/**
 * @typedef {'bytes'|'days'|'seconds'|'count'} LimitKind what the number of the API counts
 * @typedef {number|'none'|null} Limit as the API has it: a number, no limit, or the server's default
 */

/** @type {[string, number][]} Decimal units of bytes, the greatest first. */
const DECIMAL = [['TB', 1e12], ['GB', 1e9], ['MB', 1e6], ['kB', 1e3], ['B', 1]];
/** @type {[string, number][]} */
const BINARY = [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]];
/** @type {[string, number][]} Units of time in seconds, the greatest first. */
const TIMES = [['day', 86_400], ['hour', 3600], ['minute', 60], ['second', 1]];
/** Other spellings of units of time. @type {Record<string, string>} */
const SHORT = { d: 'day', h: 'hour', min: 'minute', m: 'minute', s: 'second', sec: 'second' };

/** The greatest number that the API accepts, inclusive. */
const NUMBER_MAX = 2 ** 53;

/** At most three digits after the point, thousands separated. @param {number} value */
const plain = (value) => value.toLocaleString('en', { maximumFractionDigits: 3 });

/** A count with its unit. @param {number} count @param {string} unit */
const times = (count, unit) => `${plain(count)} ${unit}${count === 1 ? '' : 's'}`;

/**
 * A size with three significant digits, in decimal units.
 * @param {number} bytes
 */
export function sizeText(bytes) {
  const [unit, size] = DECIMAL.find(([, least]) => bytes >= least) ?? DECIMAL[DECIMAL.length - 1];
  return `${(bytes / size).toLocaleString('en', { maximumSignificantDigits: 3 })} ${unit}`;
}

/**
 * A size for a field: in decimal units with one digit after the point if that is exact, else as a
 * small whole number of a binary unit, else with three digits after the point.
 * @param {number} bytes
 */
function bytesText(bytes) {
  const [unit, size] = DECIMAL.find(([, least]) => bytes >= least) ?? DECIMAL[DECIMAL.length - 1];
  const binary = BINARY.find(([, length]) => Number.isInteger(bytes / length) && bytes / length < 10_000);
  if (!binary || bytes === 0 || Number.isInteger((bytes * 10) / size)) return `${plain(bytes / size)} ${unit}`;
  return `${plain(bytes / binary[1])} ${binary[0]}`;
}

/**
 * A duration in its greatest unit that gives a whole number: "90 minutes".
 * @param {number} seconds
 */
export function timeText(seconds) {
  const unit = TIMES.find(([, length]) => seconds >= length && Number.isInteger(seconds / length)) ?? TIMES[3];
  return times(seconds / unit[1], unit[0]);
}

/**
 * The age of an event in one unit: "2 s ago".
 * @param {number} seconds at least 0
 */
export function ageText(seconds) {
  if (seconds < 1) return 'just now';
  const [name, length] = TIMES.find(([, size]) => seconds >= size) ?? TIMES[3];
  const count = Math.floor(seconds / length);
  const short = { second: 's', minute: 'min', hour: 'h' }[name];
  return `${short ? `${count} ${short}` : times(count, name)} ago`;
}

/**
 * A limit as text; '' for the default.
 * @param {Limit} limit
 * @param {LimitKind} kind
 */
export function limitText(limit, kind) {
  if (limit === null) return '';
  if (limit === 'none') return 'no limit';
  if (kind === 'bytes') return bytesText(limit);
  if (kind === 'days') return times(limit, 'day');
  return kind === 'seconds' ? timeText(limit) : plain(limit);
}

/** @param {string} name @param {LimitKind} kind @returns {number|undefined} the length of a unit in the API's unit */
function unitSize(name, kind) {
  if (kind === 'count') return name === '' ? 1 : undefined;
  if (kind === 'bytes') {
    const wanted = name.toLowerCase();
    return [...DECIMAL, ...BINARY].find(([unit]) => unit.toLowerCase() === wanted)?.[1];
  }
  if (name === '') return 1;
  const singular = name.toLowerCase().replace(/(?<=...)s$/, '');
  const seconds = TIMES.find(([unit]) => unit === (Object.hasOwn(SHORT, singular) ? SHORT[singular] : singular))?.[1];
  return kind === 'days' && seconds !== undefined ? seconds / 86_400 : seconds;
}

/** The expected input of a field, by kind. @type {Record<LimitKind, string>} */
const EXAMPLES = {
  bytes: 'a size such as 500 MB or 20 GB',
  days: 'a number of days such as 30',
  seconds: 'a duration such as 30 seconds or 2 hours',
  count: 'a whole number such as 20,000',
};

/**
 * Reads a limit: a number with its unit, "no limit", or nothing for the default. Days and seconds
 * may be left out as units, bytes may not.
 * @param {string} text
 * @param {LimitKind} kind
 * @returns {Limit}
 * @throws {Error} that says what is expected
 */
export function parseLimit(text, kind) {
  const given = text.trim();
  if (given === '') return null;
  if (/^(no limit|none|unlimited)$/i.test(given)) return 'none';
  const found = /^(\d[\d,_ ]{0,24}(?:\.\d{1,6})?) ?([a-z]{0,8})$/i.exec(given);
  const size = found ? unitSize(found[2], kind) : undefined;
  const value = found && size !== undefined ? Number(found[1].replace(/[,_ ]/g, '')) * size : NaN;
  const whole = Math.round(value);
  // 0.1 GB is a whole number of bytes but for the last bits of a float.
  if (!(Math.abs(value - whole) < 1e-3) || whole > NUMBER_MAX)
    throw new Error(`Enter ${EXAMPLES[kind]}, or "no limit".`);
  return whole;
}
