// Numbers as text with Grafana's decimals and prefixes. The texts equal those of @grafana/data 11.

/**
 * A value as text. `suffix` and `prefix` are empty when left out.
 * @typedef {{text: string, prefix?: string, suffix?: string}} Written
 */

/**
 * Returns the number of decimals for a value without configured decimals: none for an integer, else
 * as many as three significant digits need. NaN for NaN.
 * @param {number} value
 * @returns {number}
 */
export function automaticDecimals(value) {
  if (value % 1 === 0) return 0;
  return Math.max(0, 2 - Math.floor(Math.log(Math.abs(value)) / Math.LN10));
}

/**
 * Returns a decimal number with exactly `decimals` places, half rounded up.
 * Infinities are signs, and a result of 1e21 or more, or below 1e-6, keeps its exponent. As in
 * Grafana, NaN with two decimals is "NaN.00".
 * @param {number} value
 * @param {number|null} [decimals] null: automatic; out of 0..100 is no error
 * @returns {string}
 */
export function fixed(value, decimals) {
  if (value === Infinity || value === -Infinity) return value.toLocaleString();
  const places = decimals ?? automaticDecimals(value);
  if (value === 0) return value.toFixed(digits(places));
  const factor = places ? 10 ** Math.max(0, places) : 1;
  const text = String(Math.round(value * factor) / factor);
  const point = text.indexOf('.');
  const has = point < 0 ? 0 : text.length - point - 1;
  if (text.includes('e') || !(has < places)) return text;
  return `${text}${has ? '' : '.'}${String(factor).slice(1, places - has + 1)}`;
}

/**
 * Decimals within the range that the language's own formatting takes without an error.
 * @param {number} decimals
 */
export const digits = (decimals) => Math.min(100, Math.max(0, decimals)) || 0;

/**
 * Returns a value divided by the largest power of `base` not above it, and the unit of that power.
 * Infinities and NaN have no unit.
 * @param {number} value
 * @param {number|null|undefined} decimals
 * @param {number} base
 * @param {string[]} names suffixes of the powers, ascending
 * @param {number} [start] index of the suffix in which values are measured
 * @returns {Written}
 */
export function scaled(value, decimals, base, names, start = 0) {
  if (!Number.isFinite(value)) return { text: value.toLocaleString() };
  const power = value === 0 ? 0 : Math.floor(Math.log10(Math.abs(value)) / Math.log10(base));
  const shown = Math.min(Math.max(power, -start), names.length - 1 - start);
  return { text: fixed(value / base ** shown, decimals), suffix: names[start + shown] };
}

const THOUSANDS = ['', 'K', 'M', 'B', 'T'];

/**
 * Returns an amount of money, the sign before the symbol.
 * @param {number} value
 * @param {number|null|undefined} decimals
 * @param {string} symbol
 * @param {boolean} behind whether the symbol follows the number
 * @returns {Written}
 */
export function money(value, decimals, symbol, behind) {
  const { text, suffix } = scaled(Math.abs(value), decimals, 1000, THOUSANDS);
  const sign = value < 0 ? '-' : '';
  // Grafana shows an infinite amount without a symbol that would follow it.
  if (behind) return { text, prefix: sign, suffix: suffix === undefined ? '' : suffix + symbol };
  return { text, prefix: sign + symbol, suffix };
}

/**
 * Returns a count in thousands, millions, ... of the unit `symbol`. As in Grafana, a value that is
 * not finite is followed by the word "undefined".
 * @param {number|undefined} value
 * @param {number|null|undefined} decimals
 * @param {string} symbol
 * @returns {Written}
 */
export function count(value, decimals, symbol) {
  if (value === undefined) return { text: '', suffix: `undefined ${symbol}` };
  const { text, suffix } = scaled(value, decimals, 1000, THOUSANDS);
  return { text, suffix: `${suffix} ${symbol}` };
}

/**
 * Returns a number in base 16, upper case, rounded to decimals before.
 * @param {number} value
 * @param {number|null|undefined} decimals
 * @param {string} before "0x" or nothing; follows the minus
 * @returns {Written}
 */
export function hexadecimal(value, decimals, before) {
  const text = parseFloat(fixed(value, decimals)).toString(16).toUpperCase();
  return { text: text.startsWith('-') ? `-${before}${text.slice(1)}` : before + text };
}

/**
 * Formatters of the browser's language by number of places.
 * @type {Map<number|undefined, Intl.NumberFormat>}
 */
const localFormats = new Map();

/**
 * Returns a number in the browser's language.
 * @param {number} value
 * @param {number|undefined} places at most as many decimals, up to 20; undefined: 3
 * @returns {string}
 */
export function localNumber(value, places) {
  // Browsers before 2023 take no more than 20.
  const most = places === undefined ? undefined : Math.min(20, Math.floor(places));
  let format = localFormats.get(most);
  if (!format) localFormats.set(most, format = new Intl.NumberFormat(undefined, { maximumFractionDigits: most }));
  return format.format(value);
}
