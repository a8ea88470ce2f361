// <metric-chart>: a chart of a promlet server, for the cabinet and for any other page.
//
//   <script type="module" src="SERVER/embed.js"></script>
//   <metric-chart org="acme" expr="sum(rate(http_requests_total[5m]))" range="1h" live
//                 token-endpoint="/metrics-token"></metric-chart>
//
// docs/guide/embed-charts.md lists the attributes, properties, methods, events, CSS variables and parts;
// embed.d.ts has their types. `data-state` is idle, loading, drawn, empty or error.

import { ApiError } from './chart/api_error.js';
import { DISPLAY_ATTRIBUTES, KINDS, PROPERTIES, textOf } from './chart/attributes.js';
import { Loader } from './chart/loader.js';
import { adoptProperties, defineProperties } from './chart/properties.js';
import { QUERY_ATTRIBUTES, chartQuery } from './chart/query.js';
import { isOwnOrigin } from './chart/request.js';
import { ChartView } from './chart/view.js';

/** The server's public URL: the folder of this file, without that of its version. */
const SERVER = new URL('.', import.meta.url).href.replace(/(\/assets\/[0-9a-f]{16})?\/$/, '');
/** Seconds between the queries of a live chart whose query has no stream. */
const LIVE_REFRESH = 15;
/** The longest time between two queries, in seconds. */
const REFRESH_MAX = 86_400;

/** Seconds until the next query after an error without the module that explains errors. */
const UNEXPLAINED_PAUSE = 15;
/** The words for an error without the module that explains errors, as without a network. */
const UNEXPLAINED = /** @type {import('./chart/problems.js').Words} */ ({
  visitor: 'This chart is not available right now. It comes back by itself.',
  hint: '',
  retry: 'self',
});

class MetricChart extends HTMLElement {
  static observedAttributes = [...QUERY_ATTRIBUTES, ...DISPLAY_ATTRIBUTES];

  /** @type {ChartView|null} */
  #view = null;
  #heading = '';
  #loader = new Loader();
  /** Ends the live stream; null without one. @type {(() => void)|null} */
  #leave = null;
  /** Whether the page gave the data, so that nothing is queried. */
  #given = false;
  /** Errors in a row that pass by themselves. */
  #failures = 0;
  /** The number of loads so far. */
  #turn = 0;
  #timer = 0;
  #frame = 0;
  /** Whether a refresh became due while the page was hidden. */
  #due = false;
  /**
   * The parts that were zoomed to since the whole was shown, each with the range of the whole. A
   * page that prevents a zoom may show its part itself, later or never.
   * @type {Map<string, (string|null)[]>}
   */
  #zooms = new Map();
  #queued = false;
  #wake = () => {
    if (!document.hidden && this.#due) this.#load(true);
  };
  #online = () => {
    if (this.#failures > 0 && !this.#leave) this.#load(true);
  };

  connectedCallback() {
    adoptProperties(this, [...PROPERTIES.keys(), 'title', 'data']);
    this.#view ??= new ChartView(this, {
      zoom: (range) => this.zoomTo(range),
      isZoomed: () => this.#isZoomed,
      select: (detail) => this.#emit('select', detail, { bubbles: true }),
      retry: () => this.reload(),
    });
    this.#view.heading = this.#heading;
    this.#view.connect();
    document.addEventListener('visibilitychange', this.#wake);
    addEventListener('online', this.#online);
    this.#soon();
  }

  disconnectedCallback() {
    this.#view?.disconnect();
    document.removeEventListener('visibilitychange', this.#wake);
    removeEventListener('online', this.#online);
    this.#loader.abort();
    this.#stop();
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
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
      this.#heading = textOf(this, name);
      if (this.#view) this.#view.heading = this.#heading;
      this.removeAttribute('title');
    } else if (before === value || !this.#view) return;
    else if (name === 'refresh') this.#schedule();
    else if (name === 'theme' || name === 'unit') this.#view.recolour();
    else if (name !== 'legend') this.#soon();
    else if (this.#view.data) this.#view.show(this.#loader);
  }

  /** The heading. */
  get title() {
    return this.#heading;
  }

  set title(text) {
    this.setAttribute('title', text ?? '');
  }

  /**
   * A response of `query/range`; null without one. Set to draw it without a query; null queries
   * again.
   */
  get data() {
    return this.#loader.answer;
  }

  set data(answer) {
    this.#given = Boolean(answer);
    this.#loader.abort();
    this.#forget();
    this.#loader.answer = answer || null;
    this.#soon();
  }

  /** One of idle, loading, drawn, empty and error. */
  get state() {
    return this.dataset.state ?? 'idle';
  }

  /** The number of series and of points on the screen, and the response of the grid. */
  get drawn() {
    const series = this.#view?.data?.series ?? [];
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

  /**
   * Shows a part of the range, or with null the range before the first zoom, unless a listener prevents it.
   * @param {{start: number, end: number}|null} part unix seconds
   */
  zoomTo(part) {
    if (!this.#isZoomed) this.#zooms.clear();
    const whole = this.#zooms.get(this.#range.join()) ?? this.#range;
    const range = part ? [String(part.start), String(part.end)] : whole;
    if (range.join() !== whole.join()) this.#zooms.set(range.join(), whole);
    if (this.#emit('zoom', part, { bubbles: true, cancelable: true })) this.#range = range;
  }

  /** The attributes `start` and `end`. */
  get #range() {
    return [this.getAttribute('start'), this.getAttribute('end')];
  }

  set #range([start = null, end = null]) {
    for (const [name, value] of Object.entries({ start, end })) {
      if (value === null) this.removeAttribute(name);
      else this.setAttribute(name, value);
    }
  }

  /** Whether a zoom asked for the range that is shown. */
  get #isZoomed() {
    return this.#zooms.has(this.#range.join());
  }

  /** @param {boolean} scheduled whether a response of the same steps may be kept */
  async #load(scheduled) {
    clearTimeout(this.#timer);
    this.#turn += 1;
    this.#due = false;
    this.#loader.abort();
    this.#stop();
    const view = this.#view;
    if (!view) return;
    /** @type {import('./chart/query.js').ChartQuery|null} */
    let query = null;
    try {
      if (this.#given) return this.#show(view);
      query = chartQuery(this, view.width, SERVER);
      if (!query) {
        this.#forget();
        view.settle('idle');
        return;
      }
      view.settle('loading');
      // The same series over another range keep their colours, and stay hidden.
      const accept = () => {
        if (query?.subject !== this.#loader.query?.subject) this.#forget();
      };
      // An embedded chart shows that the server asks to wait.
      if (!(await this.#loader.load(query, scheduled, accept, !this.#isOwn))) return;
      this.#failures = 0;
      this.#show(view);
      this.#follow(query);
    } catch (error) {
      // The old picture of the same query stays; of another query it would be wrong.
      if (query?.identity !== this.#loader.query?.identity) this.#forget();
      const detail = error instanceof Error ? error.message : String(error);
      this.#fail(error instanceof ApiError ? error : new ApiError({ code: 'unreadable_answer', detail }), query);
    }
  }

  /** @param {ChartView} view */
  #show(view) {
    view.show(this.#loader);
    this.#emit('load', this.#loader.summary);
  }

  /** Shows new points in the next frame, once however many queries brought some. */
  #showSoon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.#view?.isPressed) this.#showSoon();
      else if (this.#view && this.#loader.answer) this.#show(this.#view);
    });
  }

  /** Shows new points that wait for a frame, which would hide an error that follows. */
  #showWaiting() {
    cancelAnimationFrame(this.#frame);
    const waited = this.#frame !== 0;
    this.#frame = 0;
    if (waited && this.#view && !this.#view.isPressed && this.#loader.answer) this.#show(this.#view);
  }

  /**
   * Continues a query by its stream, or by the clock without one.
   * @param {import('./chart/query.js').ChartQuery} query that was loaded
   */
  async #follow(query) {
    this.#schedule();
    if (!this.hasAttribute('live')) return;
    // Without this module, and for a query that has no stream, the chart is refreshed.
    const module = await import('./chart/later.js').catch(() => null);
    if (!module || this.#loader.query !== query || !this.isConnected) return;
    this.#stop();
    this.#leave = module.follow(query, this.#loader, {
      changed: () => this.#showSoon(),
      reload: () => this.#load(false),
      failed: (problem, isFinal) => {
        if (isFinal) this.#stop();
        this.#fail(problem, query);
      },
      recovered: () => {
        if (this.state === 'error' && this.#view?.data) this.#view.settle('drawn');
      },
    });
    this.#schedule();
  }

  #stop() {
    this.#leave?.();
    this.#leave = null;
  }

  #forget() {
    this.#loader.clear();
    this.#view?.forget();
  }

  /** Whether the chart stands on a page of the server, and uses its session. */
  get #isOwn() {
    return !this.hasAttribute('token') && !this.hasAttribute('token-endpoint') && isOwnOrigin(this.#server);
  }

  get #server() {
    return this.getAttribute('src') || SERVER;
  }

  /**
   * Shows an error and sends an event to the page.
   * @param {ApiError} error
   * @param {import('./chart/query.js').ChartQuery|null} query
   */
  async #fail(error, query) {
    const turn = this.#turn;
    let pause = UNEXPLAINED_PAUSE;
    let [problem, words] = [error, /** @type {import('./chart/problems.js').Words|null} */ (null)];
    if (!this.#isOwn) {
      words = UNEXPLAINED;
      const place = { server: this.#server, page: location.origin, org: this.getAttribute('org') ?? '' };
      const module = await import('./chart/later.js').catch(() => null);
      if (module) ({ problem, words } = await module.explain(error, query, place));
      pause = module?.reconnectPause(this.#failures + 1, problem.retryAfter, Math.random()) ?? pause;
      if (turn !== this.#turn || !this.isConnected) return;
    }
    this.#showWaiting();
    this.#view?.settle('error', problem, words);
    this.#emit('error', problem);
    if (problem.code === 'token_expired') this.#emit('token-expired', problem, { bubbles: true });
    if (words?.retry !== 'self') return this.#schedule(words?.retry === 'never');
    this.#failures += 1;
    this.#queryIn(pause);
  }

  /**
   * `load` and `error` do not bubble, like those of images: pages report errors of `window`.
   * @param {string} name
   * @param {any} detail
   * @param {{bubbles?: boolean, cancelable?: boolean}} [options]
   */
  #emit(name, detail, options) {
    return this.dispatchEvent(new CustomEvent(name, { detail, composed: true, ...options }));
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

  /** Sets the clock of the next query. @param {boolean} [never] whether it would fail again */
  #schedule(never = false) {
    clearTimeout(this.#timer);
    if (never || this.#given || this.#leave || this.hasAttribute('start')) return;
    // A live chart without a stream is refreshed.
    const every = Number(this.getAttribute('refresh') ?? (this.hasAttribute('live') ? LIVE_REFRESH : 0));
    if (every > 0) this.#queryIn(Math.min(Math.max(1, every), REFRESH_MAX));
  }

  /** @param {number} seconds */
  #queryIn(seconds) {
    clearTimeout(this.#timer);
    // A stream reconnects by itself.
    if (this.#leave) return;
    this.#timer = setTimeout(() => {
      // The page is hidden: query when it becomes visible.
      this.#due = document.hidden;
      if (!this.#due) this.#load(true);
    }, seconds * 1000);
  }
}

if (!customElements.get('metric-chart')) {
  defineProperties(MetricChart.prototype, PROPERTIES, KINDS);
  customElements.define('metric-chart', MetricChart);
}
