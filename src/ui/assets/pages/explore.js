// The explore page: a query, a time range, and the result. Its state is its address.

import '../embed.js';
import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { niceStep, parseDuration, useTimeZone } from '../chart/scale.js';
import { ROOT } from '../client/server.js';
import { copyButton } from '../components/copy.js';
import { queryInput } from '../components/query_input.js';
import { queryTools } from '../components/query_tools.js';
import { rangePicker } from '../components/range_picker.js';
import { cancelledNotice, runningNotice } from '../components/running.js';
import { tabsWithPanels } from '../components/tabs.js';
import { useStoredZone } from '../components/zone.js';
import { queryDraft } from '../components/query_draft.js';
import { readAddress, spanOf, writeAddress } from '../model/explore_state.js';
import { unitOf } from '../model/promql.js';
import { isRangeSelector } from '../model/promql_tokens.js';
import { statsText } from '../model/query_stats.js';
import { metricBrowser } from './metrics.js';

/** Steps of a plan: about as many as a chart has. */
const PLAN_POINTS = 300;
/** @type {{id: import('../model/explore_state.js').Tab, text: string}[]} */
const TABS = [
  { id: 'chart', text: 'Chart' },
  { id: 'table', text: 'Table' },
  { id: 'explain', text: 'Explain' },
];

/** @typedef {import('../model/explore_state.js').State} State */
/** @typedef {import('../client/types.js').QueryAnswer} QueryAnswer */

/**
 * The page of one organisation. `stop` ends its timers.
 * @param {{state: State, role: import('../client/types.js').Role, signedOut: () => void}} options
 *   `signedOut` is called when the session has ended
 */
export function explore({ state, role, signedOut }) {
  const { org } = state;
  const path = `${ROOT}/explore`;
  /** @type {AbortController|null} */
  let request = null;
  let timer = 0;
  /** Whether a refresh of the table became due while the page was hidden. */
  let due = false;
  /** @type {ReturnType<typeof import('./add_data.js').addData>|null} */
  let onboarding = null;
  /** The answer of the table or the plan that is shown. @type {QueryAnswer|null} */
  let answer = null;
  const order = { descending: true };
  useStoredZone();
  const shownSpan = () => spanOf(state, Date.now() / 1000);

  const draft = queryDraft();
  const tools = queryTools({
    org,
    params: parameters,
    input: () => input,
    invalid: (expr, error) => input.showRefusal(expr, error.message),
  });
  const input = queryInput({
    org,
    run: (expr) => navigate({ expr, zoom: null }),
    edited: (text) => {
      draft.keep(text);
      tools.edited(text);
    },
    tools: tools.buttons,
  });
  const chart = /** @type {HTMLElement & {reload: () => Promise<void>, state: string, drawn: {answer: any}}} */ (
    h('metric-chart', { org, class: 'chart' })
  );
  const stats = h('p', { class: 'stats', role: 'status' });
  const running = runningNotice(cancel);
  const warnings = h('ul', { class: 'warnings' });
  const hint = h('div', { class: 'newest', role: 'status' });
  const tabs = tabsWithPanels('View', TABS, (tab) => navigate({ tab }));
  tabs.panel('chart').append(chart);
  const said = h('p', { class: 'said', role: 'status' });
  const exporting = h('button', {
    type: 'button',
    class: 'plain menu-button',
    'aria-haspopup': 'dialog',
    'aria-expanded': 'false',
    text: 'Export',
    on: { click: () => openMenuOfExports() },
  });
  const result = h(
    'section',
    { class: 'card result', 'aria-label': 'Result' },
    h(
      'div',
      { class: 'bar' },
      tabs.list,
      stats,
      running.node,
      h('div', { class: 'row actions' }, h('div', { class: 'anchor' }, exporting),
        copyButton(() => location.href, { label: 'Copy link', class: 'plain' })),
    ),
    said,
    tabs.panels,
    hint,
    warnings,
  );

  const picker = rangePicker((change) => navigate(change));
  const browser = metricBrowser({
    org,
    run: (expr) => {
      navigate({ expr, zoom: null });
      scrollTo({ top: 0, behavior: 'auto' });
    },
  });
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
            // The form of a popup inside has a handler of its own.
            if (event.target === event.currentTarget) input.submit();
          },
        },
      },
      input.node,
      tools.line,
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
    draft.drop();
    tools.clear();
    said.textContent = '';
    if (state.tab !== 'table' && isRangeSelector(state.expr)) {
      state.tab = 'table';
      said.textContent = 'A range of samples has no chart: the table shows its series, and the samples of each.';
    }
    input.record(state.expr);
    const target = `${path}${writeAddress(state)}`;
    if (target !== `${location.pathname}${location.search}`) history.pushState(null, '', target);
    else history.replaceState(null, '');
    show();
  }

  function show() {
    const { expr, range, zoom, tab } = state;
    if (input.input.value.trim() !== expr) input.set(expr);
    input.showError(null);
    document.title = expr ? `${expr} · promlet` : `${org} · promlet`;
    picker.show(range, zoom);
    result.hidden = !expr;
    tabs.show(tab);
    request?.abort();
    running.stop();
    clearTimeout(timer);
    answer = null;
    warnings.replaceChildren();
    hint.replaceChildren();
    if (tab !== 'chart' || !expr) {
      chart.removeAttribute('expr');
      if (expr) loadPanel();
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
    // The old cost is not that of the new query.
    if (chart.getAttribute('expr') !== expr) stats.textContent = '';
    const same = wanted.every(([name, value]) => (chart.getAttribute(name) ?? '') === String(value ?? ''));
    for (const [name, value] of wanted) {
      if (value === undefined || value === '') chart.removeAttribute(name);
      else chart.setAttribute(name, String(value));
    }
    // Running the same query again loads newer values.
    if (same) chart.reload();
  }

  /** The parameters of the request of the tab; without a step it is for one time. @returns {Record<string, number>} */
  function parameters() {
    const span = shownSpan();
    if (state.tab === 'table' || isRangeSelector(input.input.value)) return { time: span.end };
    return { ...span, step: niceStep(span.end - span.start, PLAN_POINTS) };
  }

  /** Loads the table or the plan. */
  async function loadPanel() {
    request?.abort();
    clearTimeout(timer);
    due = false;
    request = new AbortController();
    const { signal } = request;
    const { expr, tab } = state;
    const panel = tabs.panel(tab);
    panel.setAttribute('aria-busy', 'true');
    running.start();
    const { loadResult, refusal } = await import('../components/result_panel.js');
    try {
      // The table is that of the server's present, so that no sample is missed by a wrong clock.
      const params = tab === 'table' ? { time: state.zoom?.end } : parameters();
      const plain = tab === 'table' ? tab : 'explain';
      const loaded = await loadResult(panel, { tab: plain, org, expr, params, signal, order, samples: openSamples });
      if (!loaded) return;
      answer = loaded.answer;
      // The chart shows its messages itself.
      warnings.replaceChildren(
        ...[...(answer.warnings ?? []), ...(answer.infos ?? [])].map((text) => h('li', { text })),
      );
      showStats(answer);
      if (loaded.empty) offerNewest(expr);
      else hint.replaceChildren();
    } catch (error) {
      if (signal.aborted) return;
      const problem =
        error instanceof ApiError ? error : new ApiError({ code: 'unreadable_answer', detail: String(error) });
      panel.replaceChildren(refusal(problem));
      showProblem(problem);
    }
    running.stop();
    panel.removeAttribute('aria-busy');
    const seconds = Number(picker.interval());
    if (seconds > 0 && !state.zoom && tab === 'table') {
      timer = setTimeout(() => {
        due = document.hidden;
        if (!due) loadPanel();
      }, seconds * 1000);
    }
  }

  /** Ends the query; the server notices that the connection is closed. @param {number} seconds */
  function cancel(seconds) {
    request?.abort();
    clearTimeout(timer);
    running.stop();
    chart.removeAttribute('expr');
    const panel = tabs.panel(state.tab);
    panel.removeAttribute('aria-busy');
    delete panel.dataset.expr;
    if (state.tab !== 'chart') panel.replaceChildren();
    stats.textContent = '';
    hint.replaceChildren(...cancelledNotice(seconds, () => navigate({})));
    hint.querySelector('button')?.focus();
  }

  /** @param {{labels: Record<string, string>, points?: [number, string][]}} series */
  async function openSamples({ labels, points }) {
    const { rawSamples } = await import('../components/raw_samples.js');
    await rawSamples({ org, labels, points, span: shownSpan() });
  }

  async function openMenuOfExports() {
    const { openExport } = await import('../components/export_menu.js');
    const drawn = state.tab === 'chart' ? chart : null;
    const given = { org, state, answer, chart: drawn, params: parameters(), role };
    openExport(exporting, given, (text) => said.replaceChildren(text));
  }

  /** @param {QueryAnswer} loaded */
  function showStats(loaded) {
    stats.textContent = statsText(loaded, state.expr);
    tools.learn(loaded.stats ?? {});
    if (input.input.value.trim() === state.expr) input.showError(null);
  }

  /** @param {ApiError} error */
  function showProblem(error) {
    stats.textContent = '';
    warnings.replaceChildren();
    hint.replaceChildren();
    if (error.status === 401) {
      draft.store();
      signedOut();
    }
    if (error.code === 'bad_expr') input.showRefusal(state.expr, error.message);
  }

  /** Offers the newest sample of the query's metrics. @param {string} expr */
  async function offerNewest(expr) {
    const { newestHint } = await import('../components/newest.js');
    const found = await newestHint({ org, state: { ...state }, show: (zoom) => navigate({ zoom }) });
    if (found && expr === state.expr) hint.replaceChildren(...found);
  }

  chart.addEventListener('load', (event) => {
    showStats(/** @type {CustomEvent} */ (event).detail);
    if (chart.state === 'empty') offerNewest(state.expr);
    else hint.replaceChildren();
  });
  chart.addEventListener('error', (/** @type {any} */ event) => showProblem(event.detail));
  chart.addEventListener('zoom', (event) => {
    event.preventDefault();
    navigate({ zoom: /** @type {CustomEvent} */ (event).detail });
  });
  new MutationObserver(() => {
    if (state.tab !== 'chart') return;
    if (chart.state === 'loading') running.start();
    else running.stop();
  }).observe(chart, { attributeFilter: ['data-state'] });
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
    // The draft belongs to the previous entry of the history.
    draft.drop();
    Object.assign(state, rest);
    show();
    restoreDraft();
  };
  const wake = () => {
    if (!document.hidden && due) loadPanel();
  };
  document.addEventListener('keydown', hotkey);
  document.addEventListener('visibilitychange', wake);
  addEventListener('popstate', back);

  const stop = () => {
    request?.abort();
    clearTimeout(timer);
    running.stop();
    tools.clear();
    onboarding?.stop();
    browser.stop();
    draft.stop();
    document.removeEventListener('keydown', hotkey);
    document.removeEventListener('visibilitychange', wake);
    removeEventListener('popstate', back);
    // Other pages have a choice of their own.
    useTimeZone('');
  };
  function restoreDraft() {
    const stored = draft.stored();
    if (stored !== null && stored.trim() !== state.expr) input.set(stored);
  }
  /** Shows the list of metrics, or how to send the first ones. */
  async function start() {
    history.replaceState(history.state, '', `${path}${writeAddress(state)}`);
    show();
    restoreDraft();
    if (!state.expr) input.input.focus();
    input.record(state.expr);
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
