// Creates DOM nodes; text only ever becomes a text node, so hostile text stays text.

/** @typedef {Node|string|null|undefined|false|0} Child */

/**
 * @template {string} Tag
 * @param {Tag} tag
 * @param {Object<string, any>} [properties] `on` holds listeners, `class` the class, `text` the
 *   text content; every other property is an attribute, and null, undefined and false leave it out
 * @param {...(Child|Child[])} children null, undefined, false and '' are skipped
 * @returns {Tag extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[Tag] : HTMLElement}
 */
export function h(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'on') for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === 'class') node.className = value;
    else if (name === 'text') node.textContent = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat()) if (child) node.append(child);
  return /** @type {any} */ (node);
}
