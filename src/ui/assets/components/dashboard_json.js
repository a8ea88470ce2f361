// The stored JSON of a dashboard, editable.

import { h } from '../chart/dom.js';
import {
  deleteDashboard,
  isConflict,
  readStored,
  saveDashboard,
} from '../client/dashboards.js';
import { readDashboard } from '../model/dashboard.js';
import { errorText } from '../model/error_text.js';
import { confirmed } from './dialog.js';
import { field, lines } from './form.js';

/** @typedef {import('../client/dashboards.js').Stored} Stored */

/**
 * @param {{org: string, stored: Stored, editable: boolean, changed: () => void, gone: () => void}} options
 *   `changed`: another version is current; `gone`: the dashboard was deleted
 */
export function jsonView({ org, stored, editable, changed, gone }) {
  let { version } = stored;
  const text = JSON.stringify(stored.dashboard, null, 2);
  const area = lines('JSON of the dashboard', 'json', text, 30, editable ? '' : 'This dashboard is read-only.');
  const input = /** @type {HTMLTextAreaElement} */ (area.querySelector('textarea'));
  input.readOnly = !editable;
  const message = field(
    'What changed',
    'message',
    { required: false, maxlength: '200', autocomplete: 'off' },
    'Listed with the version.',
  );
  const alert = h('p', { class: 'alert', role: 'alert' });
  const choice = h('div', { class: 'row' });
  const save = h('button', { type: 'button', class: 'primary', text: 'Save', on: { click: () => store(version) } });

  /** @param {number} over the version that is replaced */
  async function store(over) {
    alert.textContent = '';
    choice.replaceChildren();
    save.disabled = true;
    try {
      readDashboard(input.value);
      const note = /** @type {HTMLInputElement} */ (message.querySelector('input')).value.trim();
      await saveDashboard(org, stored.uid, over, { dashboard: JSON.parse(input.value), message: note || undefined });
      changed();
    } catch (error) {
      alert.textContent = isConflict(error)
        ? 'The dashboard was changed by someone else since you opened it. Nothing was saved.'
        : errorText(error);
      if (isConflict(error)) conflict();
    }
    save.disabled = false;
  }

  function conflict() {
    choice.replaceChildren(
      h('button', { type: 'button', text: 'Discard my changes and load theirs', on: { click: changed } }),
      h('button', {
        type: 'button',
        class: 'danger',
        text: 'Save mine over theirs',
        on: {
          click: async () => {
            try {
              version = (await readStored(org, stored.uid)).version;
              await store(version);
            } catch (error) {
              alert.textContent = errorText(error);
            }
          },
        },
      }),
    );
    choice.querySelector('button')?.focus();
  }

  const remove = h('button', {
    type: 'button',
    class: 'danger',
    text: 'Delete dashboard',
    on: {
      click: async () => {
        const sure = await confirmed({
          heading: `Delete ${stored.title}?`,
          action: 'Delete dashboard',
          loss: `The dashboard and all of its ${version} versions will be lost. Links to it stop working.`,
        });
        if (!sure) return;
        try {
          await deleteDashboard(org, stored.uid, version);
          gone();
        } catch (error) {
          alert.textContent = errorText(error);
        }
      },
    },
  });
  const download = h('button', {
    type: 'button',
    text: 'Download',
    on: {
      click: () => {
        const url = URL.createObjectURL(new Blob([input.value], { type: 'application/json' }));
        h('a', { href: url, download: `${stored.uid}.json` }).click();
        setTimeout(() => URL.revokeObjectURL(url), 1000);
      },
    },
  });
  return h(
    'section',
    { class: 'card part json-view', 'aria-label': 'JSON' },
    area,
    editable && message,
    alert,
    choice,
    h('div', { class: 'row' }, editable && save, download, editable && remove),
  );
}
