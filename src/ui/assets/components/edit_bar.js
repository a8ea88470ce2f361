// The bar of edit mode: adding, undo, settings, saving, and the last action.

import { h } from '../chart/dom.js';
import { textOf } from '../model/limits.js';
import { newPanel, PANEL_KINDS } from '../model/new_panel.js';
import { textButton } from './buttons.js';
import { openMenu } from './popup.js';

/** How long a notice with an action is shown, in milliseconds. */
const NOTICE_MS = 10_000;

/**
 * @typedef {import('../model/limits.js').Json} Json
 *
 * @typedef {Object} BarHost
 * @property {() => Json | null} copied the raw panel that was copied last
 * @property {(panel: Json) => void} paste
 * @property {() => void} addRow
 * @property {(panel: Json) => void} addPanel
 * @property {() => void} undo
 * @property {() => void} redo
 * @property {() => void} settings
 * @property {() => void} save
 * @property {() => void} saveAs
 * @property {() => void} leave
 */

/** The entries of the menu "Add". @param {BarHost} host */
function addEntries(host) {
  const entry = (/** @type {string} */ text, /** @type {() => void} */ run) =>
    h('button', { type: 'button', text, 'data-closes': '', on: { click: run } });
  const copied = host.copied();
  const title = textOf(copied?.title).trim().slice(0, 40) || 'a panel without a title';
  return [
    copied && entry(`Paste “${title}”`, () => host.paste(copied)),
    entry('Row', host.addRow),
    h('span', { class: 'menu-heading', text: 'Panels' }),
    h(
      'div',
      { class: 'kind-menu' },
      PANEL_KINDS.map(([type, text]) => entry(text, () => host.addPanel(newPanel(type)))),
    ),
  ];
}

/** @param {BarHost} host */
export function editBar(host) {
  const add = textButton('Add', () => openMenu(add, addEntries(host), { class: 'add-menu' }));
  add.classList.add('add-button');
  add.setAttribute('aria-haspopup', 'true');
  const undo = textButton('Undo', host.undo);
  const redo = textButton('Redo', host.redo);
  undo.setAttribute('aria-keyshortcuts', 'Control+Z');
  redo.setAttribute('aria-keyshortcuts', 'Control+Shift+Z Control+Y');
  const save = textButton('Save', host.save, { class: 'primary' });
  const state = h('span', { class: 'edit-state' });
  const live = h('p', { class: 'unseen', role: 'status', 'aria-live': 'polite' });
  const notice = h('div', { class: 'edit-notice', role: 'status', hidden: true });
  const problem = h('p', { class: 'alert', role: 'alert' });
  let timer = 0;
  const shortcut = (/** @type {KeyboardEvent} */ event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.defaultPrevented) return;
    // The editor of a panel has shortcuts of its own.
    if (node.closest('[hidden]')) return;
    const { target } = event;
    if (!(target instanceof Element) || target.closest('input, textarea, select, dialog, [contenteditable]')) return;
    const key = event.key.toLowerCase();
    if (key === 'z' && !event.shiftKey) host.undo();
    else if (key === 'y' || key === 'z') host.redo();
    else if (key === 's') host.save();
    else return;
    event.preventDefault();
  };
  addEventListener('keydown', shortcut);
  const node = h(
    'section',
    { class: 'edit-bar', 'aria-label': 'Edit the dashboard' },
    h('span', { class: 'anchor' }, add),
    h('div', { class: 'edit-group', role: 'group', 'aria-label': 'History' }, undo, redo),
    textButton('Settings', host.settings),
    state,
    h(
      'div',
      { class: 'edit-group edit-end' },
      textButton('Exit', host.leave),
      textButton('Save as…', host.saveAs),
      save,
    ),
    problem,
    notice,
    live,
  );

  return {
    node,
    /** @param {{undoLabel: string, redoLabel: string, dirty: boolean, text: string}} shown */
    show({ undoLabel, redoLabel, dirty, text }) {
      for (const [one, label, name] of /** @type {const} */ ([
        [undo, undoLabel, 'Undo'],
        [redo, redoLabel, 'Redo'],
      ])) {
        // A disabled button would lose the focus while its key is held.
        one.setAttribute('aria-disabled', String(label === ''));
        one.title = label === '' ? `Nothing to ${name.toLowerCase()}` : `${name}: ${label}`;
      }
      save.setAttribute('aria-disabled', String(!dirty));
      state.textContent = text;
    },
    /** Announces an action to screen readers. @param {string} text */
    announce(text) {
      live.textContent = text;
    },
    /**
     * Shows the last action for some seconds, with a button.
     * @param {string} text
     * @param {string} [action]
     * @param {() => void} [run]
     */
    notice(text, action, run) {
      clearTimeout(timer);
      const close = () => {
        notice.hidden = true;
      };
      notice.replaceChildren(
        h('span', { text }),
        ...(action && run
          ? [
              textButton(action, () => {
                close();
                run();
              }, { class: 'plain' }),
            ]
          : []),
        h('button', { type: 'button', class: 'plain', 'aria-label': 'Dismiss', text: '✕', on: { click: close } }),
      );
      notice.hidden = false;
      timer = setTimeout(close, NOTICE_MS);
    },
    /** Hides the notice: its button would take back another change. */
    closeNotice() {
      notice.hidden = true;
    },
    /** @param {string} text an empty text takes the error away */
    problem(text) {
      problem.textContent = text;
    },
    destroy() {
      clearTimeout(timer);
      removeEventListener('keydown', shortcut);
    },
  };
}
