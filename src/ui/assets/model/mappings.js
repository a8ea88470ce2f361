// Value mappings: text, colour and icon in place of a value.

import { isNone } from './limits.js';
import { PATTERN_MAX, safeRegex } from './pattern.js';

/** @typedef {{text?: string, color?: string, icon?: string, index?: number}} Mapped */
/** @typedef {{type?: unknown, options?: any, [key: string]: any}} Mapping */

/** The most mappings of a field. */
export const MAPPINGS_MAX = 1000;

/** Compiled expressions of mappings; emptied when it is full. @type {Map<string, RegExp | null>} */
const compiled = new Map();
const COMPILED_MAX = 200;

/** @param {unknown} pattern */
function regexOf(pattern) {
  const key = String(pattern);
  let regex = compiled.get(key);
  if (regex === undefined) {
    if (compiled.size >= COMPILED_MAX) compiled.clear();
    regex = safeRegex(pattern);
    compiled.set(key, regex);
  }
  return regex;
}

/** @param {any} bound @param {number} open used for no bound */
const boundOf = (bound, open) => (bound === null || bound === undefined || bound === '' ? open : Number(bound));

/** @param {any} value @param {unknown} match */
function isSpecial(value, match) {
  switch (match) {
    case 'null': return isNone(value);
    case 'nan': return typeof value === 'number' && Number.isNaN(value);
    case 'null+nan': return isNone(value) || (typeof value === 'number' && Number.isNaN(value));
    case 'true': return value === true || value === 'true';
    case 'false': return value === false || value === 'false';
    case 'empty': return value === '';
    default: return false;
  }
}

/** @param {any} value @param {any} options @returns {Mapped | null} */
function inRange(value, options) {
  const number = isNone(value) || value === '' ? NaN : Number.parseFloat(value);
  const within = number >= boundOf(options?.from, -Infinity) && number <= boundOf(options?.to, Infinity);
  return within ? options?.result ?? {} : null;
}

/** @param {any} value @param {any} options @returns {Mapped | null} */
function byPattern(value, options) {
  if (typeof value !== 'string') return null;
  const regex = regexOf(options?.pattern);
  if (!regex?.test(value)) return null;
  const { text } = options?.result ?? {};
  return { ...options?.result,
    ...(typeof text === 'string' ? { text: value.replace(regex, text.slice(0, PATTERN_MAX)) } : {}) };
}

/** @param {any} value @param {Mapping} mapping @returns {Mapped | null} */
function apply(value, mapping) {
  const { options } = mapping;
  switch (mapping.type) {
    case 'value': {
      if (isNone(value) || typeof options !== 'object' || options === null) return null;
      return Object.hasOwn(options, String(value)) ? options[String(value)] : null;
    }
    case 'range': return inRange(value, options);
    case 'regex': return byPattern(value, options);
    case 'special': return isSpecial(value, options?.match) ? options?.result ?? {} : null;
    default: return null;
  }
}

/**
 * Converts mappings of old dashboards: `{type: 1, value, text}` for a value, `{type: 2, from, to, text}`
 * for a range, and `{op: '=', value, text}` of `valueMaps`. Others stay. The value or bound "null" is
 * the special value null.
 * @param {unknown} mappings
 * @returns {Mapping[]}
 */
export function currentMappings(mappings) {
  return (Array.isArray(mappings) ? mappings.slice(0, MAPPINGS_MAX) : []).flatMap((mapping) => {
    if (mapping === null || typeof mapping !== 'object') return [];
    if (typeof mapping.type === 'string') return [mapping];
    const { value, from, to, text, color } = mapping;
    const result = { text: text === undefined ? undefined : String(text), ...(color ? { color } : {}) };
    if (value === 'null' || (from === 'null' && to === 'null')) {
      return [{ type: 'special', options: { match: 'null', result } }];
    }
    if (value !== undefined && value !== '') {
      return [{ type: 'value', options: Object.fromEntries([[String(value), result]]) }];
    }
    if (from !== undefined || to !== undefined) return [{ type: 'range', options: { from, to, result } }];
    return [];
  });
}

/**
 * Returns the result of the first mapping that a value matches; null for none.
 * @param {any} value
 * @param {unknown} mappings in their current form
 * @returns {Mapped | null}
 */
export function mapValue(value, mappings) {
  if (!Array.isArray(mappings)) return null;
  for (const mapping of mappings) {
    const current = typeof mapping?.type === 'string' ? [mapping] : currentMappings([mapping]);
    const result = current.length ? apply(value, current[0]) : null;
    if (result && typeof result === 'object') return result;
  }
  return null;
}
