// Opens the editor of a panel, of the variables, or of the JSON of the dashboard that is edited.

import { h } from '../chart/dom.js';
import { panelById } from '../model/edit_dashboard.js';
import { errorText } from '../model/error_text.js';
import { lines } from './form.js';

/**
 * @typedef {import('../model/limits.js').Json} Json
 * @typedef {{selections: import('../model/interpolate.js').Selections, range: import('../model/time.js').Range,
 *   theme: () => 'light' | 'dark', now: number}} EditorView `now` in milliseconds
 *
 * @typedef {Object} Wanted
 * @property {Json} document
 * @property {string} org
 * @property {number | null} panelId null for the editor of `tab`
 * @property {string} tab `variables` or `json`
 * @property {EditorView} view
 * @property {(id: number, raw: Json) => void} panel applies an edited panel
 * @property {(id: number, raw: Json | null) => void} unapplied gets a panel with changes that were not applied, or
 *   null once there are none
 * @property {(list: unknown[]) => void} variables
 * @property {(json: unknown) => void} json applies another document
 * @property {() => void} close leaves the editor
 *
 * @typedef {Object} OpenEditor
 * @property {() => void} close ends the editor
 * @property {(view: EditorView) => void} follow shows another time range
 * @property {() => Promise<boolean>} leaves asks whether changes that were not applied are lost
 */

/** @type {OpenEditor} */
export const NO_EDITOR = { close: () => {}, follow: () => {}, leaves: async () => true };

/**

/**
 * Fills a node with an editor; an editor that cannot be loaded leaves an error there.
 * @param {HTMLElement} node
 * @param {Wanted} wanted
 * @returns {Promise<OpenEditor>}
 */
export async function openEditor(node, wanted) {
  const { document, org, panelId, tab, view, close } = wanted;
  try {
    if (panelId === null && tab === 'json') {
      node.replaceChildren(jsonEditor(wanted));
      return NO_EDITOR;
    }
    if (panelId !== null && !panelById(document, panelId)) throw new Error('The dashboard has no such panel');
    const common = { document, org, host: node, range: view.range, close };
    const id = Number(panelId);
    const apply = (/** @type {Json} */ raw) => wanted.panel(id, raw);
    const edited = (/** @type {Json | null} */ raw) => wanted.unapplied(id, raw);
    if (panelId === null) {
      const { openVariableEditor } = await import('./variable_editor.js');
      return ended(await openVariableEditor({ ...common, apply: wanted.variables }));
    }
    const { openPanelEditor } = await import('./panel_editor.js');
    return ended(await openPanelEditor({ ...common, ...view, panelId, apply, edited }));
  } catch (error) {
    node.replaceChildren(
      h(
        'div',
        { class: 'card part editor-failed' },
        h('p', { class: 'alert', role: 'alert', text: `The editor cannot be opened. ${errorText(error)}` }),
        h('button', { type: 'button', text: 'Back to the panels', on: { click: close } }),
      ),
    );
    return NO_EDITOR;
  }
}

/** An editor, with its state that it does not return. @param {any} made @returns {OpenEditor} */
const ended = (made) => ({
  ...NO_EDITOR,
  ...made,
  close: () => (typeof made === 'function' ? made() : made?.destroy?.()),
});

/** @param {Wanted} wanted */
function jsonEditor({ document, json, close }) {
  const text = JSON.stringify(document, null, 2);
  const area = lines('JSON of the dashboard', 'json', text, 30, 'It is saved with the other changes.');
  const input = /** @type {HTMLTextAreaElement} */ (area.querySelector('textarea'));
  const alert = h('p', { class: 'alert', role: 'alert' });
  const apply = () => {
    alert.textContent = '';
    try {
      json(JSON.parse(input.value));
      close();
    } catch (error) {
      alert.textContent = errorText(error);
    }
  };
  return h(
    'div',
    { class: 'card part json-view' },
    area,
    alert,
    h('div', { class: 'row' }, h('button', { type: 'button', class: 'primary', text: 'Apply', on: { click: apply } })),
  );
}
