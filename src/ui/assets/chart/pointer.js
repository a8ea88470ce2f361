// Pointer and keyboard of a chart: the cursor's step, ranges to zoom to, and selected points.

/** A drag shorter than this is a click, in pixels. */
const DRAG_MIN = 6;
/** The shortest range that the keyboard zooms to, in seconds. */
const ZOOM_MIN = 5;

/**
 * @typedef {import('./view.js').ChartView} ChartView
 *
 * @typedef {Object} PointerHost
 * @property {() => void} redraw draws the cursor again
 * @property {(index: number, height: number|null) => void} select a step, by a click, a tap or Enter
 */

/** The cursor of a chart. */
export class Pointer {
  /** The step under the cursor; null without one. @type {number|null} */
  step = null;
  /**
   * The pointer's height in the plot; null while the keyboard moves the cursor.
   * @type {number|null}
   */
  height = null;
  /** @type {{from: number, to: number, moved: boolean}|null} */
  #drag = null;
  /** Whether the last press was a drag, whose click selects nothing. */
  #dragged = false;
  #surface;
  #view;
  #host;

  /**
   * @param {HTMLElement} surface the plot
   * @param {ChartView} view
   * @param {PointerHost} host
   */
  constructor(surface, view, host) {
    this.#surface = surface;
    this.#view = view;
    this.#host = host;
  }

  /**
   * Handles an event of the surface.
   * @param {any} event
   * @param {number} x the position in the surface at the time of the event
   * @param {number} y
   */
  handle(event, x, y) {
    switch (event.type) {
      case 'pointermove':
        return this.#point(x, y);
      case 'pointerdown':
        return this.#press(event, x, y);
      case 'pointerup':
        return this.#release();
      case 'pointercancel':
        this.#drag = null;
        return this.move(null);
      case 'pointerleave':
        if (event.pointerType === 'mouse' && !this.#drag) this.move(null);
        return;
      case 'click':
        if (!this.#dragged && this.step !== null) this.#host.select(this.step, this.height);
        return;
      case 'dblclick':
        if (this.#view.host.isZoomed()) this.#view.host.zoom(null);
        return;
      case 'keydown':
        return this.#key(event);
      case 'blur':
        this.move(null);
    }
  }

  /** The two edges of a drag, in pixels of the plot; null without one. */
  get band() {
    return this.#drag?.moved ? [this.#drag.from, this.#drag.to] : null;
  }

  /**
   * Moves the cursor to a step, or removes it.
   * @param {number|null} index
   * @param {number|null} [height] of the pointer in the plot; null for the keyboard
   */
  move(index, height = null) {
    const { data } = this.#view;
    if (!data) return;
    const at = index === null ? null : Math.max(0, Math.min(data.count - 1, index));
    if (at === this.step && height === this.height) return;
    [this.step, this.height] = [at, height];
    this.#host.redraw();
    if (height === null) this.#view.speak();
  }

  /**
   * @param {PointerEvent} event
   * @param {number} x
   * @param {number} y
   */
  #press(event, x, y) {
    this.#dragged = false;
    if (event.button !== 0) return;
    if (event.pointerType === 'mouse' && this.#view.place) {
      this.#drag = { from: x, to: x, moved: false };
      this.#surface.setPointerCapture(event.pointerId);
    }
    this.#point(x, y);
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  #point(x, y) {
    const { place } = this.#view;
    if (!place) return;
    if (this.#drag) {
      const { left, right } = place.plot;
      this.#drag.to = Math.max(left, Math.min(right, x));
      this.#drag.moved ||= Math.abs(this.#drag.to - this.#drag.from) > DRAG_MIN;
    }
    this.move(place.index(x), y);
  }

  #release() {
    const drag = this.#drag;
    const { place, data } = this.#view;
    this.#drag = null;
    this.#dragged = drag?.moved === true;
    if (!drag?.moved || !place || !data) return;
    const edge = (/** @type {number} */ x) => data.times[Math.max(0, Math.min(data.count - 1, place.index(x)))];
    const [start, end] = [edge(drag.from), edge(drag.to)].sort((a, b) => a - b);
    this.#host.redraw();
    if (end > start) this.#view.host.zoom({ start, end });
  }

  /**
   * Zooms around the cursor, or around the middle without one; never beyond now.
   * @param {number} factor of the range: below 1 zooms in
   */
  #zoomBy(factor) {
    const { data } = this.#view;
    if (!data) return;
    const around = this.step === null ? (data.start + data.end) / 2 : data.times[this.step];
    const start = Math.max(1, Math.round(around - (around - data.start) * factor));
    const end = Math.min(Math.round(around + (data.end - around) * factor), Math.floor(Date.now() / 1000));
    if (end - start >= ZOOM_MIN) this.#view.host.zoom({ start, end });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const { data } = this.#view;
    if (!data || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = data.count - 1;
    const at = this.step ?? last;
    const leap = Math.max(1, Math.round(last / 10));
    const one = event.shiftKey ? leap : 1;
    /** @type {Object<string, () => void>} */
    const keys = {
      ArrowLeft: () => this.move(at - one),
      ArrowRight: () => this.move(at + one),
      PageDown: () => this.move(at - leap),
      PageUp: () => this.move(at + leap),
      Home: () => this.move(0),
      End: () => this.move(last),
      Escape: () => this.move(null),
      Enter: () => this.#host.select(at, null),
      '+': () => this.#zoomBy(0.5),
      '=': () => this.#zoomBy(0.5),
      '-': () => this.#zoomBy(2),
      0: () => {
        if (this.#view.host.isZoomed()) this.#view.host.zoom(null);
      },
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  }
}
