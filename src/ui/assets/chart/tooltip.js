// The rows of the tooltip of a chart.

import { looks, valuedAt } from './legend.js';
import { formatValue } from './scale.js';

/** @typedef {import('./columns.js').Series} Series */

/**
 * The rows of the tooltip, with the one nearest to the pointer.
 * @param {Series[]} shown
 * @param {number} index of the step
 * @param {string} unit
 * @param {number|null} height the value at the pointer's height; null when the keyboard moves the
 *   cursor
 * @param {import('./tip.js').TipWindow} part of the series that the tooltip shows
 * @param {number} most rows
 * @returns {{rows: import('./tip.js').TipRow[], more: string}} `more`: a line below the rows, or ''
 */
export function tooltip(shown, index, unit, height, part, most) {
  const all = valuedAt(shown, index);
  let near = -1;
  let least = Infinity;
  if (height !== null && all.length > 1) {
    near = 0;
    for (let at = 0; at < all.length; at += 1) {
      const distance = Math.abs(all[at].values[index] - height);
      if (distance < least) [near, least] = [at, distance];
    }
  }
  const { first, rows: seen } = part.of(all, near, most);
  const rows = seen.map((one, at) => ({
    name: one.name,
    value: formatValue(one.values[index], unit),
    near: first + at === near,
    mark: looks(one),
  }));
  if (all.length === 0) return { rows, more: 'no value' };
  return { rows, more: all.length > rows.length ? `and ${all.length - rows.length} more` : '' };
}
