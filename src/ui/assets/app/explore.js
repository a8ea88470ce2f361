// The explore page: a query, when, and the answer as chart or table. Its state is its address.

import { h } from '../chart/dom.js';
import { parseDuration } from '../chart/scale.js';
import { addData, metricBrowser } from './metrics.js';
import { queryInput } from './query_input.js';
import { unitOf } from './promql.js';
import { resultTable } from './result_table.js';
import { ROOT, look } from './server.js';
import { copy, recall, remember } from './storage.js';

const RANGES = ['15m', '1h', '3h', '6h', '1d', '7d', '30d'];
const REFRESHES = [['0', 'Refresh off'], ['5', 'Every 5 s'], ['15', 'Every 15 s'], ['30', 'Every 30 s'], ['60', 'Every minute']];

/** The state of an address: `/?org=&expr=&range=`, with `start` and `end` after a zoom. */
export function readAddress(search) {
  const parameters = new URLSearchParams(search);
  const moment = (name) => (Number(parameters.get(name)) > 0 ? Number(parameters.get(name)) : null);
  const [start, end] = [moment('start'), moment('end')];
  return {
    org: parameters.get('org') ?? '',
    expr: parameters.get('expr') ?? '',
    range: parseDuration(parameters.get('range')) ? parameters.get('range') : '1h',
    zoom: start && end && end > start ? { start, end } : null,
    tab: parameters.get('tab') === 'table' ? 'table' : 'chart',
  };
}

function address({ org, expr, range, zoom, tab }) {
  const parameters = new URLSearchParams({ org });
  if (expr) parameters.set('expr', expr);
  parameters.set('range', range);
  if (zoom) for (const name of ['start', 'end']) parameters.set(name, zoom[name]);
  if (tab === 'table') parameters.set('tab', tab);
  return `${ROOT}/?${parameters}`;
}

/**
 * The page of one organisation. Returns its node, and what ends its timers.
 * @param {{state: ReturnType<typeof readAddress>, role: string, lost: () => void}} options `lost` is called
 *   when the session has ended
 */
export function explore({ state, role, lost }) {
  const { org } = state;
  let waiting = null;
  let timer = 0;
  let empty = null;
  const order = { descending: true };

  const input = queryInput({ org, run: (expr) => go({ expr, zoom: null }) });
  const chart = h('metric-chart', { org, class: 'chart' });
  const stats = h('p', { class: 'stats', role: 'status' });
  const warnings = h('ul', { class: 'warnings' });
  const tablePanel = h('div', { id: 'panel-table', role: 'tabpanel', 'aria-labelledby': 'tab-table', tabindex: '0', hidden: true });
  const chartPanel = h('div', { id: 'panel-chart', role: 'tabpanel', 'aria-labelledby': 'tab-chart' }, chart);
  const tabs = ['chart', 'table'].map((name) => h('button', {
    type: 'button', role: 'tab', id: `tab-${name}`, 'aria-controls': `panel-${name}`, text: name === 'chart' ? 'Chart' : 'Table',
    on: { click: () => go({ tab: name }) },
  }));
  const share = h('button', { type: 'button', class: 'plain', text: 'Copy link', on: { click: () => copy(location.href, share) } });
  const result = h('section', { class: 'card result', 'aria-label': 'Result' },
    h('div', { class: 'bar' }, h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'View' }, tabs), stats, share),
    chartPanel, tablePanel, warnings);

  const ranges = h('fieldset', { class: 'segments' }, h('legend', { class: 'unseen', text: 'Time range' }));
  const refresh = h('select', { id: 'refresh', 'aria-label': 'Refresh' }, REFRESHES.map(([value, text]) => h('option', { value, text })));
  refresh.value = recall('refresh', '15');
  if (!refresh.value) refresh.value = '15';
  const browser = metricBrowser({ org, run: (expr) => { go({ expr, zoom: null }); scrollTo({ top: 0, behavior: 'auto' }); } });
  const first = h('div', { class: 'first' });

  const node = h('main', { class: 'explore' },
    h('h1', { class: 'unseen', text: `Explore ${org}` }),
    h('form', { class: 'card ask', on: { submit: (event) => { event.preventDefault(); input.go(); } } },
      input.node,
      h('p', { class: 'hint', id: 'query-hint' }, h('kbd', { text: 'Enter' }), ' or ', h('kbd', { text: 'Ctrl+Enter' }), ' runs, ', h('kbd', { text: '↑' }), ' earlier queries, ', h('kbd', { text: '/' }), ' comes back here'),
      h('div', { class: 'row controls' }, ranges, refresh, h('button', { class: 'primary run', text: 'Run' }))),
    result, first, browser.node);

  function drawRanges() {
    const all = RANGES.includes(state.range) ? RANGES : [...RANGES, state.range];
    const legend = ranges.firstElementChild;
    ranges.replaceChildren(legend, ...all.map((range) => h('label', {},
      h('input', { type: 'radio', name: 'range', value: range, checked: !state.zoom && range === state.range, on: { click: () => go({ range, zoom: null }) } }),
      h('span', { text: range }))));
  }

  /** Changes the state, the address with it, and shows the result. */
  function go(change) {
    Object.assign(state, change);
    const target = address(state);
    if (target !== `${location.pathname}${location.search}`) history.pushState(null, '', target);
    show();
  }

  function show() {
    const { expr, range, zoom, tab } = state;
    if (input.input.value.trim() !== expr) input.set(expr);
    document.title = expr ? `${expr} · promlet` : `${org} · promlet`;
    drawRanges();
    result.hidden = !expr;
    tabs.forEach((button) => {
      const chosen = button.id === `tab-${tab}`;
      button.setAttribute('aria-selected', String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    });
    chartPanel.hidden = tab !== 'chart';
    tablePanel.hidden = tab !== 'table';
    waiting?.abort();
    clearTimeout(timer);
    warnings.replaceChildren();
    if (tab === 'table' || !expr) {
      chart.removeAttribute('expr');
      if (expr) loadTable();
      return;
    }
    const wanted = { expr, range, unit: unitOf(expr) || undefined, start: zoom?.start, end: zoom?.end, refresh: refresh.value };
    const same = Object.entries(wanted).every(([name, value]) => (chart.getAttribute(name) ?? '') === String(value ?? ''));
    for (const [name, value] of Object.entries(wanted)) {
      if (value === undefined) chart.removeAttribute(name);
      else chart.setAttribute(name, value);
    }
    // Running the same query again is a wish for newer values.
    if (same) chart.reload();
  }

  async function loadTable() {
    waiting = new AbortController();
    const { signal } = waiting;
    if (tablePanel.dataset.expr !== state.expr) tablePanel.replaceChildren(h('p', { class: 'quiet', text: 'Loading…' }));
    tablePanel.setAttribute('aria-busy', 'true');
    try {
      const answer = await look(org, '/query/expr-instant', { expr: state.expr, time: state.zoom?.end }, signal);
      if (signal.aborted) return;
      const count = Array.isArray(answer.data.result) && ['vector', 'matrix'].includes(answer.data.resultType) ? answer.data.result.length : 1;
      // A refresh must not move what is being read.
      const [scrolled, held] = [tablePanel.querySelector('.scroll')?.scrollTop ?? 0, tablePanel.querySelector('button:focus') !== null];
      tablePanel.replaceChildren(count ? resultTable(answer.data, unitOf(state.expr), order) : h('p', { class: 'quiet', text: 'No data at this moment' }));
      if (tablePanel.dataset.expr === state.expr) tablePanel.querySelector('.scroll')?.scrollTo(0, scrolled);
      if (held) tablePanel.querySelector('button')?.focus();
      tablePanel.dataset.expr = state.expr;
      // A chart shows its warnings itself.
      warnings.replaceChildren(...(answer.warnings ?? []).map((text) => h('li', { text })));
      answered(answer);
    } catch (error) {
      if (signal.aborted) return;
      delete tablePanel.dataset.expr;
      tablePanel.replaceChildren(h('div', { class: 'refused', role: 'alert' }, h('strong', { text: 'This query cannot run' }), h('p', { text: error.message }),
        h('p', { class: 'code', text: [error.code, error.requestId].filter(Boolean).join(' · ') })));
      refused(error);
    }
    tablePanel.removeAttribute('aria-busy');
    if (Number(refresh.value) > 0 && !state.zoom) timer = setTimeout(() => (document.hidden ? null : loadTable()), Number(refresh.value) * 1000);
  }

  function answered({ stats: spent = {} }) {
    const words = [];
    const count = (value, word) => value !== undefined && words.push(`${Number(value).toLocaleString('en')} ${word}`);
    count(spent.series, 'series');
    count(spent.samples, 'samples');
    if (spent.elapsed_ms !== undefined) words.push(`${Number(Number(spent.elapsed_ms).toPrecision(3))} ms`);
    stats.textContent = words.join(' · ');
    input.input.removeAttribute('aria-invalid');
  }

  function refused(error) {
    stats.textContent = '';
    warnings.replaceChildren();
    if (error.status === 401) lost();
    if (error.code === 'bad_expr') input.input.setAttribute('aria-invalid', 'true');
  }

  chart.addEventListener('metric-chart-load', (event) => answered(event.detail));
  chart.addEventListener('metric-chart-error', (event) => refused(event.detail));
  chart.addEventListener('metric-chart-zoom', (event) => {
    event.preventDefault();
    go({ zoom: event.detail });
  });
  refresh.addEventListener('change', () => {
    remember('refresh', refresh.value);
    show();
  });
  const steps = { ArrowRight: 1, ArrowLeft: -1 };
  tabs.forEach((button, index) => button.addEventListener('keydown', (event) => {
    if (!steps[event.key]) return;
    const next = tabs[(index + steps[event.key] + tabs.length) % tabs.length];
    next.click();
    next.focus();
  }));
  const hotkey = (event) => {
    const typing = event.composedPath()[0].closest?.('input, textarea, select');
    if (event.key !== '/' || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    input.input.focus();
  };
  const back = () => {
    const { org: other, ...rest } = readAddress(location.search);
    if (other && other !== org) return;
    Object.assign(state, rest);
    show();
  };
  document.addEventListener('keydown', hotkey);
  addEventListener('popstate', back);

  const stop = () => {
    waiting?.abort();
    clearTimeout(timer);
    empty?.stop();
    document.removeEventListener('keydown', hotkey);
    removeEventListener('popstate', back);
  };
  /** The list of metrics, or what to do about there being none. */
  async function start() {
    history.replaceState(null, '', address(state));
    show();
    if (!state.expr) input.input.focus();
    const known = await browser.fill();
    browser.node.hidden = known === 0;
    if (known === 0) {
      empty = addData({ org, role, arrived: () => { empty.stop(); first.replaceChildren(); start(); } });
      first.replaceChildren(empty.node);
    }
  }
  return { node, start, stop };
}
