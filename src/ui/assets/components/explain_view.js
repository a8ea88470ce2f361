// The plan of a query: each node with its series, samples and time, estimated and actual.

import { h } from '../chart/dom.js';
import { formatValue } from '../chart/scale.js';
import { planRows } from '../model/explain.js';

/** Deeper nodes are not indented further. */
const DEPTH_MAX = 24;

/** @typedef {import('../model/explain.js').Cost} Cost */

/**
 * @param {any} plan the member `explain` of an answer
 * @returns {Node[]}
 */
export function explainView(plan) {
  const { rows, truncated } = planRows(plan);
  const number = (/** @type {number | undefined} */ value) => value?.toLocaleString('en') ?? '–';
  /** @param {'series' | 'samples'} name @param {Cost | null} actual @param {Cost | null} estimated */
  const both = (name, actual, estimated) =>
    h(
      'td',
      { class: 'value' },
      h('span', { text: number(actual?.[name] ?? undefined) }),
      h('small', { text: `estimated ${number(estimated?.[name])}` }),
    );
  const time = (/** @type {number} */ ms) => formatValue(ms / 1000, 'seconds');
  const body = rows.map(({ node, depth, actual, estimated, ownMs, share }) => {
    const name = h('td', { class: 'plan-node' }, h('code', { text: node }));
    name.style.setProperty('--depth', String(Math.min(depth, DEPTH_MAX)));
    const bar = h(
      'td',
      { class: 'value plan-time' },
      h('span', { text: actual ? time(ownMs) : '–' }),
      actual && h('small', { text: `${Math.round(100 * share)} % · ${time(actual.elapsed_ms ?? 0)} with inputs` }),
    );
    bar.style.setProperty('--share', `${100 * share}%`);
    const bytes = estimated?.memory_bytes;
    const memory = h('td', { class: 'value', text: bytes === undefined ? '–' : formatValue(bytes, 'bytes') });
    return h('tr', {}, name, bar, both('series', actual, estimated), both('samples', actual, estimated), memory);
  });
  const heads = ['Node', 'Time', 'Series', 'Samples', 'Memory, estimated'];
  return [
    h(
      'div',
      { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Plan of the query' },
      h(
        'table',
        { class: 'plan' },
        h('caption', {
          text: 'How the query was evaluated, without the cache. The inputs of a node are indented below it.',
        }),
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            heads.map((text, at) => h('th', { scope: 'col', class: at ? 'value' : '', text })),
          ),
        ),
        h('tbody', {}, body),
      ),
    ),
    ...(truncated ? [h('p', { class: 'hint', text: `The first ${rows.length} nodes are shown.` })] : []),
  ];
}
