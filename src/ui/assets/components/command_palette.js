// The command palette: one field that finds pages, dashboards, metrics and actions.

import { h } from '../chart/dom.js';
import { createDashboard, listDashboards } from '../client/dashboards.js';
import { visit } from '../client/navigation.js';
import { ROOT, pageUrl, readOrg } from '../client/server.js';
import { icon } from './icons.js';
import { signOut } from './menu.js';
import { errorText } from '../model/error_text.js';
import { bestMatches } from '../model/fuzzy.js';
import { families } from '../model/metrics.js';
import { newDashboard } from '../model/new_panel.js';
import { firstQuery } from '../model/promql.js';
import { noteUse, recent } from '../model/recent.js';
import { navigationOf, permits } from '../model/routes.js';

/** The most entries that are shown, and the most metrics that are searched. */
const SHOWN_MAX = 12;
const METRICS_MAX = 5000;

/**
 * @typedef {Object} Command
 * @property {string} id unique, and the same at the next use
 * @property {string} text what is searched and shown
 * @property {string} kind such as "Page"
 * @property {string} icon
 * @property {string} [about]
 * @property {() => string|void|Promise<string|void>} run returns the address to go to
 */

/**
 * Opens the palette; Escape closes it, and the focus returns.
 * @param {{org: string, role: import('../client/types.js').Role, signedOut: () => void}} options
 */
export function openPalette({ org, role, signedOut }) {
  const before = document.activeElement;
  const usesKey = `palette.${org}`;
  const page = (/** @type {string} */ path, /** @type {Object<string, string>} */ more = {}) =>
    pageUrl(path, { org, ...more });
  const to = (/** @type {string} */ href) => () => href;

  /** @type {Command[]} */
  const pages = navigationOf(role).map((route) => ({
    id: `page ${route.path}`,
    text: route.title,
    kind: 'Page',
    icon: route.icon ?? '',
    about: route.about,
    run: to(route.personal ? `${ROOT}${route.path}` : page(route.path)),
  }));
  /** @type {(Command|false)[]} */
  const actions = [
    permits(role, 'editor') && {
      id: 'action new dashboard',
      text: 'New dashboard',
      kind: 'Action',
      icon: 'plus',
      run: async () => {
        const made = await createDashboard(org, {
          dashboard: newDashboard('New dashboard'),
        });
        return page('/dashboard', { uid: made.uid });
      },
    },
    permits(role, 'editor') && {
      id: 'action import',
      text: 'Import dashboard',
      kind: 'Action',
      icon: 'upload',
      run: to(page('/dashboards', { import: '' })),
    },
    permits(role, 'admin') && {
      id: 'action new key',
      text: 'New API key',
      kind: 'Action',
      icon: 'key',
      run: to(page('/organisation', { tab: 'keys', new: '' })),
    },
    permits(role, 'admin') && {
      id: 'action invite',
      text: 'Invite a member',
      kind: 'Action',
      icon: 'account',
      run: to(page('/organisation', { tab: 'members' })),
    },
    { id: 'action sign out', text: 'Sign out', kind: 'Action', icon: 'leave', run: () => signOut(signedOut) },
  ];
  /** Dashboards and metrics, once they are loaded. @type {Command[]} */
  let loaded = [];
  /** @type {Command[]} */
  let shown = [];
  let active = 0;

  const list = h('ul', { class: 'palette-list', role: 'listbox', id: 'palette-list', 'aria-label': 'Results' });
  const status = h('p', { class: 'hint palette-status', role: 'status' });
  const alert = h('p', { class: 'alert', role: 'alert' });
  const input = h('input', {
    type: 'text',
    role: 'combobox',
    'aria-label': 'Search pages, dashboards, metrics and actions',
    'aria-expanded': 'true',
    'aria-controls': list.id,
    'aria-autocomplete': 'list',
    placeholder: 'Search pages, dashboards, metrics and actions',
    autocomplete: 'off',
    spellcheck: 'false',
    maxlength: '100',
  });
  const dialog = h(
    'dialog',
    { class: 'card palette', 'aria-label': 'Search' },
    h('div', { class: 'palette-field' }, icon('search'), input),
    alert,
    list,
    status,
  );

  const close = () => {
    request.abort();
    dialog.remove();
    if (before instanceof HTMLElement && before.isConnected) before.focus();
  };

  function show() {
    const asked = input.value.trim() !== '';
    const fixed = [...pages, ...actions.filter((action) => action !== false)];
    const recently = recent(usesKey);
    // If the query is empty, only metrics that were used before are listed.
    const rest = asked ? loaded : loaded.filter(({ id, kind }) => kind !== 'Metric' || recently.includes(id));
    shown = bestMatches([...fixed, ...rest], input.value, recently, SHOWN_MAX);
    active = 0;
    list.replaceChildren(
      ...shown.map((command, index) =>
        h(
          'li',
          {
            role: 'option',
            id: `palette-${index}`,
            'aria-selected': String(index === 0),
            on: {
              pointerdown: (/** @type {Event} */ event) => event.preventDefault(),
              click: () => choose(command),
              pointermove: () => mark(index),
            },
          },
          icon(command.icon),
          h('span', { class: 'what', text: command.text }),
          command.about && h('small', { class: 'about', text: command.about }),
          h('small', { class: 'kind', text: command.kind }),
        ),
      ),
    );
    mark(0);
    status.textContent = shown.length === 0 ? 'Nothing matches.' : '';
  }

  /** @param {number} index */
  function mark(index) {
    list.children[active]?.setAttribute('aria-selected', 'false');
    active = index;
    const option = list.children[index];
    option?.setAttribute('aria-selected', 'true');
    option?.scrollIntoView({ block: 'nearest' });
    if (option) input.setAttribute('aria-activedescendant', option.id);
    else input.removeAttribute('aria-activedescendant');
  }

  /** @param {Command} command */
  async function choose(command) {
    noteUse(usesKey, command.id);
    alert.textContent = '';
    input.readOnly = true;
    try {
      const href = await command.run();
      close();
      // The page takes the focus once it is shown.
      if (href) visit(href);
    } catch (error) {
      alert.textContent = errorText(error);
    }
    input.readOnly = false;
  }

  input.addEventListener('input', show);
  input.addEventListener('keydown', (event) => {
    const last = shown.length - 1;
    /** @type {Record<string, number>} */
    const moves = { ArrowDown: active === last ? 0 : active + 1, ArrowUp: active === 0 ? last : active - 1 };
    if (Object.hasOwn(moves, event.key) && last >= 0) mark(moves[event.key]);
    else if (event.key === 'Enter' && shown[active]) void choose(shown[active]);
    else return;
    event.preventDefault();
  });
  dialog.addEventListener('cancel', close);
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) close();
  });

  const request = new AbortController();
  /** @param {() => Promise<Command[]>} read */
  const add = (read) =>
    read().then(
      (more) => {
        loaded = [...loaded, ...more];
        if (dialog.isConnected) show();
      },
      // If the read fails, the palette still finds pages and actions.
      () => null,
    );
  void add(async () =>
    (await listDashboards(org, {}, request.signal)).map(({ uid, title, folder }) => ({
      id: `dashboard ${uid}`,
      text: title || uid,
      kind: 'Dashboard',
      icon: 'dashboards',
      about: folder,
      run: to(page('/dashboard', { uid })),
    })),
  );
  void add(async () =>
    families((await readOrg(org, '/metrics', { limit: METRICS_MAX }, request.signal)).data).map((family) => ({
      id: `metric ${family.name}`,
      text: family.name,
      kind: 'Metric',
      icon: 'metrics',
      about: family.help,
      run: to(page('/explore', { expr: firstQuery(family.first) })),
    })),
  );
  document.body.append(dialog);
  dialog.showModal();
  show();
  input.focus();
}
