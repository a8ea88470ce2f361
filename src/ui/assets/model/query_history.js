// The history of queries of an organisation: the last ones, the starred ones, and a search.

import { hasWords } from './metrics.js';

/** The most queries that are remembered, and most that are starred. */
export const HISTORY_MAX = 100;

/**
 * The history after a query was run: each query once, the newest last.
 * @param {unknown} past
 * @param {string} expr '' leaves the history as it is
 * @returns {string[]}
 */
export function remembered(past, expr) {
  const known = textsOf(past);
  return (expr ? [...known.filter((old) => old !== expr), expr] : known).slice(-HISTORY_MAX);
}

/**
 * The starred queries after the star of one was set or removed.
 * @param {unknown} starred
 * @param {string} expr
 * @param {boolean} on
 * @returns {string[]}
 */
export function withStar(starred, expr, on) {
  const rest = textsOf(starred).filter((old) => old !== expr);
  return (on ? [...rest, expr] : rest).slice(-HISTORY_MAX);
}

/**
 * The queries that contain every word of a search in any case of letters: the starred ones, then
 * the others, the newest first.
 * @param {unknown} past
 * @param {unknown} starred
 * @param {string} search
 * @returns {{expr: string, star: boolean}[]}
 */
export function foundQueries(past, starred, search) {
  const stars = textsOf(starred);
  const all = [...stars.toReversed(), ...textsOf(past).toReversed()];
  return [...new Set(all)]
    .filter((expr) => hasWords(expr, search))
    .map((expr) => ({ expr, star: stars.includes(expr) }));
}

/** Strings of a stored list; anything else in the storage is skipped. @param {unknown} value */
const textsOf = (value) =>
  /** @type {string[]} */ (Array.isArray(value) ? value.filter((one) => typeof one === 'string') : []);
