// Places panels in the grid of 24 columns: the rows of old dashboards, and panels without a place.

import { numberOf, objectsOf, textOf, wholeOf } from './limits.js';

/** @typedef {import('./limits.js').Json} Json */
/** @typedef {{x: number, y: number, w: number, h: number}} GridPos */

/** Columns of the grid. */
export const COLUMNS = 24;
/** Largest row of the grid, and largest height of a panel. */
const ROWS_MAX = 10_000;
const HEIGHT_MAX = 1000;
/** Height of a grid row with its margin in px, and of an old row without a height. */
const CELL = 38;
const ROW_HEIGHT = 250;

/** Heights of the columns: the first free grid row of each. */
export class Skyline {
  constructor() {
    this.heights = new Array(COLUMNS).fill(0);
  }

  /** First free row over `w` columns from `x`. @param {number} x @param {number} w */
  top(x, w) {
    return Math.max(...this.heights.slice(x, x + w));
  }

  /** @param {GridPos} place */
  fill({ x, y, w, h }) {
    this.heights.fill(y + h, x, x + w);
  }

  /**
   * The highest and then leftmost place of a size.
   * @param {number} w
   * @param {number} h
   * @returns {GridPos}
   */
  place(w, h) {
    let best = 0;
    for (let x = 1; x + w <= COLUMNS; x += 1) if (this.top(x, w) < this.top(best, w)) best = x;
    return { x: best, y: this.top(best, w), w, h };
  }

  get height() {
    return Math.max(...this.heights);
  }
}

/**
 * A usable place from any value; null without width and height.
 * @param {unknown} value
 * @returns {GridPos | null}
 */
export function gridPosOf(value) {
  const pos = /** @type {Json} */ (typeof value === 'object' && value !== null ? value : {});
  if (numberOf(pos.w) === null || numberOf(pos.h) === null) return null;
  const w = wholeOf(pos.w, 1, COLUMNS, 12);
  const h = wholeOf(pos.h, 1, HEIGHT_MAX, 8);
  return { x: wholeOf(pos.x, 0, COLUMNS - w, 0), y: wholeOf(pos.y, 0, ROWS_MAX, 0), w, h };
}

/**
 * Height in grid rows of `250px`, `250` or nothing.
 * @param {unknown} height
 * @param {number} fallback
 */
function rowsOf(height, fallback) {
  const px = numberOf(textOf(height).replace(/px$/, '')) ?? 0;
  return px > 0 ? Math.min(HEIGHT_MAX, Math.max(3, Math.ceil(px / CELL))) : fallback;
}

/**
 * The panels of an old dashboard with `rows`, in order, with row panels if any row is collapsed,
 * titled or repeated. Widths are in twelfths there.
 * @param {Json} dashboard
 * @returns {{raw: Json, gridPos: GridPos, row: Json | null, path: (string | number)[]}[]} `row` is
 *   the collapsed row that a panel is inside; a row itself has the path of the old row.
 */
export function placeRows(dashboard) {
  const rows = objectsOf(dashboard.rows);
  const shown = rows.some((row) => row.collapse === true || row.showTitle === true || textOf(row.repeat) !== '');
  /** @type {ReturnType<typeof placeRows>} */
  const result = [];
  let top = 0;
  dashboard.rows.forEach((/** @type {unknown} */ entry, /** @type {number} */ at) => {
    const row = rows.find((candidate) => candidate === entry);
    if (!row) return;
    if (shown) {
      result.push({ raw: row, gridPos: { x: 0, y: top, w: COLUMNS, h: 1 }, row: null, path: ['rows', at] });
      top += 1;
    }
    const skyline = new Skyline();
    const height = rowsOf(row.height, Math.ceil(ROW_HEIGHT / CELL));
    (Array.isArray(row.panels) ? row.panels : []).forEach((/** @type {unknown} */ raw, /** @type {number} */ index) => {
      if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) return;
      const panel = /** @type {Json} */ (raw);
      const span = numberOf(panel.span) ?? 4;
      const w = wholeOf((span > 0 ? span : 4) * 2, 1, COLUMNS, 8);
      const place = skyline.place(w, rowsOf(panel.height, height));
      skyline.fill(place);
      result.push({ raw: panel, gridPos: { ...place, y: top + place.y },
        row: shown && row.collapse === true ? row : null, path: ['rows', at, 'panels', index] });
    });
    if (!(shown && row.collapse === true)) top += Math.max(skyline.height, shown ? 0 : height);
  });
  return result;
}
