// The canvas above the lines, with the marks that follow the pointer. Sizes are CSS pixels.

import { CROWD } from './paint.js';
import { penOf } from './pen.js';

/**
 * @typedef {import('./columns.js').Columns} Columns
 * @typedef {import('./columns.js').Series} Series
 * @typedef {import('./paint.js').Layout} Layout
 * @typedef {import('./paint.js').Pen} Pen
 * @typedef {import('./style.js').Colours} Colours
 */

/**
 * @typedef {{data: Columns, shown: Series[], colours: Colours, cursor: number|null, band: number[]|null}} Cursor
 */

/** Whether each shown line has a dot at the cursor. @param {Cursor} what */
const hasDots = ({ shown, cursor }) => cursor !== null && shown.length <= CROWD;

/** The canvas above the lines. It is touched only while something is on it, or will be. */
export class CursorCanvas {
  #canvas;
  #clean = true;

  /** @param {HTMLCanvasElement} canvas which is empty */
  constructor(canvas) {
    this.#canvas = canvas;
  }

  /**
   * Replaces what is on the canvas.
   * @param {number[]} size width and height of the canvas
   * @param {Layout|null} place
   * @param {Cursor|null} what without it or without a place, the canvas is cleared
   */
  draw([width, height], place, what) {
    const paints = place !== null && what !== null && (Boolean(what.band) || hasDots(what));
    if (!paints && this.#clean) return;
    const pen = penOf(this.#canvas, width, height);
    if (!pen) return;
    if (!this.#clean) pen.clearRect(0, 0, width, height);
    if (place && what && paints) paintCursor(pen, place, what);
    this.#clean = !paints;
  }
}

/**
 * Draws a dot on each line at the cursor, and the band of a drag.
 * @param {Pen} pen of an empty canvas
 * @param {Layout} place
 * @param {Cursor} what
 */
function paintCursor(pen, place, what) {
  const { data, shown, colours, cursor, band } = what;
  const { plot } = place;
  if (band) {
    pen.fillStyle = colours.accent;
    pen.globalAlpha = 0.16;
    pen.fillRect(Math.min(...band), plot.top, Math.abs(band[1] - band[0]), plot.bottom - plot.top);
    pen.globalAlpha = 1;
  }
  if (cursor === null || !hasDots(what)) return;
  const x = place.x(data.times[cursor]);
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
