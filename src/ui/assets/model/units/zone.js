// Wall clocks of time zones, by means of the browser's own time zone data.

/**
 * A moment as a time zone shows it. The UTC getters of `local` return the wall clock's parts;
 * `offset` is in minutes east of UTC; `zone` is empty for the browser's own zone.
 * @typedef {{local: Date, offset: number, zone: string}} WallClock
 */

/** Formatters that are kept; a dashboard uses one zone or two. */
const FORMATTERS_MAX = 50;
/** @type {Map<string, Intl.DateTimeFormat|null>} null for an unknown zone */
const formatters = new Map();

/**
 * @param {string} zone
 * @param {'longOffset'|'short'} timeZoneName
 * @param {string} language
 */
function formatter(zone, timeZoneName, language) {
  const key = `${language} ${timeZoneName} ${zone}`;
  let found = formatters.get(key);
  if (found === undefined) {
    try {
      found = new Intl.DateTimeFormat(language, { timeZone: zone, timeZoneName });
    } catch {
      found = null;
    }
    if (formatters.size >= FORMATTERS_MAX) formatters.clear();
    formatters.set(key, found);
  }
  return found;
}

/** @param {Intl.DateTimeFormat} format @param {Date} time */
const zoneName = (format, time) => format.formatToParts(time).find((part) => part.type === 'timeZoneName')?.value ?? '';

/**
 * Returns the wall clock of a zone at a moment.
 * @param {Date} time a valid date
 * @param {string} [zone] "utc", an IANA name, or anything else for the browser's own zone
 * @returns {WallClock}
 */
export function wallClock(time, zone = '') {
  if (zone === 'utc') return { local: time, offset: 0, zone: 'UTC' };
  const named = /^[a-z][\w/+-]*$/i.test(zone) && formatter(zone, 'longOffset', 'en');
  if (named) {
    const [, sign, hours, minutes, seconds] = /([+-])(\d\d):(\d\d):?(\d\d)?/.exec(zoneName(named, time)) ?? [];
    const east = Number(hours ?? 0) * 60 + Number(minutes ?? 0) + Number(seconds ?? 0) / 60;
    const offset = sign === '-' ? -east : east;
    return { local: new Date(time.getTime() + Math.round(offset * 6e4)), offset, zone };
  }
  const local = new Date(0);
  local.setUTCFullYear(time.getFullYear(), time.getMonth(), time.getDate());
  local.setUTCHours(time.getHours(), time.getMinutes(), time.getSeconds(), time.getMilliseconds());
  return { local, offset: -time.getTimezoneOffset(), zone: '' };
}

/** English of these regions has the abbreviations that are usual there. */
const REGIONS = ['en-US', 'en-GB', 'en-CA', 'en-AU', 'en-IN', 'en-NZ', 'en-ZA', 'en-HK'];
/** Abbreviations of large zones that English does not have, by zone and minutes east of UTC. */
const ABBREVIATIONS = new Map([
  ['Asia/Tokyo 540', 'JST'], ['Asia/Seoul 540', 'KST'], ['Asia/Shanghai 480', 'CST'], ['Asia/Manila 480', 'PST'],
  ['Asia/Jakarta 420', 'WIB'], ['Asia/Karachi 300', 'PKT'], ['Europe/Moscow 180', 'MSK'], ['Europe/Dublin 60', 'IST'],
  ['Asia/Jerusalem 120', 'IST'], ['Asia/Jerusalem 180', 'IDT'],
]);

/**
 * Returns the abbreviation of a zone at a moment ("CEST"), or its offset ("+0530") if English has
 * none; an empty text for the browser's own zone.
 * @param {Date} time
 * @param {WallClock} clock
 * @returns {string}
 */
export function abbreviation(time, { zone, offset }) {
  if (!zone || zone === 'UTC') return zone;
  const known = ABBREVIATIONS.get(`${zone} ${offset}`);
  if (known) return known;
  for (const region of REGIONS) {
    const format = formatter(zone, 'short', region);
    const name = format ? zoneName(format, time) : '';
    if (name && !/[+-]/.test(name)) return name;
  }
  return offsetText(offset, offset % 60 ? '' : null);
}

/**
 * Returns an offset as "+02:00".
 * @param {number} offset minutes east of UTC
 * @param {string|null} between what stands between hours and minutes; null leaves out the minutes
 * @returns {string}
 */
export function offsetText(offset, between) {
  const minutes = Math.abs(offset);
  const two = (/** @type {number} */ number) => `${Math.trunc(number)}`.padStart(2, '0');
  return (offset < 0 ? '-' : '+') + two(minutes / 60) + (between === null ? '' : between + two(minutes % 60));
}
