// The panel that was copied last: kept in this browser, for all dashboards and organisations.

import { checkSize, isObject, textOf } from './limits.js';

/** @typedef {import('./limits.js').Json} Json */

const KEY = 'promlet.copied-panel';
/** Longest panel, in UTF-16 code units of its JSON. */
export const PANEL_MAX = 256 * 1024;

/**
 * @param {Storage | null} storage null where the browser refuses it
 * @param {Json} panel the raw panel
 * @returns {boolean} whether it was kept: it is too large, or the browser refuses
 */
export function copyPanel(storage, panel) {
  const text = JSON.stringify(panel);
  if (text.length > PANEL_MAX) return false;
  try {
    if (!storage) return false;
    storage.setItem(KEY, text);
    return true;
  } catch {
    return false;
  }
}

/**
 * The copied panel; null without one, and for text that is no panel.
 * @param {Storage | null} storage null where the browser refuses it
 * @returns {Json | null}
 */
export function copiedPanel(storage) {
  try {
    const text = storage?.getItem(KEY) ?? '';
    if (text === '' || text.length > PANEL_MAX) return null;
    const panel = JSON.parse(text);
    checkSize(panel);
    return isObject(panel) && textOf(panel.type) !== '' && panel.type !== 'row' ? panel : null;
  } catch {
    return null;
  }
}

/** The most names that are returned. */
const NAMES_MAX = 10;

/**
 * The variables that a panel uses and a dashboard does not have.
 * @param {Json} panel of `copiedPanel`, so its size is bounded
 * @param {unknown[]} variables the raw `templating.list`
 * @returns {string[]}
 */
export function missingVariables(panel, variables) {
  const known = new Set(variables.map((one) => (isObject(one) ? textOf(one.name) : '')));
  const found = new Set();
  // `$1` in a regular expression, and `$__range`, are no variables of the dashboard.
  for (const [, ...names] of JSON.stringify(panel).matchAll(/\$\{?([A-Za-z]\w{0,127})|\[\[([A-Za-z]\w{0,127})/g)) {
    const name = names.find(Boolean) ?? '';
    if (!known.has(name)) found.add(name);
  }
  return [...found].slice(0, NAMES_MAX);
}
