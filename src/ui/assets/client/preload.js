// Loads a module and everything that it imports at once, instead of level by level.

import { h } from '../chart/dom.js';
import { IMPORTED, MODULES } from './import_table.js';

/** @type {Set<string>} */
const asked = new Set();

/**
 * Lets the browser fetch a module that will be imported, with all that it imports.
 * @param {string} name such as `pages/dashboard.js`
 */
export function preload(name) {
  const imported = Object.hasOwn(IMPORTED, name) ? IMPORTED[name].map((index) => MODULES[index]) : [];
  for (const module of [name, ...imported]) {
    if (asked.has(module)) continue;
    asked.add(module);
    document.head.append(h('link', { rel: 'modulepreload', href: new URL(`../${module}`, import.meta.url).href }));
  }
}
