// The pie chart panel: parts of a whole, as a pie or a ring.

import { h } from '../chart/dom.js';
import { display } from '../model/units.js';
import { swatch } from '../plot/legend.js';
import { INKS } from '../plot/paint.js';
import { arcPath, svg } from '../plot/svg.js';
import { fitted, inkOn, shownValues } from '../plot/values.js';

/**
 * @param {HTMLElement} box
 * @param {import('./kinds.js').View} view
 * @returns {import('./kinds.js').Drawing}
 */
export function draw(box, view) {
  const { panel, theme } = view;
  const { options } = panel;
  const values = shownValues(view).filter(({ value }) => typeof value === 'number' && value > 0);
  const total = values.reduce((sum, { value }) => sum + value, 0);
  if (!(total > 0)) {
    box.replaceChildren(h('p', { class: 'panel-quiet', text: 'No data' }));
    return {};
  }
  const percent = (/** @type {number} */ value) => display(value / total, 'percentunit', 0);
  const labels = Array.isArray(options.displayLabels) ? options.displayLabels : [];
  const legend = options.legend ?? {};
  const wanted = Array.isArray(legend.values) ? legend.values : [];
  const text = (/** @type {import('../plot/values.js').Shown} */ one) => `${one.prefix}${one.text}${one.suffix}`;
  const plot = h('div', { class: 'plot' });
  const list =
    legend.showLegend !== false &&
    legend.displayMode !== 'hidden' &&
    h(
      'div',
      { class: 'legend-table', role: 'group', 'aria-label': 'Legend', tabindex: '0' },
      h(
        'table',
        {},
        h(
          'thead',
          { class: wanted.length === 0 ? 'unseen' : '' },
          h(
            'tr',
            {},
            h('th', { scope: 'col', text: 'Name' }),
            wanted.includes('value') && h('th', { scope: 'col', class: 'value', text: 'Value' }),
            wanted.includes('percent') && h('th', { scope: 'col', class: 'value', text: 'Percent' }),
          ),
        ),
        h(
          'tbody',
          {},
          values.map((one) =>
            h(
              'tr',
              {},
              h('td', {}, h('span', { class: 'legend-name' }, swatch(one.color), h('span', { text: one.name }))),
              wanted.includes('value') && h('td', { class: 'value', text: text(one) }),
              wanted.includes('percent') && h('td', { class: 'value', text: percent(one.value) }),
            ),
          ),
        ),
      ),
    );
  box.replaceChildren(
    h(
      'div',
      { class: `plotted legend-${list ? (legend.placement === 'right' ? 'right' : 'bottom') : 'none'}` },
      plot,
      list || null,
    ),
  );
  return fitted(plot, () => {
    const [width, height] = [plot.clientWidth, plot.clientHeight];
    const radius = Math.max(10, Math.min(width, height) / 2 - 6);
    const inner = options.pieType === 'donut' ? radius * 0.58 : 0;
    let angle = 0;
    const shapes = values.flatMap((one) => {
      const from = angle;
      angle += (one.value / total) * 2 * Math.PI;
      const middle = (from + angle) / 2;
      const reach = inner > 0 ? (radius + inner) / 2 : radius * 0.68;
      const words = [
        labels.includes('name') && one.name,
        labels.includes('value') && text(one),
        labels.includes('percent') && percent(one.value),
      ]
        .filter(Boolean)
        .join(' ');
      return [
        svg(
          'path',
          {
            d: arcPath(width / 2, height / 2, radius, inner, from, angle),
            fill: one.color,
            stroke: INKS[theme].background,
            'stroke-width': 1.5,
          },
          svg('title', {}, `${one.name}: ${text(one)}, ${percent(one.value)}`),
        ),
        ...(words && angle - from > 0.25
          ? [
              svg(
                'text',
                {
                  x: width / 2 + reach * Math.sin(middle),
                  y: height / 2 - reach * Math.cos(middle) + 4,
                  'text-anchor': 'middle',
                  'font-size': 12,
                  fill: inkOn(one.color),
                },
                words,
              ),
            ]
          : []),
      ];
    });
    plot.replaceChildren(
      svg('svg', { width, height, role: 'img', 'aria-label': view.replace(panel.title) || 'Parts' }, ...shapes),
    );
  });
}
