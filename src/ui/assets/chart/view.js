// The shadow tree of a chart: canvas, legend, tooltip, notes, table and the overlay of its state.

import { ApiError } from './api_error.js';
import { textOf } from './attributes.js';
import { bounds, columns } from './columns.js';
import { describeStep, legend, pressLegend, summaryTable } from './legend.js';
import { layout, paint } from './paint.js';
import { penOf } from './pen.js';
import { shadowTree } from './shadow.js';
import { notes, showState } from './state.js';
import { colours } from './style.js';
import { Visibility } from './visibility.js';

/**
 * @typedef {import('./columns.js').Columns} Columns
 * @typedef {import('./columns.js').Series} Series
 * @typedef {import('./state.js').State} State
 *
 * @typedef {Object} ViewHost
 * @property {(range: {start: number, end: number}|null) => void} zoom unix seconds; null resets
 * @property {() => boolean} isZoomed whether a part of the range is shown
 * @property {(detail: any) => void} select that of the event
 * @property {() => void} retry
 */

/** The events of the plot that show that a reader comes: the first one loads the cursor. */
const BEGINNINGS = ['pointerenter', 'focus'];
/** The events that move the cursor. */
const MOVES = [
  ...['pointerdown', 'pointermove', 'pointerup', 'pointercancel', 'pointerleave'],
  ...['click', 'dblclick', 'keydown', 'blur'],
];
/** The most events that wait for the cursor. */
const WAITING_MAX = 50;

const FONT = '11px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif';

export class ChartView {
  /** The drawn data; null without any value. @type {import('./columns.js').Columns|null} */
  data = null;
  #element;
  host;
  /** The drawn series. @type {Series[]} */
  shown = [];
  /** The positions of the drawing; null without one. @type {import('./paint.js').Layout|null} */
  place = null;
  /** Those of the drawing. @type {import('./style.js').Colours|null} */
  colours = null;
  /** Width and height of the plot, as observed: reading them would lay out the page. */
  size = [0, 0];
  #nodes;
  /** null until a reader needs it. @type {import('./cursor.js').ChartCursor|null} */
  #cursor = null;
  /**
   * Events since the load of the cursor began, each with its position in the plot; null before.
   * @type {[any, number, number][]|null}
   */
  #waiting = null;
  #heading = '';
  /** @type {string[]} */
  #messages = [];
  /** @type {Series|null} */
  #lit = null;
  #visibility = new Visibility();
  #observer = new ResizeObserver(([entry]) => {
    this.size = [entry.contentRect.width, entry.contentRect.height];
    this.#draw();
  });
  #scheme = matchMedia('(prefers-color-scheme: dark)');

  /**
   * @param {HTMLElement} element without a shadow tree
   * @param {ViewHost} host
   */
  constructor(element, host) {
    this.#element = element;
    this.host = host;
    this.#nodes = shadowTree(element, () => host.zoom(null));
    for (const name of [...BEGINNINGS, ...MOVES]) {
      this.#nodes.cursor.addEventListener(name, (event) => this.#follow(event));
    }
  }

  /**
   * Passes an event of the plot to the cursor.
   * @param {any} event
   */
  #follow(event) {
    const { type, offsetX, offsetY } = event;
    if (this.#cursor) this.#cursor.handle(event, offsetX, offsetY);
    else if (BEGINNINGS.includes(type)) this.#loadCursor();
    else if (this.#waiting && this.#waiting.length < WAITING_MAX) {
      // Of several moves in a row only the last one counts.
      if (type === 'pointermove' && this.#waiting.at(-1)?.[0].type === type) this.#waiting.pop();
      this.#waiting.push([event, offsetX, offsetY]);
    }
  }

  async #loadCursor() {
    if (this.#waiting) return;
    this.#waiting = [];
    // Without this module, as without a network, the chart has no cursor until the reader comes back.
    const module = await import('./cursor.js').catch(() => null);
    const waiting = this.#waiting;
    this.#waiting = null;
    if (!module) return;
    this.#cursor = new module.ChartCursor(this.#nodes, this);
    for (const [event, x, y] of waiting) this.#cursor.handle(event, x, y);
  }

  connect() {
    this.#observer.observe(this.#nodes.plot);
    this.#scheme.addEventListener('change', this.recolour);
  }

  disconnect() {
    this.#observer.disconnect();
    this.#scheme.removeEventListener('change', this.recolour);
  }

  /** The width of the plot in CSS pixels. */
  get width() {
    return this.size[0] || this.#nodes.plot.clientWidth || 600;
  }

  /** Whether the reader presses a button of the legend, which an update would replace. */
  get isPressed() {
    return this.#nodes.legend.matches(':active');
  }

  /** @param {string} text */
  set heading(text) {
    this.#heading = text;
    this.#nodes.title.textContent = text;
  }

  get unit() {
    return textOf(this.#element, 'unit');
  }

  /** Draws again with the colours of the current scheme. */
  recolour = () => {
    this.colours = null;
    this.#draw();
  };

  /** Removes the picture. */
  forget() {
    this.data = null;
    this.shown = [];
    this.#cursor?.keep();
    this.#visibility.clear();
    for (const node of [this.#nodes.legend, this.#nodes.note, this.#nodes.table]) node.replaceChildren();
    this.#draw();
  }

  /**
   * Turns responses into columns, legend, notes and drawing.
   * @param {import('./loader.js').Loader} loader with a response
   * @throws {ApiError} if it is no matrix
   */
  show({ answer, tail, query: asked }) {
    const { data = {}, query = {} } = answer;
    if (data.resultType !== 'matrix') {
      throw new ApiError({
        code: 'not_a_matrix',
        detail: `A chart needs a range of values; the server answered with a ${data.resultType}.`,
      });
    }
    const { start, end, step } = { ...asked?.grid, ...query };
    const made = columns(
      data.result ?? [],
      { start: Number(start), end: Number(end), step: Number(step) },
      textOf(this.#element, 'legend'),
      tail,
    );
    this.#visibility.colour(made.series);
    this.#lit = made.series.find((one) => one.full === this.#lit?.full) ?? null;
    this.#messages = [...(answer.warnings ?? []), ...(answer.infos ?? [])];
    this.data = made.series.some((one) => one.present) ? made : null;
    this.#cursor?.keep();
    this.#update();
    this.settle(this.data ? 'drawn' : 'empty');
    this.#draw();
  }

  /** Updates legend, notes, table and labels. */
  #update() {
    const { root, legend: names, note, table, cursor, reset } = this.#nodes;
    reset.hidden = !this.host.isZoomed();
    const { data } = this;
    this.shown = this.#visibility.shown(data?.series ?? []);
    const focused = [...names.children].findIndex((node) => node === root.activeElement);
    names.replaceChildren(...(data ? this.#legend(data.series) : []));
    if (focused >= 0) /** @type {HTMLElement|undefined} */ (names.children[focused])?.focus();
    note.textContent = data ? notes(data, this.#messages) : '';
    table.replaceChildren(...(data ? [summaryTable(this.#heading, data, this.unit)] : []));
    cursor.setAttribute('aria-label', `${this.#heading || 'Chart'}: arrow keys move through time, plus and minus zoom`);
    cursor.setAttribute('aria-valuemax', String(data ? data.count - 1 : 0));
    this.speak();
  }

  /** @param {Series[]} series */
  #legend(series) {
    return legend(series, {
      hidden: this.#visibility.hidden,
      open: this.#visibility.unfolded,
      pick: (one, only) => {
        this.#visibility.pick(series, one, only);
        this.shown = this.#visibility.shown(series);
        pressLegend(this.#nodes.legend, series, this.#visibility.hidden);
        this.speak();
        this.#draw();
      },
      light: (one) => {
        this.#lit = one;
        this.#draw();
      },
      unfold: () => {
        this.#visibility.unfolded = true;
        this.#update();
      },
    });
  }

  /**
   * Sets the state of the chart; the only place that does.
   * @param {State} state
   * @param {ApiError} [problem]
   * @param {import('./problems.js').Words|null} [words] for visitors; null shows the error itself
   */
  settle(state, problem, words = null) {
    const { state: box, plot, cursor } = this.#nodes;
    cursor.hidden = !this.data;
    this.#element.dataset.state = state;
    plot.setAttribute('aria-busy', String(state === 'loading'));
    showState(box, {
      state,
      problem,
      words,
      hasData: Boolean(this.data),
      messages: this.#messages,
      retry: this.host.retry,
      infinite: this.data !== null && bounds(this.data.series) === null,
    });
  }

  #draw() {
    const { base, probe } = this.#nodes;
    const [width, height] = this.size;
    if (width < 40 || height < 40) return;
    const [pen, { data }] = [penOf(base, width, height), this];
    if (!pen) return;
    if (!data) {
      pen.clearRect(0, 0, width, height);
      this.place = null;
      this.#cursor?.draw();
      return;
    }
    this.colours ??= colours(probe);
    const span = bounds(this.shown) ?? bounds(data.series) ?? { low: 0, high: 1 };
    this.place = layout(pen, { width, height, data, span, unit: this.unit, font: FONT });
    // The start of the time axis, for the content of the slot below the plot.
    this.#element.style.setProperty('--metric-chart-left', `${this.place.plot.left}px`);
    const lit = this.#lit && this.shown.includes(this.#lit) ? this.#lit : null;
    paint(pen, this.place, { data, shown: this.shown, colours: this.colours, lit });
    this.#cursor?.draw();
  }

  /** Updates the text of the cursor for screen readers. */
  speak() {
    describeStep(this.#nodes.cursor, this.data, this.shown, this.#cursor?.step ?? null, this.unit);
  }
}
