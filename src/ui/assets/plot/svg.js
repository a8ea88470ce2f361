// Creates SVG nodes; text only ever becomes a text node.

/**
 * @param {string} tag
 * @param {Record<string, string | number | undefined>} [attributes] undefined leaves one out
 * @param {...(Node | string | null | false)} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) node.setAttribute(name, String(value));
  }
  for (const child of children) if (child) node.append(child);
  return node;
}

/**
 * The path of a ring's part, clockwise.
 * @param {number} cx
 * @param {number} cy
 * @param {number} outer radius
 * @param {number} inner radius, 0 for a slice
 * @param {number} from angle in radians, 0 at the top
 * @param {number} to
 */
export function arcPath(cx, cy, outer, inner, from, to) {
  const end = Math.min(to, from + 2 * Math.PI - 1e-4);
  const large = end - from > Math.PI ? 1 : 0;
  const point = (/** @type {number} */ radius, /** @type {number} */ angle) =>
    `${(cx + radius * Math.sin(angle)).toFixed(2)} ${(cy - radius * Math.cos(angle)).toFixed(2)}`;
  const back =
    inner > 0 ? `L${point(inner, end)}A${inner} ${inner} 0 ${large} 0 ${point(inner, from)}` : `L${cx} ${cy}`;
  return `M${point(outer, from)}A${outer} ${outer} 0 ${large} 1 ${point(outer, end)}${back}Z`;
}
