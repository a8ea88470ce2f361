// Legend and the screen reader's table of a chart.

import { h } from './dom.js';
import { formatMoment, formatValue } from './scale.js';

/**
 * @typedef {import('./columns.js').Columns} Columns
 * @typedef {import('./columns.js').Series} Series
 */

const LEGEND_MAX = 24;
const SPOKEN_MAX = 6;
const TABLE_MAX = 60;

/** The classes of a series' mark. @param {Series} one */
export const looks = (one) => `swatch c${one.colour} d${one.dash % 4}`;
const swatch = (/** @type {Series} */ one) => h('span', { class: looks(one), 'aria-hidden': 'true' });

/**
 * The buttons of the legend: `pick(series, only)` toggles or isolates a series,
 * `light(series|null)` highlights one.
 * @param {Series[]} series
 * @param {{hidden: Set<string>, open: boolean, pick: (one: Series, only: boolean) => void,
 *   light: (one: Series|null) => void, unfold: () => void}} options
 */
export function legend(series, { hidden, open, pick, light, unfold }) {
  const drawn = open ? series : series.slice(0, LEGEND_MAX);
  // A single series without labels has no name; the tooltip shows its value.
  if (series.length === 1 && series[0].full === '{}') return [];
  const buttons = drawn.map((one) =>
    h(
      'button',
      {
        type: 'button',
        title: `${one.full}\nClick hides or shows, Ctrl+click shows it alone`,
        'aria-pressed': String(!hidden.has(one.full)),
        on: {
          click: (/** @type {MouseEvent} */ event) => pick(one, event.ctrlKey || event.metaKey || event.shiftKey),
          pointerenter: () => light(one),
          pointerleave: () => light(null),
          focus: () => light(one),
          blur: () => light(null),
        },
      },
      swatch(one),
      h('span', { text: one.name }),
    ),
  );
  if (series.length > drawn.length) {
    buttons.push(
      h('button', { type: 'button', class: 'all', on: { click: unfold } }, `${series.length - drawn.length} more`),
    );
  }
  return buttons;
}

/**
 * Writes which series are hidden into the buttons of the legend.
 * @param {HTMLElement} box of the buttons
 * @param {Series[]} series in the order of the buttons
 * @param {Set<string>} hidden full names
 */
export function pressLegend(box, series, hidden) {
  for (const [index, node] of [...box.children].entries()) {
    const pressed = node.getAttribute('aria-pressed');
    const shown = series[index] && String(!hidden.has(series[index].full));
    if (pressed !== null && shown && pressed !== shown) node.setAttribute('aria-pressed', shown);
  }
}

/**
 * The series with a value at one step, the highest first.
 * @param {Series[]} series
 * @param {number} index
 */
export function valuedAt(series, index) {
  const found = series.filter((one) => one.values[index] === one.values[index]);
  return found.sort((a, b) => b.values[index] - a.values[index]);
}

/**
 * The values at one step as a sentence, for `aria-valuetext`.
 * @param {Columns} data
 * @param {Series[]} shown
 * @param {number} index of the step
 * @param {string} unit
 */
function valueText(data, shown, index, unit) {
  const rows = valuedAt(shown, index);
  const texts = rows.slice(0, SPOKEN_MAX).map((one) => `${one.name} ${formatValue(one.values[index], unit)}`);
  if (rows.length > SPOKEN_MAX) texts.push(`and ${rows.length - SPOKEN_MAX} more`);
  return `${formatMoment(data.times[index])}: ${texts.join(', ') || 'no value'}`;
}

/**
 * A table with one row a series, for screen readers.
 * @param {string} heading
 * @param {Columns} data
 * @param {string} unit
 */
export function summaryTable(heading, data, unit) {
  const words = (/** @type {number} */ value) => (Number.isFinite(value) ? formatValue(value, unit) : 'none');
  const more = data.series.length > TABLE_MAX ? `, the first ${TABLE_MAX} of ${data.series.length} series` : '';
  return h(
    'table',
    {},
    h('caption', { text: `${heading || 'Chart'}, ${formatMoment(data.start)} to ${formatMoment(data.end)}${more}` }),
    h(
      'thead',
      {},
      h(
        'tr',
        {},
        ['Series', 'Lowest', 'Mean', 'Highest', 'Last'].map((text) => h('th', { scope: 'col', text })),
      ),
    ),
    h(
      'tbody',
      {},
      data.series.slice(0, TABLE_MAX).map((one) =>
        h(
          'tr',
          {},
          h('th', { scope: 'row', text: one.full }),
          [one.low, one.mean, one.high, one.last].map((value) => h('td', { text: words(value) })),
        ),
      ),
    ),
  );
}

/**
 * Sets the value of the cursor for screen readers.
 * @param {HTMLElement} cursor
 * @param {Columns|null} data
 * @param {Series[]} shown
 * @param {number|null} step null for the last one
 * @param {string} unit
 */
export function describeStep(cursor, data, shown, step, unit) {
  const at = step ?? Math.max(0, (data?.count ?? 1) - 1);
  const series = shown.length ? shown : (data?.series ?? []);
  cursor.setAttribute('aria-valuenow', String(at));
  cursor.setAttribute('aria-valuetext', data ? valueText(data, series, at, unit) : 'no data');
}
