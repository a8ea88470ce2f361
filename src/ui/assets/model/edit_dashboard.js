// Edits of a dashboard as pure functions on its stored JSON; members that an edit does not name stay as they are.

import { bottomOf, putItem, resizeItem, settle, stepItem } from './edit_layout.js';
import { allPanels, freeId, insideOf, isPlaced, isRow, itemsOf, withPlaces } from './edit_prepare.js';
import { COLUMNS, gridPosOf, Skyline } from './grid.js';
import { DashboardError, isObject, listOf, objectOf, objectsOf, PANELS_MAX, textOf } from './limits.js';

/** @typedef {import('./limits.js').Json} Json */
/** @typedef {import('./edit_layout.js').Item} Item */
/** @typedef {import('./edit_layout.js').Direction} Direction */

// Every function takes a document of `prepareForEditing`, never changes it, and shares the parts
// that stay with its result. If no panel has the id, the result is the document itself.

/** Size of a new panel, in grid units. */
const NEW_SIZE = { w: 12, h: 8 };

/**
 * The raw panel or row with an id, also one inside of a closed row.
 * @param {Json} document
 * @param {number} id
 * @returns {Json | undefined}
 */
export const panelById = (document, id) => allPanels(document).find((raw) => raw.id === id);

/** @param {Json} document @param {number} id @returns {Item | undefined} */
export const itemById = (document, id) => itemsOf(document).find((item) => item.id === id);

/**
 * @param {Json} document
 * @param {number} id of a panel, not of a row
 * @param {{x: number, y: number}} to the wanted place, in grid units
 * @returns {Json}
 */
export function movePanel(document, id, to) {
  const items = itemsOf(document);
  const item = items.find((one) => one.id === id);
  if (!item || isRow(panelById(document, id))) return document;
  return withPlaces(document, putItem(items, { ...item, x: to.x, y: to.y }));
}

/**
 * Moves a panel by one step of the keyboard, and a row with its panels over its neighbour.
 * @param {Json} document
 * @param {number} id
 * @param {Direction} direction
 * @returns {Json | null} null where it cannot go
 */
export function stepPanel(document, id, direction) {
  if (isRow(panelById(document, id))) return moveRow(document, id, direction);
  const items = stepItem(itemsOf(document), id, direction);
  return items && withPlaces(document, items);
}

/**
 * @param {Json} document
 * @param {number} id of a panel, not of a row
 * @param {{w: number, h: number}} size in grid units
 * @returns {Json}
 */
export function resizePanel(document, id, size) {
  if (isRow(panelById(document, id))) return document;
  return withPlaces(document, resizeItem(itemsOf(document), id, size));
}

/** @param {Json} document */
function checkRoom(document) {
  const found = allPanels(document).length + 1;
  if (found > PANELS_MAX) {
    throw new DashboardError('too_many_panels', `A dashboard has at most ${PANELS_MAX} panels, rows included.`,
      { limit: PANELS_MAX, found });
  }
}

/**
 * Adds a panel with an id of its own at the end of the dashboard, or at a place.
 * @param {Json} document
 * @param {Json} panel its `gridPos` says the size
 * @param {{x: number, y: number}} [to]
 * @returns {{document: Json, id: number}}
 * @throws {DashboardError} for more than PANELS_MAX panels
 */
export function addPanel(document, panel, to) {
  checkRoom(document);
  const id = freeId(allPanels(document).map((one) => one.id));
  const items = itemsOf(document);
  const { w, h } = isRow(panel) ? { w: COLUMNS, h: 1 } : gridPosOf(panel.gridPos) ?? NEW_SIZE;
  const skyline = new Skyline();
  for (const item of settle(items)) skyline.fill(item);
  const place = to ? { ...to, w, h } : skyline.place(w, h);
  const { repeatPanelId, repeatByRow, ...own } = panel;
  const raw = { ...structuredClone(own), id, gridPos: { ...objectOf(panel.gridPos), ...place } };
  const added = { ...document, panels: [...listOf(document.panels), raw] };
  return { document: withPlaces(added, putItem(items, { id, ...place })), id };
}

/** @param {Json} document @param {string} title */
export const addRow = (document, title) =>
  addPanel(document, { type: 'row', title, collapsed: false, panels: [] }, { x: 0, y: bottomOf(itemsOf(document)) });

/**
 * Adds a copy beside the panel, or below it where there is no room.
 * @param {Json} document
 * @param {number} id
 * @returns {{document: Json, id: number}} the id of the copy
 */
export function duplicatePanel(document, id) {
  const raw = panelById(document, id);
  const item = itemById(document, id);
  if (!raw || !item || isRow(raw)) return { document, id };
  const beside = item.x + 2 * item.w <= COLUMNS;
  return addPanel(document, raw, beside ? { x: item.x + item.w, y: item.y } : { x: item.x, y: item.y + item.h });
}

/**
 * Removes a panel or a row, and saved copies of a repeated panel with it.
 * @param {Json} document
 * @param {number} id
 * @param {{inside?: boolean}} [options] `inside`: the panels of a row are removed too
 * @returns {Json}
 */
export function removePanel(document, id, { inside = false } = {}) {
  const raw = panelById(document, id);
  if (!raw) return document;
  let from = document;
  if (isRow(raw) && !inside && insideOf(raw).length > 0) from = toggleRow(document, id);
  const gone = new Set([id, ...(isRow(raw) && inside ? ownedBy(from, id).map((one) => one.id) : [])]);
  const kept = (/** @type {unknown} */ one) => !isObject(one) || !(gone.has(one.id) || gone.has(one.repeatPanelId));
  const panels = listOf(from.panels)
    .filter(kept)
    .map((one) => (insideOf(one).some((inner) => !kept(inner)) ? { ...one, panels: one.panels.filter(kept) } : one));
  const left = { ...from, panels };
  return withPlaces(left, itemsOf(left));
}

/**
 * Replaces a panel; its id and its place stay.
 * @param {Json} document
 * @param {number} id
 * @param {Json} panel
 * @returns {Json}
 */
export function replacePanel(document, id, panel) {
  const replace = (/** @type {any} */ raw) =>
    isObject(raw) && raw.id === id ? { ...panel, id, ...(raw.gridPos ? { gridPos: raw.gridPos } : {}) } : raw;
  if (!panelById(document, id)) return document;
  const panels = listOf(document.panels).map((raw) =>
    insideOf(raw).some((inner) => inner.id === id) ? { ...raw, panels: raw.panels.map(replace) } : replace(raw),
  );
  return { ...document, panels };
}

/** Sets members of a panel or a row. @param {Json} document @param {number} id @param {Json} members */
export const setPanel = (document, id, members) =>
  replacePanel(document, id, { ...panelById(document, id), ...members });

/**
 * @param {Json} document
 * @param {unknown[]} list the raw `templating.list`
 * @returns {Json}
 */
export const replaceVariables = (document, list) => ({
  ...document,
  templating: { ...objectOf(document.templating), list },
});

/**
 * Settings of the dashboard. A member that is undefined stays.
 * @typedef {{title?: string, tags?: string[], description?: string, refresh?: string,
 *   time?: {from: string, to: string}, timezone?: string, graphTooltip?: number, links?: unknown}} Settings
 *
 * @param {Json} document
 * @param {Settings} settings
 * @returns {Json}
 */
export function setDashboardSettings(document, settings) {
  const result = { ...document };
  for (const name of /** @type {const} */ (['title', 'tags', 'refresh', 'timezone', 'graphTooltip']))
    if (settings[name] !== undefined) result[name] = settings[name];
  // A dashboard without a description has no such member.
  if (settings.description || (settings.description !== undefined && 'description' in document))
    result.description = settings.description;
  // A link to nowhere, with which a form begins, is none.
  if (settings.links !== undefined)
    result.links = objectsOf(settings.links).filter(({ url, tags }) => textOf(url).trim() !== '' || listOf(tags).length > 0);
  if (settings.time) result.time = { ...objectOf(document.time), ...settings.time };
  return result;
}

/** The panels that an open row owns, or those inside of a closed one. @param {Json} document @param {number} id
 *  @returns {Json[]} */
export function ownedBy(document, id) {
  const raw = panelById(document, id);
  if (!raw) return [];
  if (raw.collapsed === true) return insideOf(raw);
  const section = sectionsOf(document).find(({ row }) => row?.id === id);
  const ids = new Set(section?.items.map((item) => item.id));
  return objectsOf(document.panels).filter((one) => isPlaced(one) && ids.has(one.id));
}

/**
 * The document in sections: the panels above all rows, then each row with the panels below it.
 * @param {Json} document
 * @returns {{row: Item | null, items: Item[]}[]}
 */
function sectionsOf(document) {
  const rows = new Set(objectsOf(document.panels).filter(isRow).map(({ id }) => id));
  /** @type {{row: Item | null, items: Item[]}[]} */
  const sections = [{ row: null, items: [] }];
  for (const item of itemsOf(document).sort((left, right) => left.y - right.y || left.x - right.x)) {
    if (rows.has(item.id)) sections.push({ row: item, items: [] });
    else sections[sections.length - 1].items.push(item);
  }
  return sections;
}

/**
 * Closes a row over its panels, or opens it and puts them below it.
 * @param {Json} document
 * @param {number} id
 * @returns {Json}
 */
export function toggleRow(document, id) {
  const raw = panelById(document, id);
  const item = itemById(document, id);
  if (!raw || !item || !isRow(raw)) return document;
  const owned = ownedBy(document, id);
  if (raw.collapsed !== true) {
    const ids = new Set(owned.map((one) => one.id));
    const rest = listOf(document.panels).filter((one) => !(isPlaced(one) && ids.has(one.id)));
    const row = { ...raw, collapsed: true, panels: owned };
    const closed = { ...document, panels: rest.map((one) => (one === raw ? row : one)) };
    return withPlaces(closed, itemsOf(closed));
  }
  const places = settle(
    owned.map((one) => ({ id: one.id, ...(gridPosOf(one.gridPos) ?? { x: 0, y: 0, ...NEW_SIZE }) })),
  );
  const height = bottomOf(places);
  const shifted = itemsOf(document).map((one) => (one.y > item.y ? { ...one, y: one.y + height } : one));
  const row = { ...raw, collapsed: false, panels: listOf(raw.panels).filter((inner) => !isObject(inner)) };
  const opened = {
    ...document,
    panels: listOf(document.panels).flatMap((one) => (one === raw ? [row, ...owned] : [one])),
  };
  return withPlaces(opened, settle([...shifted, ...places.map((one) => ({ ...one, y: one.y + item.y + 1 }))]));
}

/** @param {Json} document @param {number} id @param {Direction} direction @returns {Json | null} */
function moveRow(document, id, direction) {
  const sections = sectionsOf(document);
  const at = sections.findIndex(({ row }) => row?.id === id);
  const to = direction === 'up' ? at - 1 : direction === 'down' ? at + 1 : at;
  // The first section has no row, and stays first.
  if (at < 0 || to === at || to < 1 || to >= sections.length) return null;
  [sections[at], sections[to]] = [sections[to], sections[at]];
  let top = 0;
  const items = sections.flatMap(({ row, items: owned }) => {
    const own = [...(row ? [row] : []), ...owned];
    const first = Math.min(...own.map(({ y }) => y));
    const moved = own.map((one) => ({ ...one, y: one.y - first + top }));
    top = own.length > 0 ? bottomOf(moved) : top;
    return moved;
  });
  return withPlaces(document, settle(items));
}
