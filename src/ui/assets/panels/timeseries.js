// The time series panel: lines, areas, bars and points, with stacks, two axes and a legend.

import { h } from '../chart/dom.js';
import { formatMoment } from '../chart/scale.js';
import { TipNote, TipRows, TipWindow, fittingRows } from '../chart/tip.js';
import { PlotCanvas } from '../plot/canvas.js';
import { legendOf, legendPlace, valueText } from '../plot/legend.js';
import { paintSeries } from '../plot/lines.js';
import { INKS, clipToPlot, layOut, paintAxes, paintEvents, paintThresholds } from '../plot/paint.js';
import { valueScale } from '../plot/scale.js';
import { objectOf } from '../model/limits.js';
import { extent, fillTarget, isPercent, plotData, SERIES_MAX, softLimits, stack } from '../plot/series.js';

/**
 * @typedef {import('./kinds.js').View} View
 * @typedef {import('./kinds.js').Drawing} Drawing
 * @typedef {import('../plot/series.js').PlotSeries} PlotSeries
 */

/** The most values of the spoken text. */
const SPOKEN_MAX = 6;
/** With more lines, the cursor has no dots on them. */
const DOTS_MAX = 40;
/** Annotations this near to the pointer are in the tooltip, in pixels. */
const NEAR = 6;

/**
 * @param {HTMLElement} box
 * @param {View} view
 * @returns {Drawing}
 */
export function draw(box, view) {
  const { panel, frames, range, theme, memory } = view;
  const data = plotData(frames, theme);
  const { times, series } = data;
  if (series.length === 0) {
    box.replaceChildren(h('p', { class: 'panel-quiet', text: 'No data' }));
    return {};
  }
  /** @type {Set<string>} */
  const hidden = memory.get('hidden') ?? new Set();
  memory.set('hidden', hidden);
  /** @type {string | null} */
  let lit = null;
  /** @type {PlotSeries[]} */
  let shown = [];
  const choose = () => {
    shown = series.filter(({ key }) => !hidden.has(key));
    stack(shown, times.length);
  };
  choose();

  const axisOf = (/** @type {0 | 1} */ side, /** @type {number} */ height) => {
    const own = shown.filter(({ axis }) => axis === side);
    if (own.length === 0 && (side === 1 || shown.length > 0)) return null;
    const [first] = own.length > 0 ? own : series;
    const {
      custom,
      field: { config },
    } = first;
    const log = objectOf(custom.scaleDistribution);
    const base = log.type === 'log' || log.type === 'symlog' ? Number(log.log) || 10 : 0;
    const bounds = own.flatMap(({ field }) => (Number.isFinite(field.config.min) ? [field.config.min] : []));
    const tops = own.flatMap(({ field }) => (Number.isFinite(field.config.max) ? [field.config.max] : []));
    const [low, high] = extent(own, base > 1);
    const scale = valueScale(low, high, Math.max(2, Math.round(height / 32)), {
      unit: isPercent(own) ? 'percentunit' : config.unit,
      decimals: config.decimals,
      log: base,
      min: bounds.length ? Math.min(...bounds) : undefined,
      max: tops.length ? Math.max(...tops) : undefined,
      ...softLimits(own),
      centered: custom.axisCenteredZero === true,
      zero: own.some(({ custom: { drawStyle } }) => drawStyle === 'bars'),
    });
    const label = own.map((one) => one.custom.axisLabel).find((text) => typeof text === 'string' && text !== '') ?? '';
    return {
      scale,
      label: view.replace(label).slice(0, 100),
      shown: !own.length || own.some(({ custom: { axisPlacement } }) => axisPlacement !== 'hidden'),
    };
  };

  const tip = new Tip();
  const canvas = PlotCanvas.of(view, {
    label: `${view.replace(panel.title) || 'Chart'}: values at a time`,
    times,
    paint(pen, width, height) {
      const place = layOut(pen, {
        width,
        height,
        from: range.from,
        to: range.to,
        timeZone: view.timeZone,
        axes: [axisOf(0, height), axisOf(1, height)],
      });
      const inks = INKS[theme];
      paintAxes(pen, place, inks);
      clipToPlot(pen, place);
      const { config, mode } = thresholdsOf(series);
      if (config) paintThresholds(pen, place, { mode, steps: config.steps }, theme);
      const drawn = [...shown].sort((a, b) => Number(a.key === lit) - Number(b.key === lit));
      for (const one of stackedLast(drawn)) {
        const target = fillTarget(one, shown);
        paintSeries(pen, place, times, one, {
          shape: target ? target.drawn : null,
          lit: one.key === lit,
          dimmed: lit !== null && one.key !== lit,
          crowd: shown.length,
          theme,
        });
      }
      paintEvents(pen, place, view.events, theme);
      pen.restore();
      return place;
    },
    tooltip: (index, y, place) => tip.update(view, data, shown, index, y, place),
    speak(index) {
      const rows = shown
        .filter(({ values }) => !Number.isNaN(values[index]))
        .slice(0, SPOKEN_MAX)
        .map(({ name, field, values }) => `${name} ${valueText(field, values[index])}`);
      const more = shown.length > SPOKEN_MAX ? [`and ${shown.length - SPOKEN_MAX} more`] : [];
      return `${formatMoment(times[index] / 1000, view.timeZone)}: ${[...rows, ...more].join(', ') || 'no value'}`;
    },
    chosen(index, y, place) {
      const rows = shown.filter(({ values }) => !Number.isNaN(values[index]));
      const told = (/** @type {PlotSeries} */ one) =>
        ({ name: one.name, labels: one.field.labels ?? {}, value: one.values[index] });
      const near = nearestTo(rows, index, y, place);
      const series = rows.map(told).sort((left, right) => right.value - left.value);
      return near && { time: times[index], series, nearest: told(near) };
    },
    dots: (index) =>
      shown.length > DOTS_MAX
        ? []
        : shown.flatMap(({ drawn, color, axis }) =>
            Number.isFinite(drawn[index]) ? [{ value: drawn[index], axis, color }] : [],
          ),
  });

  const options = objectOf(panel.options.legend);
  const legendHost = {
    hidden,
    memory,
    change: () => {
      choose();
      canvas.redraw();
      for (const button of box.querySelectorAll('.legend-name')) {
        const key = (button.getAttribute('data-focus') ?? '').replace(/^legend /, '');
        button.setAttribute('aria-pressed', String(!hidden.has(key)));
      }
    },
    light: (/** @type {string | null} */ key) => {
      lit = key;
      canvas.redraw();
    },
  };
  const legend = legendOf(series, options, legendHost);
  return canvas.place(box, {
    placement: legendPlace(options),
    legend,
    width: Number(options.width) || 0,
    hint: data.total > SERIES_MAX ? `The first ${SERIES_MAX} of ${data.total} series are drawn.` : '',
  });
}

/** Paints stacks from the top down, so that no area hides a line. @param {PlotSeries[]} series */
const stackedLast = (series) => (series.some(({ base }) => base) ? [...series].reverse() : series);

/** @param {PlotSeries[]} series */
function thresholdsOf(series) {
  const one = series.find(({ custom }) => !['off', undefined].includes(objectOf(custom.thresholdsStyle).mode));
  const config = one?.field.config.thresholds;
  return {
    config: Array.isArray(config?.steps) && config.mode !== 'percentage' ? config : null,
    mode: String(objectOf(one?.custom.thresholdsStyle).mode ?? ''),
  };
}

/** The series whose line is nearest to a height. @param {PlotSeries[]} rows @param {number} index @param {number} y
 *  @param {import('../plot/paint.js').Layout} place */
function nearestTo(rows, index, y, place) {
  /** @type {PlotSeries | null} */
  let near = null;
  let least = Infinity;
  for (const one of rows) {
    const distance = Math.abs(place.y(one.drawn[index], one.axis) - y);
    if (near === null || distance < least) [near, least] = [one, distance];
  }
  return near;
}

/** The nodes of a panel's tooltip. */
class Tip {
  #rows = new TipRows('tip-row', (swatch, mark) => {
    swatch.style.backgroundColor = mark;
  });
  #more = new TipNote();
  #window = new TipWindow();

  /**
   * @param {View} view
   * @param {import('../plot/series.js').PlotData} data
   * @param {PlotSeries[]} shown
   * @param {number} index
   * @param {number | null} y
   * @param {import('../plot/paint.js').Layout} place
   * @returns {Node[]}
   */
  update({ panel, events, timeZone }, { times }, shown, index, y, place) {
    const { mode = 'single', sort = 'none', hideZeros } = objectOf(panel.options.tooltip);
    if (mode === 'none') return [];
    /** @type {PlotSeries[]} */
    let rows = [];
    for (const one of shown) {
      const value = one.values[index];
      if (one.inTooltip && !Number.isNaN(value) && !(hideZeros === true && value === 0)) rows.push(one);
    }
    const near = y === null ? null : nearestTo(rows, index, y, place);
    if (mode === 'single' && near) rows = [near];
    const most = fittingRows(place.height);
    const wanted = sort === 'none' && rows.length > most ? 'desc' : sort;
    if (wanted !== 'none') {
      rows.sort((left, right) => (wanted === 'asc' ? 1 : -1) * (left.values[index] - right.values[index]));
    }
    const { rows: cut } = this.#window.of(rows, near ? rows.indexOf(near) : -1, most);
    const more =
      rows.length > cut.length ? `and ${rows.length - cut.length} more` : rows.length === 0 ? 'no value' : '';
    return this.#rows.update(
      formatMoment(times[index] / 1000, timeZone),
      cut.map((one) => ({
        name: one.name,
        value: valueText(one.field, one.values[index]),
        near: one === near,
        mark: one.color,
      })),
      [
        ...this.#more.update(more),
        ...events
          .filter(
            ({ from, to }) =>
              place.x(from) - NEAR <= place.x(times[index]) && place.x(times[index]) <= place.x(to) + NEAR,
          )
          .slice(0, 5)
          .map(({ title, text }) => h('div', { class: 'event' }, h('b', { text: title }), text && ` ${text}`)),
      ],
    );
  }
}
