// Bounds of a dashboard, the error that names them, and readers of values with any shape.

/** Longest dashboard JSON, in bytes of UTF-8. */
export const JSON_MAX = 1024 * 1024;
/** The most panels of a dashboard, rows and the panels inside rows included. */
export const PANELS_MAX = 500;
/** The most queries of a dashboard, over all panels. */
export const QUERIES_MAX = 1000;
/** The most variables of a dashboard. */
export const VARIABLES_MAX = 50;
/** Deepest nesting of the JSON, in arrays and objects. */
export const DEPTH_MAX = 100;
/** Longest text after variables are replaced, in UTF-16 code units. */
export const TEXT_MAX = 1024 * 1024;
/** Longest query after variables are replaced, in UTF-16 code units. */
export const QUERY_MAX = 64 * 1024;
/** The most queries of one request, as the server allows. */
export const BATCH_MAX = 1000;

/** Errors that mean "too large" (HTTP 413); the others mean "not usable" (HTTP 422). */
const TOO_LARGE = new Set(['json_too_large', 'too_many_panels', 'too_many_queries', 'too_many_variables']);

/** The one error of the model: a dashboard, a variable or a text that cannot be used. */
export class DashboardError extends Error {
  /**
   * @param {string} code stable identifier in snake case
   * @param {string} message
   * @param {Record<string, unknown>} [detail] for example `{limit, found}` or `{cycle}`
   */
  constructor(code, message, detail = {}) {
    super(message);
    this.name = 'DashboardError';
    this.code = code;
    this.detail = detail;
    /** HTTP status of the same error in the API. */
    this.status = TOO_LARGE.has(code) ? 413 : 422;
  }
}

/** @typedef {Record<string, any>} Json an object read from JSON */

/** @param {unknown} value @returns {value is Json} */
export function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * The value, or an empty object for anything but an object.
 * @param {unknown} value
 * @returns {Json}
 */
export function objectOf(value) {
  return isObject(value) ? value : {};
}

/**
 * The objects of a list; an empty list for anything else.
 * @param {unknown} value
 * @returns {Json[]}
 */
export function objectsOf(value) {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

/** The strings of a list; an empty list for anything else. @param {unknown} value @returns {string[]} */
export const textsOf = (value) => listOf(value).filter((one) => typeof one === 'string');

/** @param {unknown} value */
export const isNone = (value) => value === null || value === undefined;

/** @param {unknown} value @returns {any[]} */
export function listOf(value) {
  return Array.isArray(value) ? value : [];
}

/**
 * Text of a string, number or boolean; the fallback otherwise.
 * @param {unknown} value
 * @param {string} [fallback]
 */
export function textOf(value, fallback = '') {
  if (typeof value === 'string') return value;
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : fallback;
}

/**
 * A finite number, also from its text; null otherwise.
 * @param {unknown} value
 * @returns {number | null}
 */
export function numberOf(value) {
  if (typeof value === 'string' && value.trim() !== '') value = Number(value);
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

/**
 * A whole number between both ends, inclusive.
 * @param {unknown} value
 * @param {number} low
 * @param {number} high
 * @param {number} fallback
 */
export function wholeOf(value, low, high, fallback) {
  const number = numberOf(value);
  return number === null ? fallback : Math.min(high, Math.max(low, Math.round(number)));
}

/**
 * An own property of an object; undefined for anything else.
 * @param {unknown} value
 * @param {string} name
 */
export function own(value, name) {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

/** Copies without the entries that are undefined. @param {Json} value @returns {Json} */
export function defined(value) {
  return Object.fromEntries(Object.entries(value).filter(([, item]) => item !== undefined));
}

/**
 * Equality of JSON values: the order of keys does not count. Both values must be at most DEPTH_MAX
 * deep.
 * @param {unknown} left
 * @param {unknown} right
 * @returns {boolean}
 */
export function sameJson(left, right) {
  if (Object.is(left, right)) return true;
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((item, index) => sameJson(item, right[index]));
  }
  if (!isObject(left) || !isObject(right)) return false;
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length
    && keys.every((key) => Object.hasOwn(right, key) && sameJson(left[key], right[key]));
}

/**
 * Checks the size and the depth of a parsed document before anything recurses over it.
 * @param {unknown} document
 */
export function checkSize(document) {
  let nodes = 0;
  let level = [document];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > DEPTH_MAX) {
      throw new DashboardError('too_deep', `The dashboard is nested over ${DEPTH_MAX} levels.`, { limit: DEPTH_MAX });
    }
    /** @type {unknown[]} */
    const next = [];
    for (const value of level) {
      if (typeof value !== 'object' || value === null) continue;
      for (const item of Array.isArray(value) ? value : Object.values(value)) {
        next.push(item);
        // Each value takes at least two bytes of JSON.
        if ((nodes += 1) > JSON_MAX / 2) throw tooLarge(nodes * 2);
      }
    }
    level = next;
  }
  const bytes = new TextEncoder().encode(JSON.stringify(document) ?? '').length;
  if (bytes > JSON_MAX) throw tooLarge(bytes);
}

/** @param {number} found size in bytes */
export function tooLarge(found) {
  return new DashboardError('json_too_large', `The dashboard has over ${JSON_MAX} bytes of JSON (1 MiB).`,
    { limit: JSON_MAX, found });
}
