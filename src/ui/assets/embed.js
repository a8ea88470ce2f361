// <metric-chart>: a chart of a promlet server, for the cabinet and for any other page.
//
//   <script type="module" src="SERVER/embed.js"></script>
//   <metric-chart org="acme" expr="sum(rate(http_requests_total[5m]))" range="1h" refresh="30"
//                 token-endpoint="/metrics-token"></metric-chart>
//
// Attributes
//   org                    the organisation
//   expr                   PromQL; or metric, match, fn, window, agg, by, without, q, k
//   range                  "15m" to "30d", default 1h; or start and end in unix seconds
//   step                   seconds or a duration; default: what the width can show
//   refresh                seconds between updates; none without it
//   token, token-endpoint  an embed token, and the URL of the next one; without both the session
//                          cookie is sent, which only works on the server's own pages
//   src                    the server; default: the origin of this file
//   title, unit, legend    heading; bytes, bytes/s, seconds, percent or a suffix; names with
//                          "{{label}}" in them
//   theme                  light, dark or auto; default: the page's color-scheme
// Events, which bubble: metric-chart-load, metric-chart-error, metric-chart-zoom (cancelable; detail
// is the selected range, or null for a reset). `data-state` is idle, loading, drawn, empty or error.
// Zoom: drag over a range, or + and - around the cursor; 0 resets it.
// Style: --metric-chart-height, -background, -text, -muted, -grid, -axis, -accent, -tip, -font,
// -series-1 to -series-8.

import { bounds, columns } from './chart/columns.js';
import { describeStep, legend, pressLegend, summaryTable, tooltip } from './chart/legend.js';
import { Loader } from './chart/loader.js';
import { layout, moveHair, paint, paintCursor, penOf } from './chart/paint.js';
import { Pointer } from './chart/pointer.js';
import { QUERY_ATTRIBUTES, chartQuery } from './chart/query.js';
import { ApiError } from './chart/request.js';
import { formatMoment } from './chart/scale.js';
import { shadowTree } from './chart/shadow.js';
import { notes, showState } from './chart/state.js';
import { colours } from './chart/style.js';
import { Tip, placeTooltip } from './chart/tip.js';
import { Visibility } from './chart/visibility.js';

/**
 * @typedef {import('./chart/columns.js').Series} Series
 * @typedef {import('./chart/state.js').State} State
 */

const FONT = '11px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif';
/** The server's public URL: the folder of this file, without that of its version. */
const SERVER = new URL('.', import.meta.url).href.replace(/(\/assets\/[0-9a-f]{16})?\/$/, '');

class MetricChart extends HTMLElement {
  static observedAttributes = [...QUERY_ATTRIBUTES, 'title', 'unit', 'legend', 'theme', 'refresh'];

  /** @type {import('./chart/shadow.js').Parts|null} */
  #nodes = null;
  #heading = '';
  #loader = new Loader();
  /** @type {Pointer|null} */
  #pointer = null;
  /** @type {import('./chart/columns.js').Columns|null} */
  #data = null;
  /** @type {Series[]} */
  #shown = [];
  /** @type {import('./chart/paint.js').Layout|null} */
  #place = null;
  /** @type {import('./chart/style.js').Colours|null} */
  #colours = null;
  /** @type {Series|null} */
  #lit = null;
  #visibility = new Visibility();
  /** @type {Tip|null} */
  #tip = null;
  #timer = 0;
  /** Whether a refresh became due while the page was hidden. */
  #due = false;
  #queued = false;
  /** Width and height of the plot, which the observer reports: reading them would lay out the page. */
  #size = [0, 0];
  /** Whether the canvas of the cursor is empty. */
  #clean = true;
  #observer = new ResizeObserver(([entry]) => {
    this.#size = [entry.contentRect.width, entry.contentRect.height];
    this.#draw();
  });
  #scheme = matchMedia('(prefers-color-scheme: dark)');
  #recolour = () => {
    this.#colours = null;
    this.#draw();
  };
  #wake = () => {
    if (!document.hidden && this.#due) this.#load(true);
  };

  connectedCallback() {
    this.#nodes ??= this.#build();
    this.#observer.observe(this.#nodes.plot);
    this.#scheme.addEventListener('change', this.#recolour);
    document.addEventListener('visibilitychange', this.#wake);
    this.#soon();
  }

  disconnectedCallback() {
    this.#observer.disconnect();
    this.#scheme.removeEventListener('change', this.#recolour);
    document.removeEventListener('visibilitychange', this.#wake);
    this.#loader.abort();
    clearTimeout(this.#timer);
  }

  /**
   * @param {string} name
   * @param {string|null} before
   * @param {string|null} value
   */
  attributeChangedCallback(name, before, value) {
    if (name === 'title') {
      // The browser would show it as a tooltip over the whole chart, so it is taken off.
      if (value === null) return;
      this.#heading = value;
      this.removeAttribute('title');
    }
    if (before === value || !this.#nodes) return;
    if (name === 'title') this.#nodes.title.textContent = value;
    else if (name === 'refresh') this.#schedule();
    else if (name === 'theme' || name === 'unit') this.#recolour();
    else if (name === 'legend') this.#show();
    else this.#soon();
  }

  /** One of idle, loading, drawn, empty and error. */
  get state() {
    return this.dataset.state ?? 'idle';
  }

  /** The number of series and of points on the screen, and the response of the grid. */
  get drawn() {
    const series = this.#data?.series ?? [];
    return {
      series: series.length,
      points: series.reduce((sum, one) => sum + one.present, 0),
      answer: this.#loader.answer,
    };
  }

  /** Queries again. Resolves once the result is on the screen or a newer query replaced it. */
  async reload() {
    await this.#load(false);
  }

  /** @param {boolean} scheduled whether a response of the same steps may be kept */
  async #load(scheduled) {
    clearTimeout(this.#timer);
    this.#due = false;
    this.#loader.abort();
    if (!this.#nodes) return;
    const query = chartQuery(this, this.#size[0] || this.#nodes.plot.clientWidth || 600, SERVER);
    if (!query) {
      this.#forget();
      this.#settle('idle');
      return;
    }
    this.#settle('loading');
    try {
      // The same series over another range keep their colours, and stay hidden.
      const loaded = await this.#loader.load(query, scheduled, () => {
        if (query.subject !== this.#loader.query?.subject) this.#forget();
      });
      if (!loaded) return;
      this.#show();
      this.#emit('load', this.#loader.summary);
    } catch (error) {
      // The old picture of the same query stays; of another query it would be wrong.
      if (query.identity !== this.#loader.query?.identity) this.#forget();
      const problem =
        error instanceof ApiError
          ? error
          : new ApiError({ code: 'unreadable_answer', detail: error instanceof Error ? error.message : String(error) });
      this.#settle('error', problem);
      this.#emit('error', problem);
    }
    this.#schedule();
  }

  /**
   * @param {string} name
   * @param {any} detail
   */
  #emit(name, detail, cancelable = false) {
    return this.dispatchEvent(
      new CustomEvent(`metric-chart-${name}`, { detail, cancelable, bubbles: true, composed: true }),
    );
  }

  /** Several attributes that are set in a row make one query. */
  #soon() {
    if (this.#queued) return;
    this.#queued = true;
    queueMicrotask(() => {
      this.#queued = false;
      if (this.isConnected) this.reload();
    });
  }

  #schedule() {
    clearTimeout(this.#timer);
    const seconds = Number(this.getAttribute('refresh'));
    if (!(seconds > 0) || this.hasAttribute('start')) return;
    this.#timer = setTimeout(
      () => {
        // The page is hidden: query when it becomes visible.
        this.#due = document.hidden;
        if (!this.#due) this.#load(true);
      },
      Math.min(Math.max(1, seconds), 86400) * 1000,
    );
  }

  #build() {
    const nodes = shadowTree(this, this.#heading, () => this.#zoom(null));
    this.#pointer = new Pointer(nodes.cursor, {
      data: () => this.#data,
      place: () => this.#place,
      zoomed: () => this.hasAttribute('start'),
      redraw: () => this.#drawCursor(),
      speak: () => this.#speak(),
      zoom: (range) => this.#zoom(range),
    });
    this.#tip = new Tip(nodes.tip);
    return nodes;
  }

  #forget() {
    this.#loader.clear();
    this.#data = null;
    this.#shown = [];
    if (this.#pointer) this.#pointer.step = null;
    this.#visibility.clear();
    if (this.#nodes) {
      for (const node of [this.#nodes.legend, this.#nodes.note, this.#nodes.table]) node.replaceChildren();
      this.#draw();
    }
  }

  /** Turns the response into columns, legend, notes and drawing. */
  #show() {
    const { answer, tail, query: asked } = this.#loader;
    if (!answer) return;
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
      this.getAttribute('legend'),
      tail,
    );
    this.#visibility.colour(made.series);
    this.#data = made.series.some((one) => one.present) ? made : null;
    if (this.#pointer?.step) this.#pointer.step = Math.min(this.#pointer.step, made.count - 1);
    this.#update();
    this.#settle(this.#data ? 'drawn' : 'empty');
    this.#draw();
  }

  get #messages() {
    const { answer } = this.#loader;
    return [...(answer?.warnings ?? []), ...(answer?.infos ?? [])];
  }

  /** Updates legend, notes, table and labels. */
  #update() {
    if (!this.#nodes) return;
    const { root, legend: names, note, table, cursor, reset } = this.#nodes;
    reset.hidden = !this.hasAttribute('start');
    const data = this.#data;
    this.#shown = this.#visibility.shown(data?.series ?? []);
    const focused = [...names.children].findIndex((node) => node === root.activeElement);
    names.replaceChildren(
      ...(data
        ? legend(data.series, {
            hidden: this.#visibility.hidden,
            open: this.#visibility.unfolded,
            pick: (one, only) => {
              this.#visibility.pick(data.series, one, only);
              this.#shown = this.#visibility.shown(data.series);
              pressLegend(names, data.series, this.#visibility.hidden);
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
          })
        : []),
    );
    if (focused >= 0) /** @type {HTMLElement|undefined} */ (names.children[focused])?.focus();
    note.textContent = data ? notes(data, this.#messages) : '';
    table.replaceChildren(...(data ? [summaryTable(this.#heading, data, this.#unit)] : []));
    cursor.setAttribute('aria-label', `${this.#heading || 'Chart'}: arrow keys move through time, plus and minus zoom`);
    cursor.setAttribute('aria-valuemax', String(data ? data.count - 1 : 0));
    this.#speak();
  }

  get #unit() {
    return this.getAttribute('unit') ?? '';
  }

  /**
   * Sets the state of the chart; the only place that does.
   * @param {State} state
   * @param {ApiError} [problem]
   */
  #settle(state, problem) {
    if (!this.#nodes) return;
    const { state: box, plot, cursor } = this.#nodes;
    cursor.hidden = !this.#data;
    this.dataset.state = state;
    plot.setAttribute('aria-busy', String(state === 'loading'));
    showState(box, {
      state,
      problem,
      hasData: Boolean(this.#data),
      messages: this.#messages,
      retry: () => this.reload(),
      infinite: this.#data !== null && bounds(this.#data.series) === null,
    });
  }

  #draw() {
    if (!this.#nodes) return;
    const { base, hair, probe } = this.#nodes;
    const [width, height] = this.#size;
    if (width < 40 || height < 40) return;
    const [pen, data] = [penOf(base, width, height), this.#data];
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
    const lit = this.#lit && this.#shown.includes(this.#lit) ? this.#lit : null;
    paint(pen, this.#place, { data, shown: this.#shown, colours: this.#colours, lit });
    this.#drawCursor();
  }

  #drawCursor() {
    if (!this.#nodes) return;
    const { over, hair } = this.#nodes;
    const [place, data, inks] = [this.#place, this.#data, this.#colours];
    const pen = penOf(over, this.#size[0], this.#size[1]);
    if (!place || !data || !pen || !inks) {
      pen?.clearRect(0, 0, this.#size[0], this.#size[1]);
      this.#tip?.hide();
      return;
    }
    const { step: cursor = null, height = null, band = null } = this.#pointer ?? {};
    const what = { data, shown: this.#shown, colours: inks, cursor, band, clean: this.#clean };
    this.#clean = !paintCursor(pen, place, what);
    moveHair(hair, cursor === null ? null : place.x(data.times[cursor]));
    if (cursor === null || band || !this.#tip) {
      this.#tip?.hide();
      return;
    }
    const rows = tooltip(this.#shown, cursor, this.#unit, height === null ? null : place.value(height));
    this.#tip.show(formatMoment(data.times[cursor]), rows);
    placeTooltip(this.#tip.box, place, place.x(data.times[cursor]), height ?? 30);
  }

  #speak() {
    if (!this.#nodes) return;
    describeStep(this.#nodes.cursor, this.#data, this.#shown, this.#pointer?.step ?? null, this.#unit);
  }

  /**
   * Shows a part of the range, or with null the whole again, unless a listener prevents it.
   * @param {{start: number, end: number}|null} part unix seconds
   */
  #zoom(part) {
    if (!this.#emit('zoom', part, true)) return;
    for (const name of /** @type {const} */ (['start', 'end'])) {
      if (part) this.setAttribute(name, String(part[name]));
      else this.removeAttribute(name);
    }
  }
}

if (!customElements.get('metric-chart')) customElements.define('metric-chart', MetricChart);
