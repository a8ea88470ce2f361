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

/**
 * Runs of points without a gap between them.
 * @param {Float64Array} times
 * @param {PlotSeries} one
 * @returns {Int32Array[]} indices of the points of each run
 */
function runsOf(times, { drawn, gap, whole }) {
  if (whole) return drawn.length > 0 ? [firstIndices(drawn.length)] : [];
  /** @type {Int32Array[]} */
  const runs = [];
  const run = new Int32Array(drawn.length);
  let length = 0;
  for (let index = 0; index < drawn.length; index += 1) {
    if (drawn[index] - drawn[index] !== 0) continue;
    if (length > 0 && times[index] - times[run[length - 1]] > gap) {
      runs.push(run.slice(0, length));
      length = 0;
    }
    run[length] = index;
    length += 1;
  }
  if (length > 0) runs.push(length === run.length ? run : run.slice(0, length));
  return runs;
}

/** The run of all points; series of the same length share it. */
let indices = new Int32Array(0);

/** @param {number} count */
function firstIndices(count) {
  if (indices.length < count) indices = Int32Array.from({ length: count }, (_, index) => index);
  return indices.subarray(0, count);
}

/**
 * The part of a run in the plot, with one more point on both sides.
 * @param {Int32Array} run
 * @param {Float64Array} xs
 * @param {Layout} place
 */
function inSight(run, xs, { left, right }) {
  const first = (/** @type {number} */ x) => {
    let [low, high] = [0, run.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[run[middle]] < x) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const [from, to] = [Math.max(0, first(left) - 1), first(right + 1) + 1];
  return from === 0 && to >= run.length ? run : run.subarray(from, to);
}

/**
 * A run with the first, lowest, highest and last point of each pixel column: the same picture.
 * @param {Int32Array} run
 * @param {Int32Array} columns pixel column of each time
 * @param {Float64Array} ys
 */
function thinned(run, columns, ys) {
  const kept = new Int32Array(run.length);
  const { length } = run;
  let count = 0;
  for (let at = 0; at < length;) {
    const column = columns[run[at]];
    let [low, high] = [at, at];
    let [least, most] = [ys[run[at]], ys[run[at]]];
    let end = at + 1;
    while (end < length && columns[run[end]] === column) {
      const y = ys[run[end]];
      if (y < least) {
        least = y;
        low = end;
      } else if (y > most) {
        most = y;
        high = end;
      }
      end += 1;
    }
    const first = Math.min(low, high);
    const second = Math.max(low, high);
    kept[count++] = run[at];
    if (first > at) kept[count++] = run[first];
    if (second > first) kept[count++] = run[second];
    if (end - 1 > second) kept[count++] = run[end - 1];
    at = end;
  }
  return kept.slice(0, count);
}

/**
 * Adds a run to the path.
 * @param {Path2D} path
 * @param {Int32Array} run
 * @param {Float64Array} xs
 * @param {Float64Array} ys
 * @param {string} shape linear, smooth, stepBefore or stepAfter
 * @param {boolean} back from the last point to the first
 */
function trace(path, run, xs, ys, shape, back) {
  const { length } = run;
  if (shape === 'linear' && !back) {
    for (let step = 0; step < length; step += 1) path.lineTo(xs[run[step]], ys[run[step]]);
    return;
  }
  let [lastX, lastY] = [0, 0];
  for (let step = 0; step < length; step += 1) {
    const index = run[back ? length - 1 - step : step];
    const [x, y] = [xs[index], ys[index]];
    if (step === 0) path.lineTo(x, y);
    else if (shape === 'linear') path.lineTo(x, y);
    else if (shape === 'smooth') path.bezierCurveTo((lastX + x) / 2, lastY, (lastX + x) / 2, y, x, y);
    else {
      const first = (shape === 'stepAfter') !== back;
      path.lineTo(first ? x : lastX, first ? lastY : y);
      path.lineTo(x, y);
    }
    [lastX, lastY] = [x, y];
  }
}

/** Horizontal places of times in a layout, and their pixel columns: the same for all of its series.
 *  @type {WeakMap<Layout, {xs: Float64Array, columns: Int32Array}>} */
const XS = new WeakMap();

/** @param {Layout} place @param {Float64Array} times */
function xsOf(place, times) {
  const known = XS.get(place);
  if (known && known.xs.length === times.length) return known;
  const xs = times.map((time) => place.x(time));
  const made = { xs, columns: Int32Array.from(xs, Math.round) };
  XS.set(place, made);
  return made;
}

/**
 * The places of a series in a layout, and its paths there.
 * @typedef {{key: string, xs: Float64Array, ys: Float64Array, all: Int32Array[], gap: number, runs: Int32Array[],
 *   spacing: number, form: string, line: Path2D | null, area: Path2D | null}} Shape
 * `all` has every point, `runs` those to paint. `spacing` is the mean distance of two points in pixels.
 */

/** Shapes by values, so that hiding or highlighting a series paints the others as they are.
 *  @type {WeakMap<Float64Array, Shape>} */
const SHAPES = new WeakMap();

/**
 * @param {Layout} place
 * @param {Float64Array} times
 * @param {PlotSeries} one
 * @param {boolean} whole with the points outside of the plot, which move the dashes of a line
 * @returns {Shape}
 */
function shapeOf(place, times, one, whole) {
  const { custom, drawn, axis, gap } = one;
  const scale = place.axes[axis]?.scale;
  const { left, right, bottom, from, to } = place;
  const interpolation = String(custom.lineInterpolation ?? 'linear');
  const key = [left, right, bottom, from, to, scale?.low, scale?.high, scale?.log, gap, interpolation, whole].join();
  const known = SHAPES.get(drawn);
  if (known?.key === key && known.xs.length === times.length) return known;
  const count = drawn.length;
  const { xs, columns } = xsOf(place, times);
  const ys = new Float64Array(count);
  if (scale && !scale.log) {
    const { low } = scale;
    const rise = (bottom - place.top) / (scale.high - low);
    for (let index = 0; index < count; index += 1) ys[index] = bottom - (drawn[index] - low) * rise;
  } else for (let index = 0; index < count; index += 1) ys[index] = place.y(drawn[index], axis);
  const all = known?.gap === gap ? known.all : runsOf(times, one);
  const spacing = all.length > 0 && count > 1 ? (xs[count - 1] - xs[0]) / (count - 1) : Infinity;
  const seen = whole ? all : all.map((run) => inSight(run, xs, place));
  const runs = spacing < SPARE ? seen.map((run) => thinned(run, columns, ys)) : seen;
  const form = spacing < 4 && interpolation === 'smooth' ? 'linear' : interpolation;
  const made = { key, xs, ys, all, gap, runs, spacing, form, line: null, area: null };
  SHAPES.set(drawn, made);
  return made;
}

/** @param {Shape} shape @returns {Path2D} */
function lineOf({ runs, xs, ys, form }) {
  const path = new Path2D();
  for (const run of runs) {
    path.moveTo(xs[run[0]], ys[run[0]]);
    trace(path, run, xs, ys, form, false);
  }
  return path;
}

/** @param {Shape} shape @param {Float64Array | null} floor pixels; `ground` without it @param {number} ground */
function areaOf({ runs, xs, ys, form }, floor, ground) {
  const path = new Path2D();
  for (const run of runs) {
    if (run.length < 2) continue;
    path.moveTo(xs[run[0]], ys[run[0]]);
    trace(path, run, xs, ys, form, false);
    if (floor) trace(path, run, xs, floor, form, true);
    else {
      path.lineTo(xs[run[run.length - 1]], ground);
      path.lineTo(xs[run[0]], ground);
    }
    path.closePath();
  }
  return path;
}

/** The dashes of a line in pixels. @param {Record<string, any>} custom @returns {number[]} */
function dashesOf({ lineStyle }) {
  const { fill, dash } = lineStyle ?? {};
  if (fill === 'dot') return [1, 4];
  if (fill !== 'dash') return SOLID;
  if (!Array.isArray(dash)) return [10, 10];
  return dash
    .slice(0, 8)
    .map(Number)
    .filter((n) => n > 0);
}
/** @type {number[]} */
const SOLID = [];

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
  const { custom, axis } = one;
  const dashes = dashesOf(custom);
  const form = shapeOf(place, times, one, dashes.length > 0 || custom.drawStyle === 'bars');
  const { xs, ys, runs, spacing } = form;
  const width = typeof custom.lineWidth === 'number' ? Math.min(10, Math.max(0, custom.lineWidth)) : 1;
  const colour = strokeOf(pen, place, one, theme);
  pen.globalAlpha = dimmed ? 0.15 : 1;
  pen.strokeStyle = colour;
  pen.lineJoin = crowd > CROWD ? 'bevel' : 'round';
  pen.lineWidth = lit ? width + 1 : width;
  if (custom.drawStyle === 'bars') return paintBars(pen, place, one, xs, ys, groundOf(place, axis));
  const opacity = Math.min(100, Math.max(0, Number(custom.fillOpacity ?? 0))) / 100;
  const lower = shape ?? one.base;
  if (custom.drawStyle !== 'points' && (opacity > 0 || shape) && !dimmed) {
    const ground = groundOf(place, axis);
    pen.fillStyle = fillOf(pen, place, colour, custom.gradientMode);
    pen.globalAlpha = shape && opacity === 0 ? 0.1 : opacity;
    const floor = lower
      ? Float64Array.from(lower, (value) => {
          const y = place.y(value, axis);
          return Number.isFinite(y) ? y : ground;
        })
      : null;
    const area = floor ? areaOf(form, floor, ground) : (form.area ??= areaOf(form, null, ground));
    pen.fill(area);
    pen.globalAlpha = 1;
  }
  if (custom.drawStyle !== 'points' && width > 0) {
    if (dashes.length > 0) pen.setLineDash(dashes);
    pen.stroke((form.line ??= lineOf(form)));
    if (dashes.length > 0) pen.setLineDash(SOLID);
  }
  const size = typeof custom.pointSize === 'number' ? Math.min(20, Math.max(1, custom.pointSize)) : 5;
  const points =
    custom.drawStyle === 'points' ||
    custom.showPoints === 'always' ||
    (custom.showPoints !== 'never' && spacing > 4 * size && crowd <= CROWD);
  // A point without neighbours would be a line of length 0.
  const dotted = points ? runs : runs.filter((run) => run.length === 1);
  if (dotted.length > 0) {
    pen.fillStyle = colour;
    pen.beginPath();
    for (const run of dotted) {
      for (const index of run) {
        pen.moveTo(xs[index] + size / 2, ys[index]);
        pen.arc(xs[index], ys[index], points ? size / 2 : Math.max(1.5, width), 0, 2 * Math.PI);
      }
    }
    pen.fill();
  }
  pen.globalAlpha = 1;
}

/** The height of zero, or of the end of the axis nearest to it. @param {Layout} place
 *  @param {0 | 1} axis */
function groundOf(place, axis) {
  const scale = place.axes[axis]?.scale;
  if (!scale || scale.log) return place.bottom;
  return place.y(Math.min(Math.max(0, scale.low), scale.high), axis);
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
