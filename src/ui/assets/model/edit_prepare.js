// Turns a stored dashboard of any schema version into one that can be edited: a grid, ids, places.

import { readDashboard } from './dashboard.js';
import { settle } from './edit_layout.js';
import { COLUMNS, gridPosOf, placeRows } from './grid.js';
import { isObject, listOf, objectOf, objectsOf, sameJson, textOf } from './limits.js';
import { isRepeatedCopy } from './panel.js';

/** @typedef {import('./limits.js').Json} Json */
/** @typedef {import('./grid.js').GridPos} GridPos */
/** @typedef {import('./edit_layout.js').Item} Item */

/** First schema version with places in a grid instead of rows. */
const GRID_VERSION = 16;
/** Largest id of a panel: a 32-bit number, as Grafana stores it. */
const ID_MAX = 2 ** 31 - 1;
/** Members of an old row that have another name or no meaning in a row panel. */
const ROW_MEMBERS = new Set(['collapse', 'showTitle', 'height', 'titleSize', 'panels', 'gridPos']);

/** Whether an entry of `panels` takes part in the layout; the others stay in the document as they are.
 *  @param {unknown} raw @returns {raw is Json} */
export const isPlaced = (raw) => isObject(raw) && !isRepeatedCopy(raw);

/** @param {unknown} raw */
export const isRow = (raw) => isObject(raw) && raw.type === 'row';

/** The panels of a closed row. @param {Json} raw @returns {Json[]} */
export const insideOf = (raw) => (isRow(raw) ? objectsOf(raw.panels) : []);

/** All panels and rows, those inside of closed rows included. @param {Json} document @returns {Json[]} */
export const allPanels = (document) => objectsOf(document.panels).flatMap((raw) => [raw, ...insideOf(raw)]);

/** An id that no panel has. @param {Iterable<unknown>} ids */
export function freeId(ids) {
  const used = new Set(ids);
  let last = 0;
  for (const id of used) if (typeof id === 'number' && id < ID_MAX) last = Math.max(last, Math.floor(id));
  let next = last + 1;
  while (used.has(next)) next += 1;
  return next;
}

/** The items of the grid, at their settled places. @param {Json} document @returns {Item[]} */
export const itemsOf = (document) =>
  settle(
    listOf(document.panels)
      .filter(isPlaced)
      .map((raw) => ({ id: raw.id, .../** @type {GridPos} */ (gridPosOf(raw.gridPos)) })),
  );

/**
 * Writes places into the panels. A panel that stays is the same object, and so is the document if
 * all stay.
 * @param {Json} document
 * @param {Item[]} items
 * @returns {Json}
 */
export function withPlaces(document, items) {
  const places = new Map(items.map(({ id, x, y, w, h }) => [id, { x, y, w, h }]));
  let changed = false;
  const panels = listOf(document.panels).map((raw) => {
    const place = isPlaced(raw) && places.get(raw.id);
    if (!place) return raw;
    const gridPos = { ...objectOf(raw.gridPos), ...place };
    if (sameJson(gridPos, raw.gridPos)) return raw;
    changed = true;
    return { ...raw, gridPos };
  });
  return changed ? { ...document, panels } : document;
}

/**
 * A document that the functions of `edit_dashboard.js` take, with all other members as they were.
 * @param {unknown} stored
 * @returns {{document: Json, notes: string[]}} `notes`: what the conversion changed, as sentences
 */
export function prepareForEditing(stored) {
  // Refuses a value that is no dashboard, or too large.
  const { dashboard } = readDashboard(stored);
  /** @type {Json} */
  let document = dashboard.path.reduce((at, name) => at[name], /** @type {any} */ (structuredClone(stored)));
  /** @type {string[]} */
  const notes = [];
  if (dashboard.path.length > 0) notes.push('The dashboard was inside of an API response; only the dashboard is kept.');
  if (Array.isArray(document.rows)) {
    document = withoutRows(document);
    notes.push('This dashboard has the rows of an old version; they become panels of the grid.');
  }
  document = withIds(openedRows(document), notes);
  document = withPlaces(document, firstPlaces(document));
  return { document: withPlaces(document, itemsOf(document)), notes };
}

/** Converts `rows` as the view places them. @param {Json} document @returns {Json} */
function withoutRows(document) {
  const top = objectsOf(document.panels).reduce((bottom, { gridPos }) => {
    const place = gridPosOf(gridPos);
    return place ? Math.max(bottom, place.y + place.h) : bottom;
  }, 0);
  /** @type {Json[]} */
  const panels = [];
  /** @type {Map<Json, Json>} */
  const closed = new Map();
  for (const { raw, gridPos, row, path } of placeRows(document)) {
    const place = { ...gridPos, y: gridPos.y + top };
    if (path.length === 2) {
      const rest = Object.entries(raw).filter(([name]) => !ROW_MEMBERS.has(name));
      const title = textOf(raw.title);
      const collapsed = raw.collapse === true;
      const made = { ...Object.fromEntries(rest), type: 'row', title, collapsed, gridPos: place, panels: [] };
      closed.set(raw, made);
      panels.push(made);
    } else {
      (row ? closed.get(row)?.panels : panels)?.push({ ...raw, gridPos: place });
    }
  }
  const { rows, ...rest } = document;
  return { ...rest, schemaVersion: Math.max(GRID_VERSION, Number(document.schemaVersion) || 0),
    panels: [...listOf(document.panels), ...panels] };
}

/** Takes the panels out of open rows. @param {Json} document @returns {Json} */
function openedRows(document) {
  const panels = listOf(document.panels).flatMap((raw) =>
    isRow(raw) && raw.collapsed !== true && raw.collapse !== true && listOf(raw.panels).length > 0
      ? [{ ...raw, panels: listOf(raw.panels).filter((one) => !isObject(one)) }, ...objectsOf(raw.panels)]
      : [raw],
  );
  return { ...document, panels };
}

/** Gives each panel an id of its own. @param {Json} document @param {string[]} notes @returns {Json} */
function withIds(document, notes) {
  const seen = new Set();
  const all = new Set(allPanels(document).map(({ id }) => id));
  let changed = 0;
  /** @param {Json} raw @returns {Json} */
  const identified = (raw) => {
    if (Number.isSafeInteger(raw.id) && raw.id >= 0 && raw.id <= ID_MAX && !seen.has(raw.id)) {
      seen.add(raw.id);
      return raw;
    }
    const id = freeId(all);
    all.add(id);
    seen.add(id);
    changed += 1;
    return { ...raw, id };
  };
  const panels = listOf(document.panels).map((raw) => {
    if (!isObject(raw)) return raw;
    const one = identified(raw);
    return insideOf(one).length > 0
      ? { ...one, panels: listOf(one.panels).map((inner) => (isObject(inner) ? identified(inner) : inner)) }
      : one;
  });
  const counted = changed === 1 ? '1 panel has' : `${changed} panels have`;
  if (changed > 0) notes.push(`${counted} a new id, because ids were missing or used twice.`);
  return { ...document, panels };
}

/**
 * The places that the document has; panels without one are below the others, two in a line, and
 * rows fill a line.
 * @param {Json} document
 * @returns {Item[]}
 */
function firstPlaces(document) {
  const placed = listOf(document.panels).filter(isPlaced);
  const known = placed.map((raw) => ({ raw, place: gridPosOf(raw.gridPos) }));
  const bottom = known.reduce((least, { place }) => (place ? Math.max(least, place.y + place.h) : least), 0);
  let without = 0;
  return known.map(({ raw, place }) => {
    const half = COLUMNS / 2;
    const at = place ?? { x: (without % 2) * half, y: bottom + Math.floor(without / 2) * 8, w: half, h: 8 };
    if (!place) without += 1;
    return { id: raw.id, ...(isRow(raw) ? { ...at, x: 0, w: COLUMNS, h: 1 } : at) };
  });
}
