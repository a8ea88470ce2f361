// Ticks, rounding and the text of numbers, times and series. Pure functions; times are unix seconds.

/** Steps that a person reads at a glance, in seconds, ascending. */
const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600,
  2592000, 7776000, 31536000,
];
const DAY = 86400;
const MONTH = 2592000;

/** @type {Object<string, number>} */
const UNITS = { ms: 0.001, s: 1, m: 60, h: 3600, d: DAY, w: 7 * DAY, y: 365 * DAY };

/**
 * A Prometheus duration ("90s", "1h30m") or plain seconds, in seconds; null for anything else.
 * @param {string|null|undefined} text
 * @returns {number|null}
 */
export function parseDuration(text) {
  const trimmed = String(text ?? '').trim();
  if (/^\d+(\.\d+)?$/.test(trimmed)) return Number(trimmed) || null;
  if (!/^(\d+(ms|s|m|h|d|w|y))+$/.test(trimmed)) return null;
  let seconds = 0;
  for (const [, count, unit] of trimmed.matchAll(/(\d+)(ms|s|m|h|d|w|y)/g)) seconds += Number(count) * UNITS[unit];
  return seconds > 0 && Number.isFinite(seconds) ? seconds : null;
}

/**
 * The step a range is asked with: a round one, and no more than `points` of them.
 * @param {number} range seconds
 * @param {number} points
 */
export function niceStep(range, points) {
  const least = range / Math.max(1, points);
  return STEPS.find((step) => step >= least) ?? Math.ceil(least / DAY) * DAY;
}

/**
 * Round bounds and ticks around the values low..high.
 * Values that are not far above zero get an axis from zero: without it a small wobble looks like an
 * outage.
 * @param {number} low
 * @param {number} high
 * @param {number} count wished number of intervals
 * @param {string} [unit] "bytes" counts by 1024, "seconds" in minutes, hours and days
 * @returns {{low: number, high: number, step: number, ticks: number[]}}
 */
export function valueAxis(low, high, count, unit) {
  if (!(low <= high)) [low, high] = [0, 1];
  if (low > 0 && low < high * 0.7) low = 0;
  if (high < 0 && high > low * 0.7) high = 0;
  if (low === high) {
    const pad = low === 0 ? 1 : Math.abs(low) * 0.1;
    if (low === 0) high = pad;
    else [low, high] = [low - pad, high + pad];
  }
  const raw = (high - low) / Math.max(1, count);
  const base = unit?.startsWith('bytes') && raw >= 1 ? 2 : 10;
  const power = base ** Math.floor(Math.log(raw) / Math.log(base));
  const decimal = ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw * 0.999) ?? 10) * power;
  const step =
    base === 2
      ? raw > power
        ? power * 2
        : power
      : unit === 'seconds' && raw > 1
        ? (STEPS.find((one) => one >= raw * 0.999) ?? decimal)
        : decimal;
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  const ticks = [];
  for (let index = first; index <= last && ticks.length < 40; index += 1) ticks.push(index * step);
  return { low: first * step, high: Math.max(last, first + 1) * step, step, ticks };
}

/** @type {[number, string][]} */
const PREFIXES = [
  [1e12, 'T'],
  [1e9, 'G'],
  [1e6, 'M'],
  [1e3, 'k'],
  [1, ''],
  [1e-3, 'm'],
  [1e-6, 'µ'],
  [1e-9, 'n'],
];
/** @type {[number, string][]} */
const BYTES = [
  [2 ** 50, 'PiB'],
  [2 ** 40, 'TiB'],
  [2 ** 30, 'GiB'],
  [2 ** 20, 'MiB'],
  [2 ** 10, 'KiB'],
  [1, 'B'],
];
/**
 * Least value, symbol, and the divisor where it is not the least value.
 * @type {[number, string, number?][]}
 */
const SPANS = [
  [DAY, 'd'],
  [3600, 'h'],
  [120, 'min', 60],
  [1, 's'],
  [1e-3, 'ms'],
  [1e-6, 'µs'],
  [1e-9, 'ns'],
];

/** @type {[number, string][]} */
const WHOLE_SPANS = [
  [DAY, 'd'],
  [3600, 'h'],
  [60, 'min'],
  [1, 's'],
];

/**
 * The divisor and the symbol that a value is written with.
 * @param {number} value
 * @param {string} unit
 * @returns {[number, string]}
 */
function prefix(value, unit) {
  const size = Math.abs(value);
  if (unit === 'bytes') return BYTES.find(([least]) => size >= least) ?? [1, 'B'];
  if (unit === 'seconds') {
    const [least, sign, divisor] = SPANS.find(([from]) => size >= from * 0.9999) ?? [1e-9, 'ns'];
    return [divisor ?? least, sign];
  }
  if (size >= 1e15 || size < 1e-9) return [1, ''];
  // Plain numbers stay plain while they are short.
  if (size >= 0.001 && size < 10000) return [1, ''];
  return PREFIXES.find(([least]) => size >= least * 0.9999) ?? [1, ''];
}

/**
 * A value as text: as exact as an axis with that step needs, or four digits without a step.
 * @param {number} value
 * @param {string} [unit] none, bytes, bytes/s, seconds, percent (of 1), or a suffix
 * @param {number} [step]
 * @returns {string}
 */
export function formatValue(value, unit = '', step = 0) {
  if (unit === 'bytes/s') return Number.isFinite(value) ? `${formatValue(value, 'bytes', step)}/s` : formatValue(value);
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? '+Inf' : '-Inf';
  if (unit === 'percent') return `${digits(value * 100, step * 100)} %`;
  if (value === 0) return unit === 'bytes' ? '0 B' : '0';
  // The ticks of an axis are whole in the largest unit that divides the step.
  const whole = unit === 'seconds' && step >= 1 ? WHOLE_SPANS.find(([size]) => step % size === 0) : undefined;
  if (whole) return `${Math.round(value / whole[0])} ${whole[1]}`;
  // An axis shortens from 1,000 (1.5k), a single value from 10,000 (1234).
  const [size, sign] =
    step && !unit && Math.abs(value) >= 1000
      ? (PREFIXES.find(([least]) => Math.abs(value) >= least) ?? [1, ''])
      : prefix(value, unit);
  const number = digits(value / size, step / size);
  if (!unit || unit === 'none') return `${number}${sign}`;
  if (unit === 'bytes' || unit === 'seconds') return `${number} ${sign}`;
  return `${number}${sign} ${unit}`;
}

/**
 * @param {number} value
 * @param {number} step 0 for four digits
 */
function digits(value, step) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e15 || size < 1e-9)) return value.toExponential(3);
  if (step > 0) {
    const places = Math.max(0, Math.min(9, -Math.floor(Math.log10(step) + 1e-9)));
    // 2.5 needs one more place than 2 or 5 of the same power.
    const exact = Math.abs(step * 10 ** places - Math.round(step * 10 ** places)) > 1e-6 ? places + 1 : places;
    return value.toFixed(Math.min(9, exact));
  }
  return String(Number(value.toPrecision(4)));
}

/** The seconds by which the clock of a time zone is ahead of UTC at a moment.
 *  @typedef {(at: number) => number} Zone */

/** The most zones that are kept. */
const ZONES_MAX = 64;
/** @type {Map<string, Zone>} */
const zones = new Map();
/** The zone of texts and ticks that name none; '' is the browser's. */
let pageZone = '';

/**
 * Sets the time zone of all texts and ticks of this page that name none.
 * @param {string} name as a dashboard names it
 */
export function useTimeZone(name) {
  pageZone = name;
}

/**
 * @param {string} name "utc", an IANA name, or "browser" and '' for the browser's zone; an unknown
 *   one counts as UTC
 * @returns {Zone}
 */
function zoneOf(name) {
  if (name === '' && pageZone !== '') return zoneOf(pageZone);
  let zone = zones.get(name);
  if (!zone) {
    if (zones.size >= ZONES_MAX) zones.clear();
    zones.set(name, (zone = newZone(name)));
  }
  return zone;
}

/**
 * Only the offset of a named zone comes from Intl: a formatter for each kind of text would delay the
 * first chart by several milliseconds, and each text would take ten times as long.
 * @param {string} name
 * @returns {Zone}
 */
function newZone(name) {
  if (['', 'browser', 'default'].includes(name)) return (at) => -60 * new Date(at * 1000).getTimezoneOffset();
  /** @type {Intl.DateTimeFormat} */
  let offset;
  try {
    offset = new Intl.DateTimeFormat('en', { timeZone: name, timeZoneName: 'longOffset' });
  } catch {
    return () => 0;
  }
  return (at) => {
    // "1/1/2026, GMT-03:30"; UTC is "GMT". Local mean times of the past have seconds.
    const [, sign, ...parts] = /GMT([+-])(\d\d):(\d\d)(?::(\d\d))?/.exec(offset.format(at * 1000)) ?? [];
    const [hours, minutes, seconds] = parts.map((part) => Number(part ?? 0));
    return sign ? (sign === '-' ? -1 : 1) * (hours * 3600 + minutes * 60 + seconds) : 0;
  };
}

const DAYS = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const twoDigits = (/** @type {number} */ number) => (number < 10 ? `0${number}` : `${number}`);

/**
 * A date whose fields of UTC are those of the clock of a zone.
 * @param {number} at
 * @param {Zone} zone
 */
const clockOf = (at, zone) => new Date((at + zone(at)) * 1000);
/** "Nov 21" @param {Date} time */
const dateText = (time) => `${MONTHS[time.getUTCMonth()]} ${time.getUTCDate()}`;
/** "12:05" @param {Date} time */
const minuteText = (time) => `${twoDigits(time.getUTCHours())}:${twoDigits(time.getUTCMinutes())}`;
/** "12:05:30" @param {Date} time */
const secondText = (time) => `${minuteText(time)}:${twoDigits(time.getUTCSeconds())}`;

/**
 * A moment in full: "Sat, Nov 21, 12:05:30".
 * @param {number} at
 * @param {string} [timeZone] as a dashboard names it
 * @throws {RangeError} for a time that is not finite or that no date can have
 */
export function formatMoment(at, timeZone = '') {
  const time = clockOf(at, zoneOf(timeZone));
  if (Number.isNaN(time.getTime())) throw new RangeError('Invalid time value');
  return `${DAYS[time.getUTCDay()]}, ${dateText(time)}, ${secondText(time)}`;
}

/**
 * Ticks at round local times, about `count`. `major` marks the beginning of a day.
 * @param {number} start
 * @param {number} end inclusive
 * @param {number} count
 * @param {string} [timeZone] as a dashboard names it
 * @returns {{at: number, text: string, major: boolean}[]}
 */
export function timeTicks(start, end, count, timeZone = '') {
  const step = niceStep(end - start, count);
  const ahead = zoneOf(timeZone);
  /** @type {{at: number, text: string, major: boolean}[]} */
  const ticks = [];
  const push = (/** @type {number} */ at, /** @type {string} */ text, /** @type {boolean} */ major) =>
    at >= start && at <= end && ticks.push({ at, text, major });
  if (step >= MONTH) {
    const months = step >= 31536000 ? 12 : step >= 7776000 ? 3 : 1;
    const from = new Date((start + ahead(start)) * 1000);
    for (let index = 0; ticks.length <= count && index < 600; index += 1) {
      const first = Math.floor(from.getUTCMonth() / months) * months + index * months;
      const plain = Date.UTC(from.getUTCFullYear(), first, 1) / 1000;
      const at = plain - ahead(plain - ahead(plain));
      if (at > end) break;
      const time = clockOf(at, ahead);
      push(at, `${MONTHS[time.getUTCMonth()]} ${time.getUTCFullYear()}`, false);
    }
    return ticks;
  }
  const offset = ahead(start);
  const first = Math.ceil((start + offset) / step) * step - offset;
  for (let plain = first; plain <= end + 3600 && ticks.length <= count + 2; plain += step) {
    // Across a change of summer time, hours and days stay on the local clock.
    const at = step >= 3600 ? plain + offset - ahead(plain) : plain;
    const midnight = (at + ahead(at)) % DAY === 0;
    const text = step >= DAY || midnight ? dateText : step < 60 ? secondText : minuteText;
    push(at, text(clockOf(at, ahead)), midnight && step < DAY);
  }
  return ticks;
}

/**
 * A selector as PromQL writes it: `up{job="api"}`.
 * @param {Object<string, string>} labels
 */
export function fullName(labels) {
  const pairs = Object.keys(labels)
    .filter((label) => label !== '__name__')
    .sort()
    .map((label) => `${label}=${JSON.stringify(labels[label])}`);
  const metric = labels.__name__ ?? '';
  return pairs.length || !metric ? `${metric}{${pairs.join(', ')}}` : metric;
}
