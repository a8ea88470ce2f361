// The heatmap panel: counts of buckets over time, from histograms or from the values of series.

import { h } from '../chart/dom.js';
import { formatMoment } from '../chart/scale.js';
import { mix } from '../model/palette.js';
import { palette, resolveColor } from '../model/fields.js';
import { display } from '../model/units.js';
import { PlotCanvas } from '../plot/canvas.js';
import { valueText } from '../plot/legend.js';
import { INKS, clipToPlot, layOut, paintAxes } from '../plot/paint.js';
import { heatGrid } from '../plot/heat_grid.js';
import { valueScale } from '../plot/scale.js';

/**
 * @typedef {import('../plot/heat_grid.js').HeatGrid} HeatGrid
 * @typedef {import('./kinds.js').View} View
 */

/** Colours of schemes from few to many, on a light page; a dark page has them reversed. */
const SCHEMES = new Map(
  Object.entries({
    Oranges: ['#fff5eb', '#fdae6b', '#d94801', '#7f2704'],
    Blues: ['#f7fbff', '#9ecae1', '#2171b5', '#08306b'],
    Greens: ['#f7fcf5', '#a1d99b', '#238b45', '#00441b'],
    Reds: ['#fff5f0', '#fc9272', '#cb181d', '#67000d'],
    Purples: ['#fcfbfd', '#bcbddc', '#6a51a3', '#3f007d'],
    Greys: ['#f5f5f5', '#bdbdbd', '#636363', '#111111'],
    Spectral: ['#3288bd', '#abdda4', '#fee08b', '#d53e4f'],
    RdYlGn: ['#1a9850', '#d9ef8b', '#fdae61', '#d73027'],
    Turbo: ['#30123b', '#1bd0d5', '#e1dd37', '#7a0403'],
    Viridis: ['#440154', '#31688e', '#35b779', '#fde725'],
  }),
);

/** @param {string[]} colours @param {number} at from 0 to 1 */
function colourAt(colours, at) {
  const place = Math.min(1, Math.max(0, at)) * (colours.length - 1);
  const low = Math.min(Math.floor(place), colours.length - 2);
  return mix(colours[low], colours[low + 1], place - low);
}

/** @param {Record<string, any>} color options @param {'light' | 'dark'} theme @returns {(at: number) => string} */
function rampOf(color, theme) {
  const exponent = Number(color.exponent) > 0 ? Number(color.exponent) : 0.5;
  if (color.mode === 'opacity') {
    const full = resolveColor(color.fill ?? 'dark-orange', theme);
    const hex = /^#[\da-f]{6}$/i.test(full) ? full : palette(theme).series[1];
    return (at) => mix(palette(theme).background, hex, at ** exponent);
  }
  const found = SCHEMES.get(String(color.scheme)) ?? SCHEMES.get('Oranges') ?? [];
  const diverging = ['Spectral', 'RdYlGn', 'Turbo', 'Viridis'].includes(String(color.scheme));
  const flip = (theme === 'dark' && !diverging) !== (color.reverse === true);
  const colours = flip ? [...found].reverse() : found;
  return (at) => colourAt(colours, at ** (diverging ? 1 : exponent));
}

/**
 * @param {HTMLElement} box
 * @param {View} view
 * @returns {import('./kinds.js').Drawing}
 */
export function draw(box, view) {
  const { panel, range, theme } = view;
  const { options } = panel;
  const grid = heatGrid(view.frames, range, options);
  if (!grid) {
    box.replaceChildren(h('p', { class: 'panel-quiet', text: 'No data' }));
    return {};
  }
  const { times, step, rows, field, high } = grid;
  const ramp = rampOf(options.color ?? {}, theme);
  const shades = Array.from({ length: 64 }, (_, index) => ramp(index / 63));
  const unit = options.yAxis?.unit ?? field.config.unit;
  const gap = Math.min(5, Math.max(0, Number(options.cellGap ?? 1)));
  const labels = rows.map(({ name, top }) =>
    Number.isFinite(top) ? display(top, unit, options.yAxis?.decimals) : name,
  );
  const canvas = PlotCanvas.of(view, {
    label: `${view.replace(panel.title) || 'Heatmap'}: counts at a time`,
    times,
    paint(pen, width, height) {
      const every = Math.max(1, Math.ceil(rows.length / Math.max(2, Math.floor(height / 22))));
      const scale = {
        ...valueScale(0, rows.length, 1, { min: 0, max: rows.length }),
        ticks: rows.map((_, index) => index + 1).filter((_, index) => index % every === 0),
        texts: labels.filter((_, index) => index % every === 0),
      };
      const axes = [
        {
          scale,
          label: view.replace(String(options.yAxis?.axisLabel ?? '')),
          shown: options.yAxis?.axisPlacement !== 'hidden',
        },
        null,
      ];
      const place = layOut(pen, { width, height, from: range.from, to: range.to, timeZone: view.timeZone, axes });
      clipToPlot(pen, place);
      const [cell, rise] = [
        (step / Math.max(1, range.to - range.from)) * (place.right - place.left),
        (place.bottom - place.top) / rows.length,
      ];
      const pad = cell > 4 && rise > 4 ? gap : 0;
      rows.forEach(({ counts }, row) => {
        const y = place.bottom - (row + 1) * rise;
        for (let index = 0; index < times.length; index += 1) {
          const count = counts[index];
          if (!(count > 0) || count <= grid.least) continue;
          pen.fillStyle = shades[Math.min(63, Math.floor((count / high) * 63))];
          pen.fillRect(
            place.x(times[index] - step) + pad / 2,
            y + pad / 2,
            Math.max(1, cell - pad) + (pad ? 0 : 0.5),
            Math.max(1, rise - pad) + (pad ? 0 : 0.5),
          );
        }
      });
      pen.restore();
      paintAxes(pen, place, { ...INKS[theme], grid: 'transparent' });
      return place;
    },
    tooltip(index, y, place) {
      const row =
        y === null ? rows.length - 1 : Math.floor(((place.bottom - y) / (place.bottom - place.top)) * rows.length);
      const one = rows[Math.min(rows.length - 1, Math.max(0, row))];
      return [
        h('div', { class: 'when', text: formatMoment(times[index] / 1000, view.timeZone) }),
        h(
          'div',
          { class: 'tip-row' },
          h('span', { class: 'name', text: bucketText(one, unit) }),
          h('b', { text: valueText(field, one.counts[index]) || 'none' }),
        ),
      ];
    },
    speak: (index) =>
      `${formatMoment(times[index] / 1000, view.timeZone)}: ${
        rows
          .filter(({ counts }) => counts[index] > 0)
          .slice(0, 6)
          .map((one) => `${bucketText(one, unit)} ${valueText(field, one.counts[index])}`)
          .join(', ') || 'no value'
      }`,
  });
  const legend =
    options.legend?.show !== false && legendOf(shades, grid.least > 1e-6 ? valueText(field, grid.least) : '0', valueText(field, high));
  return canvas.place(box, { placement: 'bottom', legend: legend || null });
}

/** @param {{name: string, bottom: number, top: number}} row @param {string | undefined} unit */
function bucketText({ name, bottom, top }, unit) {
  if (!Number.isFinite(top) && !Number.isFinite(bottom)) return name;
  const text = (/** @type {number} */ value) =>
    Number.isFinite(value) ? display(value, unit) : value > 0 ? '∞' : '-∞';
  return `${text(bottom)} to ${text(top)}`;
}

/** @param {string[]} shades @param {string} low @param {string} high */
function legendOf(shades, low, high) {
  const bar = h('span', { class: 'heat-scale', 'aria-hidden': 'true' });
  bar.style.backgroundImage = `linear-gradient(to right, ${shades.filter((_, index) => index % 8 === 0).join(', ')})`;
  return h('div', { class: 'heat-legend' }, h('span', { text: low || '0' }), bar, h('span', { text: high }));
}
