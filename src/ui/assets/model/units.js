// Values as text in all of Grafana's units, equal to the text of @grafana/data 11.

import { formatOf, SI, SI_NONE } from './units/catalogue.js';
import { dateUnit, formatDate } from './units/date.js';
import { clock, hoursMinutesSeconds, LADDERS, scaledTime, words } from './units/duration.js';
import { count, digits, fixed, hexadecimal, localNumber, money, scaled } from './units/number.js';

export { automaticDecimals } from './units/number.js';
export { unitTicks } from './units/ticks.js';

/**
 * @typedef {import('./units/date.js').DateOptions & {adjacentDecimals?: number|null}} UnitOptions
 * `adjacentDecimals` are the decimals that the neighbours of a value need, on an axis for instance.
 * They count when no decimals are configured, and zeros at the end of the number are left out.
 * @typedef {import('./units/number.js').Written} Written
 */

const SHORT = ['', ' K', ' Mil', ' Bil', ' Tri', ' Quadr', ' Quint', ' Sext', ' Sept'];
const PSI = ['psi', 'ksi', 'Mpsi'];
const BINARY = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei', 'Zi', 'Yi'];
/** Units whose text has no zeros to leave out. */
const UNTRIMMED = /^(?:time:|currency|bool|locale$)/;

/**
 * Returns a value in a unit, in parts.
 *
 * Null is an empty text in most units. NaN, undefined and infinities have the text that Grafana's
 * formats give them, which may be odd ("NaN.00", "∞undefined req/s"); Grafana's panels show the
 * plain "NaN" instead, without asking a format.
 * @param {number|null|undefined} value dates are unix milliseconds
 * @param {string|null} [unit] an unknown unit is a suffix; none is a plain number
 * @param {number|null} [decimals] null or undefined: automatic
 * @param {UnitOptions} [options]
 * @returns {{prefix: string, text: string, suffix: string}}
 */
export function formatUnit(value, unit, decimals, options = {}) {
  const { adjacentDecimals: shared } = options;
  const trimmed = (shared ?? null) !== null && (decimals ?? null) === null && !UNTRIMMED.test(unit ?? '');
  const written = write(value, unit, trimmed ? shared : decimals, options);
  const { prefix = '', suffix = '' } = written;
  // Grafana trims texts such as "01:00:00", too, and shows NaN.
  const number = trimmed && value !== null ? Number(written.text) : NaN;
  return { prefix, text: Number.isNaN(number) ? written.text : `${number}`, suffix };
}

/**
 * Returns a value in a unit as one text. The parameters are those of `formatUnit`.
 * @param {number|null|undefined} value
 * @param {string|null} [unit]
 * @param {number|null} [decimals]
 * @param {UnitOptions} [options]
 * @returns {string}
 */
export function display(value, unit, decimals, options) {
  const { prefix, text, suffix } = formatUnit(value, unit, decimals, options);
  return prefix + text + suffix;
}

/**
 * Applies the format of a unit. Some formats show null as 0, the others as an empty text.
 * @param {number|null|undefined} value
 * @param {string|null|undefined} unit
 * @param {number|null|undefined} decimals
 * @param {UnitOptions} options
 * @returns {Written}
 */
function write(value, unit, decimals, options) {
  const { kind, symbol, offset } = formatOf(unit);
  const number = Number(value);
  const now = () => options.now ?? Date.now();
  switch (kind) {
    case 'string': return { text: `${value}` };
    case '?': return { text: truth(value, symbol) };
    case '@': return { text: formatDate(value === undefined ? now() : value, symbol, options.timeZone) };
    case 'dthms': case 'dtdhms': return hoursMinutesSeconds(number, kind === 'dtdhms');
    case 'timeticks': return scaledTime(number / 100, decimals, 's');
    case 'clocks': return { text: clock(number * 1000, decimals, now()) };
    default:
  }
  if (kind.startsWith('dateTime')) return { text: dateUnit(value, kind, options) };
  if (value === null) return { text: '' };
  switch (kind) {
    case '=': return { text: fixed(number, decimals), suffix: symbol && ` ${symbol}` };
    case '^': return { text: fixed(number, decimals), prefix: symbol };
    case '/': return count(value, decimals, symbol);
    case 'percent': return { text: fixed(number, decimals), suffix: '%' };
    case 'percentunit': return { text: fixed(100 * number, decimals), suffix: '%' };
    case 'dtdurationms': return words(number, decimals, 'millisecond');
    case 'dtdurations': return words(number, decimals, 'second');
    case 'clockms': return { text: clock(value, decimals, now()) };
    default:
  }
  if (LADDERS.has(kind)) return scaledTime(number, decimals, kind);
  if (value === undefined) return { text: '' };
  const places = decimals === null || decimals === undefined ? undefined : digits(decimals);
  switch (kind) {
    case '~': return withSymbol(scaled(value, decimals, 1000, SI, SI_NONE + offset), symbol);
    case '#': return withSymbol(scaled(value, decimals, 1024, BINARY, offset), symbol);
    case 'short': return scaled(value, decimals, 1000, SHORT);
    case 'pressurepsi': return scaled(value, decimals, 1000, PSI);
    case 'hex': return hexadecimal(value, decimals, '');
    case 'hex0x': return hexadecimal(value, decimals, '0x');
    case 'sci': return { text: value.toExponential(places) };
    case 'locale': return { text: localNumber(value, places) };
    default: return money(value, decimals, symbol, kind === '&');
  }
}

/**
 * Puts the symbol behind the prefix of a power.
 * @param {Written} written
 * @param {string} symbol
 * @returns {Written}
 */
const withSymbol = ({ text, suffix }, symbol) => ({ text, suffix: suffix === undefined ? '' : ` ${suffix}${symbol}` });

/**
 * Returns the text of zero, null and NaN, or that of other values.
 * @param {number|null|undefined} value
 * @param {string} symbol the texts for true and false, with a slash between them
 */
function truth(value, symbol) {
  const slash = symbol.indexOf('/');
  if (slash < 0) return value ? symbol : '-';
  return value ? symbol.slice(0, slash) : symbol.slice(slash + 1);
}
