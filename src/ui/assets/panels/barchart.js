// The bar chart panel: one group of bars a row, its name from the first text field.

import { h } from '../chart/dom.js';
import { colorOf } from '../model/fields.js';
import { display } from '../model/units.js';
import { barChart } from '../plot/bars.js';
import { legendOf, legendPlace, valueText } from '../plot/legend.js';
import { fitted } from '../plot/values.js';

/** Most groups of bars. */
const GROUPS_MAX = 200;

/**
 * @param {HTMLElement} box
 * @param {import('./kinds.js').View} view
 * @returns {import('./kinds.js').Drawing}
 */
export function draw(box, view) {
  const { panel, theme, memory } = view;
  const { options } = panel;
  const frame = view.frames.find(({ fields, length }) => length > 0 && fields.some(({ type }) => type === 'number'));
  if (!frame) {
    box.replaceChildren(h('p', { class: 'panel-quiet', text: 'No data' }));
    return {};
  }
  const named = (/** @type {import('../model/frame.js').Field} */ field) => field.config.displayName || field.name;
  const category =
    frame.fields.find((field) => field.name === options.xField || named(field) === options.xField) ??
    frame.fields.find(({ type }) => type === 'string') ??
    frame.fields.find(({ type }) => type === 'time');
  const numbers = frame.fields.filter(
    (field) => field.type === 'number' && field !== category && field.config.custom?.hideFrom?.viz !== true,
  );
  const count = Math.min(frame.length, GROUPS_MAX);
  const categories = Array.from({ length: count }, (_, row) => {
    const value = category?.values[row];
    return category?.type === 'time'
      ? display(Number(value), category.config.unit ?? 'dateTimeAsIso')
      : String(value ?? row + 1);
  });
  /** @type {Set<string>} */
  const hidden = memory.get('hidden') ?? new Set();
  memory.set('hidden', hidden);
  const all = numbers.map((field, index) => ({
    key: named(field),
    name: named(field),
    field,
    values: field.values,
    color: colorOf(field, undefined, index, { theme, name: named(field) }),
  }));
  const first = numbers[0];
  const plot = h('div', { class: 'plot' });
  const paint = () => {
    if (plot.clientWidth < 20) return;
    const series = all
      .filter(({ key }) => !hidden.has(key))
      .map(({ name, field, color }) => ({
        name,
        color,
        values: Array.from({ length: count }, (_, row) => Number(field.values[row])),
        texts: Array.from({ length: count }, (_, row) => valueText(field, field.values[row])),
      }));
    plot.replaceChildren(
      barChart({
        width: plot.clientWidth,
        height: plot.clientHeight,
        categories,
        series,
        stacked: options.stacking === 'normal' || options.stacking === 'percent',
        theme,
        unit: first.config.unit,
        decimals: first.config.decimals,
        min: first.config.min,
        max: first.config.max,
        gap: 1 - Math.min(1, Math.max(0.1, Number(options.groupWidth ?? 0.7))),
        opacity: Math.max(0.2, Number(first.config.custom?.fillOpacity ?? 80) / 100),
        label: view.replace(panel.title) || 'Bars',
      }),
    );
  };
  const legend = legendOf(all, options.legend ?? {}, {
    hidden,
    memory,
    change: () => {
      paint();
      for (const button of box.querySelectorAll('.legend-name')) {
        button.setAttribute(
          'aria-pressed',
          String(!hidden.has((button.getAttribute('data-focus') ?? '').replace(/^legend /, ''))),
        );
      }
    },
  });
  box.replaceChildren(h('div', { class: `plotted legend-${legendPlace(options.legend ?? {})}` }, plot, legend));
  return fitted(plot, paint);
}
