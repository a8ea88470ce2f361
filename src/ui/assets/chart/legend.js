// Legend, tooltip and the screen reader's table of a chart.

import { h } from './dom.js';
import { formatMoment, formatValue } from './scale.js';

/**
 * @typedef {import('./columns.js').Columns} Columns
 * @typedef {import('./columns.js').Series} Series
 */

const LEGEND_MAX = 24;
const TIP_MAX = 12;
const SPOKEN_MAX = 6;
const TABLE_MAX = 60;

const swatch = (/** @type {Series} */ one) =>
  h('span', { class: `swatch c${one.colour} d${one.dash % 4}`, 'aria-hidden': 'true' });

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
 * The values at one step, highest first.
 * @param {Series[]} series
 * @param {number} index
 */
function valuesAt(series, index) {
  return series
    .map((one) => ({ one, value: one.values[index] }))
    .filter(({ value }) => !Number.isNaN(value))
    .sort((a, b) => b.value - a.value);
}

/**
 * The content of the tooltip: at most `TIP_MAX` rows, around the one nearest to the pointer.
 * @param {Columns} data
 * @param {Series[]} shown
 * @param {number} index of the step
 * @param {string} unit
 * @param {number|null} height the value at the pointer's height; null when the keyboard moves the
 *   cursor
 * @returns {Node[]}
 */
export function tooltip(data, shown, index, unit, height) {
  const rows = valuesAt(shown, index);
  const distance = (/** @type {{value: number}} */ { value }) => Math.abs(value - (height ?? 0));
  const near =
    height === null || rows.length < 2
      ? -1
      : rows.reduce((best, row, at) => (distance(row) < distance(rows[best]) ? at : best), 0);
  const first = Math.max(0, Math.min(near - TIP_MAX / 2, rows.length - TIP_MAX));
  const cut = rows.slice(first, first + TIP_MAX);
  return /** @type {Node[]} */ (
    [
      h('div', { class: 'when', text: formatMoment(data.times[index]) }),
      ...cut.map(({ one, value }, at) =>
        h(
          'div',
          { class: first + at === near ? 'row near' : 'row' },
          swatch(one),
          h('span', { class: 'name', text: one.name }),
          h('span', { class: 'value', text: formatValue(value, unit) }),
        ),
      ),
      rows.length === 0 && h('div', { class: 'more', text: 'no value' }),
      rows.length > cut.length && h('div', { class: 'more', text: `and ${rows.length - cut.length} more` }),
    ].filter(Boolean)
  );
}

/**
 * The values at one step as a sentence, for `aria-valuetext`.
 * @param {Columns} data
 * @param {Series[]} shown
 * @param {number} index of the step
 * @param {string} unit
 */
function valueText(data, shown, index, unit) {
  const rows = valuesAt(shown, index);
  const texts = rows.slice(0, SPOKEN_MAX).map(({ one, value }) => `${one.name} ${formatValue(value, unit)}`);
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

/**
 * Places the tooltip beside the crosshair, inside the plot.
 * @param {HTMLElement} box
 * @param {{width: number, height: number}} plot in pixels
 * @param {number} x of the crosshair
 * @param {number} y of the pointer
 */
export function placeTooltip(box, plot, x, y) {
  const left = x + 16 + box.offsetWidth < plot.width ? x + 14 : Math.max(0, x - 14 - box.offsetWidth);
  const top = Math.max(0, Math.min(y - 20, plot.height - box.offsetHeight));
  box.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}
