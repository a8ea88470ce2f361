// The gauge panel: an arc from the lowest to the highest value of the scale.

import { h } from '../chart/dom.js';
import { part } from '../model/color.js';
import { colorOf, resolveColor } from '../model/fields.js';
import { display } from '../model/units.js';
import { INKS } from '../plot/paint.js';
import { arcPath, svg } from '../plot/svg.js';
import { fitted, fittingSize, gridColumns, partOf, shownValues, textColor } from '../plot/values.js';

/** The arc reaches this far to both sides of the top, in radians. */
const REACH = (115 / 180) * Math.PI;

/**
 * @param {HTMLElement} box
 * @param {import('./kinds.js').View} view
 * @returns {import('./kinds.js').Drawing}
 */
export function draw(box, view) {
  const values = shownValues(view);
  if (values.length === 0) {
    box.replaceChildren(h('p', { class: 'panel-quiet', text: 'No data' }));
    return {};
  }
  const { options } = view.panel;
  const titled = values.length > 1;
  const gauges = values.map((one) => {
    const text = `${one.prefix}${one.text}${one.suffix}`;
    const place = h('div', { class: 'gauge-dial' });
    const node = h(
      'div',
      { class: 'gauge-one', role: 'img', 'aria-label': `${one.name}: ${text}` },
      place,
      titled ? h('div', { class: 'stat-name', text: one.name, title: one.name }) : null,
    );
    return { one, text, place, node };
  });
  const grid = h(
    'div',
    { class: 'stat-grid' },
    gauges.map(({ node }) => node),
  );
  box.replaceChildren(grid);
  return fitted(box, () => {
    const columns = gridColumns(
      gauges.length,
      grid.clientWidth,
      grid.clientHeight,
      options.orientation === 'horizontal' ? 'vertical' : options.orientation === 'vertical' ? 'horizontal' : 'auto',
      1.3,
    );
    grid.style.setProperty('--columns', String(columns));
    for (const { one, text, place } of gauges) {
      place.replaceChildren(dial(one, text, place.clientWidth, place.clientHeight, view));
    }
  });
}

/**
 * @param {import('../plot/values.js').Shown} one
 * @param {string} text
 * @param {number} width
 * @param {number} height
 * @param {import('./kinds.js').View} view
 */
function dial(one, text, width, height, { panel, theme }) {
  const { options } = panel;
  const marked = options.showThresholdMarkers !== false;
  const labelled = options.showThresholdLabels === true;
  // Below the middle the arc needs less than half of its radius.
  const radius = Math.max(10, Math.min(width / 2 - (labelled ? 30 : 4), height / (1 + Math.cos(Math.PI - REACH)) - 4));
  const [cx, cy] = [width / 2, radius + (height - radius * (1 + Math.cos(Math.PI - REACH))) / 2];
  const thick = radius * 0.26;
  const outer = marked ? radius - radius * 0.09 : radius;
  const angle = (/** @type {number} */ at) => -REACH + 2 * REACH * at;
  const shapes = [svg('path', { d: arcPath(cx, cy, outer, outer - thick, -REACH, REACH), fill: INKS[theme].grid })];
  const at = partOf(one);
  if (at > 0) {
    shapes.push(svg('path', { d: arcPath(cx, cy, outer, outer - thick, -REACH, angle(at)), fill: one.color }));
  }
  const { thresholds } = one.field.config;
  const { min, max } = one.field.range ?? { min: 0, max: 100 };
  const steps = Array.isArray(thresholds?.steps) ? thresholds.steps : [];
  if (marked && steps.length > 0) {
    const ends = steps.map((/** @type {any} */ step) =>
      step.value === null || step.value === -Infinity
        ? 0
        : thresholds.mode === 'percentage'
          ? part(step.value, 0, 100)
          : part(step.value, min, max),
    );
    steps.forEach((/** @type {any} */ step, /** @type {number} */ index) => {
      const [from, to] = [ends[index], ends[index + 1] ?? 1];
      if (to <= from) return;
      shapes.push(
        svg('path', {
          d: arcPath(cx, cy, radius, radius - radius * 0.06, angle(from), angle(to)),
          fill:
            one.field.config.color?.mode === 'fixed'
              ? colorOf(one.field, one.value, 0, { theme })
              : resolveColor(step.color, theme),
        }),
      );
      if (labelled && index > 0) {
        const turn = angle(from);
        shapes.push(
          svg(
            'text',
            {
              x: cx + (radius + 6) * Math.sin(turn),
              y: cy - (radius + 6) * Math.cos(turn),
              'text-anchor': turn < -0.2 ? 'end' : turn > 0.2 ? 'start' : 'middle',
              class: 'gauge-label',
            },
            display(
              thresholds.mode === 'percentage' ? min + (max - min) * from : step.value,
              one.field.config.unit,
              one.field.config.decimals,
            ),
          ),
        );
      }
    });
  }
  const size = fittingSize(text, (outer - thick) * 1.6, radius * 0.5, { least: 9, most: 60 });
  const shown = svg(
    'text',
    {
      x: cx,
      y: cy + size * 0.3,
      'text-anchor': 'middle',
      class: 'gauge-value',
      'font-size': size,
      fill: textColor(one.color, theme),
    },
    text,
  );
  return svg('svg', { width, height, 'aria-hidden': 'true' }, ...shapes, shown);
}
