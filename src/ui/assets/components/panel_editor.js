// The panel editor: a live preview, the queries below it, and the options beside it.

import { h } from '../chart/dom.js';
import { findPanel, rootOf } from '../model/edit_panel.js';
import { storedVariables } from '../model/edit_variable.js';
import { PANELS_WITHOUT_QUERIES } from '../model/support.js';
import { textOf } from '../model/limits.js';
import { textButton } from './buttons.js';
import { confirmed } from './dialog.js';
import { Draft } from './panel_editor/draft.js';
import { jsonTab } from './panel_editor/json_tab.js';
import { optionsPane } from './panel_editor/pane.js';
import { Preview } from './panel_editor/preview.js';
import { queriesTab } from './panel_editor/queries.js';
import { transformationsTab } from './panel_editor/transformations.js';
import { tabList } from './tabs.js';

/** @typedef {import('../model/limits.js').Json} Json */
/** @typedef {'light' | 'dark'} Theme */

/**
 * Fills `host` with the editor of one panel.
 * @param {{document: any, panelId: number | string, host: HTMLElement, org: string,
 *   selections: import('../model/interpolate.js').Selections, range: import('../model/time.js').Range,
 *   theme: Theme | (() => Theme), now: number, apply: (panel: Json) => void,
 *   edited?: (panel: Json | null) => void, close: () => void}} options
 *   `document` is the stored dashboard, `now` in milliseconds; `apply` gets the whole panel, and `edited` the one
 *   that is not applied yet, or null once there is none
 * @returns {{destroy: () => void, follow?: (view: {range: import('../model/time.js').Range, now: number}) => void,
 *   leaves?: () => Promise<boolean>}} `destroy` ends the requests and listeners of the editor; `follow` shows another
 *   time range; `leaves` asks whether changes that were not applied are lost
 */
export function openPanelEditor({
  document: stored, panelId, host, org, selections, range, theme, now, apply, edited = () => {}, close,
}) {
  const found = findPanel(stored, panelId);
  if (!found) {
    host.replaceChildren(h('p', { class: 'alert', role: 'alert', text: 'The dashboard has no such panel.' }),
      h('button', { type: 'button', text: 'Back to dashboard', on: { click: close } }));
    return { destroy: () => {} };
  }
  const root = rootOf(stored);
  const scheme = matchMedia('(prefers-color-scheme: dark)');
  const draft = new Draft(found.raw, changed);
  const themeNow = typeof theme === 'function' ? theme : () => /** @type {Theme} */ (scheme.matches ? 'dark' : 'light');
  const preview = new Preview({
    root, draft, org, selections, range, now, theme: themeNow,
    zoomed: (on) => {
      resetZoom.hidden = !on;
    },
  });
  let tab = PANELS_WITHOUT_QUERIES.has(textOf(found.raw.type)) ? 'json' : 'queries';
  const state = {
    variables: storedVariables(root).map(({ name }) => textOf(name)).filter(Boolean),
    remembered: new Map(),
    open: new Map(),
    search: { words: '' },
  };

  const heading = h('h2', { class: 'editor-title', tabindex: '-1' });
  const status = h('span', { class: 'hint', role: 'status' });
  const undo = textButton('Undo', () => draft.undo(), { title: 'Undo (Ctrl+Z)' });
  const redo = textButton('Redo', () => draft.redo(), { title: 'Redo (Ctrl+Shift+Z)' });
  const use = textButton('Apply', () => {
    apply(structuredClone(draft.raw));
    draft.applied();
    edited(null);
    show();
    status.textContent = 'Applied.';
    heading.focus({ preventScroll: true });
  }, { class: 'primary' });
  const discard = textButton('Discard', leave);
  const resetZoom = textButton('Reset zoom', () => preview.resetZoom(), { hidden: true });
  const asTable = h('input', { type: 'checkbox', id: 'editor-as-table', role: 'switch' });
  asTable.addEventListener('change', () => preview.showTable(asTable.checked));
  let tabs = /** @type {HTMLElement} */ (h('div'));
  const body = h('div', { class: 'editor-tab', role: 'tabpanel', id: 'editor-tab', tabindex: '-1' });
  const pane = h('aside', { class: 'editor-options', 'aria-label': 'Options' });
  const node = h('section', { class: 'panel-editor', 'aria-label': 'Panel editor' },
    h('div', { class: 'editor-head' },
      textButton('← Back to dashboard', leave, { class: 'plain' }), heading, status,
      h('div', { class: 'row' }, undo, redo, discard, use)),
    h('div', { class: 'editor-main' },
      h('div', { class: 'editor-bar' },
        h('label', { class: 'row', for: asTable.id }, asTable, 'Table view'), resetZoom),
      preview.node,
      h('div', { class: 'card editor-below' }, tabs, body)),
    pane);

  async function leaves() {
    if (!draft.dirty) return true;
    const sure = await confirmed({
      heading: 'Discard the changes?',
      loss: 'The changes of this panel since the last Apply will be lost.',
      action: 'Discard changes',
    });
    if (sure) edited(null);
    return sure;
  }

  async function leave() {
    if (await leaves()) close();
  }

  /** Has the browser ask before the document is left. @param {BeforeUnloadEvent} event */
  const unload = (event) => {
    if (draft.dirty) event.preventDefault();
  };

  /** Tabs that the kind of the panel has. @returns {[string, string][]} */
  const tabsOf = () => [
    ...(PANELS_WITHOUT_QUERIES.has(textOf(draft.raw.type)) ? [] : /** @type {[string, string][]} */ ([
      ['queries', `Queries (${listLength('targets')})`],
      ['transformations', `Transformations (${listLength('transformations')})`],
    ])),
    ['json', 'JSON'],
  ];
  const listLength = (/** @type {string} */ name) => (Array.isArray(draft.raw[name]) ? draft.raw[name].length : 0);

  /** @param {string} id */
  function choose(id) {
    tab = id;
    fillTab();
    const chosen = tabs.querySelector('[aria-selected="true"]');
    if (chosen instanceof HTMLElement) chosen.focus();
  }

  const queryHost = { org, run: () => preview.run(), update: () => preview.update() };

  function fillTab() {
    const list = tabsOf();
    if (!list.some(([id]) => id === tab)) tab = list[0][0];
    const made = tabList({
      label: 'Parts of the panel',
      tabs: list.map(([id, text]) => ({ id, text })),
      choose,
      prefix: 'editor-tab-',
      panel: 'editor-tab',
    });
    made.select(tab);
    tabs.replaceWith(made.list);
    tabs = made.list;
    body.setAttribute('aria-labelledby', `editor-tab-${tab}`);
    draft.arrived = () => {};
    body.replaceChildren(...(tab === 'queries' ? queriesTab(draft, queryHost)
      : tab === 'transformations' ? transformationsTab(draft) : jsonTab(draft)));
  }

  /** Makes the forms again and keeps the focus and the scrolling where they were. */
  function rebuild() {
    const active = document.activeElement;
    const focus = active instanceof HTMLElement && node.contains(active) ? active.dataset.focus : undefined;
    const scrolled = pane.scrollTop;
    fillTab();
    pane.replaceChildren(...optionsPane(draft, state));
    pane.scrollTop = scrolled;
    if (active instanceof HTMLElement && active.isConnected) return;
    const again = focus && node.querySelector(`[data-focus="${CSS.escape(focus)}"]:not(:disabled)`);
    if (again instanceof HTMLElement) again.focus({ preventScroll: true });
    else if (focus || document.activeElement === document.body) body.focus({ preventScroll: true });
  }

  function show() {
    heading.textContent = textOf(draft.raw.title).trim() || 'Panel without a title';
    undo.disabled = !draft.canUndo;
    redo.disabled = !draft.canRedo;
    use.disabled = !draft.dirty;
    discard.disabled = !draft.dirty;
    status.textContent = draft.dirty ? 'Not applied yet' : '';
  }

  /** @param {boolean} again whether the forms are made again @param {boolean} typing whether a query is typed */
  function changed(again, typing) {
    show();
    edited(draft.dirty ? draft.raw : null);
    if (again) rebuild();
    if (!typing) preview.update();
  }

  const isText = (/** @type {EventTarget | null} */ target) =>
    target instanceof HTMLTextAreaElement
    || (target instanceof HTMLInputElement && !['checkbox', 'radio', 'color'].includes(target.type));
  const keys = (/** @type {KeyboardEvent} */ event) => {
    if (event.defaultPrevented || document.querySelector('dialog[open]')) return;
    if (event.key === 'Escape' && !draft.dirty && !isText(event.target)) {
      event.preventDefault();
      close();
    } else if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'z' && !isText(event.target)) {
      event.preventDefault();
      if (event.shiftKey) draft.redo();
      else draft.undo();
    }
  };
  const redraw = () => preview.redraw();
  document.addEventListener('keydown', keys);
  addEventListener('beforeunload', unload);
  scheme.addEventListener('change', redraw);
  fillTab();
  pane.replaceChildren(...optionsPane(draft, state));
  show();
  host.replaceChildren(node);
  heading.focus({ preventScroll: true });
  return {
    leaves,
    follow: (view) => preview.follow(view.range, view.now),
    destroy() {
      edited(null);
      document.removeEventListener('keydown', keys);
      removeEventListener('beforeunload', unload);
      scheme.removeEventListener('change', redraw);
      preview.destroy();
    },
  };
}
