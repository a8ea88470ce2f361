// Paints the lines, areas, bars and points of series.

import { thresholdOf, resolveColor } from '../model/fields.js';

/**
 * @typedef {import('./paint.js').Layout} Layout
 * @typedef {import('./paint.js').Pen} Pen
 * @typedef {import('./series.js').PlotSeries} PlotSeries
 * @typedef {{from: number, to: number}} Run indices of the first and the last point, both inclusive
 */

/** With more lines than this, lines have no round joins and no points. */
const CROWD = 40;
/** Points nearer to each other than this are thinned, in pixels. */
const SPARE = 0.6;

/** Runs by the values that they were found in. @type {WeakMap<Float64Array, Int32Array[]>} */
const RUNS = new WeakMap();

/**
 * Runs of points without a gap between them.
 * @param {Float64Array} times
 * @param {PlotSeries} one
 * @returns {Int32Array[]} indices of the points of each run
 */
function runsOf(times, { drawn, gap }) {
  const known = RUNS.get(drawn);
  if (known) return known;
  /** @type {Int32Array[]} */
  const runs = [];
  RUNS.set(drawn, runs);
  const run = new Int32Array(drawn.length);
  let length = 0;
  for (let index = 0; index < drawn.length; index += 1) {
    if (!Number.isFinite(drawn[index])) continue;
    if (length > 0 && times[index] - times[run[length - 1]] > gap) {
      runs.push(run.slice(0, length));
      length = 0;
    }
    run[length] = index;
    length += 1;
  }
  if (length > 0) runs.push(run.slice(0, length));
  return runs;
}

/**
 * A run with the first, lowest, highest and last point of each pixel column: the same picture.
 * @param {Int32Array} run
 * @param {Float64Array} xs
 * @param {Float64Array} ys
 */
function thinned(run, xs, ys) {
  const kept = new Int32Array(run.length);
  let count = 0;
  for (let at = 0; at < run.length;) {
    const column = Math.round(xs[run[at]]);
    let end = at;
    let [low, high] = [at, at];
    while (end < run.length && Math.round(xs[run[end]]) === column) {
      if (ys[run[end]] < ys[run[low]]) low = end;
      if (ys[run[end]] > ys[run[high]]) high = end;
      end += 1;
    }
    let before = -1;
    for (const place of [at, Math.min(low, high), Math.max(low, high), end - 1]) {
      if (place > before) kept[count++] = run[place];
      before = Math.max(before, place);
    }
    at = end;
  }
  return kept.slice(0, count);
}

/**
 * Adds a run to the path.
 * @param {Pen} pen
 * @param {Int32Array} run
 * @param {Float64Array} xs
 * @param {Float64Array} ys
 * @param {string} shape linear, smooth, stepBefore or stepAfter
 * @param {boolean} back from the last point to the first
 */
function trace(pen, run, xs, ys, shape, back) {
  const { length } = run;
  if (shape === 'linear' && !back) {
    for (let step = 0; step < length; step += 1) pen.lineTo(xs[run[step]], ys[run[step]]);
    return;
  }
  let [lastX, lastY] = [0, 0];
  for (let step = 0; step < length; step += 1) {
    const index = run[back ? length - 1 - step : step];
    const [x, y] = [xs[index], ys[index]];
    if (step === 0) pen.lineTo(x, y);
    else if (shape === 'linear') pen.lineTo(x, y);
    else if (shape === 'smooth') pen.bezierCurveTo((lastX + x) / 2, lastY, (lastX + x) / 2, y, x, y);
    else {
      const first = (shape === 'stepAfter') !== back;
      pen.lineTo(first ? x : lastX, first ? lastY : y);
      pen.lineTo(x, y);
    }
    [lastX, lastY] = [x, y];
  }
}

/** Horizontal places of times in a layout: the same for all of its series. @type {WeakMap<Layout, Float64Array>} */
const XS = new WeakMap();

/** @param {Layout} place @param {Float64Array} times */
function xsOf(place, times) {
  const known = XS.get(place);
  if (known && known.length === times.length) return known;
  const xs = times.map((time) => place.x(time));
  XS.set(place, xs);
  return xs;
}

/**
 * Paints one series.
 * @param {Pen} pen
 * @param {Layout} place
 * @param {Float64Array} times
 * @param {PlotSeries} one
 * @param {{shape: Float64Array | null, lit: boolean, dimmed: boolean, crowd: number, theme: 'light' | 'dark'}} look
 *   `shape`: the values down to which the area is filled
 */
export function paintSeries(pen, place, times, one, { shape, lit, dimmed, crowd, theme }) {
  const { custom, drawn, axis } = one;
  const [ground] = groundOf(place, axis);
  const count = drawn.length;
  const xs = xsOf(place, times);
  const ys = new Float64Array(count);
  const scale = place.axes[axis]?.scale;
  if (scale && !scale.log) {
    const rise = (place.bottom - place.top) / (scale.high - scale.low);
    for (let index = 0; index < count; index += 1) ys[index] = place.bottom - (drawn[index] - scale.low) * rise;
  } else for (let index = 0; index < count; index += 1) ys[index] = place.y(drawn[index], axis);
  const width = typeof custom.lineWidth === 'number' ? Math.min(10, Math.max(0, custom.lineWidth)) : 1;
  const colour = strokeOf(pen, place, one, theme);
  pen.globalAlpha = dimmed ? 0.15 : 1;
  pen.strokeStyle = colour;
  pen.lineJoin = crowd > CROWD ? 'bevel' : 'round';
  pen.lineWidth = lit ? width + 1 : width;
  if (custom.drawStyle === 'bars') return paintBars(pen, place, one, xs, ys, ground);
  const all = runsOf(times, one);
  const spacing = all.length > 0 && count > 1 ? (xs[count - 1] - xs[0]) / (count - 1) : Infinity;
  const runs = spacing < SPARE ? all.map((run) => thinned(run, xs, ys)) : all;
  const dense = spacing < 4;
  const interpolation = custom.lineInterpolation ?? 'linear';
  const form = dense && interpolation === 'smooth' ? 'linear' : interpolation;
  const opacity = Math.min(100, Math.max(0, Number(custom.fillOpacity ?? 0))) / 100;
  const lower = shape ?? one.base;
  if (custom.drawStyle !== 'points' && (opacity > 0 || shape) && !dimmed) {
    pen.fillStyle = fillOf(pen, place, colour, custom.gradientMode);
    pen.globalAlpha = shape && opacity === 0 ? 0.1 : opacity;
    const floor = lower
      ? Float64Array.from(lower, (value) => {
          const y = place.y(value, axis);
          return Number.isFinite(y) ? y : ground;
        })
      : null;
    for (const run of runs) {
      if (run.length < 2) continue;
      pen.beginPath();
      pen.moveTo(xs[run[0]], ys[run[0]]);
      trace(pen, run, xs, ys, form, false);
      if (floor) trace(pen, run, xs, floor, form, true);
      else {
        pen.lineTo(xs[run[run.length - 1]], ground);
        pen.lineTo(xs[run[0]], ground);
      }
      pen.closePath();
      pen.fill();
    }
    pen.globalAlpha = 1;
  }
  if (custom.drawStyle !== 'points' && width > 0) {
    const { fill, dash } = custom.lineStyle ?? {};
    if (fill === 'dash')
      pen.setLineDash(
        Array.isArray(dash)
          ? dash
              .slice(0, 8)
              .map(Number)
              .filter((n) => n > 0)
          : [10, 10],
      );
    else if (fill === 'dot') pen.setLineDash([1, 4]);
    pen.beginPath();
    for (const run of runs) {
      pen.moveTo(xs[run[0]], ys[run[0]]);
      trace(pen, run, xs, ys, form, false);
    }
    pen.stroke();
    pen.setLineDash([]);
  }
  const size = typeof custom.pointSize === 'number' ? Math.min(20, Math.max(1, custom.pointSize)) : 5;
  const points =
    custom.drawStyle === 'points' ||
    custom.showPoints === 'always' ||
    (custom.showPoints !== 'never' && spacing > 4 * size && crowd <= CROWD);
  pen.fillStyle = colour;
  pen.beginPath();
  for (const run of runs) {
    // A point without neighbours would be a line of no length.
    if (!points && run.length > 1) continue;
    for (const index of run) {
      pen.moveTo(xs[index] + size / 2, ys[index]);
      pen.arc(xs[index], ys[index], points ? size / 2 : Math.max(1.5, width), 0, 2 * Math.PI);
    }
  }
  pen.fill();
  pen.globalAlpha = 1;
}

/** The height of zero, or of the end of the axis nearest to it. @param {Layout} place
 *  @param {0 | 1} axis */
function groundOf(place, axis) {
  const scale = place.axes[axis]?.scale;
  if (!scale || scale.log) return [place.bottom];
  return [place.y(Math.min(Math.max(0, scale.low), scale.high), axis)];
}

/**
 * @param {Pen} pen
 * @param {Layout} place
 * @param {PlotSeries} one
 * @param {Float64Array} xs
 * @param {Float64Array} ys
 * @param {number} ground
 */
function paintBars(pen, place, one, xs, ys, ground) {
  const { custom, drawn, base, axis } = one;
  let spacing = Infinity;
  let last = -Infinity;
  for (let index = 0; index < xs.length; index += 1) {
    if (!Number.isFinite(drawn[index])) continue;
    spacing = Math.min(spacing, xs[index] - last);
    last = xs[index];
  }
  const factor = typeof custom.barWidthFactor === 'number' ? custom.barWidthFactor : 0.6;
  const width = Math.max(
    1,
    Math.min(Number.isFinite(spacing) ? spacing * factor : 40, Number(custom.barMaxWidth) || 200),
  );
  const shift = [-width, -width / 2, 0][Number(custom.barAlignment ?? 0) + 1] ?? -width / 2;
  pen.fillStyle = pen.strokeStyle;
  const alpha = pen.globalAlpha;
  pen.globalAlpha = alpha * Math.max(0.1, Math.min(100, Number(custom.fillOpacity ?? 70)) / 100);
  pen.beginPath();
  for (let index = 0; index < xs.length; index += 1) {
    if (!Number.isFinite(drawn[index])) continue;
    const bottom = base ? place.y(base[index], axis) : ground;
    pen.rect(xs[index] + shift, Math.min(ys[index], bottom), width, Math.abs(bottom - ys[index]));
  }
  pen.fill();
  pen.globalAlpha = alpha;
  if (pen.lineWidth > 0 && width > 3) pen.stroke();
  pen.globalAlpha = 1;
}

/** The colour of a line: a gradient by thresholds where the dashboard wants one. @param {Pen} pen
 *  @param {Layout} place @param {PlotSeries} one @param {'light' | 'dark'} theme @returns {string | CanvasGradient} */
function strokeOf(pen, place, { custom, field, color, axis }, theme) {
  const steps = field.config.thresholds?.steps;
  if (custom.gradientMode !== 'scheme' || field.config.color?.mode !== 'thresholds' || !Array.isArray(steps))
    return color;
  const gradient = pen.createLinearGradient(0, place.bottom, 0, place.top);
  const { min, max } = field.range ?? { min: 0, max: 100 };
  const scale = place.axes[axis]?.scale;
  if (!scale) return color;
  for (let at = 0; at <= 40; at += 1) {
    const step = thresholdOf(scale.value(at / 40), field.config.thresholds, min, max);
    if (step) gradient.addColorStop(at / 40, resolveColor(step.color, theme));
  }
  return gradient;
}

/** @param {Pen} pen @param {Layout} place @param {string | CanvasGradient} colour @param {unknown} mode */
function fillOf(pen, place, colour, mode) {
  if ((mode !== 'opacity' && mode !== 'hue') || typeof colour !== 'string' || !/^#[\da-f]{6}$/i.test(colour))
    return colour;
  const gradient = pen.createLinearGradient(0, place.top, 0, place.bottom);
  gradient.addColorStop(0, colour);
  gradient.addColorStop(1, `${colour}1a`);
  return gradient;
}
