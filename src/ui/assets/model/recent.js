// Things that this browser used recently: dashboards that were seen, entries of the palette.

import { recall, remember } from './storage.js';

/** The most names that a list keeps. */
const KEPT_MAX = 20;

/**
 * The names of a list, the newest first.
 * @param {string} list
 * @returns {string[]}
 */
export function recent(list) {
  const stored = recall(list, /** @type {string[]} */ ([]));
  return Array.isArray(stored) ? stored.filter((name) => typeof name === 'string') : [];
}

/**
 * Puts a name first in a list.
 * @param {string} list
 * @param {string} name
 */
export function noteUse(list, name) {
  remember(list, [name, ...recent(list).filter((old) => old !== name)].slice(0, KEPT_MAX));
}

/** The list of dashboards that were seen. @param {string} org */
export const seenDashboards = (org) => `dashboards.${org}`;
