// The bar gauge panel: one bar a value, from the lowest to the highest value of the scale.

import { h } from '../chart/dom.js';
import { colorOf } from '../model/fields.js';
import { fitted, partOf, shownValues, textColor } from '../plot/values.js';

/** Cells of a bar in the mode `lcd`. */
const CELLS = 36;

/**
 * @param {HTMLElement} box
 * @param {import('./kinds.js').View} view
 * @returns {import('./kinds.js').Drawing}
 */
export function draw(box, view) {
  const values = shownValues(view);
  const { options } = view.panel;
  if (values.length === 0) {
    box.replaceChildren(h('p', { class: 'panel-quiet', text: 'No data' }));
    return {};
  }
  const mode = String(options.displayMode ?? 'gradient');
  const rows = values.map((one) => {
    const at = partOf(one);
    const bar = h('div', {
      class: `bar-fill mode-${mode === 'lcd' ? 'lcd' : mode === 'basic' ? 'basic' : 'gradient'}`,
    });
    const track = h('div', { class: options.showUnfilled === false ? 'bar-track bare' : 'bar-track' }, bar);
    bar.style.setProperty('--part', `${(at * 100).toFixed(2)}%`);
    bar.style.setProperty('--colour', one.color);
    if (mode !== 'basic') {
      const { min, max } = one.field.range ?? { min: 0, max: 100 };
      const stops = Array.from({ length: CELLS }, (_, cell) => {
        const value = min + ((max - min) * (cell + 0.5)) / CELLS;
        return `${colorOf(one.field, value, 0, { theme: view.theme })} ${((cell / CELLS) * 100).toFixed(1)}% ${(
          ((cell + 1) / CELLS) *
          100
        ).toFixed(1)}%`;
      });
      bar.style.setProperty(
        '--stops',
        mode === 'lcd' ? stops.join(', ') : `${colorOf(one.field, min, 0, { theme: view.theme })}, ${one.color}`,
      );
    }
    const value = h('span', { class: 'bar-value', text: `${one.prefix}${one.text}${one.suffix}` });
    if (options.valueMode !== 'text') value.style.color = textColor(one.color, view.theme);
    return h(
      'div',
      { class: 'bar-row' },
      options.namePlacement === 'hidden' || (values.length === 1 && !one.name)
        ? null
        : h('span', { class: 'bar-name', text: one.name, title: one.name }),
      track,
      options.valueMode === 'hidden' ? null : value,
    );
  });
  const vertical = options.orientation === 'vertical';
  const grid = h(
    'div',
    { class: vertical ? 'bars vertical' : 'bars', role: 'group', tabindex: '0', 'aria-label': 'Values' },
    rows,
  );
  box.replaceChildren(grid);
  return fitted(box, () => {
    const height = box.clientHeight / Math.max(1, rows.length);
    // Low rows have the name beside the bar.
    const beside = !vertical && options.namePlacement !== 'top' && (height < 44 || options.namePlacement === 'left');
    grid.classList.toggle('beside', beside);
    grid.style.setProperty(
      '--bar',
      `${Math.max(beside ? 12 : 34, Math.min(Number(options.maxVizHeight) || 60, height - 8))}px`,
    );
  });
}
