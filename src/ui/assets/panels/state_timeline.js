// The state timeline and the status history: one band a series, coloured by its values over time.

import { h } from '../chart/dom.js';
import { formatMoment } from '../chart/scale.js';
import { displayValue } from '../model/fields.js';
import { formatUnit } from '../model/units.js';
import { PlotCanvas } from '../plot/canvas.js';
import { swatch } from '../plot/legend.js';
import { FONT, INKS, clipToPlot, layOut, paintAxes } from '../plot/paint.js';
import { valueScale } from '../plot/scale.js';
import { inkOn } from '../plot/values.js';

/**
 * @typedef {import('./kinds.js').View} View
 * @typedef {import('../model/frame.js').Field} Field
 * @typedef {{from: number, to: number, text: string, color: string}} Span milliseconds; `to` is exclusive
 */

/** The most bands, and most spans of one. */
const BANDS_MAX = 100;
const SPANS_MAX = 5000;

/**
 * @param {Field} field
 * @param {ArrayLike<number>} times
 * @param {boolean} merged joins equal values beside each other
 * @param {View} view
 * @returns {Span[]}
 */
function spansOf(field, times, merged, { theme, range }) {
  let step = Infinity;
  for (let index = 1; index < times.length; index += 1) step = Math.min(step, times[index] - times[index - 1]);
  if (!Number.isFinite(step)) step = Math.max(1, (range.to - range.from) / 100);
  /** @type {Span[]} */
  const spans = [];
  for (let index = 0; index < times.length && spans.length < SPANS_MAX; index += 1) {
    const value = field.values[index];
    if (value === null || value === undefined || Number.isNaN(value)) continue;
    const { prefix, text, suffix, color } = displayValue(field, value, formatUnit, { theme });
    const shown = prefix + text + suffix;
    const last = spans[spans.length - 1];
    const to = times[index] + step;
    if (merged && last && last.text === shown && last.color === color && times[index] - last.to <= step * 0.5)
      last.to = to;
    else spans.push({ from: times[index], to, text: shown, color });
  }
  return spans;
}

/**
 * @param {HTMLElement} box
 * @param {View} view
 * @returns {import('./kinds.js').Drawing}
 */
export function draw(box, view) {
  const { panel, frames, range, theme } = view;
  const { options } = panel;
  const history = panel.type === 'status-history';
  const bands = frames
    .flatMap((frame) => {
      const time = frame.fields.find(({ type }) => type === 'time');
      return time
        ? frame.fields
            .filter(({ type }) => type !== 'time')
            .map((field) => ({
              name: field.config.displayName || field.name,
              spans: spansOf(field, time.values, !history && options.mergeValues !== false, view),
            }))
        : [];
    })
    .filter(({ spans }) => spans.length > 0)
    .slice(0, BANDS_MAX);
  if (bands.length === 0) {
    box.replaceChildren(h('p', { class: 'panel-quiet', text: 'No data' }));
    return {};
  }
  const times = Float64Array.from(new Set(bands.flatMap(({ spans }) => spans.map(({ from }) => from)))).sort();
  const atTime = (/** @type {Span[]} */ spans, /** @type {number} */ time) =>
    spans.find(({ from, to }) => time >= from && time < to);
  const share = Math.min(1, Math.max(0.1, Number(options.rowHeight ?? 0.9)));
  const canvas = PlotCanvas.of(view, {
    label: `${view.replace(panel.title) || 'States'}: states at a time`,
    times,
    paint(pen, width, height) {
      const scale = {
        ...valueScale(0, bands.length, 1, { min: 0, max: bands.length }),
        ticks: bands.map((_, index) => bands.length - index - 0.5),
        texts: bands.map(({ name }) => name.slice(0, 60)),
      };
      const place = layOut(pen, {
        width,
        height,
        from: range.from,
        to: range.to,
        timeZone: view.timeZone,
        axes: [{ scale, label: '', shown: true }, null],
      });
      paintAxes(pen, place, { ...INKS[theme], grid: 'transparent' });
      clipToPlot(pen, place);
      const rise = (place.bottom - place.top) / bands.length;
      pen.font = FONT;
      pen.textBaseline = 'middle';
      pen.textAlign = 'left';
      bands.forEach(({ spans }, band) => {
        const y = place.top + band * rise + (rise * (1 - share)) / 2;
        for (const { from, to, text, color } of spans) {
          const [left, right] = [Math.max(place.left, place.x(from)), Math.min(place.right, place.x(to))];
          if (right <= left) continue;
          const pad = history && right - left > 4 ? 1 : 0;
          pen.fillStyle = color;
          pen.globalAlpha = Math.min(
            1,
            Math.max(0.3, Number(panel.fieldConfig.defaults.custom?.fillOpacity ?? 80) / 100),
          );
          pen.fillRect(left, y, Math.max(1, right - left - pad), rise * share);
          pen.globalAlpha = 1;
          if (options.showValue !== 'never' && rise > 12 && pen.measureText(text).width + 8 < right - left) {
            pen.fillStyle = inkOn(color);
            pen.fillText(text, left + 4, y + (rise * share) / 2);
          }
        }
      });
      pen.restore();
      return place;
    },
    tooltip: (index) => [
      h('div', { class: 'when', text: formatMoment(times[index] / 1000, view.timeZone) }),
      ...bands.slice(0, 20).flatMap(({ name, spans }) => {
        const span = atTime(spans, times[index]);
        return span
          ? [
              h(
                'div',
                { class: 'tip-row' },
                swatch(span.color),
                h('span', { class: 'name', text: name }),
                h('b', { text: span.text }),
              ),
            ]
          : [];
      }),
    ],
    speak: (index) =>
      `${formatMoment(times[index] / 1000, view.timeZone)}: ${bands
        .slice(0, 6)
        .map(({ name, spans }) => `${name} ${atTime(spans, times[index])?.text ?? 'no value'}`)
        .join(', ')}`,
  });
  /** @type {Map<string, string>} */
  const states = new Map();
  for (const { spans } of bands) for (const { text, color } of spans) if (states.size < 40) states.set(text, color);
  const legend =
    options.legend?.showLegend !== false &&
    options.legend?.displayMode !== 'hidden' &&
    states.size <= 20 &&
    h(
      'div',
      { class: 'legend-list', role: 'group', 'aria-label': 'Legend' },
      [...states].map(([text, color]) =>
        h('span', { class: 'legend-item' }, h('span', { class: 'legend-name' }, swatch(color), h('span', { text }))),
      ),
    );
  const placement = options.legend?.placement === 'right' ? 'right' : 'bottom';
  return canvas.place(box, { placement, legend: legend || null });
}
