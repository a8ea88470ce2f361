// Formats of a variable's value: `${name:csv}`, `${name:regex}`, and the escaping inside PromQL.

import { numberOf } from './limits.js';
import { dateText } from './time_zone.js';

/**
 * @typedef {string | string[]} Value one selected value, or several
 * @typedef {{name: string, multi?: boolean, includeAll?: boolean}} Named
 * @typedef {{name: string, text: Value, timeZone?: string, args: string[]}} FormatContext
 */

/** @param {Value} value @returns {string[]} */
export function valuesOf(value) {
  return Array.isArray(value) ? value : [value];
}

/** @param {Value} value @param {(one: string) => string} each @param {string} separator */
function joined(value, each, separator = ',') {
  return valuesOf(value).map(each).join(separator);
}

/** @param {string} text */
function regexEscaped(text) {
  return text.replace(/[\\^$*+?.()|[\]{}/]/g, '\\$&');
}

/** @param {string} text */
function luceneEscaped(text) {
  return text.replace(/([!*+\-=<>\s&|()[\]{}^~?:\\/"])/g, '\\$1');
}

/** Also escapes the marks that `encodeURIComponent` keeps. @param {string} text */
export function urlEscaped(text) {
  return encodeURIComponent(text.toWellFormed?.() ?? text)
    .replace(/[!'()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** @type {Record<string, string>} */
const ENTITIES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

/** @param {Value} value */
function glob(value) {
  return Array.isArray(value) && value.length !== 1 ? `{${value.join(',')}}` : valuesOf(value)[0];
}

/** @param {Value} value */
function lucene(value) {
  if (!Array.isArray(value)) return luceneEscaped(value);
  return value.length === 0 ? '__empty__' : `(${value.map((one) => `"${luceneEscaped(one)}"`).join(' OR ')})`;
}

/** @param {Value} value */
function regex(value) {
  const escaped = valuesOf(value).map(regexEscaped);
  return escaped.length === 1 ? escaped[0] : `(${escaped.join('|')})`;
}

/** @param {Value} value @param {FormatContext} context */
function date(value, context) {
  const pattern = context.args.length === 0 ? 'iso' : context.args.join(':');
  return joined(value, (one) => {
    const time = numberOf(one);
    return time === null ? one : dateText(time, pattern, context.timeZone);
  });
}

/** @type {Map<string, (value: Value, context: FormatContext) => string>} */
const FORMATS = new Map(Object.entries({
  csv: (value) => joined(value, String),
  date,
  distributed: (value, { name }) => valuesOf(value).map((one, at) => (at === 0 ? one : `${name}=${one}`)).join(','),
  doublequote: (value) => joined(value, (one) => `"${one.replaceAll('"', '\\"')}"`),
  glob,
  html: (value) => joined(value, String, ', ').replace(/[&<>"']/g, (mark) => ENTITIES[mark]),
  join: (value, { args }) => joined(value, String, args[0] ?? ','),
  json: (value) => (Array.isArray(value) ? JSON.stringify(value) : value),
  lucene,
  percentencode: (value) => urlEscaped(Array.isArray(value) ? `{${value.join(',')}}` : value),
  pipe: (value) => joined(value, String, '|'),
  queryparam: (value, { name }) => joined(value, (one) => `var-${urlEscaped(name)}=${urlEscaped(one)}`, '&'),
  raw: (value) => joined(value, String),
  regex,
  singlequote: (value) => joined(value, (one) => `'${one.replaceAll("'", "\\'")}'`),
  sqlstring: (value) => joined(value, (one) => `'${one.replaceAll("'", "''")}'`),
  text: (value, { text }) => joined(text, String, ' + '),
  uriencode: (value) => joined(value, (one) => encodeURI(one.toWellFormed?.() ?? one)),
}));

/**
 * The value in a named format, as Grafana writes it; an unknown format counts as `glob`.
 * @param {Value} value
 * @param {string} format with its arguments, for example `date:YYYY-MM`
 * @param {{name: string, text?: Value, timeZone?: string}} context
 */
export function formatValue(value, format, context) {
  const [name, ...args] = format.split(':');
  const apply = FORMATS.get(name) ?? glob;
  return apply(value, { name: context.name, text: context.text ?? value, timeZone: context.timeZone, args }) ?? '';
}

/** The place of a reference in PromQL: inside the quotes of a string, in a comment, or outside (''). */
/** @typedef {'"' | "'" | '`' | '#' | ''} Place */

/**
 * The place after `text`, which starts at `place`.
 * @param {string} text
 * @param {Place} place
 * @returns {Place}
 */
export function placeAfter(text, place) {
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (place === '') {
      if (char === '"' || char === "'" || char === '`' || char === '#') place = char;
    } else if (place === '#') {
      if (char === '\n') place = '';
    } else if (char === '\\' && place !== '`') at += 1;
    else if (char === place) place = '';
  }
  return place;
}

/** @param {string} text @param {Place} place */
function quoted(text, place) {
  if (place === '`') return text.replaceAll('`', '.');
  const escaped = text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
  return place === '"' || place === "'" ? escaped.replaceAll(place, `\\${place}`) : escaped;
}

/**
 * The value inside PromQL when the reference names no format. As in Grafana's Prometheus data
 * source, a variable with several values or with All is a regular expression, `(a|b)` or one
 * escaped value, and any other variable is a literal. Beyond Grafana, escaping follows the quotes
 * around the reference: each value matches itself.
 * @param {Value} value
 * @param {Named} variable
 * @param {Place} place
 */
export function promqlValue(value, variable, place) {
  if (!variable.multi && !variable.includeAll) {
    const text = joined(value, String);
    return place === '"' || place === "'" || place === '`' ? quoted(text, place) : text;
  }
  const escaped = valuesOf(value).map((one) => quoted(one.replace(/[\\^$*+?.()|[\]{}]/g, '\\$&'), place));
  return escaped.length === 1 ? escaped[0] : `(${escaped.join('|')})`;
}
