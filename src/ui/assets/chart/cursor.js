// The cursor of a chart: the step that pointer and keyboard select, and the crosshair, the dots and the
// tooltip there. Charts load this module with the first event of a reader.

import { CursorCanvas } from './cursor_canvas.js';
import { sheet } from './cursor_style.js';
import { moveHair } from './pen.js';
import { Pointer } from './pointer.js';
import { formatMoment } from './scale.js';
import { selection } from './selection.js';
import { Tip, fittingRows, placeTooltip } from './tip.js';
import { tooltip } from './tooltip.js';

export class ChartCursor {
  #view;
  #hair;
  #canvas;
  #tip;
  #pointer;

  /**
   * @param {import('./shadow.js').Parts} nodes of the chart
   * @param {import('./view.js').ChartView} view
   */
  constructor({ root, over, hair, tip, cursor }, view) {
    root.adoptedStyleSheets.push(sheet);
    this.#view = view;
    this.#hair = hair;
    this.#canvas = new CursorCanvas(over);
    this.#tip = new Tip(tip);
    this.#pointer = new Pointer(cursor, view, {
      redraw: () => this.draw(),
      select: (index, height) => {
        const { data, shown, place } = view;
        const value = height === null || !place ? null : place.value(height);
        if (data) view.host.select(selection(data, shown, index, value));
      },
    });
  }

  /** The step under the cursor; null without one. */
  get step() {
    return this.#pointer.step;
  }

  /**
   * Handles an event of the plot.
   * @param {any} event
   * @param {number} x the position in the plot at the time of the event
   * @param {number} y
   */
  handle(event, x, y) {
    this.#pointer.handle(event, x, y);
  }

  /** Keeps the cursor within the steps of new data. */
  keep() {
    const { data } = this.#view;
    const { step } = this.#pointer;
    this.#pointer.step = data && step !== null ? Math.min(step, data.count - 1) : null;
  }

  /** Draws the cursor over the present drawing. */
  draw() {
    const { size, place, data, shown, colours } = this.#view;
    if (!place || !data || !colours) {
      this.#canvas.draw(size, null, null);
      moveHair(this.#hair, null);
      this.#tip.hide();
      return;
    }
    const { step: cursor, height, band } = this.#pointer;
    this.#canvas.draw(size, place, { data, shown, colours, cursor, band });
    moveHair(this.#hair, cursor === null ? null : place.x(data.times[cursor]));
    if (cursor === null || band) {
      this.#tip.hide();
      return;
    }
    const value = height === null ? null : place.value(height);
    const rows = tooltip(shown, cursor, this.#view.unit, value, this.#tip.window, fittingRows(place.height));
    this.#tip.show(formatMoment(data.times[cursor]), rows);
    placeTooltip(this.#tip.box, place, place.x(data.times[cursor]), height ?? 30);
  }
}
