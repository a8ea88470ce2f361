// A chart of an expression, and below it the states of alerts over the same time.

import '../embed.js';

import { h } from '../chart/dom.js';
import { formatMoment } from '../chart/scale.js';
import { lanesOf } from '../model/alerting.js';
import { counted } from '../model/metrics.js';
import { chips } from './live.js';
import { table } from './parts.js';

/** The most alerts that have a lane. */
const LANES_MAX = 12;
/** The most rows of the table of transitions. */
const ROWS_MAX = 200;

/**
 * @typedef {import('../model/alerting.js').Transition} Transition
 * @typedef {import('../model/alerting.js').Span} Span
 * @typedef {{start: number, end: number, step: number}} Grid unix seconds, both inclusive
 */

/** The text of a transition. @type {Record<string, string>} */
const WORDS = { pending: 'Pending', firing: 'Firing', inactive: 'Resolved', resolved: 'Resolved' };

/** The ranges of charts of rules, in words. @type {Record<string, string>} */
export const RANGES = { '1h': 'Last hour', '6h': 'Last 6 hours', '1d': 'Last day', '7d': 'Last 7 days' };

/**
 * @param {Span[]} spans
 * @param {Grid} grid
 */
const bar = (spans, { start, end }) =>
  h(
    'div',
    { class: 'lane-bar', 'aria-hidden': 'true' },
    spans.map(({ from, to, state }) => {
      const part = h('i', { class: state, title: `${WORDS[state]} from ${formatMoment(from)}` });
      // A span that begins at the last step is visible, too.
      part.style.left = `min(${(100 * Math.max(0, from - start)) / (end - start)}%, 100% - 3px)`;
      part.style.width = `${(100 * (to - Math.max(start, from))) / (end - start)}%`;
      return part;
    }),
  );

/**
 * @param {{label: string}} options the name of the chart for screen readers
 */
export function alertChart({ label }) {
  const chart = /** @type {HTMLElement & {data: any}} */ (h('metric-chart', { title: label, class: 'rule-chart' }));
  // The server is asked for one range; a part of it would need other steps.
  chart.addEventListener('zoom', (event) => event.preventDefault());
  const lanes = h('div', { slot: 'below', class: 'lanes' });
  chart.append(lanes);
  const title = h('summary', { text: 'Transitions' });
  const list = h('details', {}, title);
  return {
    node: h('div', { class: 'stack' }, chart, list),
    /**
     * @param {{series: any[], transitions: Transition[], grid: Grid, warnings?: string[]}} shown
     */
    show({ series, transitions, grid, warnings = [] }) {
      chart.data = { data: { resultType: 'matrix', result: series }, query: grid, warnings };
      const all = lanesOf(transitions, grid.end);
      lanes.replaceChildren(
        ...all.slice(0, LANES_MAX).map(({ name, spans }) => h('div', {}, h('span', { text: name }), bar(spans, grid))),
        ...(all.length > LANES_MAX ? [h('span', { text: `and ${all.length - LANES_MAX} more alerts` })] : []),
      );
      const sorted = [...transitions].sort((left, right) => left.at - right.at);
      title.textContent = sorted.length ? counted(sorted.length, 'transition') : 'No transitions';
      list.replaceChildren(
        title,
        table(
          ['Time', 'State', 'Alert'],
          sorted
            .slice(0, ROWS_MAX)
            .map((one) => [formatMoment(one.at), WORDS[one.state] ?? one.state, chips(one.labels)]),
          'Transitions',
          'No alert was pending or firing.',
        ),
        sorted.length > ROWS_MAX ? h('p', { class: 'hint', text: `The first ${ROWS_MAX} are shown.` }) : '',
      );
    },
  };
}

/**
 * A choice of the range.
 * @param {string} value
 * @param {(range: string) => void} choose
 */
export function rangeChoice(value, choose) {
  const select = h(
    'select',
    { 'aria-label': 'Range' },
    Object.entries(RANGES).map(([range, text]) => h('option', { value: range, text, selected: range === value })),
  );
  select.addEventListener('change', () => choose(select.value));
  return select;
}
