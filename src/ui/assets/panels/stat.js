// The stat panel: large values, with a line of their past and a colour.

import { h } from '../chart/dom.js';
import { INKS } from '../plot/paint.js';
import { svg } from '../plot/svg.js';
import { fitted, fittingSize, gridColumns, inkOn, shownValues, textColor } from '../plot/values.js';

/**
 * @typedef {import('./kinds.js').View} View
 * @typedef {import('../plot/values.js').Shown} Shown
 */

/** Points of a sparkline; more are thinned. */
const POINTS_MAX = 200;

/**
 * @param {HTMLElement} box
 * @param {View} view
 * @returns {import('./kinds.js').Drawing}
 */
export function draw(box, view) {
  const values = shownValues(view);
  const { options } = view.panel;
  if (values.length === 0) {
    const none = view.panel.fieldConfig.defaults.noValue;
    box.replaceChildren(h('p', { class: 'stat-none', text: typeof none === 'string' && none ? none : 'No data' }));
    return {};
  }
  const mode = String(options.colorMode ?? 'value');
  const textMode = String(options.textMode ?? 'auto');
  const named = textMode === 'value_and_name' || textMode === 'name' || (textMode === 'auto' && values.length > 1);
  const tiles = values.map((one) => {
    const text = textMode === 'none' ? '' : textMode === 'name' ? one.name : `${one.prefix}${one.text}${one.suffix}`;
    const value = h(
      'div',
      { class: 'stat-value' },
      textMode === 'name' ? one.name : null,
      ...(textMode === 'name' || textMode === 'none'
        ? []
        : [
            one.prefix && h('span', { class: 'affix', text: one.prefix }),
            one.text,
            one.suffix && h('span', { class: 'affix', text: one.suffix }),
          ]),
    );
    const name = named && textMode !== 'name' && h('div', { class: 'stat-name', text: one.name, title: one.name });
    const link = linked(view, one, value);
    const tile = h(
      'div',
      { class: `stat-tile justify-${options.justifyMode === 'center' ? 'center' : 'auto'}` },
      name || null,
      link,
    );
    const past = options.graphMode === 'area' && sparkline(one, mode, view);
    if (past) tile.append(past);
    tile.classList.toggle('with-past', Boolean(past));
    if (mode.startsWith('background') && one.color) {
      tile.style.backgroundColor = one.color;
      tile.style.color = inkOn(one.color);
    } else if (mode === 'value') value.style.color = textColor(one.color, view.theme);
    return { tile, value, name: name || null, text };
  });
  const grid = h(
    'div',
    { class: 'stat-grid' },
    tiles.map(({ tile }) => tile),
  );
  box.replaceChildren(grid);
  const sizes = options.text ?? {};
  return fitted(box, () => {
    const { clientWidth: width, clientHeight: height } = grid;
    const columns = gridColumns(tiles.length, width, height, options.orientation, 2.2);
    grid.style.setProperty('--columns', String(columns));
    const rows = Math.ceil(tiles.length / columns);
    const room = { width: width / columns - 22, height: height / rows - 3 };
    const shared = Math.min(
      ...tiles.map(({ text, name }) =>
        fittingSize(text, room.width, room.height * (name ? 0.55 : 0.95) * (options.graphMode === 'area' ? 0.68 : 1), {
          least: 12,
          most: 64,
        }),
      ),
    );
    for (const { value, name } of tiles) {
      value.style.fontSize = `${Number(sizes.valueSize) > 0 ? Math.min(200, sizes.valueSize) : shared}px`;
      const least = Math.max(11, Math.min(18, shared * 0.5));
      if (name) name.style.fontSize = `${Number(sizes.titleSize) > 8 ? Math.min(60, sizes.titleSize) : least}px`;
    }
  });
}

/** @param {View} view @param {Shown} one @param {HTMLElement} value */
function linked(view, one, value) {
  const [first] = Array.isArray(one.field.config.links) ? one.field.config.links : [];
  const link = first
    ? view.link(first, {
        field: { name: one.field.name, labels: one.field.labels },
        value: { text: one.text, raw: one.value, numeric: one.value },
      })
    : null;
  if (!link?.href) return value;
  return h(
    'a',
    {
      class: 'stat-link',
      href: link.href,
      title: link.text,
      ...(link.newTab ? { target: '_blank', rel: 'noopener noreferrer' } : {}),
    },
    value,
  );
}

/** @param {Shown} one @param {string} mode @param {View} view */
function sparkline({ field, times, color }, mode, { theme, range }) {
  if (!times || field.values.length < 2) return null;
  const every = Math.max(1, Math.ceil(field.values.length / POINTS_MAX));
  /** @type {[number, number][]} */
  const points = [];
  let [low, high] = [Infinity, -Infinity];
  for (let index = 0; index < field.values.length; index += every) {
    const value = field.values[index];
    if (typeof value !== 'number' || !Number.isFinite(value)) continue;
    points.push([Number(times[index]), value]);
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (points.length < 2) return null;
  const span = Math.max(1, range.to - range.from);
  const at = points.map(
    ([time, value]) =>
      `${(((time - range.from) / span) * 100).toFixed(2)} ${(high > low
        ? 38 - ((value - low) / (high - low)) * 36
        : 20
      ).toFixed(2)}`,
  );
  const line = `M${at.join('L')}`;
  const ink = mode.startsWith('background') ? inkOn(color) : mode === 'none' ? INKS[theme].muted : color;
  const first = at[0].split(' ')[0];
  const last = at[at.length - 1].split(' ')[0];
  return svg(
    'svg',
    { class: 'sparkline', viewBox: '0 0 100 40', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    svg('path', { d: `${line}L${last} 40L${first} 40Z`, fill: ink, 'fill-opacity': '0.18' }),
    svg('path', { d: line, fill: 'none', stroke: ink, 'stroke-width': '1.5', 'vector-effect': 'non-scaling-stroke' }),
  );
}
