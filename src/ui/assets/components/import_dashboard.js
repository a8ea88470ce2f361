// Imports dashboards: files, drag and drop, or pasted JSON; a report first, then the save.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { createDashboard, readStored, saveDashboard } from '../client/dashboards.js';
import { readDashboard } from '../model/dashboard.js';
import { errorText } from '../model/error_text.js';
import { JSON_MAX } from '../model/limits.js';
import { pageUrl } from '../client/server.js';
import { field, lines } from './form.js';
import { table } from './parts.js';

/**
 * @typedef {{name: string, json: any, read: ReturnType<typeof readDashboard> | null, problem: unknown}} Candidate
 */

/** The most files of one import. */
const FILES_MAX = 50;
/** @type {Record<string, string>} */
const SEVERITIES = { error: 'Not drawn as intended', warning: 'A part is missing', info: 'Drawn otherwise' };

/** @param {string} name @param {string} text @returns {Candidate} */
function candidate(name, text) {
  try {
    const read = readDashboard(text);
    return { name, json: JSON.parse(text), read, problem: null };
  } catch (problem) {
    return { name, json: null, read: null, problem };
  }
}

/** The dashboard inside of an export of the API. @param {Candidate} one */
const inner = ({ json, read }) => (read?.dashboard.path ?? []).reduce((at, key) => at[key], json);

/**
 * @param {{org: string, folders: () => string[], saved: () => void, close: () => void}} options `saved` is called
 *   after each dashboard that was saved
 */
export function importDashboard({ org, folders, saved, close }) {
  const files = h('input', {
    type: 'file',
    id: 'import-files',
    accept: '.json,application/json',
    multiple: true,
    'aria-describedby': 'import-hint',
  });
  const pasted = lines('Or paste the JSON of a dashboard', 'json', '', 5, '');
  const area = /** @type {HTMLTextAreaElement} */ (pasted.querySelector('textarea'));
  const names = h('datalist', { id: 'folders' });
  const folder = field(
    'Folder',
    'folder',
    { required: false, list: 'folders', maxlength: '200', autocomplete: 'off' },
    'Leave it empty for none.',
  );
  const input = /** @type {HTMLInputElement} */ (folder.querySelector('input'));
  const check = h('button', {
    type: 'button',
    text: 'Check the JSON',
    on: { click: () => review([candidate('Pasted JSON', area.value)]) },
  });
  const result = h('div', { class: 'stack', 'aria-live': 'polite' });
  files.addEventListener('change', () => take(files.files));
  area.addEventListener('paste', () =>
    setTimeout(() => area.value.trim() && review([candidate('Pasted JSON', area.value)])),
  );

  /** @param {FileList | null | undefined} list */
  async function take(list) {
    const chosen = [...(list ?? [])].slice(0, FILES_MAX);
    const read = await Promise.all(
      chosen.map(async (file) => {
        // A file that is too large is not read at all.
        if (file.size > JSON_MAX * 4) return candidate(file.name, 'x'.repeat(JSON_MAX + 1));
        return candidate(file.name, await file.text());
      }),
    );
    if (read.length > 0) review(read);
  }

  /** @param {Candidate[]} all */
  function review(all) {
    const good = all.filter(({ read }) => read);
    names.replaceChildren(...folders().map((value) => h('option', { value })));
    const alert = h('p', { class: 'alert', role: 'alert' });
    const save = h('button', {
      type: 'button',
      class: 'primary',
      text: good.length === 1 ? 'Save the dashboard' : `Save ${good.length} dashboards`,
      disabled: good.length === 0,
    });
    save.addEventListener('click', async () => {
      save.disabled = true;
      alert.textContent = '';
      for (const one of good) {
        const place = result.querySelector(`[data-candidate="${all.indexOf(one)}"]`);
        if (place?.getAttribute('data-done')) continue;
        try {
          const { uid, title } = await createDashboard(org, {
            dashboard: inner(one),
            folder: input.value.trim() || undefined,
            message: 'Imported',
          });
          done(one, all, uid, title);
        } catch (error) {
          if (error instanceof ApiError && error.code === 'already_exists' && place) offer(one, all, place);
          else alert.textContent = errorText(error);
        }
      }
      save.disabled = false;
      if (
        good.every((one) => result.querySelector(`[data-candidate="${all.indexOf(one)}"]`)?.getAttribute('data-done'))
      )
        save.remove();
    });
    result.replaceChildren(...all.map((one, index) => shown(one, index)), alert, h('div', { class: 'row' }, save));
    const heading = result.querySelector('h3');
    heading?.setAttribute('tabindex', '-1');
    heading?.focus();
  }

  /** @param {Candidate} one @param {Candidate[]} all @param {string} uid @param {string} title */
  function done(one, all, uid, title) {
    const place = result.querySelector(`[data-candidate="${all.indexOf(one)}"]`);
    place?.setAttribute('data-done', 'true');
    place?.querySelector('.offer')?.remove();
    place?.append(
      h(
        'p',
        { class: 'success', role: 'status' },
        'Saved: ',
        h('a', { href: pageUrl('/dashboard', { org, uid }), text: title || one.read?.dashboard.title || uid }),
      ),
    );
    saved();
  }

  /** The uid is in use. @param {Candidate} one @param {Candidate[]} all @param {Element} place */
  function offer(one, all, place) {
    const alert = h('span', { class: 'alert', role: 'alert' });
    const act = (/** @type {() => Promise<{uid: string, title: string}>} */ action) => () =>
      action().then(
        ({ uid, title }) => done(one, all, uid, title),
        (error) => {
          alert.textContent = errorText(error);
        },
      );
    const dashboard = inner(one);
    place.querySelector('.offer')?.remove();
    place.append(
      h(
        'div',
        { class: 'offer row', role: 'group', 'aria-label': 'The dashboard exists' },
        h('span', { text: `A dashboard with the uid ${dashboard.uid} exists.` }),
        h('button', {
          type: 'button',
          text: 'Save as its next version',
          on: {
            click: act(async () => {
              const stored = await readStored(org, dashboard.uid);
              return saveDashboard(org, dashboard.uid, stored.version, { dashboard, message: 'Imported' });
            }),
          },
        }),
        h('button', {
          type: 'button',
          text: 'Save as a copy',
          on: {
            click: act(() => {
              const { uid, ...copy } = dashboard;
              return createDashboard(org, {
                dashboard: { ...copy, title: `${copy.title ?? uid} (copy)` },
                folder: input.value.trim() || undefined,
                message: `Imported as a copy of ${uid}`,
              });
            }),
          },
        }),
        alert,
      ),
    );
  }

  const node = h(
    'section',
    { class: 'card part import', 'aria-labelledby': 'import-title' },
    h(
      'div',
      { class: 'row spread' },
      h('h2', { id: 'import-title', text: 'Import dashboards' }),
      h('button', { type: 'button', class: 'plain', text: 'Close', on: { click: close } }),
    ),
    h(
      'div',
      { class: 'field drop' },
      h('label', { for: 'import-files', text: 'Files' }),
      files,
      h('p', {
        class: 'hint',
        id: 'import-hint',
        text: 'Grafana dashboards in JSON, at most 1 MiB each. Files can be dropped on the page.',
      }),
    ),
    pasted,
    check,
    folder,
    names,
    result,
  );
  return { node, take, files };
}

/** @param {Candidate} one @param {number} index */
function shown({ name, read, problem }, index) {
  if (!read) {
    return h(
      'div',
      { class: 'candidate', 'data-candidate': String(index) },
      h('h3', { text: name }),
      h('p', { class: 'alert', role: 'alert', text: errorText(problem) }),
    );
  }
  const { dashboard, report } = read;
  // Rows count, as in the list of dashboards.
  const panels = dashboard.panels.flatMap((panel) => [panel, ...panel.panels]);
  const bad = report.filter(({ severity }) => severity !== 'info').length;
  const summary = `${panels.length} ${panels.length === 1 ? 'panel' : 'panels'}, ${panels.reduce(
    (sum, { targets }) => sum + targets.length,
    0,
  )} queries, ${dashboard.variables.length} variables. ${
    bad === 0 ? 'Everything is supported.' : `${bad} ${bad === 1 ? 'thing is' : 'things are'} not supported.`
  }`;
  const rows = report
    .slice(0, 500)
    .map(({ title, panel, what, severity }) => [
      title || (panel === null ? 'Dashboard' : `Panel ${panel}`),
      what,
      SEVERITIES[severity],
    ]);
  return h(
    'div',
    { class: 'candidate', 'data-candidate': String(index) },
    h('h3', { text: dashboard.title }),
    h('p', { class: 'hint', text: `${name}: ${summary}` }),
    rows.length > 0 && table(['Panel', 'What', 'Effect'], rows, `Import report of ${dashboard.title}`),
  );
}
