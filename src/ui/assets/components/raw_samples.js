// A dialog with the stored samples of one series: exact times, values, and the gaps between them.

import { h } from '../chart/dom.js';
import { readOrg } from '../client/server.js';
import { formatDuration } from '../model/duration.js';
import { counted } from '../model/metrics.js';
import { errorText } from '../model/error_text.js';
import { selectorOf } from '../model/promql.js';
import { dateText } from '../model/time_zone.js';
import { openDialog } from './dialog.js';
import { chips } from './result_table.js';
import { zoneName } from './zone.js';

/** The most samples that are listed, the newest first. */
const SAMPLES_MAX = 1000;
/** The longest range that is read, in seconds. */
const RANGE_MAX = 7 * 86400;
const PATTERN = 'YYYY-MM-DD HH:mm:ss.SSS';

/**
 * @typedef {[at: number, value: string | {count?: string, sum?: string}]} Point unix seconds
 */

/**
 * Shows the samples of a series.
 * @param {{org: string, labels: Record<string, string>, span: {start: number, end: number}, points?: Point[]}} options
 *   `span` in unix seconds; without `points` they are read
 */
export function rawSamples({ org, labels, span, points }) {
  const abort = new AbortController();
  const body = h('div', { class: 'stack' }, h('p', { class: 'quiet', role: 'status', text: 'Loading…' }));
  const seconds = Math.min(RANGE_MAX, Math.max(1, Math.round(span.end - span.start)));
  const load = async () => {
    const expr = `${selectorOf(labels)}[${formatDuration(seconds)}]`;
    const { data } = await readOrg(org, '/query/expr-instant', { expr, time: span.end }, abort.signal);
    return /** @type {any[]} */ (data.result).flatMap(({ values = [], histograms = [] }) => [...values, ...histograms]);
  };
  const show = (/** @type {Point[]} */ all) => {
    const newest = [...all].sort(([a], [b]) => b - a);
    const listed = newest.slice(0, SAMPLES_MAX);
    const words = [
      all.length === 0 ? 'No samples in this range.' : `${counted(all.length, 'stored sample')}, the newest first.`,
      listed.length < all.length ? `The newest ${SAMPLES_MAX.toLocaleString('en')} are listed.` : '',
      !points && seconds < span.end - span.start ? 'The last seven days of the range were read.' : '',
    ];
    const zone = zoneName();
    const rows = listed.map(([at, value], index) => {
      const before = newest[index + 1]?.[0];
      const ms = Math.round(at * 1000);
      return h(
        'tr',
        {},
        h('td', {}, h('time', { datetime: new Date(ms).toISOString(), text: dateText(ms, PATTERN, zone) })),
        h('td', { class: 'value', text: valueText(value) }),
        h('td', { class: 'value', text: before === undefined ? '' : formatDuration(at - before) }),
      );
    });
    body.replaceChildren(
      h('p', { class: 'hint', role: 'status', text: words.filter(Boolean).join(' ') }),
      ...(rows.length ? [table(rows)] : []),
    );
  };
  (points ? Promise.resolve(points) : load()).then(show, (error) => {
    if (!abort.signal.aborted) body.replaceChildren(h('p', { class: 'alert', role: 'alert', text: errorText(error) }));
  });
  const content = (/** @type {(result: undefined) => void} */ close) => [
    h('div', { class: 'chips' }, chips(labels)),
    body,
    h(
      'div',
      { class: 'row' },
      h('button', { type: 'button', text: 'Close', autofocus: true, on: { click: () => close(undefined) } }),
    ),
  ];
  const closed = openDialog('Stored samples', undefined, content, { class: 'samples-dialog' });
  return closed.finally(() => abort.abort());
}

/** @param {Node[]} rows */
function table(rows) {
  const heads = ['Time', 'Value', 'After the previous'];
  return h(
    'div',
    { class: 'scroll result', tabindex: '0', role: 'region', 'aria-label': 'Samples' },
    h(
      'table',
      {},
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          heads.map((text, at) => h('th', { scope: 'col', class: at ? 'value' : '', text })),
        ),
      ),
      h('tbody', {}, rows),
    ),
  );
}

/** @param {Point[1]} value */
function valueText(value) {
  return typeof value === 'string' ? value : `histogram of ${value.count ?? '?'}, sum ${value.sum ?? '?'}`;
}
