// Building nodes. Text only ever becomes a text node, so foreign bytes stay text.

/**
 * @param {string} tag
 * @param {Object<string, any>} [properties] `on` holds listeners, `class` the class, null and false leave an
 *   attribute out; a property with a dash, or one the node does not know, is an attribute
 * @param {...(Node|string|null|undefined|false)} children
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
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}
