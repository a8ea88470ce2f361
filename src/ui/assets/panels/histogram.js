// The histogram panel: how many values fall into each bucket.

import { h } from '../chart/dom.js';
import { colorOf } from '../model/fields.js';
import { display } from '../model/units.js';
import { barChart } from '../plot/bars.js';
import { fitted } from '../plot/values.js';

/** Buckets without a configured size, and most buckets. */
const BUCKETS = 30;
const BUCKETS_MAX = 200;

/**
 * @param {HTMLElement} box
 * @param {import('./kinds.js').View} view
 * @returns {import('./kinds.js').Drawing}
 */
export function draw(box, view) {
  const { panel, theme } = view;
  const { options } = panel;
  const fields = view.frames.flatMap((frame) => frame.fields.filter(({ type }) => type === 'number'));
  let [low, high] = [Infinity, -Infinity];
  for (const { values } of fields) {
    for (const value of values) {
      if (!Number.isFinite(value)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  if (!(low <= high)) {
    box.replaceChildren(h('p', { class: 'panel-quiet', text: 'No data' }));
    return {};
  }
  const wanted =
    Number(options.bucketSize) > 0
      ? Number(options.bucketSize)
      : roundSize((high - low || 1) / Math.min(BUCKETS_MAX, Math.max(1, Number(options.bucketCount) || BUCKETS)));
  const size = Math.max(wanted, (high - low) / BUCKETS_MAX);
  const offset = Number(options.bucketOffset) || 0;
  const start = Math.floor((low - offset) / size) * size + offset;
  const count = Math.min(BUCKETS_MAX + 1, Math.floor((high - start) / size) + 1);
  const { unit, decimals } = fields[0].config;
  const categories = Array.from({ length: count }, (_, index) => display(start + index * size, unit, decimals));
  const combined = options.combine === true;
  const groups = combined ? [fields] : fields.map((field) => [field]);
  const series = groups.slice(0, 20).map((group, index) => {
    const values = new Array(count).fill(0);
    for (const field of group) {
      for (const value of field.values) {
        if (Number.isFinite(value)) values[Math.min(count - 1, Math.floor((value - start) / size))] += 1;
      }
    }
    const name = combined ? 'Count' : group[0].config.displayName || group[0].name;
    return { name, values, texts: values.map(String), color: colorOf(group[0], undefined, index, { theme, name }) };
  });
  const plot = h('div', { class: 'plot' });
  box.replaceChildren(h('div', { class: 'plotted legend-none' }, plot));
  return fitted(plot, () => {
    if (plot.clientWidth < 20) return;
    plot.replaceChildren(
      barChart({
        width: plot.clientWidth,
        height: plot.clientHeight,
        categories,
        series,
        stacked: true,
        theme,
        gap: 0.05,
        label: view.replace(panel.title) || 'Histogram',
      }),
    );
  });
}

/** The next size of 1, 2, 2.5 or 5 times a power of ten. @param {number} size */
function roundSize(size) {
  const power = 10 ** Math.floor(Math.log10(size));
  return ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= size) ?? 10) * power;
}
