// Copies repeated panels and rows for the selected values, and lays the dashboard out in its grid.

import { urlEscaped, valuesOf } from './formats.js';
import { COLUMNS, Skyline } from './grid.js';
import { ALL, isAll, withScope } from './interpolate.js';

/** @typedef {import('./panel.js').Panel} Panel */
/** @typedef {import('./grid.js').GridPos} GridPos */
/** @typedef {import('./interpolate.js').Selection} Selection */
/** @typedef {import('./interpolate.js').Selections} Selections */

/**
 * @typedef {{key: string, panel: Panel, gridPos: GridPos, scoped: Map<string, Selection>,
 *   row: string | null, collapsed: boolean}} Placed
 * `key` is unique: that of the panel, followed by the values of its copy. `scoped` holds the one
 * value of each repeated variable. `row` is the key of the row that owns it. `collapsed` is set on
 * closed rows.
 */

/** The most panels after repetition. */
export const COPIES_MAX = 1000;

/** A row with the panels that it owns; the panels before the first row have none, and so have those
 *  below a row that the document closed: its own panels are inside of it. */
/** @typedef {{row: Panel | null, panels: Panel[]}} Section */

/** @param {Panel[]} panels @returns {Section[]} */
function sectionsOf(panels) {
  /** @type {Section[]} */
  const sections = [{ row: null, panels: [] }];
  for (const panel of panels) {
    if (panel.type === 'row') {
      sections.push({ row: panel, panels: [...panel.panels] });
      if (panel.collapsed) sections.push({ row: null, panels: [] });
    } else sections[sections.length - 1].panels.push(panel);
  }
  return sections;
}

/**
 * The single values that a repeated variable stands for; null for an unknown variable and for one
 * without values, which gives one copy.
 * @param {string} name
 * @param {Selections} selections
 * @returns {Selection[] | null}
 */
function copiesOf(name, selections) {
  const selection = selections.get(name);
  if (name === '' || !selection) return null;
  const options = (selection.options ?? []).filter((option) => option.value !== ALL);
  const texts = valuesOf(selection.text);
  const chosen = isAll(selection.value) ? options
    : valuesOf(selection.value).map((value, at) => ({ value, text: texts[at] ?? value }));
  if (chosen.length === 0) return null;
  const unique = new Map(chosen.map((option) => [option.value, option]));
  return [...unique.values()].slice(0, COPIES_MAX)
    .map(({ text, value }) => ({ ...selection, text, value, options: [{ text, value }] }));
}

/** @param {string} key @param {Selection | null} copy */
function keyOf(key, copy) {
  return copy === null ? key : `${key}|${copy.name}=${urlEscaped(valuesOf(copy.value)[0])}`;
}

/**
 * One panel and its copies, at their wanted places.
 * @param {Panel} panel
 * @param {Selections} selections
 * @returns {{panel: Panel, copy: Selection | null, gridPos: GridPos}[]}
 */
function repeated(panel, selections) {
  const copies = copiesOf(panel.repeat, selections);
  const { x, y, w, h } = panel.gridPos;
  if (!copies) return [{ panel, copy: null, gridPos: { x, y, w, h } }];
  if (panel.repeatDirection === 'v') {
    return copies.map((copy, at) => ({ panel, copy, gridPos: { x, y: y + at * h, w, h } }));
  }
  const columns = Math.min(copies.length, panel.maxPerRow, COLUMNS);
  const width = Math.floor(COLUMNS / columns);
  return copies.map((copy, at) => (
    { panel, copy, gridPos: { x: (at % columns) * width, y: y + Math.floor(at / columns) * h, w: width, h } }));
}

/**
 * The panels of one section, from row 0 of the grid: copies are made, panels below them move down,
 * and no gap remains above a panel.
 * @param {Panel[]} panels
 * @param {Selections} selections
 * @param {number} budget most copies to make
 */
function layOut(panels, selections, budget) {
  // The sort is stable: panels at the same place stay in order.
  const sorted = [...panels].sort(byPlace);
  /** @type {ReturnType<typeof repeated>} */
  const wanted = [];
  /** Panels that start below `after` move down by `by`. @type {{after: number, by: number}[]} */
  const moves = [];
  let omitted = 0;
  for (const panel of sorted) {
    const down = moves.filter(({ after }) => panel.gridPos.y > after).reduce((sum, { by }) => sum + by, 0);
    const all = repeated(panel, selections);
    const copies = all.slice(0, Math.max(0, budget - wanted.length));
    omitted += all.length - copies.length;
    for (const copy of copies) wanted.push({ ...copy, gridPos: { ...copy.gridPos, y: copy.gridPos.y + down } });
    const lines = copies.reduce((most, copy) => Math.max(most, copy.gridPos.y), panel.gridPos.y) - panel.gridPos.y;
    if (lines > 0) moves.push({ after: panel.gridPos.y, by: lines });
  }
  wanted.sort(byPlace);
  const skyline = new Skyline();
  for (const one of wanted) {
    one.gridPos.y = skyline.top(one.gridPos.x, one.gridPos.w);
    skyline.fill(one.gridPos);
  }
  return { placed: wanted, height: skyline.height, omitted };
}

/** @param {{gridPos: GridPos}} left @param {{gridPos: GridPos}} right */
function byPlace(left, right) {
  return left.gridPos.y - right.gridPos.y || left.gridPos.x - right.gridPos.x;
}

/**
 * All rows and panels to draw, in the order of their places. Panels of closed rows are left out.
 * The result is the same for the same input.
 * @param {Panel[]} panels
 * @param {Selections} selections
 * @param {{collapsed?: Map<string, boolean>}} [options] rows that were opened or closed since, by
 *   key of the copy
 * @returns {{placed: Placed[], height: number, omitted: number}} `omitted`: copies beyond
 *   COPIES_MAX
 */
export function expandRepeats(panels, selections, { collapsed = new Map() } = {}) {
  /** @type {Placed[]} */
  const placed = [];
  let top = 0;
  let omitted = 0;
  for (const { row, panels: owned } of sectionsOf(panels)) {
    const copies = (row && copiesOf(row.repeat, selections)) ?? [null];
    for (const copy of copies) {
      /** @type {Map<string, Selection>} */
      const scoped = new Map(copy ? [[copy.name, copy]] : []);
      const rowKey = row ? keyOf(row.key, copy) : null;
      if (row && rowKey !== null) {
        if (placed.length >= COPIES_MAX) {
          omitted += 1 + owned.length;
          continue;
        }
        const closed = collapsed.get(rowKey) ?? row.collapsed;
        const gridPos = { x: 0, y: top, w: COLUMNS, h: 1 };
        placed.push({ key: rowKey, panel: row, gridPos, scoped, row: null, collapsed: closed });
        top += 1;
        if (closed) continue;
      }
      const section = layOut(owned, withScope(selections, scoped), COPIES_MAX - placed.length);
      omitted += section.omitted;
      for (const one of section.placed) {
        const key = `${keyOf(one.panel.key, copy)}${one.copy ? keyOf('', one.copy) : ''}`;
        placed.push({ key, panel: one.panel, gridPos: { ...one.gridPos, y: one.gridPos.y + top },
          scoped: one.copy ? new Map([...scoped, [one.copy.name, one.copy]]) : scoped, row: rowKey, collapsed: false });
      }
      top += section.height;
    }
  }
  return { placed, height: top, omitted };
}
