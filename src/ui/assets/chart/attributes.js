// The attributes of <metric-chart>, and its properties with the same names.

import { QUERY_ATTRIBUTES } from './query.js';

/** Attributes that change only how a response is shown. */
export const DISPLAY_ATTRIBUTES = ['title', 'unit', 'legend', 'theme', 'refresh', 'live'];
/** Properties that are a number or null. `live` is a boolean, and all others are text. */
const NUMBERS = ['start', 'end', 'refresh'];

/** The greatest length of a text that is drawn, in characters. */
const TEXT_MAX = 200;

/**
 * Every property that mirrors an attribute, with its attribute. `title` is not among them: the
 * element takes that attribute off.
 * @type {Map<string, string>}
 */
export const PROPERTIES = new Map(
  [...QUERY_ATTRIBUTES, ...DISPLAY_ATTRIBUTES]
    .filter((name) => name !== 'title')
    .map((name) => [name.replace(/-(.)/g, (_, letter) => letter.toUpperCase()), name]),
);

/**
 * An attribute that is drawn, at most TEXT_MAX characters of it.
 * @param {{getAttribute: (name: string) => string|null}} element
 * @param {string} name
 */
export const textOf = (element, name) => (element.getAttribute(name) ?? '').slice(0, TEXT_MAX);

/**
 * Defines the properties on the prototype of an element. null, undefined, false and '' remove the
 * attribute.
 * @param {object} prototype
 */
export function defineProperties(prototype) {
  for (const [property, name] of PROPERTIES) {
    Object.defineProperty(prototype, property, {
      configurable: true,
      enumerable: true,
      /** @this {HTMLElement} */
      get() {
        const text = this.getAttribute(name);
        if (name === 'live') return text !== null;
        if (!NUMBERS.includes(name)) return text ?? '';
        const number = parseFloat(text ?? '');
        return Number.isNaN(number) ? null : number;
      },
      /** @this {HTMLElement} @param {any} value */
      set(value) {
        if (value || value === 0) this.setAttribute(name, value === true ? '' : value);
        else this.removeAttribute(name);
      },
    });
  }
}

/**
 * Applies properties that were set before the element was defined: they hide those of the
 * prototype.
 * @param {HTMLElement} element
 * @param {string[]} names
 */
export function adoptProperties(element, names) {
  for (const name of names) {
    if (!Object.hasOwn(element, name)) continue;
    const own = /** @type {any} */ (element);
    const value = own[name];
    delete own[name];
    own[name] = value;
  }
}
