// Paints grid, axes, thresholds and series of a plot onto a canvas. Sizes are CSS pixels.

import { timeTicks } from '../chart/scale.js';
import { resolveColor } from '../model/fields.js';

/**
 * @typedef {import('./scale.js').Scale} Scale
 * @typedef {import('./series.js').PlotSeries} PlotSeries
 * @typedef {CanvasRenderingContext2D} Pen
 * @typedef {{scale: Scale, label: string, shown: boolean}} Axis
 * @typedef {{width: number, height: number, left: number, right: number, top: number, bottom: number, from: number,
 *   to: number, timeZone: string, axes: (Axis | null)[], x: (time: number) => number, time: (x: number) => number,
 *   y: (value: number, axis: 0 | 1) => number}} Layout
 * @typedef {{text: string, muted: string, grid: string, axis: string, background: string}} Inks
 */

export const FONT = '11px ui-sans-serif, system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';
const LINE_HEIGHT = 12;

/** @type {Record<'light' | 'dark', Inks>} */
export const INKS = {
  light: { text: '#1c2130', muted: '#5b6474', grid: '#eceff4', axis: '#cdd3dd', background: '#ffffff' },
  dark: { text: '#e8eaf0', muted: '#9aa4b5', grid: '#232733', axis: '#3d4454', background: '#15171e' },
};

/**
 * @param {Pen} pen
 * @param {{width: number, height: number, from: number, to: number, timeZone: string, axes: (Axis | null)[]}} wanted
 * @returns {Layout}
 */
export function layOut(pen, { width, height, from, to, timeZone, axes }) {
  pen.font = FONT;
  const room = axes.map((axis) => {
    if (!axis?.shown) return 0;
    const texts = axis.scale.texts.map((text) => pen.measureText(text).width);
    return Math.ceil(Math.max(0, ...texts)) + 8 + (axis.label ? LINE_HEIGHT + 4 : 0);
  });
  const left = Math.max(6, Math.min(room[0], width * 0.4));
  const right = width - Math.max(8, Math.min(room[1], width * 0.4));
  const [top, bottom] = [8, Math.max(12, height - 20)];
  const span = Math.max(1, to - from);
  return {
    width,
    height,
    left,
    right,
    top,
    bottom,
    from,
    to,
    timeZone,
    axes,
    x: (time) => left + ((time - from) / span) * (right - left),
    time: (x) => from + ((x - left) / Math.max(1, right - left)) * span,
    y: (value, axis) => bottom - (axes[axis]?.scale.at(value) ?? 0) * (bottom - top),
  };
}

/** @param {Pen} pen @param {number[]} points x1, y1, x2, y2 */
function line(pen, [x1, y1, x2, y2]) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

/**
 * @param {Pen} pen
 * @param {Layout} place
 * @param {Inks} inks
 * @param {{timeShown?: boolean}} [options]
 */
export function paintAxes(pen, place, inks, { timeShown = true } = {}) {
  const { left, right, top, bottom, axes } = place;
  pen.font = FONT;
  pen.lineWidth = 1;
  pen.setLineDash([]);
  axes.forEach((axis, side) => {
    if (!axis) return;
    const gridded = side === 0 || !axes[0];
    pen.textBaseline = 'middle';
    pen.textAlign = side === 0 ? 'right' : 'left';
    axis.scale.ticks.forEach((tick, index) => {
      // A line of one pixel at a half-pixel coordinate covers exactly one pixel.
      const y = Math.round(place.y(tick, /** @type {0 | 1} */ (side))) + 0.5;
      if (gridded) {
        pen.strokeStyle = tick === 0 ? inks.axis : inks.grid;
        line(pen, [left, y, right, y]);
      }
      if (!axis.shown) return;
      pen.fillStyle = inks.muted;
      pen.fillText(axis.scale.texts[index], side === 0 ? left - 6 : right + 6, y);
    });
    if (axis.shown && axis.label) {
      pen.save();
      pen.textAlign = 'center';
      pen.translate(side === 0 ? LINE_HEIGHT / 2 + 1 : place.width - LINE_HEIGHT / 2 - 1, (top + bottom) / 2);
      pen.rotate(side === 0 ? -Math.PI / 2 : Math.PI / 2);
      pen.fillStyle = inks.muted;
      pen.fillText(axis.label, 0, 0, bottom - top);
      pen.restore();
    }
  });
  if (!timeShown) return;
  pen.textBaseline = 'alphabetic';
  const count = Math.max(2, Math.floor((right - left) / 64));
  for (const tick of timeTicks(place.from / 1000, place.to / 1000, count, place.timeZone)) {
    const x = Math.round(place.x(tick.at * 1000)) + 0.5;
    pen.strokeStyle = tick.major ? inks.axis : inks.grid;
    line(pen, [x, top, x, bottom + 3]);
    pen.fillStyle = tick.major ? inks.text : inks.muted;
    const half = pen.measureText(tick.text).width / 2;
    pen.textAlign = 'center';
    pen.fillText(tick.text, Math.min(Math.max(x, half + 1), place.width - half - 1), bottom + 16);
  }
}

/**
 * Lines and bands of thresholds on the left axis.
 * @param {Pen} pen
 * @param {Layout} place
 * @param {{mode: string, steps: {value: number | null, color: string}[]}} thresholds
 * @param {'light' | 'dark'} theme
 */
export function paintThresholds(pen, place, { mode, steps }, theme) {
  const side = place.axes[0] ? 0 : 1;
  const clamp = (/** @type {number} */ y) => Math.min(place.bottom, Math.max(place.top, y));
  steps.forEach((step, index) => {
    const colour = resolveColor(step.color, theme);
    const from = step.value === null || step.value === -Infinity ? place.bottom : place.y(step.value, side);
    const next = steps[index + 1]?.value;
    const to = next === undefined || next === null ? place.top : place.y(next, side);
    if (mode.includes('area')) {
      pen.globalAlpha = 0.12;
      pen.fillStyle = colour;
      pen.fillRect(place.left, clamp(to), place.right - place.left, Math.max(0, clamp(from) - clamp(to)));
      pen.globalAlpha = 1;
    }
    if (/line|dashed/.test(mode) && index > 0 && from >= place.top && from <= place.bottom) {
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      pen.setLineDash(mode.includes('dashed') ? [8, 6] : []);
      line(pen, [place.left, from, place.right, from]);
      pen.setLineDash([]);
    }
  });
}

/**
 * Marks events: a band for those with a length, and a dashed line with a foot.
 * @param {Pen} pen
 * @param {Layout} place
 * @param {{from: number, to: number, color: string}[]} events milliseconds
 * @param {'light' | 'dark'} theme
 */
export function paintEvents(pen, place, events, theme) {
  for (const { from, to, color } of events) {
    const [left, right] = [Math.round(place.x(from)) + 0.5, Math.round(place.x(to)) + 0.5];
    if (right < place.left || left > place.right) continue;
    const colour = resolveColor(color || 'blue', theme);
    [pen.fillStyle, pen.strokeStyle, pen.lineWidth] = [colour, colour, 1];
    if (right > left) {
      pen.globalAlpha = 0.12;
      pen.fillRect(left, place.top, right - left, place.bottom - place.top);
      pen.globalAlpha = 1;
    }
    pen.setLineDash([3, 3]);
    for (const x of right > left ? [left, right] : [left]) line(pen, [x, place.top, x, place.bottom]);
    pen.setLineDash([]);
    pen.fillRect(left - 3, place.bottom - 3, Math.max(6, right - left + 6), 3);
  }
}

/**
 * Clips all that is painted afterwards to the plot; `pen.restore` ends it.
 * @param {Pen} pen
 * @param {Layout} place
 */
export function clipToPlot(pen, place) {
  pen.save();
  pen.beginPath();
  pen.rect(place.left, place.top - 2, place.right - place.left + 2, place.bottom - place.top + 3);
  pen.clip();
}

/**
 * Dots on lines at the place of the cursor.
 * @param {Pen} pen
 * @param {Layout} place
 * @param {{value: number, axis: 0 | 1, color: string}[]} dots
 * @param {number} x pixels
 * @param {Inks} inks
 */
export function paintDots(pen, place, dots, x, inks) {
  clipToPlot(pen, place);
  [pen.strokeStyle, pen.lineWidth] = [inks.background, 1.5];
  for (const { value, axis, color } of dots) {
    pen.beginPath();
    pen.arc(x, place.y(value, axis), 3.5, 0, 2 * Math.PI);
    pen.fillStyle = color;
    pen.fill();
    pen.stroke();
  }
  pen.restore();
}
