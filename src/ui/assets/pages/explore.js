// The explore page: a query, a time range, and the result. Its state is its address.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { parseDuration } from '../chart/scale.js';
import { ROOT, readOrg } from '../client/server.js';
import { copyButton } from '../components/copy.js';
import { queryInput } from '../components/query_input.js';
import { rangePicker } from '../components/range_picker.js';
import { readAddress, writeAddress } from '../model/explore_state.js';
import { metricsOf, unitOf } from '../model/promql.js';
import { metricBrowser } from './metrics.js';

/** The shortest time between two stores of the draft, in milliseconds. */
const DRAFT_MS = 300;

/**
 * @typedef {import('../model/explore_state.js').State} State
 * @typedef {import('../client/types.js').QueryAnswer} QueryAnswer
 */

/**
 * The page of one organisation. `stop` ends its timers.
 * @param {{state: State, role: import('../client/types.js').Role, signedOut: () => void}} options
 *   `signedOut` is called when the session has ended
 */
export function explore({ state, role, signedOut }) {
  const { org } = state;
  /** @type {AbortController|null} */
  let request = null;
  let timer = 0;
  /** Whether a refresh of the table became due while the page was hidden. */
  let due = false;
  /** @type {ReturnType<typeof import('./add_data.js').addData>|null} */
  let onboarding = null;
  const order = { descending: true };

  // The draft is part of the history entry: it survives a reload, and a sign-in after the session
  // has ended. Browsers limit how often an entry may be replaced.
  /** @type {string|null} */
  let draft = null;
  let draftTimer = 0;
  let storedAt = -Infinity;
  const storeDraft = () => {
    clearTimeout(draftTimer);
    if (draft !== null) history.replaceState({ draft }, '');
    draft = null;
    storedAt = performance.now();
  };
  const keepDraft = (/** @type {string} */ text) => {
    draft = text;
    if (performance.now() - storedAt > DRAFT_MS) storeDraft();
    clearTimeout(draftTimer);
    draftTimer = setTimeout(storeDraft, DRAFT_MS);
  };
  const input = queryInput({ org, run: (expr) => navigate({ expr, zoom: null }), edited: keepDraft });
  const chart = /** @type {HTMLElement & {reload: () => Promise<void>, state: string}} */ (
    h('metric-chart', { org, class: 'chart' })
  );
  const stats = h('p', { class: 'stats', role: 'status' });
  const warnings = h('ul', { class: 'warnings' });
  const hint = h('div', { class: 'newest', role: 'status' });
  const tablePanel = h('div', { id: 'panel-table', role: 'tabpanel', 'aria-labelledby': 'tab-table', hidden: true });
  const chartPanel = h('div', { id: 'panel-chart', role: 'tabpanel', 'aria-labelledby': 'tab-chart' }, chart);
  const tabs = /** @type {const} */ (['chart', 'table']).map((name) =>
    h('button', {
      type: 'button',
      role: 'tab',
      id: `tab-${name}`,
      'aria-controls': `panel-${name}`,
      text: name === 'chart' ? 'Chart' : 'Table',
      on: { click: () => navigate({ tab: name }) },
    }),
  );
  const result = h(
    'section',
    { class: 'card result', 'aria-label': 'Result' },
    h(
      'div',
      { class: 'bar' },
      h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'View' }, tabs),
      stats,
      copyButton(() => location.href, { label: 'Copy link', class: 'plain' }),
    ),
    chartPanel,
    tablePanel,
    hint,
    warnings,
  );

  const picker = rangePicker((change) => navigate(change));
  const runFirst = (/** @type {string} */ expr) => {
    navigate({ expr, zoom: null });
    scrollTo({ top: 0, behavior: 'auto' });
  };
  const browser = metricBrowser({ org, run: runFirst });
  const first = h('div', { class: 'first' });

  const node = h(
    'main',
    { class: 'explore' },
    h('h1', { class: 'unseen', text: `Explore ${org}` }),
    h(
      'form',
      {
        class: 'card ask',
        on: {
          submit: (/** @type {Event} */ event) => {
            event.preventDefault();
            input.submit();
          },
        },
      },
      input.node,
      h(
        'p',
        { class: 'hint', id: 'query-hint' },
        h('kbd', { text: 'Enter' }),
        ' or ',
        h('kbd', { text: 'Ctrl+Enter' }),
        ' runs, ',
        h('kbd', { text: '↑' }),
        ' goes to earlier queries, ',
        h('kbd', { text: '/' }),
        ' returns to this field',
      ),
      h('div', { class: 'row controls' }, picker.nodes, h('button', { class: 'primary run', text: 'Run' })),
    ),
    result,
    first,
    browser.node,
  );

  /**
   * Changes the state and the address, and shows the result. A query that was edited but not run is
   * run.
   * @param {Partial<State>} change
   */
  function navigate(change) {
    Object.assign(state, { expr: input.input.value.trim(), ...change });
    // The draft is run, so the entry needs none.
    draft = null;
    input.record(state.expr);
    const target = `${ROOT}/explore${writeAddress(state)}`;
    if (target !== `${location.pathname}${location.search}`) history.pushState(null, '', target);
    else history.replaceState(null, '');
    show();
  }

  function show() {
    const { expr, range, zoom, tab } = state;
    if (input.input.value.trim() !== expr) input.set(expr);
    document.title = expr ? `${expr} · promlet` : `${org} · promlet`;
    picker.show(range, zoom);
    result.hidden = !expr;
    tabs.forEach((button) => {
      const chosen = button.id === `tab-${tab}`;
      button.setAttribute('aria-selected', String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    });
    chartPanel.hidden = tab !== 'chart';
    tablePanel.hidden = tab !== 'table';
    request?.abort();
    clearTimeout(timer);
    warnings.replaceChildren();
    hint.replaceChildren();
    if (tab === 'table' || !expr) {
      chart.removeAttribute('expr');
      if (expr) loadTable();
      return;
    }
    const wanted = Object.entries({
      expr,
      range,
      unit: unitOf(expr),
      start: zoom?.start,
      end: zoom?.end,
      refresh: picker.interval(),
    });
    const same = wanted.every(([name, value]) => (chart.getAttribute(name) ?? '') === String(value ?? ''));
    for (const [name, value] of wanted) {
      if (value === undefined || value === '') chart.removeAttribute(name);
      else chart.setAttribute(name, String(value));
    }
    // Running the same query again loads newer values.
    if (same) chart.reload();
  }

  async function loadTable() {
    request?.abort();
    clearTimeout(timer);
    due = false;
    request = new AbortController();
    const { signal } = request;
    const { expr } = state;
    const refreshed = tablePanel.dataset.expr === expr;
    if (!refreshed) tablePanel.replaceChildren(h('p', { class: 'quiet', text: 'Loading…' }));
    tablePanel.setAttribute('aria-busy', 'true');
    try {
      const { resultTable } = await import('../components/result_table.js');
      const answer = /** @type {QueryAnswer} */ (
        await readOrg(org, '/query/expr-instant', { expr, time: state.zoom?.end }, signal)
      );
      if (signal.aborted) return;
      const { data } = answer;
      const empty =
        Array.isArray(data.result) && ['vector', 'matrix'].includes(data.resultType) && data.result.length === 0;
      // A refresh keeps the scroll position and the focus.
      const [scrolled, focused] = [
        tablePanel.querySelector('.scroll')?.scrollTop ?? 0,
        tablePanel.querySelector('button:focus') !== null,
      ];
      tablePanel.replaceChildren(
        empty ? h('p', { class: 'quiet', text: 'No data at this time' }) : resultTable(data, unitOf(expr), order),
      );
      if (refreshed) tablePanel.querySelector('.scroll')?.scrollTo(0, scrolled);
      if (focused) tablePanel.querySelector('button')?.focus();
      tablePanel.dataset.expr = expr;
      // The chart shows its messages itself.
      warnings.replaceChildren(
        ...[...(answer.warnings ?? []), ...(answer.infos ?? [])].map((text) => h('li', { text })),
      );
      showStats(answer);
      if (empty) offerNewest(expr);
      else hint.replaceChildren();
    } catch (error) {
      if (signal.aborted) return;
      const problem =
        error instanceof ApiError ? error : new ApiError({ code: 'unreadable_answer', detail: String(error) });
      delete tablePanel.dataset.expr;
      tablePanel.replaceChildren(
        h(
          'div',
          { class: 'refused', role: 'alert' },
          h('strong', { text: 'This query cannot run' }),
          h('p', { text: problem.message }),
          h('p', { class: 'code', text: [problem.code, problem.requestId].filter(Boolean).join(' · ') }),
        ),
      );
      showProblem(problem);
    }
    tablePanel.removeAttribute('aria-busy');
    const seconds = Number(picker.interval());
    if (seconds > 0 && !state.zoom) {
      timer = setTimeout(() => {
        due = document.hidden;
        if (!due) loadTable();
      }, seconds * 1000);
    }
  }

  /** @param {QueryAnswer} answer */
  function showStats({ data, stats: spent = {} }) {
    const words = [];
    if (spent.series !== undefined) words.push(`${spent.series.toLocaleString('en')} series`);
    // Cached results read no samples.
    const cached =
      spent.samples === 0 && Array.isArray(data?.result) && data.result.length > 0 && metricsOf(state.expr).length > 0;
    if (cached) words.push('cached');
    else if (spent.samples !== undefined)
      words.push(`${spent.samples.toLocaleString('en')} ${spent.samples === 1 ? 'sample' : 'samples'}`);
    if (spent.elapsed_ms !== undefined) words.push(`${Number(spent.elapsed_ms.toPrecision(3))} ms`);
    stats.textContent = words.join(' · ');
    input.input.removeAttribute('aria-invalid');
  }

  /** @param {ApiError} error */
  function showProblem(error) {
    stats.textContent = '';
    warnings.replaceChildren();
    hint.replaceChildren();
    if (error.status === 401) {
      storeDraft();
      signedOut();
    }
    if (error.code === 'bad_expr') input.input.setAttribute('aria-invalid', 'true');
  }

  /**
   * Offers the newest sample of the query's metrics.
   * @param {string} expr
   */
  async function offerNewest(expr) {
    const seconds = parseDuration(state.range) ?? 3600;
    const { newestHint } = await import('../components/newest.js');
    const found = await newestHint({ org, expr, seconds, show: (zoom) => navigate({ zoom }) });
    if (found && expr === state.expr) hint.replaceChildren(...found);
  }

  chart.addEventListener('metric-chart-load', (event) => {
    showStats(/** @type {CustomEvent} */ (event).detail);
    if (chart.state === 'empty') offerNewest(state.expr);
    else hint.replaceChildren();
  });
  chart.addEventListener('metric-chart-error', (event) => showProblem(/** @type {CustomEvent} */ (event).detail));
  chart.addEventListener('metric-chart-zoom', (event) => {
    event.preventDefault();
    navigate({ zoom: /** @type {CustomEvent} */ (event).detail });
  });
  /** @type {Object<string, number>} */
  const steps = { ArrowRight: 1, ArrowLeft: -1 };
  tabs.forEach((button, index) =>
    button.addEventListener('keydown', (event) => {
      if (!steps[event.key]) return;
      const next = tabs[(index + steps[event.key] + tabs.length) % tabs.length];
      next.click();
      next.focus();
    }),
  );
  const hotkey = (/** @type {KeyboardEvent} */ event) => {
    const target = event.composedPath()[0];
    const typing = target instanceof Element && target.closest('input, textarea, select, dialog');
    if (event.key !== '/' || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    input.input.focus();
  };
  const back = () => {
    const { org: other, ...rest } = readAddress(location.search);
    if (other && other !== org) return;
    // It belongs to the entry that was left.
    draft = null;
    Object.assign(state, rest);
    show();
    restoreDraft();
  };
  const wake = () => {
    if (!document.hidden && due) loadTable();
  };
  document.addEventListener('keydown', hotkey);
  document.addEventListener('visibilitychange', wake);
  addEventListener('beforeunload', storeDraft);
  addEventListener('popstate', back);

  const stop = () => {
    request?.abort();
    clearTimeout(timer);
    onboarding?.stop();
    browser.stop();
    document.removeEventListener('keydown', hotkey);
    document.removeEventListener('visibilitychange', wake);
    removeEventListener('beforeunload', storeDraft);
    removeEventListener('popstate', back);
    clearTimeout(draftTimer);
  };
  function restoreDraft() {
    const stored = history.state?.draft;
    if (typeof stored === 'string' && stored.trim() !== state.expr) input.set(stored);
  }
  /** Shows the list of metrics, or how to send the first ones. */
  async function start() {
    history.replaceState(history.state, '', `${ROOT}/explore${writeAddress(state)}`);
    show();
    restoreDraft();
    if (!state.expr) input.input.focus();
    const known = await browser.fill();
    browser.node.hidden = known === 0;
    if (known === 0) {
      const { addData } = await import('./add_data.js');
      onboarding = addData({
        org,
        role,
        arrived: () => {
          onboarding?.stop();
          first.replaceChildren();
          start();
        },
      });
      first.replaceChildren(onboarding.node);
    }
  }
  return { node, start, stop };
}
