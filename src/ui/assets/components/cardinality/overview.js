// The cardinality view: which metrics, labels and label pairs have the most series.

import { h } from '../../chart/dom.js';
import { pageUrl, readOrg } from '../../client/server.js';
import { pairOf, selectorOf, seriesOf, signed, topMetrics } from '../../model/cardinality.js';
import { errorText } from '../../model/error_text.js';
import { display } from '../../model/units.js';
import { table, time } from '../parts.js';

/** The most metrics that a listing returns; with more, changes are not shown. */
const LISTED_MAX = 10_000;
/** The rows of each table. */
const ROWS = 20;
const HOUR_S = 3600;

const number = (/** @type {number} */ value) => h('span', { class: 'number', text: value.toLocaleString('en') });

/** A number with a bar of its share. @param {number} value @param {number} share 0 to 1 */
function bar(value, share) {
  const node = h('span', { class: 'portion' }, number(value));
  node.style.setProperty('--portion', `${(share * 100).toFixed(1)}%`);
  return node;
}

/** @param {string} label @param {Node} value @param {string} [hint] */
const figure = (label, value, hint) =>
  h(
    'div',
    { class: 'figure' },
    h('span', { class: 'hint', text: label }),
    value,
    hint && h('span', { class: 'hint', text: hint }),
  );

/**
 * Whether a row is not about metric names, which have a table of their own.
 * @param {{name: string}} row
 */
const isNoName = ({ name }) => name !== '__name__' && !name.startsWith('__name__=');

/** Since when queries are known. @param {unknown} since unix seconds @returns {(string | Node)[]} */
const queriesSince = (since) =>
  typeof since === 'number'
    ? ['A query counts for the metrics that it names, since ', time(new Date(since * 1000).toISOString()), '.']
    : [];

/**
 * A card with a heading.
 * @param {string} id
 * @param {string} heading
 * @param {string | (string | Node)[]} intro
 * @param {Node} content
 */
const section = (id, heading, intro, content) =>
  h(
    'section',
    { class: 'card part', 'aria-labelledby': id },
    h('h2', { id, text: heading }),
    h('p', { class: 'hint' }, intro),
    content,
  );

/**
 * The view as a node, which fills itself.
 * @param {{org: string, remove: ((selector: string) => void)|null,
 *   fail: (error: unknown) => boolean}} options `remove` opens the deletion of a selector, null
 *   without permission; `fail` returns whether it handled the error
 */
export function cardinality({ org, remove, fail }) {
  const node = h('div', { class: 'stack' }, h('p', { class: 'hint', role: 'status', text: 'Counting series…' }));
  load().catch((error) => {
    if (!fail(error)) node.replaceChildren(h('p', { class: 'alert', role: 'alert', text: errorText(error) }));
  });
  return node;

  async function load() {
    const now = Math.floor(Date.now() / 1000);
    const listed = (/** @type {object} */ range) => readOrg(org, '/metrics', { limit: LISTED_MAX, ...range });
    const [{ data: status }, all, hour, before] = await Promise.all([
      readOrg(org, '/prometheus/api/v1/status/tsdb', { limit: 2 * ROWS }),
      listed({}),
      listed({ start: now - HOUR_S, end: now }),
      listed({ start: now - 2 * HOUR_S, end: now - HOUR_S }),
    ]);
    const complete = ![all, hour, before].some(({ next_cursor: more }) => more);
    const rows = topMetrics(
      all.data,
      complete ? hour.data : null,
      complete ? before.data : null,
      seriesOf(all.data),
      ROWS,
    );
    const total = status.headStats.numSeries;
    const change = complete ? seriesOf(hour.data) - seriesOf(before.data) : null;
    const memory = status.memoryInBytesByLabelName.reduce(
      (/** @type {number} */ sum, /** @type {{value: number}} */ { value }) => sum + value,
      0,
    );
    node.replaceChildren(
      h(
        'div',
        { class: 'card figures' },
        figure('Series', number(total), 'with and without samples'),
        figure('Metrics', number(all.data.length), complete ? 'with samples in 24 hours' : 'the first 10,000 by name'),
        figure(
          'Change in an hour',
          h('span', { class: 'number', text: signed(change) || '–' }),
          'series with samples',
        ),
        figure('Label pairs', number(status.headStats.numLabelPairs), `${display(memory, 'bytes')} of text`),
      ),
      section(
        'top-title',
        'Metrics with the most series',
        [
          'Series with samples in the last 24 hours. The change compares the last hour with the hour before. ',
          ...queriesSince(all.queried_since),
        ],
        metricsTable(rows),
      ),
      h(
        'div',
        { class: 'two-lists' },
        section(
          'labels-title',
          'Labels with the most values',
          'A label with many values, such as an id, multiplies series.',
          counts(status.labelValueCountByLabelName.filter(isNoName), ['Label', 'Values'], (name) => [
            h('code', { text: name }),
            null,
          ]),
        ),
        section(
          'pairs-title',
          'Label pairs with the most series',
          'All series that have this value of the label.',
          counts(status.seriesCountByLabelValuePair.filter(isNoName), ['Label pair', 'Series'], (text) => {
            const [name, value] = pairOf(text);
            return [
              h('span', { class: 'chip' }, h('span', { text: name }), h('b', { text: value })),
              selectorOf(name, value),
            ];
          }),
        ),
      ),
    );
  }

  /** @param {import('../../model/cardinality.js').MetricRow[]} rows */
  function metricsTable(rows) {
    return table(
      ['Metric', 'Series', 'Change', 'Last sample', 'Last queried', ...(remove ? [''] : [])],
      rows.map(({ name, series, share, change, seen, queried }) => [
        h('a', { class: 'metric', href: pageUrl('/explore', { org, expr: selectorOf('__name__', name) }), text: name }),
        bar(series, share),
        h('span', { class: 'number', text: signed(change) }),
        ...[seen, queried].map((at) => (at ? time(new Date(at * 1000).toISOString()) : '–')),
        ...(remove ? [removeButton(selectorOf('__name__', name), name)] : []),
      ]),
      'Table of metrics',
      'No metrics in the last 24 hours.',
    );
  }

  /**
   * @param {{name: string, value: number}[]} rows the greatest first
   * @param {[string, string]} heads
   * @param {(name: string) => [Node, string|null]} shown the cell, and the selector to delete by
   */
  function counts(rows, heads, shown) {
    const most = rows[0]?.value ?? 1;
    const cells = rows.slice(0, ROWS).map(({ name, value }) => {
      const [cell, selector] = shown(name);
      const button = selector === null ? '' : removeButton(selector, name);
      return [cell, bar(value, value / most), ...(button ? [button] : [])];
    });
    return table(
      cells[0]?.length === 3 ? [...heads, ''] : heads,
      cells,
      heads.join(', '),
      'No series.',
    );
  }

  /** @param {string} selector @param {string} name */
  function removeButton(selector, name) {
    if (!remove) return '';
    return h(
      'button',
      { type: 'button', class: 'plain', on: { click: () => remove(selector) } },
      'Delete…',
      h('span', { class: 'unseen', text: ` ${name}` }),
    );
  }
}
