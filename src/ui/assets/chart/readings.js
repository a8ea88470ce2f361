// The words around a chart: legend, the readings under the cursor, and the table for screen readers.

import { h } from './dom.js';
import { formatMoment, formatValue } from './scale.js';

const LEGEND_MAX = 24;
const TIP_MAX = 12;
const SPOKEN_MAX = 6;
const TABLE_MAX = 60;

const swatch = (one) => h('span', { class: `swatch c${one.colour} d${one.dash % 4}`, 'aria-hidden': 'true' });

/** Legend buttons: `pick(series, only)` toggles or isolates a series, `light(series|null)` highlights one. */
export function legend(series, { hidden, open, pick, light, unfold }) {
  const drawn = open ? series : series.slice(0, LEGEND_MAX);
  // One series without labels has no name to tell; the reading shows its value.
  if (series.length === 1 && series[0].full === '{}') return [];
  const buttons = drawn.map((one) => h('button', {
    type: 'button',
    title: `${one.full}\nClick hides or shows, Ctrl+click shows it alone`,
    'aria-pressed': String(!hidden.has(one.full)),
    on: {
      click: (event) => pick(one, event.ctrlKey || event.metaKey || event.shiftKey),
      pointerenter: () => light(one),
      pointerleave: () => light(null),
      focus: () => light(one),
      blur: () => light(null),
    },
  }, swatch(one), h('span', { text: one.name })));
  if (series.length > drawn.length) {
    buttons.push(h('button', { type: 'button', class: 'all', on: { click: unfold } }, `${series.length - drawn.length} more`));
  }
  return buttons;
}

/** The values at one step, highest first. */
function readings(series, index) {
  return series.map((one) => ({ one, value: one.values[index] })).filter(({ value }) => !Number.isNaN(value))
    .sort((a, b) => b.value - a.value);
}

/**
 * What stands in the box beside the crosshair: at most twelve rows, around the one nearest to the pointer.
 * @param {number|null} height the value at the pointer's height; null when the keyboard moves the cursor
 */
export function tip(data, shown, index, unit, height) {
  const rows = readings(shown, index);
  const distance = ({ value }) => Math.abs(value - height);
  const near = height === null || rows.length < 2 ? -1
    : rows.reduce((best, row, at) => (distance(row) < distance(rows[best]) ? at : best), 0);
  const first = Math.max(0, Math.min(near - TIP_MAX / 2, rows.length - TIP_MAX));
  const cut = rows.slice(first, first + TIP_MAX);
  return [
    h('div', { class: 'when', text: formatMoment(data.start + index * data.step) }),
    ...cut.map(({ one, value }, at) => h('div', { class: first + at === near ? 'row near' : 'row' },
      swatch(one), h('span', { class: 'name', text: one.name }), h('span', { class: 'value', text: formatValue(value, unit) }))),
    rows.length === 0 && h('div', { class: 'more', text: 'no value' }),
    rows.length > cut.length && h('div', { class: 'more', text: `and ${rows.length - cut.length} more` }),
  ].filter(Boolean);
}

/** The same, as a sentence for the cursor's value text. */
export function spoken(data, shown, index, unit) {
  const rows = readings(shown, index);
  const said = rows.slice(0, SPOKEN_MAX).map(({ one, value }) => `${one.name} ${formatValue(value, unit)}`);
  if (rows.length > SPOKEN_MAX) said.push(`and ${rows.length - SPOKEN_MAX} more`);
  return `${formatMoment(data.start + index * data.step)}: ${said.join(', ') || 'no value'}`;
}

/** One row per series, for those who do not see the picture. */
export function table(heading, data, unit) {
  const words = (value) => (Number.isFinite(value) ? formatValue(value, unit) : 'none');
  const end = data.start + data.step * (data.count - 1);
  const more = data.series.length > TABLE_MAX ? `, the first ${TABLE_MAX} of ${data.series.length} series` : '';
  return h('table', {},
    h('caption', { text: `${heading || 'Chart'}, ${formatMoment(data.start)} to ${formatMoment(end)}${more}` }),
    h('thead', {}, h('tr', {}, ['Series', 'Lowest', 'Mean', 'Highest', 'Last'].map((text) => h('th', { scope: 'col', text })))),
    h('tbody', {}, data.series.slice(0, TABLE_MAX).map((one) => h('tr', {}, h('th', { scope: 'row', text: one.full }),
      [one.low, one.mean, one.high, one.last].map((value) => h('td', { text: words(value) }))))));
}
