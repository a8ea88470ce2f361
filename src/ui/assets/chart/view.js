// The shadow tree of a chart: canvas, legend, tooltip, notes, table and the overlay of its state.

import { ApiError } from './api_error.js';
import { textOf } from './attributes.js';
import { bounds, columns } from './columns.js';
import { describeStep, legend, pressLegend, summaryTable, tooltip } from './legend.js';
import { CursorCanvas, layout, paint } from './paint.js';
import { moveHair, penOf } from './pen.js';
import { Pointer } from './pointer.js';
import { formatMoment } from './scale.js';
import { shadowTree } from './shadow.js';
import { notes, showState } from './state.js';
import { colours } from './style.js';
import { Tip, fittingRows, placeTooltip } from './tip.js';
import { Visibility } from './visibility.js';

/**
 * @typedef {import('./columns.js').Columns} Columns
 * @typedef {import('./columns.js').Series} Series
 * @typedef {import('./state.js').State} State
 *
 * @typedef {Object} ViewHost
 * @property {(range: {start: number, end: number}|null) => void} zoom unix seconds; null resets
 * @property {(data: Columns, shown: Series[], index: number, value: number|null) => void} select
 *   `value` is that of the pointer's height
 * @property {() => void} retry
 */

const FONT = '11px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif';

export class ChartView {
  /** The drawn data; null without any value. @type {import('./columns.js').Columns|null} */
  data = null;
  #element;
  #host;
  #nodes;
  #pointer;
  #cursor;
  #tip;
  #heading = '';
  /** @type {string[]} */
  #messages = [];
  /** @type {Series[]} */
  #shown = [];
  /** @type {import('./paint.js').Layout|null} */
  #place = null;
  /** @type {import('./style.js').Colours|null} */
  #colours = null;
  /** @type {Series|null} */
  #lit = null;
  #visibility = new Visibility();
  /** Width and height of the plot, as observed: reading them would lay out the page. */
  #size = [0, 0];
  #observer = new ResizeObserver(([entry]) => {
    this.#size = [entry.contentRect.width, entry.contentRect.height];
    this.#draw();
  });
  #scheme = matchMedia('(prefers-color-scheme: dark)');

  /**
   * @param {HTMLElement} element without a shadow tree
   * @param {ViewHost} host
   */
  constructor(element, host) {
    this.#element = element;
    this.#host = host;
    this.#nodes = shadowTree(element, () => host.zoom(null));
    this.#tip = new Tip(this.#nodes.tip);
    this.#cursor = new CursorCanvas(this.#nodes.over);
    this.#pointer = new Pointer(this.#nodes.cursor, {
      data: () => this.data,
      place: () => this.#place,
      zoomed: () => this.#isZoomed,
      redraw: () => this.#drawCursor(),
      speak: () => this.#speak(),
      zoom: host.zoom,
      select: (index, height) => {
        const value = height === null || !this.#place ? null : this.#place.value(height);
        if (this.data) host.select(this.data, this.#shown, index, value);
      },
    });
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
    return this.#size[0] || this.#nodes.plot.clientWidth || 600;
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

  get #unit() {
    return textOf(this.#element, 'unit');
  }

  get #isZoomed() {
    return this.#element.hasAttribute('start');
  }

  /** Draws again with the colours of the current scheme. */
  recolour = () => {
    this.#colours = null;
    this.#draw();
  };

  /** Removes the picture. */
  forget() {
    this.data = null;
    this.#shown = [];
    this.#pointer.step = null;
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
    if (this.#pointer.step) this.#pointer.step = Math.min(this.#pointer.step, made.count - 1);
    this.#update();
    this.settle(this.data ? 'drawn' : 'empty');
    this.#draw();
  }

  /** Updates legend, notes, table and labels. */
  #update() {
    const { root, legend: names, note, table, cursor, reset } = this.#nodes;
    reset.hidden = !this.#isZoomed;
    const { data } = this;
    this.#shown = this.#visibility.shown(data?.series ?? []);
    const focused = [...names.children].findIndex((node) => node === root.activeElement);
    names.replaceChildren(...(data ? this.#legend(data.series) : []));
    if (focused >= 0) /** @type {HTMLElement|undefined} */ (names.children[focused])?.focus();
    note.textContent = data ? notes(data, this.#messages) : '';
    table.replaceChildren(...(data ? [summaryTable(this.#heading, data, this.#unit)] : []));
    cursor.setAttribute('aria-label', `${this.#heading || 'Chart'}: arrow keys move through time, plus and minus zoom`);
    cursor.setAttribute('aria-valuemax', String(data ? data.count - 1 : 0));
    this.#speak();
  }

  /** @param {Series[]} series */
  #legend(series) {
    return legend(series, {
      hidden: this.#visibility.hidden,
      open: this.#visibility.unfolded,
      pick: (one, only) => {
        this.#visibility.pick(series, one, only);
        this.#shown = this.#visibility.shown(series);
        pressLegend(this.#nodes.legend, series, this.#visibility.hidden);
        this.#speak();
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
      retry: this.#host.retry,
      infinite: this.data !== null && bounds(this.data.series) === null,
    });
  }

  #draw() {
    const { base, hair, probe } = this.#nodes;
    const [width, height] = this.#size;
    if (width < 40 || height < 40) return;
    const [pen, { data }] = [penOf(base, width, height), this];
    if (!pen) return;
    if (!data) {
      pen.clearRect(0, 0, width, height);
      moveHair(hair, null);
      this.#place = null;
      this.#drawCursor();
      return;
    }
    this.#colours ??= colours(probe);
    const span = bounds(this.#shown) ?? bounds(data.series) ?? { low: 0, high: 1 };
    this.#place = layout(pen, { width, height, data, span, unit: this.#unit, font: FONT });
    // The start of the time axis, for the content of the slot below the plot.
    this.#element.style.setProperty('--metric-chart-left', `${this.#place.plot.left}px`);
    const lit = this.#lit && this.#shown.includes(this.#lit) ? this.#lit : null;
    paint(pen, this.#place, { data, shown: this.#shown, colours: this.#colours, lit });
    this.#drawCursor();
  }

  #drawCursor() {
    const [place, { data }, inks] = [this.#place, this, this.#colours];
    if (!place || !data || !inks) {
      this.#cursor.draw(this.#size, null, null);
      this.#tip.hide();
      return;
    }
    const { step: cursor, height, band } = this.#pointer;
    this.#cursor.draw(this.#size, place, { data, shown: this.#shown, colours: inks, cursor, band });
    moveHair(this.#nodes.hair, cursor === null ? null : place.x(data.times[cursor]));
    if (cursor === null || band) {
      this.#tip.hide();
      return;
    }
    const value = height === null ? null : place.value(height);
    const rows = tooltip(this.#shown, cursor, this.#unit, value, this.#tip.window, fittingRows(place.height));
    this.#tip.show(formatMoment(data.times[cursor]), rows);
    placeTooltip(this.#tip.box, place, place.x(data.times[cursor]), height ?? 30);
  }

  #speak() {
    describeStep(this.#nodes.cursor, this.data, this.#shown, this.#pointer.step, this.#unit);
  }
}
