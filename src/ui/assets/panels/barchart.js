// The bar chart panel: one group of bars a row, named by a text or by its time.

import { h } from '../chart/dom.js';
import { barRows } from '../model/bar_rows.js';
import { colorOf, displayValue } from '../model/fields.js';
import { barChart } from '../plot/bars.js';
import { legendOf, legendPlace, valueText } from '../plot/legend.js';
import { fitted, formatIn } from '../plot/values.js';

/** The unit of dates without another one. */
const ISO = 'dateTimeAsIso';

/**
 * @param {HTMLElement} box
 * @param {import('./kinds.js').View} view
 * @returns {import('./kinds.js').Drawing}
 */
export function draw(box, view) {
  const { panel, theme, memory } = view;
  const { options } = panel;
  const rows = barRows(view.frames, options.xField);
  if (!rows) {
    box.replaceChildren(h('p', { class: 'panel-quiet', text: 'No data' }));
    return {};
  }
  const { category, numbers, from, to } = rows;
  const columnOf = (/** @type {(row: number) => any} */ value) =>
    Array.from({ length: to - from }, (_, at) => value(from + at));
  const isTime = category?.type === 'time';
  const namesIn = (/** @type {import('../model/fields.js').Formatter} */ format) =>
    columnOf((row) => {
      const value = category?.values[row];
      if (!isTime) return String(value ?? row + 1);
      const { prefix, text, suffix } = displayValue(category, value, format, { theme });
      return prefix + text + suffix;
    });
  const format = formatIn(view.timeZone);
  const categories = namesIn(format);
  // Seconds would leave room for few dates.
  const ticks = isTime
    ? namesIn((value, unit, decimals) => format(value, unit === ISO ? 'time:MM-DD HH:mm' : unit, decimals))
    : undefined;
  /** @type {Set<string>} */
  const hidden = memory.get('hidden') ?? new Set();
  memory.set('hidden', hidden);
  /** @type {Map<string, number>} */
  const seen = new Map();
  const all = numbers.map((field, index) => {
    const name = field.config.displayName || field.name;
    const count = seen.get(name) ?? 0;
    seen.set(name, count + 1);
    const color = colorOf(field, undefined, index, { theme, name });
    return { key: count === 0 ? name : `${name} ${count}`, name, field, values: field.values, color };
  });
  const first = numbers[0];
  const plot = h('div', { class: 'plot' });
  const paint = () => {
    if (plot.clientWidth < 20) return;
    const series = all
      .filter(({ key }) => !hidden.has(key))
      .map(({ name, field, color }) => ({
        name,
        color,
        values: columnOf((row) => Number(field.values[row] ?? NaN)),
        texts: columnOf((row) => valueText(field, field.values[row])),
      }));
    plot.replaceChildren(
      barChart({
        width: plot.clientWidth,
        height: plot.clientHeight,
        categories,
        ticks,
        series,
        stacked: options.stacking === 'normal' || options.stacking === 'percent',
        percent: options.stacking === 'percent',
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
  box.replaceChildren(
    h('div', { class: `plotted legend-${legendPlace(options.legend ?? {})}` }, plot, legend),
    h('p', { class: 'hint', text: rows.note }),
  );
  return fitted(plot, paint);
}
