// Draws axes and lines. Sizes are CSS pixels.

import { formatValue, timeTicks, valueAxis } from './scale.js';

/**
 * @typedef {import('./columns.js').Columns} Columns
 * @typedef {import('./columns.js').Series} Series
 * @typedef {import('./style.js').Colours} Colours
 * @typedef {CanvasRenderingContext2D} Pen
 * @typedef {ReturnType<typeof layout>} Layout
 */

/** With more lines than this, lines are thin and the crosshair has no dots. */
export const CROWD = 40;
/** The radius of a point without neighbours. */
const DOT = 2.5;
/**
 * The dashes of a line change each time the colours repeat, so that sixteen lines stay distinct.
 */
const DASHES = [[], [6, 4], [2, 3], [9, 4, 2, 4]];

/**
 * The positions of a drawing, computed once for each and used by the pointer as well.
 * @param {Pen} pen
 * @param {{width: number, height: number, data: Columns, span: {low: number, high: number},
 *   unit: string, font: string}} wanted
 */
export function layout(pen, { width, height, data, span, unit, font }) {
  pen.font = font;
  const axis = valueAxis(span.low, span.high, Math.max(2, Math.round(height / 52)), unit);
  const texts = axis.ticks.map((tick) => formatValue(tick, unit, axis.step));
  const left = Math.ceil(Math.max(24, ...texts.map((text) => pen.measureText(text).width))) + 12;
  const plot = { left, top: 8, right: width - 10, bottom: height - 24 };
  const { end, step, count } = data;
  const seconds = Math.max(end - data.start, step);
  const rise = (plot.bottom - plot.top) / (axis.high - axis.low);
  return {
    width,
    height,
    plot,
    axis,
    texts,
    unit,
    font,
    end,
    /** Equal for layouts in which the points of the same values have the same places. */
    key: [left, plot.right, plot.bottom, axis.low, axis.high].join(),
    /** Pixels of each step. */
    xs: data.times.map((at) => left + ((at - data.start) / seconds) * (plot.right - left)),
    rise,
    x: (/** @type {number} */ at) => plot.left + ((at - data.start) / seconds) * (plot.right - plot.left),
    y: (/** @type {number} */ value) =>
      plot.bottom - ((value - axis.low) / (axis.high - axis.low)) * (plot.bottom - plot.top),
    value: (/** @type {number} */ y) =>
      axis.low + ((plot.bottom - y) / (plot.bottom - plot.top)) * (axis.high - axis.low),
    index: (/** @type {number} */ x) => {
      const at = data.start + ((x - plot.left) / (plot.right - plot.left)) * seconds;
      const index = Math.round((at - data.start) / step);
      // The last gap may be shorter than a step.
      if (count > 1 && index >= count - 2)
        return at > (data.times[count - 2] + end) / 2 ? count - 1 : Math.min(index, count - 2);
      return index;
    },
  };
}

/**
 * Draws grid, axes and lines. `shown` is the series to draw, `lit` the highlighted one.
 * @param {Pen} pen
 * @param {Layout} place
 * @param {{data: Columns, shown: Series[], colours: Colours, lit: Series|null}} what
 */
export function paint(pen, place, { data, shown, colours, lit }) {
  pen.clearRect(0, 0, place.width, place.height);
  drawAxes(pen, place, data, colours);
  pen.save();
  pen.beginPath();
  const { left, top, right, bottom } = place.plot;
  pen.rect(left - 1, top - 3, right - left + 4, bottom - top + 5);
  pen.clip();
  const dense = data.count > 1.5 * (right - left);
  // Round joins and dashes cost most where they are invisible.
  pen.lineJoin = dense || shown.length > CROWD ? 'bevel' : 'round';
  pen.lineCap = 'round';
  if (shown.length === 1) drawArea(pen, place, data, shown[0], colours.series[shown[0].colour]);
  // A lit series is drawn last, on top of the dimmed rest.
  for (const one of [...shown].sort((a, b) => Number(a === lit) - Number(b === lit))) {
    pen.globalAlpha = lit && lit !== one ? 0.16 : 1;
    pen.strokeStyle = colours.series[one.colour];
    pen.lineWidth = lit === one ? 2.5 : dense || shown.length > CROWD ? 1.1 : 1.75;
    pen.setLineDash(dense ? [] : DASHES[one.dash % DASHES.length]);
    const { line, dots } = pathsOf(place, one.values, dense);
    pen.stroke(line);
    if (!dots) continue;
    pen.fillStyle = pen.strokeStyle;
    pen.fill(dots);
  }
  pen.restore();
}

/**
 * @param {Pen} pen
 * @param {Layout} place
 * @param {Columns} data
 * @param {Colours} colours
 */
function drawAxes(pen, place, data, colours) {
  const { plot, axis, texts } = place;
  pen.font = place.font;
  pen.lineWidth = 1;
  pen.setLineDash([]);
  pen.textBaseline = 'middle';
  pen.textAlign = 'right';
  axis.ticks.forEach((tick, index) => {
    // A line of one pixel at a half-pixel coordinate covers exactly one pixel.
    const y = Math.round(place.y(tick)) + 0.5;
    pen.strokeStyle = tick === 0 || index === 0 ? colours.axis : colours.grid;
    stroke(pen, plot.left, y, plot.right, y);
    pen.fillStyle = colours.muted;
    pen.fillText(texts[index], plot.left - 8, y);
  });
  pen.textBaseline = 'alphabetic';
  const count = Math.max(2, Math.floor((plot.right - plot.left) / 58));
  for (const tick of timeTicks(data.start, place.end, count)) {
    const x = Math.round(place.x(tick.at)) + 0.5;
    pen.strokeStyle = tick.major ? colours.axis : colours.grid;
    stroke(pen, x, plot.top, x, plot.bottom + 4);
    pen.fillStyle = tick.major ? colours.text : colours.muted;
    const half = pen.measureText(tick.text).width / 2;
    pen.textAlign = 'center';
    pen.fillText(tick.text, Math.min(Math.max(x, half + 1), place.width - half - 1), plot.bottom + 18);
  }
}

/**
 * @param {Pen} pen
 * @param {number} x1
 * @param {number} y1
 * @param {number} x2
 * @param {number} y2
 */
function stroke(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

/**
 * The paths of a series in a layout: `dots` are its points without neighbours.
 * @typedef {{key: string, line: Path2D, dots: Path2D|null}} Paths
 */

/** Paths by values, so that hiding or highlighting a series draws the others as they are.
 *  @type {WeakMap<Float64Array, Paths>} */
const PATHS = new WeakMap();

/**
 * @param {Layout} place
 * @param {Float64Array} values
 * @param {boolean} dense
 */
function pathsOf(place, values, dense) {
  const known = PATHS.get(values);
  if (known?.key === place.key) return known;
  const made = { key: place.key, ...(dense ? densePath : linePath)(place, values) };
  PATHS.set(values, made);
  return made;
}

/**
 * The path of a series, point by point, with a gap where it has no value.
 * @param {Layout} place
 * @param {Float64Array} values
 */
function linePath({ xs, rise, axis, plot }, values) {
  const line = new Path2D();
  /** @type {Path2D|null} */
  let dots = null;
  const { low } = axis;
  const { bottom } = plot;
  let drawing = false;
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index];
    // A value that is not finite interrupts the line.
    if (value - value !== 0) {
      drawing = false;
      continue;
    }
    const x = xs[index];
    const y = bottom - (value - low) * rise;
    if (drawing) line.lineTo(x, y);
    else {
      line.moveTo(x, y);
      // A point without neighbours would be a line of no length: draw it as a dot.
      if (!Number.isFinite(values[index + 1])) {
        dots ??= new Path2D();
        dots.moveTo(x, y);
        dots.arc(x, y, DOT, 0, 2 * Math.PI);
      }
    }
    drawing = true;
  }
  return { line, dots };
}

/**
 * The lowest and the highest value of each pixel column: the same picture of a series with more
 * points than pixels.
 * @param {Layout} place
 * @param {Float64Array} values
 */
function densePath({ xs, rise, axis, plot }, values) {
  const line = new Path2D();
  /** The pixel column under way; NaN without one. */
  let column = NaN;
  /** The height at which the last column ended; NaN after a gap. */
  let from = NaN;
  let low = 0;
  let high = 0;
  const count = values.length;
  for (let index = 0; index <= count; index += 1) {
    const value = index < count ? values[index] : NaN;
    const present = value - value === 0;
    const x = present ? Math.round(xs[index]) : NaN;
    if (x === column) {
      if (value < low) low = value;
      else if (value > high) high = value;
      continue;
    }
    if (column === column) {
      const bottom = plot.bottom - (low - axis.low) * rise;
      const top = plot.bottom - (high - axis.low) * rise;
      // The nearer end first, so that the stroke between two columns is short.
      const near = from !== from || Math.abs(from - bottom) <= Math.abs(from - top);
      if (from !== from) line.moveTo(column, near ? bottom : top);
      else line.lineTo(column, near ? bottom : top);
      line.lineTo(column + 0.01, near ? top : bottom);
      from = near ? top : bottom;
    }
    if (!present) from = NaN;
    column = x;
    low = value;
    high = value;
  }
  return { line, dots: null };
}

/**
 * Fills below a single series, down to zero or to the edge.
 * @param {Pen} pen
 * @param {Layout} place
 * @param {Columns} data
 * @param {Series} one
 * @param {string} colour
 */
function drawArea(pen, place, data, one, colour) {
  const ground = place.y(Math.min(Math.max(0, place.axis.low), place.axis.high));
  const fill = pen.createLinearGradient(0, place.plot.top, 0, place.plot.bottom);
  fill.addColorStop(0, colour);
  // Towards the same colour without opacity: "transparent" is black, and greys the fade.
  fill.addColorStop(1, /^rgb\(/.test(colour) ? colour.replace('rgb(', 'rgba(').replace(')', ', 0)') : 'transparent');
  pen.fillStyle = fill;
  pen.globalAlpha = 0.22;
  /** @type {number|null} */
  let from = null;
  for (let index = 0; index <= data.count; index += 1) {
    const value = index < data.count ? one.values[index] : NaN;
    const x = place.xs[index];
    if (Number.isFinite(value)) {
      if (from === null) {
        pen.beginPath();
        pen.moveTo(x, ground);
        from = x;
      }
      pen.lineTo(x, place.y(value));
    } else if (from !== null) {
      pen.lineTo(place.xs[index - 1], ground);
      pen.fill();
      from = null;
    }
  }
  pen.globalAlpha = 1;
}
