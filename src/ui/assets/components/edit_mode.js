// Edit mode of a dashboard: the history of the document, its commands, the draft, and the editors.

import { h } from '../chart/dom.js';
import { isSignedOut } from '../client/server.js';
import * as edits from '../model/edit_dashboard.js';
import { EditHistory } from '../model/edit_history.js';
import { isRow, itemsOf, prepareForEditing } from '../model/edit_prepare.js';
import { errorText } from '../model/error_text.js';
import { listOf, objectOf, objectsOf, textOf } from '../model/limits.js';
import { copiedPanel, copyPanel, missingVariables } from '../model/panel_clipboard.js';
import { ownStorage } from '../model/storage.js';
import { clock } from './draft_bar.js';
import { DraftKeeper } from './draft_keeper.js';
import { rowDialog, settingsDialog } from './dashboard_settings.js';
import { editBar } from './edit_bar.js';
import { EditGrid } from './edit_grid.js';
import { adoptPanels, neighbourOf, panelName, prepareFrame, rowTools } from './edited_panels.js';
import { NO_EDITOR, openEditor } from './editor_host.js';
import { leaveDialog, removeRowDialog } from './edit_dialogs.js';
import { saveAsDialog, saveDialog } from './save_dashboard.js';

/**
 * @typedef {import('../model/limits.js').Json} Json
 * @typedef {import('../model/panel.js').Panel} Panel
 * @typedef {import('../model/dashboard_address.js').DashboardAddress} DashboardAddress
 * @typedef {{document: Json, folder: string}} State
 *
 * @typedef {Object} EditHost
 * @property {string} org
 * @property {import('../client/dashboards.js').Stored} stored
 * @property {import('../model/drafts.js').Draft | null} draft that is resumed
 * @property {import('./panel_grid.js').PanelGrid} grid
 * @property {() => import('./editor_host.js').EditorView} view
 * @property {(change: Partial<DashboardAddress>) => void} navigate
 * @property {(what: 'variables' | 'layout') => void} changed shows the document; `variables`: with
 *   new values of variables
 * @property {() => void} left edit mode has ended
 * @property {(uid: string) => void} saved the dashboard was saved
 * @property {() => void} signedOut
 */

/** @typedef {{merge?: string, what?: 'variables' | 'layout', focus?: number | null}} CommitOptions `merge`: as
 *  in the history; `focus`: the panel that gets it */

/** Keys of a panel with the focus. */
const KEYS =
  'Drag a panel by its title. Keys on a focused panel: arrows move it, Shift and arrows resize it, E edits, ' +
  'D duplicates, C copies, Delete removes.';

export class EditMode {
  /** @type {EditHistory<State>} */
  #history;
  /** @type {import('./edited_panels.js').Known} */
  #known = new Map();
  /** @type {{key: string, node: HTMLElement, editor: import('./editor_host.js').OpenEditor} | null} */
  #open = null;
  /** The panel that gets the focus when the grid is shown. @type {number | null} */
  #focus = null;
  #draft;
  #first;
  #host;
  #bar;
  #grid;

  /** @param {EditHost} host */
  constructor(host) {
    this.#host = host;
    const { stored, draft } = host;
    const { document, notes } = prepareForEditing(stored.dashboard);
    this.#first = { document, folder: stored.folder };
    this.#history = new EditHistory(this.#first);
    this.version = draft?.version ?? stored.version;
    if (draft) {
      const resumed = prepareForEditing(draft.document).document;
      this.#history.push({ document: resumed, folder: draft.folder }, `changes from ${clock(draft.at)}`);
    }
    this.#bar = editBar({
      copied: () => copiedPanel(ownStorage()),
      paste: (panel) => this.#paste(panel),
      addRow: () => void this.#add(() => edits.addRow(this.document, 'New row'), 'add a row'),
      addPanel: (panel) => {
        const id = this.#add(() => edits.addPanel(this.document, panel), 'add a panel');
        if (id !== null) this.edit(id);
      },
      undo: () => this.#back(this.#history.undo(), 'Undone'),
      redo: () => this.#back(this.#history.redo(), 'Redone'),
      settings: () => this.#settings(),
      save: () => this.#save(),
      saveAs: () => this.#finish(() => saveAsDialog(this.#unsaved)),
      leave: () => this.#leave(),
    });
    this.bar = h(
      'div',
      { class: 'edit-top' },
      this.#bar.node,
      h('p', { class: 'edit-keys', id: 'edit-keys', text: KEYS }),
      ...notes.map((text) => h('p', { class: 'notice', text })),
    );
    this.#grid = new EditGrid({
      node: host.grid.node,
      items: () => itemsOf(this.document),
      isRow: (id) => isRow(edits.panelById(this.document, id)),
      move: (id, to) => this.#place(id, edits.movePanel(this.document, id, to), 'Move'),
      resize: (id, size) => this.#place(id, edits.resizePanel(this.document, id, size), 'Resize'),
      step: (id, direction) => this.#place(id, edits.stepPanel(this.document, id, direction), 'Move'),
      remove: (id) => this.remove(id),
      edit: (id) => this.edit(id),
      duplicate: (id) => this.#duplicate(id),
      copy: (id) => this.#copy(id),
      announce: (text) => this.#bar.announce(text),
    });
    this.#draft = new DraftKeeper({
      org: host.org,
      uid: stored.uid,
      draft: () => ({ ...this.#history.state, version: this.version }),
      dirty: () => this.dirty,
      kept: (text) => this.#showState(text),
    });
    this.#showState();
  }

  get document() {
    return this.#history.state.document;
  }

  get dirty() {
    return this.#history.state !== this.#first;
  }

  stop() {
    this.#draft.stop();
    this.closeEditor();
    this.#bar.destroy();
    this.#grid.destroy();
    this.#host.grid.editor = null;
  }

  /** The panels of the document, as they are shown. @param {Panel[]} panels @returns {Panel[]} */
  adopt(panels) {
    this.#known = adoptPanels(this.document, panels, this.#known);
    return [...this.#known.values()].map(({ panel }) => panel);
  }

  /** Prepares the frame of a panel for editing. @param {import('./panel_frame.js').PanelFrame} frame */
  shown({ node, placed: { panel } }) {
    prepareFrame(node, textOf(edits.panelById(this.document, Number(panel.id))?.repeat));
  }

  /** Called after the grid was shown. */
  settled() {
    if (this.#focus !== null) this.#grid.focus(this.#focus);
    this.#focus = null;
  }

  /** The buttons of a row. @param {Panel} panel @returns {HTMLElement[]} */
  rowTools(panel) {
    const id = Number(panel.id);
    const step = (/** @type {'up' | 'down'} */ direction) =>
      this.#place(id, edits.stepPanel(this.document, id, direction), 'Move');
    const [edit, remove] = [() => this.edit(id), () => this.remove(id)];
    return [rowTools(panel.title, { up: () => step('up'), down: () => step('down'), edit, remove })];
  }

  /** Closes or opens a row. @param {Panel} panel */
  toggle(panel) {
    const id = Number(panel.id);
    const label = `${panel.collapsed ? 'open' : 'close'} ${this.#name(id)}`;
    this.#commit(edits.toggleRow(this.document, id), label, { focus: id });
  }

  /** The menu of a panel. @param {Panel} panel */
  actions(panel) {
    const id = Number(panel.id);
    return [
      { text: 'Edit', run: () => this.edit(id) },
      { text: 'Duplicate', run: () => this.#duplicate(id) },
      { text: 'Copy', run: () => this.#copy(id) },
      { text: 'Remove', run: () => this.remove(id) },
    ];
  }

  /** The editor of an address. @param {DashboardAddress} address @returns {Promise<HTMLElement>} */
  async editor({ tab, editPanel }) {
    const key = editPanel ? `panel ${editPanel}` : tab;
    if (this.#open?.key === key) return this.#open.node;
    this.closeEditor();
    const node = h('div', { class: 'editor-host' });
    this.#open = { key, node, editor: NO_EDITOR };
    this.bar.classList.add('without-grid');
    // The editor of a panel has a history and buttons of its own.
    this.bar.hidden = editPanel !== '';
    const leave = () => this.#host.navigate({ editPanel: '', tab: '' });
    const editor = await openEditor(node, {
      document: this.document,
      org: this.#host.org,
      panelId: editPanel === '' ? null : Number(editPanel),
      tab,
      view: this.#host.view(),
      panel: (id, raw) => this.#commit(edits.replacePanel(this.document, id, raw), `edit ${this.#name(id)}`),
      unapplied: (id, raw) =>
        this.#draft.unapplied(raw && ((document) => edits.replacePanel(document, id, raw))),
      variables: (list) =>
        this.#commit(edits.replaceVariables(this.document, list), 'edit the variables', { what: 'variables' }),
      json: (json) => this.#commit(prepareForEditing(json).document, 'edit the JSON', { what: 'variables' }),
      close: leave,
    });
    if (this.#open?.node === node) this.#open.editor = editor;
    else editor.close();
    return node;
  }

  /** Shows the time range of the page in the editor that is open. */
  follow() {
    this.#open?.editor.follow(this.#host.view());
  }

  /** Asks whether the changes of the open editor that were not applied are lost. */
  leaves() {
    return this.#open?.editor.leaves() ?? Promise.resolve(true);
  }

  closeEditor() {
    if (!this.#open) return;
    const id = Number(/^panel (\d+)$/.exec(this.#open.key)?.[1] ?? NaN);
    if (!Number.isNaN(id)) this.#focus ??= id;
    this.#open.editor.close();
    this.#open = null;
    this.bar.classList.remove('without-grid');
    this.bar.hidden = false;
  }

  /** Opens the editor of a panel, or the dialog of a row. @param {number} id */
  async edit(id) {
    const raw = edits.panelById(this.document, id);
    if (!isRow(raw)) return this.#host.navigate({ editPanel: String(id), tab: '' });
    const names = objectsOf(objectOf(this.document.templating).list).map(({ name }) => textOf(name));
    const given = await rowDialog(/** @type {Json} */ (raw), names);
    if (given === null) return;
    const { title, repeat } = given;
    const members = repeat || raw?.repeat ? { title, repeat: repeat || null } : { title };
    this.#commit(edits.setPanel(this.document, id, members), `edit ${this.#name(id)}`, { focus: id });
  }

  /** @param {number} id */
  async remove(id) {
    const raw = edits.panelById(this.document, id);
    if (!raw) return;
    let inside = false;
    const owned = edits.ownedBy(this.document, id).length;
    if (isRow(raw) && owned > 0) {
      const choice = await removeRowDialog(this.#name(id), owned);
      if (choice === null) return;
      inside = choice === 'panels';
    }
    const next = neighbourOf(this.document, id);
    const name = this.#name(id);
    this.#commit(edits.removePanel(this.document, id, { inside }), `remove ${name}`, { focus: next });
    this.#bar.notice(`Removed ${name}.`, 'Undo', () => this.#back(this.#history.undo(), 'Undone'));
  }

  /** @param {number} id */
  #name(id) {
    return panelName(this.document, id);
  }

  /** @param {number} id @param {Json | null} document @param {string} act */
  #place(id, document, act) {
    if (!document || document === this.document) return this.#bar.announce('It cannot go there.');
    const label = `${act.toLowerCase()} ${this.#name(id)}`;
    this.#commit(document, label, { merge: `${act} ${id}`, focus: id });
    const item = edits.itemById(document, id);
    if (!item) return;
    const { x, y, w, h: height } = item;
    this.#bar.announce(act === 'Move' ? `Column ${x + 1}, line ${y + 1}.` : `${w} columns wide, ${height} lines high.`);
  }

  /** @param {number} id */
  #duplicate(id) {
    this.#add(() => edits.duplicatePanel(this.document, id), `duplicate ${this.#name(id)}`);
  }

  /** @param {number} id */
  #copy(id) {
    const raw = edits.panelById(this.document, id);
    const kept = raw && copyPanel(ownStorage(), raw);
    const done = `Copied ${this.#name(id)}. Add it to this or another dashboard with “Add”.`;
    this.#bar.notice(kept ? done : 'The panel is too large to be copied, or this browser refuses to keep it.');
  }

  /**
   * Adds a panel; a limit is shown as an error.
   * @param {() => {document: Json, id: number}} make
   * @param {string} label
   */
  #add(make, label) {
    this.#bar.problem('');
    try {
      const { document, id } = make();
      this.#commit(document, label, { focus: id });
      this.#bar.announce(`Added ${this.#name(id)}.`);
      return id;
    } catch (error) {
      this.#bar.problem(errorText(error));
      return null;
    }
  }

  /** @param {Json} panel */
  #paste(panel) {
    const title = textOf(panel.title).trim().slice(0, 80);
    const id = this.#add(() => edits.addPanel(this.document, panel), `paste the panel “${title}”`);
    if (id === null) return;
    const missing = missingVariables(panel, listOf(objectOf(this.document.templating).list));
    const names = missing.map((name) => `$${name}`).join(', ');
    if (names) this.#bar.notice(`The panel uses variables that this dashboard does not have: ${names}.`);
  }

  async #settings() {
    const next = await settingsDialog(this.#history.state);
    if (next) this.#record(next, 'change the settings', { what: 'variables' });
  }

  /** Shows the state after undo or redo. @param {string | null} label @param {string} word */
  #back(label, word) {
    if (label === null) return;
    if (this.#open) this.closeEditor();
    this.#focus = null;
    this.#after('variables');
    this.#bar.announce(`${word}: ${label}.`);
  }

  /**
   * @param {Json} document
   * @param {string} label
   * @param {CommitOptions} [options]
   */
  #commit(document, label, options) {
    if (document === this.document) return;
    this.#record({ ...this.#history.state, document }, label, options);
  }

  /** @param {State} state @param {string} label @param {CommitOptions} [options] */
  #record(state, label, { merge = '', what = 'layout', focus = null } = {}) {
    this.#history.push(state, label, merge);
    this.#focus = focus;
    this.#after(what);
  }

  /** @param {'variables' | 'layout'} what */
  #after(what) {
    this.#bar.problem('');
    this.#bar.closeNotice();
    this.#draft.changed();
    this.#showState();
    this.#host.changed(what);
  }

  /** @param {string} [text] */
  #showState(text = this.dirty ? 'Unsaved changes' : 'No changes yet') {
    const { undoLabel, redoLabel } = this.#history;
    this.#bar.show({ undoLabel, redoLabel, dirty: this.dirty, text });
  }

  get #unsaved() {
    const { org, stored } = this.#host;
    return { org, base: stored, version: this.version, ...this.#history.state };
  }

  /** @param {() => Promise<string | null>} dialog */
  async #finish(dialog) {
    try {
      const uid = await dialog();
      if (uid === null) return;
      this.#draft.forget();
      this.#history = new EditHistory(this.#first);
      this.#host.saved(uid);
    } catch (error) {
      if (isSignedOut(error)) this.#host.signedOut();
      else this.#bar.problem(errorText(error));
    }
  }

  #save() {
    if (!this.dirty) return this.#bar.announce('There is nothing to save.');
    this.#finish(() => saveDialog(this.#unsaved));
  }

  async #leave() {
    if (this.dirty) {
      const choice = await leaveDialog();
      if (choice === null) return;
      if (choice === 'discard') {
        this.#history = new EditHistory(this.#first);
        this.#draft.forget();
      }
    }
    this.#host.left();
  }
}
