// The built-in dashboards: a list, and how one becomes a dashboard of an organisation.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { createDashboard } from '../client/dashboards.js';
import { errorText } from '../model/error_text.js';

/**
 * The built-in dashboards, each a file below `dashboards/`.
 * @type {{file: string, uid: string, title: string, about: string}[]}
 */
export const BUILTIN = [
  {
    file: 'host',
    uid: 'promlet-host',
    title: 'Host',
    about: 'Processors, memory, disks and network, from host_* metrics.',
  },
  {
    file: 'promlet',
    uid: 'promlet-self',
    title: 'promlet',
    about: 'Requests, ingestion, queries and the store of this server.',
  },
  { file: 'shop', uid: 'promlet-shop', title: 'Demo shop', about: 'The generated web shop, with its incident.' },
];

/**
 * Reads a built-in dashboard.
 * @param {string} file
 * @returns {Promise<any>} Grafana's JSON
 */
export async function readBuiltin(file) {
  const response = await fetch(new URL(`../dashboards/${encodeURIComponent(file)}.json`, import.meta.url));
  if (!response.ok) throw new Error('The built-in dashboard could not be loaded.');
  return response.json();
}

/**
 * Adds a built-in dashboard to the organisation, unless it has it. Returns its uid.
 * @param {string} org
 * @param {string} file
 * @returns {Promise<string>}
 */
export async function addBuiltin(org, file) {
  const dashboard = await readBuiltin(file);
  try {
    return (await createDashboard(org, { dashboard, message: 'Built-in dashboard' })).uid;
  } catch (error) {
    if (error instanceof ApiError && ['already_exists', 'provisioned'].includes(error.code)) return dashboard.uid;
    throw error;
  }
}

/**
 * The list of built-in dashboards. `opened` is called with the uid of the one that was added.
 * @param {{org: string, opened: (uid: string) => void}} options
 * @returns {HTMLDetailsElement}
 */
export function builtinDashboards({ org, opened }) {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const entry = (/** @type {typeof BUILTIN[number]} */ { file, title, about }) => {
    const use = h(
      'button',
      { type: 'button' },
      'Add',
      h('span', { class: 'unseen', text: ` ${title}` }),
    );
    use.addEventListener('click', async () => {
      alert.textContent = '';
      use.disabled = true;
      await addBuiltin(org, file).then(opened, (error) => {
        alert.textContent = errorText(error);
      });
      use.disabled = false;
    });
    return h(
      'li',
      { class: 'row spread' },
      h('div', {}, h('strong', { text: title }), h('p', { class: 'hint', text: about })),
      use,
    );
  };
  return h(
    'details',
    { class: 'card part builtins' },
    h('summary', { text: 'Built-in dashboards' }),
    alert,
    h('ul', { class: 'builtin', 'aria-label': 'Built-in dashboards' }, BUILTIN.map(entry)),
  );
}
