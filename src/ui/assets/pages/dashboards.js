// The list of dashboards: search, folders, tags, stars, import and deletion.

import { h } from '../chart/dom.js';
import { createDashboard, deleteDashboard, listDashboards, setStar } from '../client/dashboards.js';
import { ROOT, isSignedOut, pageUrl } from '../client/server.js';
import { visit } from '../client/navigation.js';
import { builtinDashboards } from '../components/builtin_dashboards.js';
import { confirmed, openDialog } from '../components/dialog.js';
import { field, form } from '../components/form.js';
import { importDashboard } from '../components/import_dashboard.js';
import { time } from '../components/parts.js';
import { errorText } from '../model/error_text.js';
import { newDashboard } from '../model/new_panel.js';

/**
 * @typedef {import('../client/dashboards.js').Entry} Entry
 * @typedef {{q: string, tag: string, folder: string, starred: boolean}} Filter
 */

/** Time between the last key and the search, in milliseconds. */
const TYPING_MS = 150;
/** Dashboards without a folder are listed below this name. */
const NO_FOLDER = 'Without a folder';

/** @param {string} search @returns {Filter} */
function readFilter(search) {
  const parameters = new URLSearchParams(search);
  const text = (/** @type {string} */ name) => (parameters.get(name) ?? '').slice(0, 200);
  return { q: text('q'), tag: text('tag'), folder: text('folder'), starred: parameters.has('starred') };
}

/**
 * @param {{org: string, role: import('../client/types.js').Role, user: string, signedOut: () => void}}
 *   options
 */
export function dashboards({ org, role, signedOut }) {
  const editable = role !== 'viewer';
  let filter = readFilter(location.search);
  /** @type {Entry[]} */
  let all = [];
  /** @type {AbortController | null} */
  let request = null;
  let timer = 0;
  const search = h('input', {
    type: 'search',
    id: 'dashboard-search',
    placeholder: 'Search titles and tags',
    autocomplete: 'off',
    spellcheck: 'false',
  });
  const folder = h('select', { id: 'dashboard-folder' });
  const tag = h('select', { id: 'dashboard-tag' });
  const starred = h('input', { type: 'checkbox', class: 'tick' });
  const count = h('p', { class: 'hint', role: 'status' });
  const alert = h('p', { class: 'alert', role: 'alert' });
  const list = h('div', { class: 'dash-list' });
  const slot = h('div', { class: 'import-slot' });
  /** @type {ReturnType<typeof importDashboard> | null} */
  let importer = null;
  const open = () => {
    importer ??= importDashboard({
      org,
      folders: () => [...new Set(all.map((one) => one.folder).filter(Boolean))],
      saved: () => load(),
      close: () => {
        importer = null;
        slot.replaceChildren();
        importButton.focus();
      },
    });
    slot.replaceChildren(importer.node);
    return importer;
  };
  const importButton = h('button', {
    type: 'button',
    text: 'Import dashboard',
    on: { click: () => open().files.focus() },
  });
  const create = h('button', {
    type: 'button',
    class: 'primary',
    text: 'New dashboard',
    on: { click: () => createDialog(org, filter.folder, [...new Set(all.map((one) => one.folder).filter(Boolean))]) },
  });
  const builtins = builtinDashboards({ org, opened: (uid) => visit(pageUrl('/dashboard', { org, uid })) });
  const node = h(
    'main',
    { class: 'explore dashboards' },
    h(
      'div',
      { class: 'row spread' },
      h('h1', { text: 'Dashboards' }),
      editable && h('div', { class: 'row' }, importButton, create),
    ),
    slot,
    h(
      'section',
      { class: 'card stack', 'aria-label': 'All dashboards' },
      h(
        'div',
        { class: 'row filters' },
        h('div', { class: 'filter' }, h('label', { class: 'unseen', for: 'dashboard-search', text: 'Search' }), search),
        h('label', { class: 'row' }, h('span', { text: 'Folder' }), folder),
        h('label', { class: 'row' }, h('span', { text: 'Tag' }), tag),
        h('label', { class: 'row' }, starred, 'Starred'),
      ),
      count,
      alert,
      list,
    ),
    editable && builtins,
  );

  const dropped = (/** @type {DragEvent} */ event) => {
    const files = event.dataTransfer?.files;
    node.classList.remove('dropping');
    if (!editable || !files?.length) return;
    event.preventDefault();
    open().take(files);
  };
  const over = (/** @type {DragEvent} */ event) => {
    if (!editable || !event.dataTransfer?.types.includes('Files')) return;
    event.preventDefault();
    node.classList.add('dropping');
  };
  node.addEventListener('drop', dropped);
  node.addEventListener('dragover', over);
  node.addEventListener('dragleave', (event) => {
    if (!(event.relatedTarget instanceof Node && node.contains(event.relatedTarget))) node.classList.remove('dropping');
  });

  const fail = (/** @type {unknown} */ error) => {
    if (isSignedOut(error)) signedOut();
    else alert.textContent = errorText(error);
  };

  /** @param {Partial<Filter>} change */
  function navigate(change) {
    filter = { ...filter, ...change };
    const parameters = new URLSearchParams({ org });
    for (const name of /** @type {const} */ (['q', 'tag', 'folder']))
      if (filter[name]) parameters.set(name, filter[name]);
    if (filter.starred) parameters.set('starred', '');
    history.replaceState(null, '', `${ROOT}/dashboards?${parameters}`);
    load();
  }

  async function load() {
    request?.abort();
    request = new AbortController();
    const { signal } = request;
    try {
      const found = await listDashboards(org, { q: filter.q, tag: filter.tag, folder: filter.folder }, signal);
      if (signal.aborted) return;
      alert.textContent = '';
      if (!filter.q && !filter.tag && !filter.folder) all = found;
      else if (all.length === 0) all = await listDashboards(org, {}, signal);
      show(filter.starred ? found.filter((one) => one.starred) : found);
    } catch (error) {
      if (!signal.aborted) fail(error);
    }
  }

  /** @param {HTMLSelectElement} select @param {string[]} values @param {string} chosen */
  function fillSelect(select, values, chosen) {
    const shown = [...new Set([...values, ...(chosen ? [chosen] : [])])].sort((a, b) => a.localeCompare(b));
    select.replaceChildren(
      h('option', { value: '', text: 'All' }),
      ...shown.map((text) => h('option', { value: text, text })),
    );
    select.value = chosen;
  }

  /** @param {Entry[]} found */
  function show(found) {
    fillSelect(folder, all.map((one) => one.folder).filter(Boolean), filter.folder);
    fillSelect(
      tag,
      all.flatMap((one) => one.tags),
      filter.tag,
    );
    starred.checked = filter.starred;
    builtins.open ||= all.length === 0;
    const filtered = filter.q || filter.tag || filter.folder || filter.starred;
    count.textContent =
      found.length === 0
        ? filtered
          ? 'No dashboard matches.'
          : 'There are no dashboards yet. Import one from Grafana, or create a new one.'
        : `${found.length} ${found.length === 1 ? 'dashboard' : 'dashboards'}`;
    /** @type {Map<string, Entry[]>} */
    const groups = new Map();
    const byTitle = (/** @type {Entry} */ a, /** @type {Entry} */ b) =>
      Number(b.starred) - Number(a.starred) || a.title.localeCompare(b.title);
    for (const one of [...found].sort((a, b) => a.folder.localeCompare(b.folder) || byTitle(a, b))) {
      groups.set(one.folder, [...(groups.get(one.folder) ?? []), one]);
    }
    const several = groups.size > 1 || ![...groups.keys()].every((name) => name === '');
    const focus =
      document.activeElement instanceof HTMLElement && list.contains(document.activeElement)
        ? document.activeElement.dataset.focus
        : undefined;
    list.replaceChildren(
      ...[...groups].flatMap(([name, entries]) => [
        ...(several ? [h('h2', { text: name || NO_FOLDER })] : []),
        h('ul', {}, entries.map(row)),
      ]),
    );
    const again = focus && list.querySelector(`[data-focus="${CSS.escape(focus)}"]`);
    if (again instanceof HTMLElement) again.focus();
  }

  /** @param {Entry} entry */
  function row(entry) {
    const { uid, title, tags, panels, updated_at: at, provisioned } = entry;
    const star = h(
      'button',
      {
        type: 'button',
        class: 'star',
        'aria-pressed': String(entry.starred),
        'data-focus': `star ${uid}`,
        'aria-label': `Star ${title}`,
        on: { click: () => setStar(org, uid, !entry.starred).then(load, fail) },
      },
      h('span', { 'aria-hidden': 'true', text: entry.starred ? '★' : '☆' }),
    );
    const remove = async () => {
      const sure = await confirmed({
        heading: `Delete ${title}?`,
        action: 'Delete dashboard',
        loss: `Its ${panels} panels and all of its ${entry.version} versions will be lost. Links to it stop working.`,
      });
      if (sure) await deleteDashboard(org, uid, entry.version).then(load, fail);
    };
    return h(
      'li',
      {},
      star,
      h(
        'div',
        { class: 'dash-entry' },
        h('a', { href: pageUrl('/dashboard', { org, uid }), text: title || uid }),
        h(
          'div',
          { class: 'dash-about' },
          h('span', { text: `${panels} panels` }),
          at && h('span', {}, 'changed ', time(at)),
          provisioned && h('span', { class: 'chip' }, h('span', { text: 'file' })),
          tags.map((text) =>
            h('button', {
              type: 'button',
              class: 'tag',
              text,
              title: `Show dashboards with the tag ${text}`,
              on: { click: () => navigate({ tag: text }) },
            }),
          ),
        ),
      ),
      editable &&
        !provisioned &&
        h('button', {
          type: 'button',
          class: 'plain danger-text',
          text: 'Delete',
          'aria-label': `Delete ${title}`,
          on: { click: remove },
        }),
    );
  }

  search.addEventListener('input', () => {
    clearTimeout(timer);
    filter.q = search.value.trim();
    timer = setTimeout(() => navigate({}), TYPING_MS);
  });
  folder.addEventListener('change', () => navigate({ folder: folder.value }));
  tag.addEventListener('change', () => navigate({ tag: tag.value }));
  starred.addEventListener('change', () => navigate({ starred: starred.checked }));
  search.value = filter.q;
  document.title = 'Dashboards · promlet';
  return {
    node,
    start: () => {
      const url = new URL(location.href);
      if (editable && url.searchParams.has('import')) {
        url.searchParams.delete('import');
        history.replaceState(history.state, '', url);
        open().files.focus();
      }
      return load();
    },
    stop: () => {
      request?.abort();
      clearTimeout(timer);
    },
  };
}

/**
 * Asks for a title, creates a dashboard, and opens it in edit mode.
 * @param {string} org
 * @param {string} folder
 * @param {string[]} folders
 */
function createDialog(org, folder, folders) {
  return openDialog('New dashboard', null, (close) => {
    const names = h('datalist', { id: 'new-folders' }, folders.map((value) => h('option', { value })));
    const entry = form(
      {
        submit: 'Create',
        action: async (values) => {
          const dashboard = newDashboard(values.title.trim());
          const { uid } = await createDashboard(org, { dashboard, folder: values.folder.trim() || undefined });
          location.assign(pageUrl('/dashboard', { org, uid, edit: '' }));
        },
      },
      field('Title', 'title', { maxlength: '200', autocomplete: 'off', autofocus: true }),
      field(
        'Folder',
        'folder',
        { required: false, list: names.id, maxlength: '200', autocomplete: 'off', value: folder },
        'Leave it empty for none.',
      ),
      names,
    );
    const submit = entry.querySelector('button');
    const cancel = h('button', { type: 'button', text: 'Cancel', on: { click: () => close(null) } });
    if (submit) entry.append(h('div', { class: 'row' }, submit, cancel));
    return [entry];
  });
}
