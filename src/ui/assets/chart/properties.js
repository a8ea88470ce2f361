// Properties of an element that mirror its attributes.

/**
 * The attribute of each property, by the property. `title` is not among them: the elements take that
 * attribute off.
 * @param {string[]} attributes
 * @returns {Map<string, string>}
 */
export const propertiesOf = (attributes) =>
  new Map(
    attributes
      .filter((name) => name !== 'title')
      .map((name) => [name.replace(/-(.)/g, (_, letter) => letter.toUpperCase()), name]),
  );

/**
 * Defines properties on the prototype of an element. null, undefined, false and '' remove the
 * attribute.
 * @param {object} prototype
 * @param {Map<string, string>} properties as propertiesOf returns them
 * @param {{numbers: string[], booleans?: string[]}} kinds the properties that are a number or null, and
 *   those that are a boolean; all others are text
 */
export function defineProperties(prototype, properties, { numbers, booleans = [] }) {
  for (const [property, name] of properties) {
    Object.defineProperty(prototype, property, {
      configurable: true,
      enumerable: true,
      /** @this {HTMLElement} */
      get() {
        const text = this.getAttribute(name);
        if (booleans.includes(name)) return text !== null;
        if (!numbers.includes(name)) return text ?? '';
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
