// Drawing on a canvas: axes, lines, and the crosshair on a canvas above. Sizes are CSS pixels.

import { formatValue, timeTicks, valueAxis } from './scale.js';

/** A line's dashes change each time the colours begin again, so that sixteen lines stay sixteen. */
const DASHES = [[], [6, 4], [2, 3], [9, 4, 2, 4]];

/**
 * Where things are: computed once per drawing, and used by the pointer as well.
 * @param {CanvasRenderingContext2D} pen
 */
export function layout(pen, { width, height, data, span, unit, font }) {
  pen.font = font;
  const axis = valueAxis(span.low, span.high, Math.max(2, Math.round(height / 52)), unit);
  const texts = axis.ticks.map((tick) => formatValue(tick, unit, axis.step));
  const left = Math.ceil(Math.max(24, ...texts.map((text) => pen.measureText(text).width))) + 12;
  const plot = { left, top: 8, right: width - 10, bottom: height - 24 };
  const end = data.start + data.step * (data.count - 1);
  const seconds = Math.max(end - data.start, data.step);
  return {
    width, height, plot, axis, texts, unit, font, end,
    x: (at) => plot.left + ((at - data.start) / seconds) * (plot.right - plot.left),
    y: (value) => plot.bottom - ((value - axis.low) / (axis.high - axis.low)) * (plot.bottom - plot.top),
    value: (y) => axis.low + ((plot.bottom - y) / (plot.bottom - plot.top)) * (axis.high - axis.low),
    index: (x) => Math.round(((x - plot.left) / (plot.right - plot.left)) * (seconds / data.step)),
  };
}

/** Grid, axes and lines. `shown` is the series to draw, with their colours. */
export function paint(pen, place, { data, shown, colours, lit }) {
  pen.clearRect(0, 0, place.width, place.height);
  axes(pen, place, data, colours);
  pen.save();
  pen.beginPath();
  const { left, top, right, bottom } = place.plot;
  pen.rect(left - 1, top - 3, right - left + 4, bottom - top + 5);
  pen.clip();
  pen.lineJoin = 'round';
  pen.lineCap = 'round';
  if (shown.length === 1) area(pen, place, data, shown[0], colours.series[shown[0].colour]);
  // A lit series is drawn last, on top of the dimmed rest.
  for (const one of [...shown].sort((a, b) => Number(a === lit) - Number(b === lit))) {
    pen.globalAlpha = lit && lit !== one ? 0.16 : 1;
    pen.strokeStyle = colours.series[one.colour];
    pen.lineWidth = lit === one ? 2.5 : shown.length > 40 ? 1.1 : 1.75;
    pen.setLineDash(DASHES[one.dash % DASHES.length]);
    line(pen, place, data, one.values);
  }
  pen.restore();
}

function axes(pen, place, data, colours) {
  const { plot, axis, texts } = place;
  pen.font = place.font;
  pen.lineWidth = 1;
  pen.setLineDash([]);
  pen.textBaseline = 'middle';
  pen.textAlign = 'right';
  axis.ticks.forEach((tick, index) => {
    // On half pixels a line of one pixel is one pixel.
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

function stroke(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

/**
 * One series. Where several points fall on one pixel column only the first, lowest, highest and last are
 * drawn, which gives the same picture: the cost follows the width of the screen, not the data.
 */
function line(pen, place, data, values) {
  const dense = data.count > 2 * (place.plot.right - place.plot.left);
  pen.beginPath();
  let drawing = false;
  let column = null;
  const flush = () => {
    if (!column) return;
    pen[drawing ? 'lineTo' : 'moveTo'](column.x, place.y(column.first));
    pen.lineTo(column.x, place.y(column.low));
    pen.lineTo(column.x, place.y(column.high));
    pen.lineTo(column.x, place.y(column.last));
    drawing = true;
    column = null;
  };
  for (let index = 0; index < data.count; index += 1) {
    const value = values[index];
    if (!Number.isFinite(value)) {
      flush();
      drawing = false;
      continue;
    }
    const x = place.x(data.start + index * data.step);
    if (dense) {
      const pixel = Math.round(x * 2) / 2;
      if (column && column.x !== pixel) flush();
      column ??= { x: pixel, first: value, low: value, high: value, last: value };
      column.low = Math.min(column.low, value);
      column.high = Math.max(column.high, value);
      column.last = value;
      continue;
    }
    const y = place.y(value);
    // A point without neighbours would be a line of no length: draw it as a dot.
    const alone = !drawing && !Number.isFinite(values[index + 1]);
    pen[drawing ? 'lineTo' : 'moveTo'](x, y);
    if (alone) pen.lineTo(x + 0.01, y);
    drawing = true;
  }
  flush();
  pen.stroke();
}

/** A soft fill under a single series, down to zero or to the edge. */
function area(pen, place, data, one, colour) {
  const ground = place.y(Math.min(Math.max(0, place.axis.low), place.axis.high));
  const fill = pen.createLinearGradient(0, place.plot.top, 0, place.plot.bottom);
  fill.addColorStop(0, colour);
  fill.addColorStop(1, 'transparent');
  pen.fillStyle = fill;
  pen.globalAlpha = 0.18;
  let from = null;
  for (let index = 0; index <= data.count; index += 1) {
    const value = index < data.count ? one.values[index] : NaN;
    const x = place.x(data.start + index * data.step);
    if (Number.isFinite(value)) {
      if (from === null) {
        pen.beginPath();
        pen.moveTo(x, ground);
        from = x;
      }
      pen.lineTo(x, place.y(value));
    } else if (from !== null) {
      pen.lineTo(place.x(data.start + (index - 1) * data.step), ground);
      pen.fill();
      from = null;
    }
  }
  pen.globalAlpha = 1;
}

/** The crosshair at one step, a dot on each line, and the band of a drag. */
export function paintCursor(pen, place, { data, shown, colours, cursor, band }) {
  pen.clearRect(0, 0, place.width, place.height);
  const { plot } = place;
  if (band) {
    pen.fillStyle = colours.accent;
    pen.globalAlpha = 0.16;
    pen.fillRect(Math.min(...band), plot.top, Math.abs(band[1] - band[0]), plot.bottom - plot.top);
    pen.globalAlpha = 1;
  }
  if (cursor === null) return;
  const x = place.x(data.start + cursor * data.step);
  pen.strokeStyle = colours.cursor;
  pen.lineWidth = 1;
  stroke(pen, Math.round(x) + 0.5, plot.top, Math.round(x) + 0.5, plot.bottom);
  if (shown.length > 40) return;
  for (const one of shown) {
    const value = one.values[cursor];
    if (!Number.isFinite(value)) continue;
    pen.beginPath();
    pen.arc(x, place.y(value), 3.5, 0, 2 * Math.PI);
    pen.fillStyle = colours.series[one.colour];
    pen.fill();
    pen.lineWidth = 1.5;
    pen.strokeStyle = colours.background;
    pen.stroke();
  }
}
