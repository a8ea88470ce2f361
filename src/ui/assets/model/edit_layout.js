// Moves and resizes panels in the grid of 24 columns: the others give way, and no gap remains above a panel.

import { COLUMNS, Skyline } from './grid.js';

/** @typedef {import('./grid.js').GridPos} GridPos */
/**
 * @typedef {GridPos & {id: number}} Item a panel, or the line of a row, in grid units
 * @typedef {'left' | 'right' | 'up' | 'down'} Direction
 */

/** Largest height of a panel, and farthest place of one, in grid rows. */
const HEIGHT_MAX = 1000;
const ROWS_MAX = 10_000;
/** Grid rows that a step up or down looks for another order of the panels. */
const STEPS_MAX = 200;

/** @param {number} value @param {number} low @param {number} high */
const within = (value, low, high) => Math.min(high, Math.max(low, Math.round(value)));

/**
 * Lets every item rise to the first free line below the items before it. Items at the same place
 * stay in the given order. The same rule lays out the view (`expandRepeats`), so the result is the
 * same for a result.
 * @param {Item[]} items
 * @param {number} [first] the item that comes first in its line
 * @returns {Item[]} in the order in which they were placed
 */
export function settle(items, first) {
  const skyline = new Skyline();
  const rank = (/** @type {Item} */ { id }) => (id === first ? 0 : 1);
  const order = (/** @type {Item} */ left, /** @type {Item} */ right) =>
    left.y - right.y || rank(left) - rank(right) || left.x - right.x;
  return [...items].sort(order).map((item) => {
    const placed = { ...item, y: skyline.top(item.x, item.w) };
    skyline.fill(placed);
    return placed;
  });
}

/** @param {Item} left @param {Item} right */
const sameColumns = (left, right) => left.x < right.x + right.w && right.x < left.x + left.w;

/**
 * Puts one item at a place. It goes before an item whose upper half has its top, and after the
 * others: a panel changes places with a neighbour once it was dragged over half of it.
 * @param {Item[]} items
 * @param {Item} moved with the wanted place; it need not be one of `items`
 * @returns {Item[]}
 */
export function putItem(items, moved) {
  const rest = settle(items.filter(({ id }) => id !== moved.id));
  const wanted = { ...moved, x: within(moved.x, 0, COLUMNS - moved.w), y: within(moved.y, 0, ROWS_MAX) };
  const y = rest
    .filter((one) => sameColumns(one, wanted) && one.y < wanted.y && wanted.y < one.y + one.h / 2)
    .reduce((least, one) => Math.min(least, one.y), wanted.y);
  return settle([{ ...wanted, y }, ...rest], wanted.id);
}

/**
 * Gives one item a size; its left upper corner stays.
 * @param {Item[]} items
 * @param {number} id
 * @param {{w: number, h: number}} size
 * @returns {Item[]}
 */
export function resizeItem(items, id, size) {
  const item = items.find((one) => one.id === id);
  if (!item) return items;
  const resized = { ...item, w: within(size.w, 1, COLUMNS - item.x), h: within(size.h, 1, HEIGHT_MAX) };
  // A neighbour that starts above and is now covered goes below the resized item.
  const others = items
    .filter((one) => one !== item)
    .map((one) =>
      sameColumns(one, resized) && one.y < item.y && one.y + one.h > item.y ? { ...one, y: item.y } : one,
    );
  return settle([resized, ...others], id);
}

/** Whether all items are at the same places. @param {Item[]} left @param {Item[]} right */
export function sameLayout(left, right) {
  const byId = new Map(left.map((item) => [item.id, item]));
  return (
    left.length === right.length &&
    right.every(({ id, x, y, w, h }) => {
      const other = byId.get(id);
      return other && other.x === x && other.y === y && other.w === w && other.h === h;
    })
  );
}

/**
 * Moves one item by a column, or up or down by the fewest rows that change the layout.
 * @param {Item[]} items at their settled places
 * @param {number} id
 * @param {Direction} direction
 * @returns {Item[] | null} null where the item cannot go
 */
export function stepItem(items, id, direction) {
  const item = items.find((one) => one.id === id);
  if (!item) return null;
  const [dx, dy] = { left: [-1, 0], right: [1, 0], up: [0, -1], down: [0, 1] }[direction];
  const steps = dx === 0 ? STEPS_MAX : 1;
  for (let step = 1; step <= steps; step += 1) {
    const [x, y] = [item.x + dx * step, item.y + dy * step];
    if (x < 0 || x + item.w > COLUMNS || y < 0) return null;
    const moved = putItem(items, { ...item, x, y });
    if (!sameLayout(items, moved)) return moved;
  }
  return null;
}

/** First grid row below all items. @param {Item[]} items */
export const bottomOf = (items) => items.reduce((bottom, { y, h }) => Math.max(bottom, y + h), 0);
