// The table of a query's result at one time.

import { parseValue } from '../chart/columns.js';
import { h } from '../chart/dom.js';
import { formatMoment, formatValue, fullName } from '../chart/scale.js';

const ROWS_MAX = 500;

/**
 * @typedef {{labels: Record<string, string>, text: string, at?: number, count?: number, plain?: boolean,
 *   points?: [number, string][]}} Row
 */

/** @param {Record<string, string>} labels */
export function chips(labels) {
  const name = labels.__name__;
  const rest = Object.entries(labels)
    .filter(([label]) => label !== '__name__')
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return [
    name && h('span', { class: 'metric', text: name }),
    ...rest.map(([label, value]) =>
      h('span', { class: 'chip' }, h('span', { text: label }), h('b', { text: value || '""' })),
    ),
    !name && rest.length === 0 && h('span', { class: 'metric', text: '{}' }),
  ];
}

/**
 * The rows of a result of any type.
 * @param {{resultType: string, result: any}} data
 * @returns {Row[]}
 */
function rows({ resultType, result }) {
  if (resultType === 'vector')
    return result.map((/** @type {any} */ row) => ({
      labels: row.metric,
      text: row.value?.[1] ?? '',
      at: row.value?.[0],
    }));
  if (resultType === 'matrix') {
    return result.map((/** @type {any} */ { metric, values = [] }) => ({
      labels: metric,
      text: values.at(-1)?.[1] ?? '',
      at: values.at(-1)?.[0],
      count: values.length,
      points: values,
    }));
  }
  return [{ labels: {}, text: String(result?.[1] ?? ''), at: result?.[0], plain: resultType === 'string' }];
}

/**
 * The table of an instant result, highest value first; the heading of the value column reverses the
 * order.
 * @param {{resultType: string, result: any}} data
 * @param {string} unit
 * @param {{descending: boolean}} order of the page, so that a refresh keeps it
 * @param {(series: {labels: Record<string, string>, points?: [number, string][]}) => void} [samples]
 *   shows the stored samples of a series; `points` are those that the result has
 */
export function resultTable(data, unit, order, samples) {
  const all = rows(data).map((row) => ({ ...row, value: row.plain ? NaN : parseValue(row.text) }));
  // A bar behind each value shows proportions; it needs values of one sign.
  const highest = Math.max(...all.map(({ value }) => (Number.isFinite(value) ? value : 0)));
  const bars = all.length > 1 && highest > 0 && all.every(({ value }) => !(value < 0));
  const body = h('tbody');
  const head = h('th', { scope: 'col', 'aria-sort': 'descending', class: 'value' });
  /** Only stored series have samples to show. @param {Row} row */
  const button = ({ labels, points }) =>
    samples &&
    (labels.__name__ || points) &&
    h(
      'button',
      { type: 'button', class: 'plain samples', on: { click: () => samples({ labels, points }) } },
      'Samples',
      h('span', { class: 'unseen', text: ` of ${fullName(labels)}` }),
    );
  const fill = () => {
    const sign = order.descending ? -1 : 1;
    const compare = (/** @type {{value: number}} */ a, /** @type {{value: number}} */ b) =>
      Number.isNaN(a.value)
        ? 1
        : Number.isNaN(b.value)
          ? -1
          : sign * (a.value < b.value ? -1 : Number(a.value > b.value));
    head.setAttribute('aria-sort', order.descending ? 'descending' : 'ascending');
    body.replaceChildren(
      ...[...all]
        .sort(compare)
        .slice(0, ROWS_MAX)
        .map((row) => {
          const shown = h('span', { text: row.plain ? row.text : formatValue(row.value, unit), title: row.text });
          const cell = h(
            'td',
            { class: 'value' },
            shown,
            (row.count ?? 0) > 1 && h('small', { text: ` last of ${row.count}` }),
          );
          if (bars && Number.isFinite(row.value)) cell.style.setProperty('--share', `${(100 * row.value) / highest}%`);
          const series = h('div', { class: 'chips' }, chips(row.labels), button(row));
          return h('tr', {}, h('td', { class: 'labels' }, series), cell);
        }),
    );
  };
  head.append(
    h('button', {
      type: 'button',
      text: 'Value',
      on: {
        click: () => {
          order.descending = !order.descending;
          fill();
        },
      },
    }),
  );
  fill();
  const at = all.find((row) => row.at)?.at;
  const cut = all.length > ROWS_MAX ? ` The first ${ROWS_MAX} of ${all.length} are listed.` : '';
  return h(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Values' },
    h(
      'table',
      { class: 'result' },
      h('caption', { text: at ? `Values at ${formatMoment(at)}.${cut}` : cut }),
      h('thead', {}, h('tr', {}, h('th', { scope: 'col', text: 'Series' }), head)),
      body,
    ),
  );
}
