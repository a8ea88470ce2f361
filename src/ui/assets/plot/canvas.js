// The canvas of a plot over time: size, pointer, keyboard, zoom, tooltip and the shared crosshair.

import { h } from '../chart/dom.js';
import { moveHair, penOf } from '../chart/pen.js';
import { placeTooltip } from '../chart/tip.js';
import { FONT, INKS, paintDots } from './paint.js';

/**
 * @typedef {import('./paint.js').Layout} Layout
 * @typedef {import('./paint.js').Pen} Pen
 * @typedef {import('../panels/kinds.js').View} View
 *
 * @typedef {Object} Content
 * @property {string} label of the plot for screen readers
 * @property {Float64Array} times in milliseconds, ascending
 * @property {(pen: Pen, width: number, height: number) => Layout} paint
 * @property {(index: number, y: number | null, place: Layout) => Node[]} tooltip the same array as the
 *   last time if the nodes are the same
 * @property {(index: number) => string} speak the values at a time as a sentence
 * @property {(index: number) => {value: number, axis: 0 | 1, color: string}[]} [dots] on the lines at the cursor
 * @property {(index: number, y: number, place: Layout) => import('../panels/kinds.js').Chosen | null} [chosen] the
 *   series at a place
 */

/** A drag shorter than this is a click, in pixels. */
const DRAG_MIN = 6;
/** The shortest range to zoom to, in milliseconds. */
const ZOOM_MIN = 5000;

export class PlotCanvas {
  /** @type {Layout | null} */
  #place = null;
  /** @type {number | null} */
  #index = null;
  /** @type {number | null} */
  #time = null;
  /** @type {{from: number, to: number} | null} */
  #drag = null;
  #frame = 0;
  #base = h('canvas', { 'aria-hidden': 'true' });
  #over = h('canvas', { 'aria-hidden': 'true' });
  #hair = h('div', { class: 'plot-hair', hidden: true, 'aria-hidden': 'true' });
  #tip = h('div', { class: 'plot-tip', hidden: true, 'aria-hidden': 'true' });
  #cursor;
  #unfollow;
  #observer;
  #follow;

  /** Width and height that the observer reported: reading them would make the browser lay out the page. */
  #size = [0, 0];
  /** The content of the tooltip. @type {Node[]} */
  #rows = [];
  #gone = false;

  /**
   * The canvas of a panel: that of its last drawing if it is still there, so that a refresh ends
   * neither a drag nor the tooltip.
   * @param {View} view
   * @param {Content} content
   * @returns {PlotCanvas}
   */
  static of(view, content) {
    const last = view.memory.get('canvas');
    if (last instanceof PlotCanvas && last.node.isConnected && !last.#gone) {
      last.#update(view, content);
      return last;
    }
    const made = new PlotCanvas(view, content);
    view.memory.set('canvas', made);
    return made;
  }

  /**
   * @param {View} view
   * @param {Content} content
   */
  constructor(view, content) {
    this.view = view;
    this.content = content;
    this.#cursor = h('div', {
      class: 'plot-cursor',
      role: 'slider',
      tabindex: '0',
      'aria-label': content.label,
      'aria-valuemin': '0',
      'aria-valuemax': String(Math.max(0, content.times.length - 1)),
      'aria-valuenow': '0',
      'data-focus': 'plot',
      'aria-keyshortcuts': 'Plus Minus',
    });
    this.node = h('div', { class: 'plot' }, this.#base, this.#over, this.#hair, this.#cursor, this.#tip);
    this.#speak();
    this.#follow = (/** @type {number | null} */ time, /** @type {boolean} */ tooltip) => {
      this.#time = time;
      this.#paintOver();
      const place = this.#place;
      const { times } = this.content;
      const told = tooltip && time !== null && place && times.length > 0 && time >= place.from && time <= place.to;
      if (told) this.#tell(nearest(times, time), place.x(time), null);
      else this.#tip.hidden = true;
    };
    this.#unfollow = view.sync.follow(this.#follow);
    this.#listen();
    this.#observer = new ResizeObserver(([{ contentRect }]) => {
      const [width, height] = [Math.round(contentRect.width), Math.round(contentRect.height)];
      if (width === this.#size[0] && height === this.#size[1]) return;
      this.#size = [width, height];
      cancelAnimationFrame(this.#frame);
      this.#paint();
    });
    this.#observer.observe(this.node);
  }

  /** @param {View} view @param {Content} content */
  #update(view, content) {
    [this.view, this.content] = [view, content];
    this.#cursor.setAttribute('aria-label', content.label);
    this.#cursor.setAttribute('aria-valuemax', String(Math.max(0, content.times.length - 1)));
    if (this.#index !== null && this.#time !== null) {
      this.#index = content.times.length > 0 ? nearest(content.times, this.#time) : null;
      this.#time = this.#index === null ? null : content.times[this.#index];
    }
    this.#speak();
  }

  /**
   * Puts the canvas and its legend into the box of a panel and paints.
   * @param {HTMLElement} box
   * @param {{placement: string, legend?: HTMLElement | null, hint?: string, width?: number}} options
   *   `placement` of the legend: none, right or bottom; `width` of a legend on the right in pixels
   * @returns {import('../panels/kinds.js').Drawing}
   */
  place(box, { placement, legend = null, hint = '', width = 0 }) {
    const { content } = this;
    const parent = this.node.parentElement;
    const frame = parent?.parentElement === box ? parent : h('div', {}, this.node);
    const last = frame.lastElementChild;
    // Reading the place of a scroll bar makes the browser lay out the page.
    const scrolled = frame === parent && last !== legend ? (last?.scrollTop ?? 0) : 0;
    frame.className = `plotted legend-${placement}`;
    if (width > 0) frame.style.setProperty('--legend-width', `${Math.min(600, width)}px`);
    for (const child of [...frame.children]) if (child !== this.node && child !== legend) child.remove();
    if (legend && legend.parentElement !== frame) frame.append(legend);
    for (const child of [...box.children]) if (child !== frame) child.remove();
    if (frame.parentElement !== box) box.append(frame);
    if (hint) box.append(h('p', { class: 'hint', text: hint }));
    if (legend && scrolled > 0) legend.scrollTop = scrolled;
    this.redraw();
    return {
      resize: () => this.redraw(),
      // The next drawing may have taken the canvas over.
      destroy: () => {
        if (this.content === content) this.#destroy();
      },
    };
  }

  #listen() {
    const at = this.#cursor;
    at.addEventListener('pointerdown', (event) => {
      if (event.button !== 0 || event.pointerType !== 'mouse') return;
      this.#drag = { from: event.offsetX, to: event.offsetX };
      at.setPointerCapture(event.pointerId);
    });
    at.addEventListener('pointermove', (event) => {
      if (this.#drag) this.#drag.to = event.offsetX;
      this.#point(event.offsetX, event.offsetY);
    });
    at.addEventListener('pointerup', (event) => {
      if (!this.#zoom()) this.#choose(event.offsetX, event.offsetY);
    });
    at.addEventListener('pointercancel', () => {
      this.#drag = null;
      this.#leave();
    });
    at.addEventListener('pointerleave', () => {
      if (!this.#drag) this.#leave();
    });
    at.addEventListener('blur', () => this.#leave());
    at.addEventListener('keydown', (event) => this.#key(event));
  }

  #leave() {
    this.#index = null;
    this.#time = null;
    this.#tip.hidden = true;
    this.view.sync.move(null, this.#follow);
    this.#paintOver();
  }

  /** @param {number} x @param {number} y */
  #point(x, y) {
    if (!this.#place) return;
    const time = this.#place.time(Math.min(this.#place.right, Math.max(this.#place.left, x)));
    this.#move(nearest(this.content.times, time), x, y);
  }

  /** @param {number} index @param {number} [x] @param {number | null} [y] null for the keyboard */
  #move(index, x, y = null) {
    const place = this.#place;
    const { times } = this.content;
    if (!place || times.length === 0) return;
    this.#index = Math.max(0, Math.min(times.length - 1, index));
    this.#time = times[this.#index];
    this.view.sync.move(this.#time, this.#follow);
    this.#paintOver();
    // The pointer's values are in the tooltip; a screen reader's user moves the cursor by keyboard.
    if (y === null) this.#speak();
    this.#tell(this.#index, x ?? place.x(this.#time), y);
  }

  /** Shows the tooltip. @param {number} index @param {number} x pixels @param {number | null} y */
  #tell(index, x, y) {
    const place = this.#place;
    if (!place) return;
    const rows = this.content.tooltip(index, y, place);
    if (this.#tip.hidden !== (rows.length === 0)) this.#tip.hidden = rows.length === 0;
    if (rows !== this.#rows) this.#tip.replaceChildren(...rows);
    this.#rows = rows;
    placeTooltip(this.#tip, { width: place.width, height: Math.max(place.height, 60) }, x, y ?? place.top);
  }

  #speak() {
    const at = this.#index ?? Math.max(0, this.content.times.length - 1);
    this.#cursor.setAttribute('aria-valuenow', String(at));
    this.#cursor.setAttribute('aria-valuetext', this.content.times.length ? this.content.speak(at) : 'no data');
  }

  /** Tells the page which series was clicked. @param {number} x @param {number} y */
  #choose(x, y) {
    const [place, { select }] = [this.#place, this.view];
    if (!place || !select || this.content.times.length === 0) return;
    const time = place.time(Math.min(place.right, Math.max(place.left, x)));
    const chosen = this.content.chosen?.(nearest(this.content.times, time), y, place);
    if (chosen) select(chosen);
  }

  /** Ends a drag. Returns whether the gesture was a drag, not a click. */
  #zoom() {
    const [drag, place] = [this.#drag, this.#place];
    this.#drag = null;
    if (!drag || !place || Math.abs(drag.to - drag.from) < DRAG_MIN) return false;
    const [from, to] = [drag.from, drag.to]
      .sort((a, b) => a - b)
      .map((x) => Math.round(place.time(Math.min(place.right, Math.max(place.left, x)))));
    this.#paintOver();
    if (to - from >= ZOOM_MIN) this.view.zoom({ from, to });
    return true;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const { times } = this.content;
    if (times.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.#index ?? times.length - 1;
    const leap = Math.max(1, Math.round(times.length / 10));
    const around = times[at];
    const scaled = (/** @type {number} */ factor) => {
      const { from, to } = this.view.range;
      const range = {
        from: Math.round(around - (around - from) * factor),
        to: Math.round(around + (to - around) * factor),
      };
      if (range.to - range.from >= ZOOM_MIN) this.view.zoom(range);
    };
    /** @type {Map<string, () => void>} */
    const keys = new Map([
      ['ArrowLeft', () => this.#move(at - (event.shiftKey ? leap : 1))],
      ['ArrowRight', () => this.#move(at + (event.shiftKey ? leap : 1))],
      ['Home', () => this.#move(0)],
      ['End', () => this.#move(times.length - 1)],
      ['Escape', () => this.#leave()],
      ['+', () => scaled(0.5)],
      ['=', () => scaled(0.5)],
      ['-', () => scaled(2)],
    ]);
    const action = keys.get(event.key);
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** Paints in the next frame of the browser. */
  redraw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    const [width, height] = this.#size;
    if (width < 20 || height < 20) return;
    const pen = penOf(this.#base, width, height);
    if (!pen) return;
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    this.#place = this.content.paint(pen, width, height);
    this.#paintOver();
  }

  /** Moves the crosshair, and paints the band and the dots that follow the pointer. */
  #paintOver() {
    const place = this.#place;
    if (!place) return;
    const x = this.#time === null ? -1 : place.x(this.#time);
    moveHair(this.#hair, x < place.left - 1 || x > place.right + 1 ? null : x);
    const drag = this.#drag && Math.abs(this.#drag.to - this.#drag.from) >= DRAG_MIN ? this.#drag : null;
    const dots = (this.#index === null ? undefined : this.content.dots?.(this.#index)) ?? [];
    if (!drag && dots.length === 0) {
      // An empty canvas is reduced to size 0, which frees its memory.
      if (this.#over.width > 1) [this.#over.width, this.#over.height] = [1, 1];
      return;
    }
    const pen = penOf(this.#over, place.width, place.height);
    if (!pen) return;
    const inks = INKS[this.view.theme];
    pen.clearRect(0, 0, place.width, place.height);
    if (drag) {
      pen.fillStyle = inks.muted;
      pen.globalAlpha = 0.2;
      pen.fillRect(Math.min(drag.from, drag.to), place.top, Math.abs(drag.to - drag.from), place.bottom - place.top);
      pen.globalAlpha = 1;
    }
    if (dots.length > 0) paintDots(pen, place, dots, place.x(Number(this.#time)), inks);
  }

  #destroy() {
    this.#gone = true;
    cancelAnimationFrame(this.#frame);
    this.#observer.disconnect();
    this.#unfollow();
  }
}

/** The index of the time that is nearest. @param {Float64Array} times ascending @param {number} time */
export function nearest(times, time) {
  let [low, high] = [0, times.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low > 0 && time - times[low - 1] < times[low] - time ? low - 1 : low;
}
