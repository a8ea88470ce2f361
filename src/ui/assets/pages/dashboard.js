// One dashboard: variables, time range and panels. Its state is its address, in Grafana's words.

import { h } from '../chart/dom.js';
import { memberSource } from '../client/batch.js';
import { readStored, setStar } from '../client/dashboards.js';
import { ROOT, isSignedOut, pageUrl } from '../client/server.js';
import { variableReader } from '../client/variables.js';
import { AnnotationSource } from '../components/annotation_source.js';
import { dashboardHead } from '../components/dashboard_head.js';
import { dashboardLinks } from '../components/dashboard_links.js';
import { exploreLinks } from '../components/explore_link.js';
import { filterEditor } from '../components/filter_editor.js';
import { PanelGrid } from '../components/panel_grid.js';
import { PanelRunner } from '../components/panel_runner.js';
import { MEMBER_WORDS } from '../components/panel_words.js';
import { refreshTimer } from '../components/refresh_timer.js';
import { timeControl } from '../components/time_control.js';
import { replaceControls } from '../components/variable_bar.js';
import { readDashboard } from '../model/dashboard.js';
import { readDashboardAddress, writeDashboardAddress } from '../model/dashboard_address.js';
import { findDraft } from '../model/drafts.js';
import { errorText } from '../model/error_text.js';
import { planPanel } from '../model/panel_queries.js';
import { writeQuery } from '../model/query_text.js';
import { ownStorage } from '../model/storage.js';
import { durationMs, resolveRange, weekStartOf } from '../model/time.js';
import { addressValues, resolveVariables } from '../model/variable_answers.js';
import { dependents } from '../model/variables.js';
import { addKinds, loadPanel } from '../panels/kinds.js';
import { Sync } from '../plot/sync.js';

/**
 * @typedef {import('../model/dashboard_address.js').DashboardAddress} DashboardAddress
 * @typedef {import('../model/interpolate.js').Selections} Selections
 * @typedef {import('../components/edit_mode.js').EditMode} EditMode
 */

addKinds({ alertlist: () => import('../panels/list.js'), dashlist: () => import('../panels/list.js') });

/**
 * @param {{org: string, role: import('../client/types.js').Role, user: string, signedOut: () => void}}
 *   options `user`: the id of the reader
 */
export function dashboardPage({ org, role, user, signedOut }) {
  /** @type {DashboardAddress} */
  let address = { ...readDashboardAddress(location.search), org };
  /** @type {import('../client/dashboards.js').Stored | null} */
  let stored = null;
  /** @type {ReturnType<typeof readDashboard>['dashboard'] | null} */
  let dashboard = null;
  /** @type {EditMode | null} */
  let editing = null;
  /** @type {Selections} */
  let selections = new Map();
  let now = Date.now();
  let sequence = 0;
  /** Counts the views: one whose modules arrive after a newer one began is not shown. */
  let views = 0;
  const scheme = matchMedia('(prefers-color-scheme: dark)');
  const theme = () => /** @type {'light' | 'dark'} */ (scheme.matches ? 'dark' : 'light');
  const runner = new PanelRunner(memberSource({ org, signedOut }));
  const zone = () => dashboard?.timezone ?? '';
  const range = () =>
    resolveRange(
      { from: address.from || dashboard?.time.from, to: address.to || dashboard?.time.to },
      { now, weekStart: weekStartOf(dashboard?.weekStart), timeZone: zone() },
    );
  const names = () => ({ title: dashboard?.title ?? '', uid: stored?.uid ?? '' });
  const context = () => ({ selections, range: range(), now, dashboard: names(), timeZone: zone() });
  const editable = () => role !== 'viewer' && stored !== null && !stored.provisioned;
  const page = (/** @type {string} */ uid, /** @type {string} */ query) =>
    `${pageUrl('/dashboard', { org, uid })}${query ? `&${query}` : ''}`;
  const annotations = new AnnotationSource({
    view: () => ({ annotations: dashboard?.annotations ?? [], selections, range: range() }),
    changed: () => grid.redraw(),
  });
  const grid = new PanelGrid(runner, {
    sync: new Sync(() => dashboard?.graphTooltip ?? 0),
    timeZone: zone,
    page,
    selections: () => selections,
    theme,
    plan: ({ panel, scoped }, width) =>
      planPanel(panel, { ...context(), selections: new Map([...selections, ...scoped]), width, write: writeQuery }),
    events: (id) => annotations.of(id),
    zoom: ({ from, to }) => navigate({ from: String(from), to: String(to) }),
    retry: (frame) => runner.retry(frame),
    words: MEMBER_WORDS,
    actions: ({ panel }) => [
      ...(editing?.actions(panel) ?? []),
      ...(panel.id === null || editing
        ? []
        : [
            address.panel
              ? { text: 'Back to the dashboard', href: addressOf({ panel: '' }) }
              : { text: 'View alone', href: addressOf({ panel: String(panel.id) }) },
            ...(head.edit.hidden
              ? []
              : [{ text: 'Edit', href: addressOf({ edit: true, editPanel: String(panel.id), panel: '' }) }]),
            { text: 'Share panel', run: () => share(String(panel.id)) },
          ]),
      ...exploreLinks(org, panel, { ...context(), width: 600 }),
    ],
  });
  const time = timeControl({
    change: ({ from, to }) => navigate({ from, to }),
    refreshNow: () => refresh(),
    interval: (refreshed) => navigate({ refresh: refreshed }),
  });
  const refreshes = refreshTimer({
    interval: () => (viewing() ? address.refresh : null),
    busy: () => runner.busy,
    refresh: () => refresh(),
  });
  time.node.hidden = true;
  const bar = h('div', { class: 'variables', role: 'group', 'aria-label': 'Variables' });
  const links = h('div', { class: 'dash-links-bar' });
  const head = dashboardHead({ time: time.node, bar, links, star: toggleStar, share, edit: () => edit().catch(fail) });
  const content = h('div', { class: 'dash-content' });
  const node = h('main', { class: 'dashboard' }, ...head.nodes, content);

  /** The address of a changed state. @param {Partial<DashboardAddress>} change */
  const addressOf = (change) => `${ROOT}/dashboard${writeDashboardAddress({ ...address, ...change })}`;

  /** @param {unknown} error */
  function fail(error) {
    if (isSignedOut(error)) return signedOut();
    head.alert.textContent = errorText(error);
    if (!dashboard) head.title.textContent = stored?.title || 'Dashboard';
  }

  /**
   * Changes the address and shows the new state.
   * @param {Partial<DashboardAddress>} change
   */
  function navigate(change) {
    address = { ...address, ...change };
    history.pushState(null, '', addressOf({}));
    update(
      'from' in change && dashboard?.variables.some(({ refresh }) => refresh === 2) ? 'variables' : 'panels',
    ).catch(fail);
  }

  /** Asks the dashboard again, for instance after a new version was saved. */
  async function load() {
    try {
      stopEditing();
      dashboard = null;
      stored = await readStored(org, address.uid);
      const shown = read();
      // The modules of the panels arrive while the server answers.
      for (const type of new Set(shown.panels.map((panel) => panel.type))) if (type !== 'row') loadPanel(type);
      if (address.refresh === null && shown.refresh) address.refresh = durationMs(shown.refresh) ? shown.refresh : '';
      const draft = editable() ? findDraft(ownStorage(), org, stored.uid) : null;
      if (draft) await offerDraft(draft);
      else if (address.edit && editable()) await edit();
      else await update('variables');
    } catch (error) {
      fail(error);
      if (stored && !dashboard) await showTab();
    }
  }

  /** Reads the document that is edited, or else the stored one. */
  function read() {
    ({ dashboard } = readDashboard(editing ? editing.document : stored?.dashboard));
    if (editing) dashboard.panels = editing.adopt(dashboard.panels);
    head.alert.textContent = '';
    document.title = `${dashboard.title} · promlet`;
    return dashboard;
  }

  function toggleStar() {
    if (!stored) return;
    setStar(org, stored.uid, !stored.starred).then(() => {
      if (stored) stored.starred = !stored.starred;
      showHead();
    }, fail);
  }

  async function share(panel = '') {
    if (!dashboard || !stored) return;
    const { shareDashboard } = await import('../components/share_dialog/open.js');
    const view = { org, role, uid: stored.uid, dashboard, selections, range: range(), refresh: address.refresh ?? '' };
    await shareDashboard({ ...view, panel, addressOf });
  }

  /** @param {import('../model/drafts.js').Draft} draft */
  async function offerDraft(draft) {
    if (!stored) return;
    const { draftBar } = await import('../components/draft_bar.js');
    // A tab of edit mode is no view of the stored dashboard.
    address = { ...address, edit: false, tab: address.edit ? '' : address.tab };
    const discarded = () => {
      showHead();
      head.edit.focus();
    };
    head.notices.replaceChildren(draftBar({ org, stored, draft, resume: () => edit(draft).catch(fail), discarded }));
    await update('variables');
  }

  /** Begins edit mode. @param {import('../model/drafts.js').Draft | null} [draft] */
  async function edit(draft = null) {
    if (!stored || editing) return;
    const { EditMode: Mode } = await import('../components/edit_mode.js');
    if (editing) return;
    const was = address.edit;
    address = { ...address, edit: true, panel: '', tab: was ? address.tab : '' };
    editing = new Mode({
      org,
      stored,
      draft,
      grid,
      view: () => ({ ...context(), theme }),
      navigate,
      changed: (what) => {
        read();
        update(what).catch(fail);
      },
      left: () => {
        address = { ...address, edit: false, editPanel: '', tab: '' };
        history.replaceState(null, '', addressOf({}));
        load();
      },
      saved: (uid) => {
        address = { ...address, uid, edit: false, editPanel: '', tab: '' };
        history.pushState(null, '', addressOf({}));
        load();
      },
      signedOut,
    });
    const focused = document.activeElement === head.edit;
    head.notices.replaceChildren(editing.bar);
    if (focused) editing.bar.querySelector('button')?.focus();
    read();
    history[was ? 'replaceState' : 'pushState'](null, '', addressOf({}));
    await update('variables');
  }

  function stopEditing() {
    editing?.stop();
    editing = null;
    head.notices.replaceChildren();
  }

  function showHead() {
    head.show({
      title: dashboard?.title ?? stored?.title ?? 'Dashboard',
      starred: stored?.starred ?? null,
      editing: editing !== null,
      tab: editing && address.editPanel ? null : address.tab,
      hrefOf: (tab) => addressOf({ tab, editPanel: '' }),
      go: (tab) => navigate({ tab, editPanel: '' }),
    });
    // Without a decision about its draft, editing anew would lose the draft.
    head.edit.hidden = !editable() || head.notices.childElementCount > 0 || address.tab !== '';
  }

  /** Whether the grid is shown, and neither another tab nor an editor. */
  const viewing = () => address.tab === '' && !editsPanel();
  const editsPanel = () => editing !== null && address.editPanel !== '';

  async function showTab() {
    const turn = (views += 1);
    showHead();
    for (const part of [bar, links]) part.hidden = !viewing();
    time.node.hidden = !viewing() && !editsPanel();
    if (viewing()) {
      editing?.closeEditor();
      if (grid.node.parentElement !== content) content.replaceChildren(grid.node);
      return;
    }
    if (editing) {
      const shownNode = await editing.editor(address);
      if (turn === views && shownNode.parentElement !== content) content.replaceChildren(shownNode);
      return;
    }
    if (!stored) return;
    const changed = () => {
      content.replaceChildren();
      load();
    };
    if (address.tab === 'json') {
      const { jsonView } = await import('../components/dashboard_json.js');
      const gone = () => location.assign(pageUrl('/dashboards', { org }));
      if (turn !== views) return;
      content.replaceChildren(jsonView({ org, stored, editable: editable(), changed, gone }));
    } else {
      const { versionsView } = await import('../components/dashboard_versions.js');
      if (turn !== views) return;
      content.replaceChildren(versionsView({ org, stored, user, editable: editable(), changed }));
    }
  }

  /**
   * Shows the state of the address.
   * @param {'variables' | 'panels' | 'layout'} what `variables`: their options are asked first;
   *   `layout`: only new panels are asked
   * @param {Set<string>} [loose] variables whose value is replaced if the options lack it
   */
  async function update(what, loose = new Set()) {
    if (!dashboard) return;
    refreshes.cancel();
    const turn = (sequence += 1);
    now = Date.now();
    const { variables } = dashboard;
    time.show(range(), address.refresh ?? '', zone());
    if (what === 'variables') {
      const wanted = new Map([...address.values].filter(([name]) => !loose.has(name)));
      const current = variables.map((variable) => {
        const selection = selections.get(variable.name);
        return loose.has(variable.name) && selection
          ? { ...variable, current: { text: selection.text, value: selection.value } }
          : variable;
      });
      if (viewing()) await showTab();
      const found = await resolveVariables(current, wanted, {
        ask: variableReader(org, range()),
        context: { range: range(), dashboard: names() },
      });
      if (turn !== sequence) return;
      selections = found.selections;
      address.values = addressValues(variables, selections);
      history.replaceState(null, '', addressOf({}));
      showVariables(found.resolved);
    }
    await showTab();
    if (!viewing()) return editing?.follow();
    showLinks();
    grid.editor = editing;
    grid.show(dashboard.panels, selections, address.panel);
    editing?.settled();
    runner.remove(annotations);
    if (dashboard.annotations.length > 0) runner.addHidden(annotations);
    if (what !== 'layout') runner.refresh();
    refreshes.plan();
  }

  /** @param {Map<string, import('../model/resolve_variables.js').Resolved>} resolved */
  function showVariables(resolved) {
    const ask = variableReader(org, range());
    replaceControls(
      bar,
      resolved,
      selections,
      (name, values) => {
        if (!dashboard) return;
        address = { ...address, values: new Map([...address.values, [name, values]]) };
        history.pushState(null, '', addressOf({}));
        update('variables', dependents(dashboard.variables, name)).catch(fail);
      },
      (id, variable, changed) => filterEditor(id, variable, changed, ask),
    );
    bar.hidden = bar.childElementCount === 0;
  }

  function showLinks() {
    const linked = { range: range(), dashboard: names() };
    links.replaceChildren(...dashboardLinks(dashboard?.links ?? [], { org, selections, context: linked, page, fail }));
    links.hidden = links.childElementCount === 0;
  }

  function refresh() {
    now = Date.now();
    time.show(range(), address.refresh ?? '', zone());
    if (!viewing()) return editing?.follow();
    runner.refresh();
    refreshes.plan();
  }

  const back = async () => {
    const next = { ...readDashboardAddress(location.search), org };
    if (editsPanel() && next.editPanel !== address.editPanel && !(await editing?.leaves()))
      return history.pushState(null, '', addressOf({}));
    const other = next.uid !== address.uid || (editing !== null && !next.edit);
    address = next;
    if (other) return void load();
    (address.edit && !editing && editable() ? edit() : update('variables')).catch(fail);
  };
  const redraw = () => grid.redraw();
  addEventListener('popstate', back);
  scheme.addEventListener('change', redraw);
  document.title = 'Dashboard · promlet';
  return {
    node,
    start: load,
    stop: () => {
      sequence += 1;
      refreshes.destroy();
      stopEditing();
      runner.stop();
      grid.destroy();
      removeEventListener('popstate', back);
      scheme.removeEventListener('change', redraw);
    },
  };
}
