// The panels of a dashboard that is edited: their keys, names, and the controls that edit mode adds
// to their frames.

import { h } from '../chart/dom.js';
import { panelById } from '../model/edit_dashboard.js';
import { isRow, itemsOf } from '../model/edit_prepare.js';
import { objectsOf, textOf } from '../model/limits.js';
import { keyOf } from './edit_grid.js';

/**
 * @typedef {import('../model/limits.js').Json} Json
 * @typedef {import('../model/panel.js').Panel} Panel
 * @typedef {Map<number, {raw: Json, panel: Panel}>} Known the panels that are shown, by id
 */

/**
 * The panels of the document under keys that stay while they move. A panel that only moved is the
 * same object, so that its drawing stays. Repeats are shown once.
 * @param {Json} document
 * @param {Panel[]} panels
 * @param {Known} known
 * @returns {Known} in the order of `panels`
 */
export function adoptPanels(document, panels, known) {
  const raws = new Map(objectsOf(document.panels).map((raw) => [raw.id, raw]));
  return new Map(
    panels.map((panel) => {
      const id = Number(panel.id);
      const raw = raws.get(id) ?? {};
      const last = known.get(id);
      const stays = last && panel.type !== 'row' && sameApartFromPlace(last.raw, raw);
      const shown = stays ? last.panel : { ...panel, key: keyOf(id), repeat: '' };
      shown.gridPos = panel.gridPos;
      return [id, { raw, panel: shown }];
    }),
  );
}

/** Whether two raw panels share all members but the place. @param {Json} left @param {Json} right */
function sameApartFromPlace(left, right) {
  const names = Object.keys(left);
  return (
    names.length === Object.keys(right).length &&
    names.every((name) => name === 'gridPos' || (Object.hasOwn(right, name) && left[name] === right[name]))
  );
}

/** A panel or row in words, such as `the panel “CPU”`. @param {Json} document @param {number} id */
export function panelName(document, id) {
  const raw = panelById(document, id);
  const title = textOf(raw?.title).trim().slice(0, 80);
  if (isRow(raw)) return `the row ${title ? `“${title}”` : 'without a title'}`;
  return `the panel ${title ? `“${title}”` : String(id)}`;
}

/** The panel after another one, or before the last one. @param {Json} document @param {number} id */
export function neighbourOf(document, id) {
  const items = itemsOf(document).sort((left, right) => left.y - right.y || left.x - right.x);
  const at = items.findIndex((item) => item.id === id);
  return (items[at + 1] ?? items[at - 1])?.id ?? null;
}

/**
 * Makes a frame focusable and gives it a handle to resize it, once.
 * @param {HTMLElement} node
 * @param {string} repeat the variable that repeats the panel, or an empty text
 */
export function prepareFrame(node, repeat) {
  if (node.querySelector('.resize-handle')) return;
  node.tabIndex = 0;
  node.setAttribute('aria-describedby', 'edit-keys');
  node.append(h('div', { class: 'resize-handle', 'aria-hidden': 'true' }));
  const chip = repeat && h('span', { class: 'repeat-chip', text: `repeats for ${repeat.slice(0, 40)}` });
  if (chip) node.querySelector('.panel-title')?.after(chip);
}

/**
 * The buttons of a row.
 * @param {string} title
 * @param {{up: () => void, down: () => void, edit: () => void, remove: () => void}} commands
 */
export function rowTools(title, commands) {
  const tool = (/** @type {string} */ text, /** @type {string} */ name, /** @type {() => void} */ run) =>
    h(
      'button',
      { type: 'button', class: 'row-tool', title: `${name} the row`, on: { click: run } },
      h('span', { 'aria-hidden': 'true', text }),
      h('span', { class: 'unseen', text: `${name} the row ${title}` }),
    );
  return h(
    'div',
    { class: 'row-tools' },
    tool('↑', 'Move up', commands.up),
    tool('↓', 'Move down', commands.down),
    tool('Edit', 'Edit', commands.edit),
    tool('Remove', 'Remove', commands.remove),
  );
}
