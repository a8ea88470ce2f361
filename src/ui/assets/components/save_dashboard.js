// Saving an edited dashboard: a list of changes, a message, and a choice if another version was
// saved meanwhile.

import { h } from '../chart/dom.js';
import { createDashboard, isConflict, readStored, readVersion, saveDashboard } from '../client/dashboards.js';
import { describeChanges } from '../model/dashboard_diff.js';
import { checkBeforeSaving, NAME_MAX } from '../model/save_limits.js';
import { errorText } from '../model/error_text.js';
import { textOf } from '../model/limits.js';
import { textButton } from './buttons.js';
import { openDialog } from './dialog.js';
import { field, form } from './form.js';

/**
 * @typedef {Record<string, any>} Json
 * @typedef {{uid: string, folder: string, dashboard: Json}} Base the stored dashboard
 * @typedef {{org: string, base: Base, version: number, document: Json, folder: string}} Unsaved
 *   `version`: the one that was edited
 */

/** @param {string[]} lines @param {string} label */
export const changeList = (lines, label) =>
  h(
    'div',
    { class: 'scroll change-list', tabindex: '0', role: 'region', 'aria-label': label },
    h('ul', {}, lines.map((text) => h('li', { text }))),
  );

/** The changes of an edited dashboard, with that of its folder. @param {Unsaved} unsaved */
function changesOf({ base, document, folder }) {
  const to = folder ? `the folder “${folder}”` : 'no folder';
  const moved = base.folder === folder ? [] : [`Moved the dashboard to ${to}.`];
  return [...moved, ...describeChanges(base.dashboard, document)];
}

/** @param {(HTMLElement | null | false)[]} buttons */
const buttons = (...buttons) => h('div', { class: 'row' }, buttons);

/**
 * Asks for a message and saves.
 * @param {Unsaved} unsaved
 * @returns {Promise<string | null>} the uid of what was saved; null if it was cancelled
 */
export function saveDialog(unsaved) {
  const { org, base, document, folder } = unsaved;
  return openDialog(
    'Save the dashboard',
    /** @type {string | null} */ (null),
    (close, title) => {
      const lines = changesOf(unsaved);
      const message = field(
        'Message',
        'message',
        { required: false, maxlength: String(NAME_MAX), autocomplete: 'off', autofocus: true },
        'Listed with the version.',
      );
      const put = async (/** @type {number} */ version, /** @type {string} */ note) => {
        checkBeforeSaving(document, folder);
        await saveDashboard(org, base.uid, version, {
          dashboard: document,
          folder: folder === base.folder ? undefined : folder,
          message: note || undefined,
        });
        close(base.uid);
      };
      const entry = form(
        {
          submit: 'Save',
          action: async (values) => {
            try {
              await put(unsaved.version, values.message.trim());
            } catch (error) {
              if (!isConflict(error)) throw error;
              await conflict(values.message.trim());
            }
          },
        },
        message,
      );
      const body = h(
        'div',
        { class: 'stack' },
        changeList(lines.length > 0 ? lines : ['Nothing changed.'], 'Your changes'),
        entry,
      );
      const submit = entry.querySelector('button.primary');
      if (submit) entry.append(buttons(/** @type {HTMLElement} */ (submit), textButton('Cancel', () => close(null))));

      /** @param {string} note */
      async function conflict(note) {
        const current = await readStored(org, base.uid);
        const alert = h('p', { class: 'alert', role: 'alert' });
        const theirs = h('div', { class: 'stack' });
        const fail = (/** @type {unknown} */ error) => {
          alert.textContent = isConflict(error)
            ? 'Yet another version was saved meanwhile. Close this dialog and save again.'
            : errorText(error);
        };
        const see = textButton('See their changes', async () => {
          const from = await readVersion(org, base.uid, unsaved.version).catch(() => null);
          const changes = describeChanges((from ?? base).dashboard, current.dashboard);
          theirs.replaceChildren(
            h('h3', { text: `Changes of version ${current.version}` }),
            changeList(changes.length > 0 ? changes : ['No changes that the page shows.'], 'Their changes'),
          );
        });
        title.textContent = 'Another version was saved';
        body.replaceChildren(
          h('p', {
            text:
              `Version ${current.version} was saved since you began with version ${unsaved.version}. ` +
              'Nothing of yours is saved yet.',
          }),
          theirs,
          alert,
          buttons(
            see,
            textButton('Save as a copy', () => copy(unsaved, note).then(close, fail)),
            textButton('Overwrite', () => put(current.version, note).catch(fail), { class: 'danger' }),
            textButton('Cancel', () => close(null)),
          ),
        );
        see.focus();
      }
      return [body];
    },
    { class: 'wide-dialog' },
  );
}

/**
 * Saves a new dashboard. Returns its uid.
 * @param {Unsaved} unsaved
 * @param {string} note
 * @param {{title?: string, folder?: string}} [names]
 */
async function copy({ org, document, folder }, note, names = {}) {
  const { uid, id, version, ...rest } = document;
  const dashboard = { ...rest, title: names.title ?? `${textOf(document.title)} (copy)` };
  const place = names.folder ?? folder;
  checkBeforeSaving(dashboard, place);
  const made = await createDashboard(org, { dashboard, folder: place || undefined, message: note || undefined });
  return made.uid;
}

/**
 * Asks for a title and a folder, and saves a new dashboard.
 * @param {Unsaved} unsaved
 * @returns {Promise<string | null>} its uid; null if it was cancelled
 */
export function saveAsDialog(unsaved) {
  return openDialog('Save as a new dashboard', /** @type {string | null} */ (null), (close) => {
    const entry = form(
      {
        submit: 'Save',
        action: async (values) =>
          close(await copy(unsaved, '', { title: values.title.trim(), folder: values.folder.trim() })),
      },
      field('Title', 'title', {
        value: `${textOf(unsaved.document.title)} (copy)`.slice(0, NAME_MAX),
        maxlength: String(NAME_MAX),
        autocomplete: 'off',
      }),
      field(
        'Folder',
        'folder',
        { value: unsaved.folder, required: false, maxlength: String(NAME_MAX), autocomplete: 'off' },
        'Leave it empty for none.',
      ),
    );
    const submit = entry.querySelector('button.primary');
    if (submit) entry.append(buttons(/** @type {HTMLElement} */ (submit), textButton('Cancel', () => close(null))));
    return [entry];
  });
}
