// Loads a style sheet that only some pages need.

import { h } from '../chart/dom.js';

/** @type {Map<string, Promise<void>>} */
const loaded = new Map();

/**
 * Resolves when the sheet applies, or could not be loaded.
 * @param {string} name of the file
 * @returns {Promise<void>}
 */
export function stylesheet(name) {
  const found =
    loaded.get(name) ??
    new Promise((/** @type {(value: void) => void} */ resolve) => {
      document.head.append(
        h('link', {
          rel: 'stylesheet',
          href: new URL(`../${name}`, import.meta.url).href,
          on: { load: () => resolve(), error: () => resolve() },
        }),
      );
    });
  loaded.set(name, found);
  return found;
}

/**
 * Waits for a module and for its style sheet.
 * @template Module
 * @param {string} name of the sheet
 * @param {Promise<Module>} module
 */
export async function withStylesheet(name, module) {
  await stylesheet(name);
  return module;
}
