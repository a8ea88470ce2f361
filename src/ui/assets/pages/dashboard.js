// One dashboard: variables, time range and panels. Its state is its address, in Grafana's words.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { readStored, setStar } from '../client/dashboards.js';
import { ROOT, pageUrl } from '../client/server.js';
import { variableReader } from '../client/variables.js';
import { AnnotationSource } from '../components/annotation_source.js';
import { dashboardLinks } from '../components/dashboard_links.js';
import { PanelGrid } from '../components/panel_grid.js';
import { PanelRunner } from '../components/panel_runner.js';
import { timeControl } from '../components/time_control.js';
import { variableControls } from '../components/variable_bar.js';
import { readDashboard } from '../model/dashboard.js';
import { readDashboardAddress, writeDashboardAddress } from '../model/dashboard_address.js';
import { errorText } from '../model/error_text.js';
import { planPanel } from '../model/panel_queries.js';
import { durationMs, resolveRange, weekStartOf } from '../model/time.js';
import { addressValues, resolveVariables } from '../model/variable_answers.js';
import { dependents } from '../model/variables.js';
import { loadPanel } from '../panels/kinds.js';
import { Sync } from '../plot/sync.js';

/**
 * @typedef {import('../model/dashboard_address.js').DashboardAddress} DashboardAddress
 * @typedef {import('../model/interpolate.js').Selections} Selections
 */

/** The shortest refresh interval, in milliseconds. */
const REFRESH_MIN = 5000;

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
  /** @type {Selections} */
  let selections = new Map();
  let now = Date.now();
  let timer = 0;
  let due = false;
  let sequence = 0;
  const scheme = matchMedia('(prefers-color-scheme: dark)');
  const runner = new PanelRunner({ org, signedOut });
  const zone = () => dashboard?.timezone ?? '';
  const range = () =>
    resolveRange(
      { from: address.from || dashboard?.time.from, to: address.to || dashboard?.time.to },
      { now, weekStart: weekStartOf(dashboard?.weekStart), timeZone: zone() },
    );
  const names = () => ({ title: dashboard?.title ?? '', uid: stored?.uid ?? '' });
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
    theme: () => (scheme.matches ? 'dark' : 'light'),
    plan: ({ panel, scoped }, width) =>
      planPanel(panel, {
        selections: new Map([...selections, ...scoped]),
        range: range(),
        now,
        width,
        dashboard: names(),
        timeZone: zone(),
      }),
    events: (id) => annotations.of(id),
    zoom: ({ from, to }) => navigate({ from: String(from), to: String(to) }),
    retry: (frame) => runner.retry(frame),
    actions: ({ panel }) => [
      ...(panel.id === null
        ? []
        : [
            address.panel
              ? { text: 'Back to the dashboard', href: addressOf({ panel: '' }) }
              : { text: 'View alone', href: addressOf({ panel: String(panel.id) }) },
          ]),
      ...exploreLinks(panel),
    ],
  });
  const time = timeControl({
    change: ({ from, to }) => navigate({ from, to }),
    refreshNow: () => refresh(),
    interval: (refreshed) => navigate({ refresh: refreshed }),
  });
  time.node.hidden = true;
  const title = h('h1', { text: 'Loading…' });
  const star = h('button', {
    type: 'button',
    class: 'star',
    'aria-pressed': 'false',
    'aria-label': 'Star',
    text: '☆',
    hidden: true,
  });
  const tabs = h('nav', { class: 'dash-tabs', 'aria-label': 'Views' });
  const bar = h('div', { class: 'variables', role: 'group', 'aria-label': 'Variables' });
  const links = h('div', { class: 'dash-links-bar' });
  const alert = h('p', { class: 'alert', role: 'alert' });
  const content = h('div', { class: 'dash-content' });
  const node = h(
    'main',
    { class: 'dashboard' },
    h(
      'div',
      { class: 'dash-head' },
      h(
        'nav',
        { class: 'crumbs', 'aria-label': 'Breadcrumb' },
        h('a', { href: pageUrl('/dashboards', { org }), text: 'Dashboards' }),
        h('span', { 'aria-hidden': 'true', text: '/' }),
      ),
      title,
      star,
      tabs,
      time.node,
    ),
    h('div', { class: 'dash-controls' }, bar, links),
    alert,
    content,
  );

  /** @param {import('../model/panel.js').Panel} panel */
  function exploreLinks(panel) {
    const target = panel.targets.find(({ expr, hide }) => expr && !hide);
    if (!target) return [];
    const { queries, range: own } = planPanel(panel, {
      selections,
      range: range(),
      now,
      width: 600,
      dashboard: names(),
    });
    if (queries.length === 0) return [];
    return [
      {
        text: 'Explore the query',
        href: pageUrl('/', {
          org,
          expr: queries[0].expr,
          start: String(Math.floor(own.from / 1000)),
          end: String(Math.floor(own.to / 1000)),
        }),
      },
    ];
  }

  /** The address of a changed state. @param {Partial<DashboardAddress>} change */
  const addressOf = (change) => `${ROOT}/dashboard${writeDashboardAddress({ ...address, ...change })}`;

  /** @param {unknown} error */
  function fail(error) {
    if (error instanceof ApiError && error.status === 401) return signedOut();
    alert.textContent = errorText(error);
    if (!dashboard) title.textContent = 'Dashboard';
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
      stored = await readStored(org, address.uid);
      ({ dashboard } = readDashboard(stored.dashboard));
      alert.textContent = '';
      // The modules of the panels arrive while the server answers.
      for (const type of new Set(dashboard.panels.map((panel) => panel.type))) if (type !== 'row') loadPanel(type);
      if (address.refresh === null && dashboard.refresh)
        address.refresh = durationMs(dashboard.refresh) ? dashboard.refresh : '';
      document.title = `${dashboard.title} · promlet`;
      title.textContent = dashboard.title;
      star.hidden = false;
      showStar();
      await update('variables');
    } catch (error) {
      fail(error);
      if (stored && !dashboard) await showTab();
    }
  }

  function showStar() {
    star.setAttribute('aria-pressed', String(stored?.starred === true));
    star.setAttribute('aria-label', `Star ${dashboard?.title ?? ''}`);
    star.textContent = stored?.starred ? '★' : '☆';
  }

  star.addEventListener('click', () => {
    if (!stored) return;
    setStar(org, stored.uid, !stored.starred).then(() => {
      if (stored) stored.starred = !stored.starred;
      showStar();
    }, fail);
  });

  async function showTab() {
    tabs.replaceChildren(
      ...[
        ['', 'View'],
        ['json', 'JSON'],
        ['versions', 'Versions'],
      ].map(([tab, text]) =>
        h('a', {
          href: addressOf({ tab }),
          text,
          'aria-current': address.tab === tab ? 'page' : null,
          on: {
            click: (/** @type {MouseEvent} */ event) => {
              if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
              event.preventDefault();
              navigate({ tab });
            },
          },
        }),
      ),
    );
    const viewing = address.tab === '';
    for (const part of [time.node, bar, links]) part.hidden = !viewing;
    if (viewing) {
      if (grid.node.parentElement !== content) content.replaceChildren(grid.node);
      return;
    }
    if (!stored) return;
    const { jsonView, versionsView } = await import('../components/dashboard_json.js');
    const editable = role !== 'viewer' && !stored.provisioned;
    const changed = () => {
      dashboard = null;
      content.replaceChildren();
      load();
    };
    content.replaceChildren(
      address.tab === 'json'
        ? jsonView({ org, stored, editable, changed, gone: () => location.assign(pageUrl('/dashboards', { org })) })
        : versionsView({ org, stored, user, editable, changed }),
    );
  }

  /**
   * Shows the state of the address.
   * @param {'variables' | 'panels'} what `variables`: their options are asked first
   * @param {Set<string>} [loose] variables whose value is replaced if the options lack it
   */
  async function update(what, loose = new Set()) {
    if (!dashboard) return;
    clearTimeout(timer);
    const turn = (sequence += 1);
    now = Date.now();
    const { variables } = dashboard;
    time.show(range(), address.refresh ?? '', zone());
    await showTab();
    if (address.tab !== '') return;
    if (what === 'variables') {
      const wanted = new Map([...address.values].filter(([name]) => !loose.has(name)));
      const current = variables.map((variable) => {
        const selection = selections.get(variable.name);
        return loose.has(variable.name) && selection
          ? { ...variable, current: { text: selection.text, value: selection.value } }
          : variable;
      });
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
    showLinks();
    grid.show(dashboard.panels, selections, address.panel);
    runner.remove(annotations);
    if (dashboard.annotations.length > 0) runner.addHidden(annotations);
    runner.refresh();
    plan();
  }

  /** @param {Map<string, import('../model/variable_answers.js').Resolved>} resolved */
  function showVariables(resolved) {
    const active = document.activeElement;
    const focus = active instanceof HTMLElement && bar.contains(active) ? active.dataset.focus : undefined;
    bar.replaceChildren(
      ...variableControls(
        resolved,
        selections,
        (name, values) => {
          if (!dashboard) return;
          address = { ...address, values: new Map([...address.values, [name, values]]) };
          history.pushState(null, '', addressOf({}));
          update('variables', dependents(dashboard.variables, name)).catch(fail);
        },
        variableReader(org, range()),
      ),
    );
    bar.hidden = bar.childElementCount === 0;
    const again = focus && bar.querySelector(`[data-focus="${CSS.escape(focus)}"]`);
    if (again instanceof HTMLElement) again.focus({ preventScroll: true });
  }

  function showLinks() {
    const context = { range: range(), dashboard: names() };
    links.replaceChildren(...dashboardLinks(dashboard?.links ?? [], { org, selections, context, page, fail }));
    links.hidden = links.childElementCount === 0;
  }

  function refresh() {
    due = false;
    now = Date.now();
    time.show(range(), address.refresh ?? '', zone());
    runner.refresh();
    plan();
  }

  /** Plans the next refresh. */
  function plan() {
    clearTimeout(timer);
    const interval = durationMs(address.refresh ?? '');
    if (interval === null || address.tab !== '') return;
    timer = setTimeout(
      () => {
        if (document.hidden) due = true;
        else if (runner.busy) plan();
        else refresh();
      },
      Math.max(REFRESH_MIN, interval),
    );
  }

  const wake = () => {
    if (!document.hidden && due) refresh();
  };
  const back = () => {
    const next = { ...readDashboardAddress(location.search), org };
    const other = next.uid !== address.uid;
    address = next;
    (other ? load() : update('variables')).catch(fail);
  };
  const redraw = () => grid.redraw();
  addEventListener('popstate', back);
  document.addEventListener('visibilitychange', wake);
  scheme.addEventListener('change', redraw);
  document.title = 'Dashboard · promlet';
  return {
    node,
    start: load,
    stop: () => {
      sequence += 1;
      clearTimeout(timer);
      runner.stop();
      grid.destroy();
      removeEventListener('popstate', back);
      document.removeEventListener('visibilitychange', wake);
      scheme.removeEventListener('change', redraw);
    },
  };
}
