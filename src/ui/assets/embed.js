// <metric-chart>: a chart of a promlet server, for the cabinet and for any other page.
//
//   <script type="module" src="SERVER/embed.js"></script>
//   <metric-chart org="acme" expr="sum(rate(http_requests_total[5m]))" range="1h" refresh="30"
//                 token-endpoint="/metrics-token"></metric-chart>
//
// Attributes
//   org                      the organisation
//   expr                     PromQL; or metric, match, fn, window, agg, by, without, q, k
//   range                    how far back, "15m" to "30d", default 1h; or start and end in unix seconds
//   step                     seconds or a duration; default: what the width can show
//   refresh                  seconds between updates; none without it
//   token, token-endpoint    an embed token, and where this page gets the next one; without both the
//                            session cookie is used, which only works on the server's own pages
//   src                      the server, default: where this file came from
//   title, unit, legend      heading; bytes, bytes/s, seconds, percent or a word; "{{label}}" text for names
//   theme                    light, dark or auto; default: what the page has chosen (color-scheme)
// Events, which bubble: metric-chart-load, metric-chart-error, metric-chart-zoom (cancelable; detail is the
// range dragged over, or null when it is given up). `data-state` says idle, loading, drawn, empty or error.
// Looks: --metric-chart-height, -background, -text, -muted, -grid, -axis, -accent, -tip, -font, -series-1
// to -series-8.

import { bounds, columns } from './chart/columns.js';
import { h } from './chart/dom.js';
import { layout, paint, paintCursor } from './chart/paint.js';
import { QUESTION, question } from './chart/question.js';
import { legend, spoken, table, tip } from './chart/readings.js';
import { Refusal, ask } from './chart/source.js';
import { COLOURS, colours, sheet } from './chart/style.js';

const FONT = '11px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif';
/** Where this file came from, less its name: the server's public URL. */
const SERVER = new URL('.', import.meta.url).href.replace(/\/$/, '');
/** Warnings beyond these are left to the load event. */
const NOTES_MAX = 3;
/** A drag shorter than this is a click, in pixels. */
const DRAG_MIN = 6;

class MetricChart extends HTMLElement {
  static observedAttributes = [...QUESTION, 'title', 'unit', 'legend', 'theme', 'refresh'];

  #parts = null;
  #heading = '';
  #answer = null;
  #steps = null;
  #identity = '';
  #subject = '';
  #data = null;
  #shown = [];
  #place = null;
  #colours = null;
  #cursor = null;
  #height = null;
  #drag = null;
  #lit = null;
  #hidden = new Set();
  #slots = new Map();
  #unfolded = false;
  #waiting = null;
  #timer = 0;
  #due = false;
  #asked = false;
  #observer = new ResizeObserver(() => this.#draw());
  #scheme = matchMedia('(prefers-color-scheme: dark)');
  #recolour = () => { this.#colours = null; this.#draw(); };
  #wake = () => { if (!document.hidden && this.#due) this.reload(); };

  connectedCallback() {
    this.#parts ??= this.#build();
    this.#observer.observe(this.#parts.plot);
    this.#scheme.addEventListener('change', this.#recolour);
    document.addEventListener('visibilitychange', this.#wake);
    this.#soon();
  }

  disconnectedCallback() {
    this.#observer.disconnect();
    this.#scheme.removeEventListener('change', this.#recolour);
    document.removeEventListener('visibilitychange', this.#wake);
    this.#waiting?.abort();
    clearTimeout(this.#timer);
  }

  attributeChangedCallback(name, before, value) {
    if (name === 'title') {
      // The browser would show it as a tooltip over the whole chart, so it is taken off.
      if (value === null) return;
      this.#heading = value;
      this.removeAttribute('title');
    }
    if (before === value || !this.#parts) return;
    if (name === 'title') this.#parts.title.textContent = value;
    else if (name === 'refresh') this.#schedule();
    else if (name === 'theme' || name === 'unit') this.#recolour();
    else if (name === 'legend') this.#show();
    else this.#soon();
  }

  /** idle, loading, drawn, empty or error. */
  get state() { return this.dataset.state ?? 'idle'; }

  /** What is on the screen: series, points with a value, and the answer as the server sent it. */
  get drawn() {
    const series = this.#data?.series ?? [];
    return { series: series.length, points: series.reduce((sum, one) => sum + one.present, 0), answer: this.#answer };
  }

  /** Asks again now; settles when the answer or the refusal is on the screen, or a newer question overtook it. */
  async reload() {
    clearTimeout(this.#timer);
    this.#due = false;
    this.#waiting?.abort();
    const asked = question(this, this.#parts?.plot.clientWidth || 600, SERVER);
    if (!asked) {
      this.#forget();
      this.#settle('idle');
      return;
    }
    const waiting = new AbortController();
    this.#waiting = waiting;
    this.#settle('loading');
    try {
      const answer = await ask({ ...asked, signal: waiting.signal });
      if (waiting.signal.aborted) return;
      // Other names, other colours; another time keeps them, and what the reader has hidden.
      if (asked.subject !== this.#subject) this.#forget();
      [this.#answer, this.#steps, this.#identity, this.#subject] = [answer, asked.steps, asked.identity, asked.subject];
      this.#show();
      this.#emit('load', answer);
    } catch (error) {
      if (waiting.signal.aborted) return;
      // An old picture of the same question beats none; of another question it would be a lie.
      if (asked.identity !== this.#identity) this.#forget();
      const problem = error instanceof Refusal ? error : new Refusal({ code: 'unreadable_answer', detail: String(error.message) });
      this.#settle('error', problem);
      this.#emit('error', problem);
    }
    this.#schedule();
  }

  #emit(name, detail, cancelable = false) {
    return this.dispatchEvent(new CustomEvent(`metric-chart-${name}`, { detail, cancelable, bubbles: true, composed: true }));
  }

  /** Several attributes set in a row are one question. */
  #soon() {
    if (this.#asked) return;
    this.#asked = true;
    queueMicrotask(() => {
      this.#asked = false;
      if (this.isConnected) this.reload();
    });
  }

  #schedule() {
    clearTimeout(this.#timer);
    const seconds = Number(this.getAttribute('refresh'));
    if (!(seconds > 0) || this.hasAttribute('start')) return;
    this.#timer = setTimeout(() => {
      // The page is hidden: query when it becomes visible.
      this.#due = document.hidden;
      if (!this.#due) this.reload();
    }, Math.min(Math.max(1, seconds), 86400) * 1000);
  }

  #build() {
    const root = this.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [sheet];
    const parts = {
      title: h('div', { class: 'title', part: 'title', text: this.#heading }),
      base: h('canvas', { 'aria-hidden': 'true' }),
      over: h('canvas', { 'aria-hidden': 'true' }),
      cursor: h('div', { class: 'cursor', role: 'slider', tabindex: '0', 'aria-valuemin': '0' }),
      tip: h('div', { class: 'tip', hidden: true, 'aria-hidden': 'true' }),
      state: h('div', { class: 'state', role: 'status' }),
      reset: h('button', { type: 'button', class: 'reset', hidden: true, text: 'Reset zoom', on: { click: () => this.#zoom(null) } }),
      legend: h('div', { class: 'legend', part: 'legend', role: 'group', 'aria-label': 'Series' }),
      note: h('p', { class: 'note' }),
      table: h('div', { class: 'unseen' }),
      probe: h('i', { hidden: true }),
    };
    parts.plot = h('div', { class: 'plot', part: 'plot' }, parts.base, parts.over, parts.cursor, parts.reset, parts.tip, parts.state);
    root.append(parts.title, parts.plot, parts.legend, parts.note, parts.table, parts.probe);
    const on = (event, listener) => parts.cursor.addEventListener(event, listener);
    on('pointerdown', (event) => this.#press(event));
    on('pointermove', (event) => this.#point(event));
    on('pointerup', () => this.#release());
    on('pointercancel', () => { this.#drag = null; this.#move(null); });
    on('pointerleave', (event) => event.pointerType === 'mouse' && !this.#drag && this.#move(null));
    on('dblclick', () => this.hasAttribute('start') && this.#zoom(null));
    on('keydown', (event) => this.#key(event));
    on('blur', () => this.#move(null));
    return parts;
  }

  #forget() {
    this.#answer = null;
    this.#data = null;
    [this.#identity, this.#subject] = ['', ''];
    this.#shown = [];
    this.#cursor = null;
    this.#slots.clear();
    this.#hidden.clear();
    this.#unfolded = false;
    if (this.#parts) {
      for (const name of ['legend', 'note', 'table', 'tip']) this.#parts[name].replaceChildren();
      this.#draw();
    }
  }

  /** Turns the answer into columns and everything around them. */
  #show() {
    if (!this.#answer) return;
    const { data = {}, query = {} } = this.#answer;
    if (data.resultType !== 'matrix') {
      throw new Refusal({ code: 'not_a_matrix', detail: `A chart needs a range of values; the server answered with a ${data.resultType}.` });
    }
    const { start, end, step } = { ...this.#steps, ...query };
    const made = columns(data.result ?? [], { start: Number(start), end: Number(end), step: Number(step) }, this.getAttribute('legend'));
    made.series.forEach((one) => {
      // A series keeps its colour from refresh to refresh, in whatever order the server sends.
      if (!this.#slots.has(one.full)) this.#slots.set(one.full, this.#slots.size);
      const slot = this.#slots.get(one.full);
      [one.colour, one.dash] = [slot % COLOURS, Math.floor(slot / COLOURS)];
    });
    this.#data = made.series.some((one) => one.present) ? made : null;
    if (this.#data && this.#cursor !== null) this.#cursor = Math.min(this.#cursor, made.count - 1);
    this.#around();
    this.#settle(this.#data ? 'drawn' : 'empty');
    this.#draw();
  }

  #around() {
    const { legend: names, note, table: unseen, cursor, reset } = this.#parts;
    reset.hidden = !this.hasAttribute('start');
    const data = this.#data;
    this.#shown = data?.series.filter((one) => !this.#hidden.has(one.full)) ?? [];
    const focused = [...names.children].indexOf(this.shadowRoot.activeElement);
    names.replaceChildren(...(data ? legend(data.series, {
      hidden: this.#hidden,
      open: this.#unfolded,
      pick: (one, only) => this.#pick(one, only),
      light: (one) => { this.#lit = one; this.#draw(); },
      unfold: () => { this.#unfolded = true; this.#around(); },
    }) : []));
    names.children[focused]?.focus();
    const cut = data && data.total > data.series.length ? [`Drawing ${data.series.length} of ${data.total} series.`] : [];
    note.textContent = data ? [...cut, ...(this.#answer.warnings ?? []).slice(0, NOTES_MAX)].join(' · ') : '';
    unseen.replaceChildren(...(data ? [table(this.#heading, data, this.#unit)] : []));
    cursor.setAttribute('aria-label', `${this.#heading || 'Chart'}: move through time with the arrow keys`);
    cursor.setAttribute('aria-valuemax', String(data ? data.count - 1 : 0));
    this.#speak();
  }

  get #unit() { return this.getAttribute('unit') ?? ''; }

  #pick(one, only) {
    const others = this.#data.series.filter((other) => other !== one);
    if (only) {
      const alone = !this.#hidden.has(one.full) && others.every((other) => this.#hidden.has(other.full));
      this.#hidden = new Set(alone ? [] : others.map((other) => other.full));
    } else if (!this.#hidden.delete(one.full)) {
      this.#hidden.add(one.full);
    }
    this.#around();
    this.#draw();
  }

  /** The one place that says what state the chart is in. */
  #settle(state, problem) {
    const { state: box, plot, cursor } = this.#parts;
    cursor.hidden = !this.#data;
    this.dataset.state = state;
    plot.setAttribute('aria-busy', String(state === 'loading'));
    const again = () => h('button', { type: 'button', text: 'Try again', on: { click: () => this.reload() } });
    box.className = `state ${state}`;
    if (state === 'loading' && !this.#data) {
      box.replaceChildren(h('div', { class: 'bars', 'aria-hidden': 'true' }, [1, 2, 3, 4, 5].map(() => h('i'))), h('p', { text: 'Loading…' }));
    } else if (state === 'empty') {
      const warnings = this.#answer.warnings ?? [];
      box.replaceChildren(h('strong', { text: 'No data in this range' }), ...warnings.slice(0, NOTES_MAX).map((text) => h('p', { text })));
    } else if (state === 'error' && this.#data) {
      box.classList.add('late');
      box.replaceChildren(h('span', { text: `Not updated: ${problem.detail}` }));
    } else if (state === 'error') {
      const trace = [problem.code, problem.requestId].filter(Boolean).join(' · ');
      box.replaceChildren(h('strong', { text: problem.status === 400 ? 'This query cannot run' : 'No chart' }),
        h('p', { text: problem.detail }), trace && h('p', { class: 'code', text: trace }), problem.status === 400 ? '' : again());
    } else {
      box.replaceChildren();
    }
  }

  #draw() {
    if (!this.#parts) return;
    const { plot, base, over, probe } = this.#parts;
    const [width, height] = [plot.clientWidth, plot.clientHeight];
    if (width < 40 || height < 40) return;
    const ratio = devicePixelRatio || 1;
    for (const canvas of [base, over]) {
      const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
      if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
      canvas.getContext('2d').setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    const pen = base.getContext('2d');
    const data = this.#data;
    if (!data) {
      pen.clearRect(0, 0, width, height);
      over.getContext('2d').clearRect(0, 0, width, height);
      this.#place = null;
      return;
    }
    this.#colours ??= colours(probe);
    const span = bounds(this.#shown) ?? bounds(data.series) ?? { low: 0, high: 1 };
    this.#place = layout(pen, { width, height, data, span, unit: this.#unit, font: FONT });
    const lit = this.#shown.includes(this.#lit) ? this.#lit : null;
    paint(pen, this.#place, { data, shown: this.#shown, colours: this.#colours, lit });
    this.#drawCursor();
  }

  #drawCursor() {
    const { over, tip: box } = this.#parts;
    const place = this.#place;
    if (!place) {
      box.hidden = true;
      return;
    }
    const cursor = this.#cursor;
    const band = this.#drag?.moved ? [this.#drag.from, this.#drag.to] : null;
    paintCursor(over.getContext('2d'), place, { data: this.#data, shown: this.#shown, colours: this.#colours, cursor, band });
    box.hidden = cursor === null || Boolean(band);
    if (box.hidden) return;
    const height = this.#height === null ? null : place.value(this.#height);
    box.replaceChildren(...tip(this.#data, this.#shown, cursor, this.#unit, height));
    const x = place.x(this.#data.start + cursor * this.#data.step);
    const left = x + 16 + box.offsetWidth < place.width ? x + 14 : Math.max(0, x - 14 - box.offsetWidth);
    const wish = (this.#height ?? 30) - 20;
    box.style.transform = `translate(${Math.round(left)}px, ${Math.round(Math.max(0, Math.min(wish, place.height - box.offsetHeight)))}px)`;
  }

  /** Puts the cursor on a step, or takes it away. `height` is the pointer's, when there is one. */
  #move(index, height = null) {
    if (!this.#data) return;
    const at = index === null ? null : Math.max(0, Math.min(this.#data.count - 1, index));
    if (at === this.#cursor && height === this.#height) return;
    [this.#cursor, this.#height] = [at, height];
    this.#drawCursor();
    if (height === null) this.#speak();
  }

  #speak() {
    const { cursor } = this.#parts;
    const last = (this.#data?.count ?? 1) - 1;
    cursor.setAttribute('aria-valuenow', String(this.#cursor ?? last));
    cursor.setAttribute('aria-valuetext', this.#data ? spoken(this.#data, this.#shown.length ? this.#shown : this.#data.series, this.#cursor ?? last, this.#unit) : 'no data');
  }

  #press(event) {
    if (event.button !== 0) return;
    if (event.pointerType === 'mouse' && this.#place) {
      this.#drag = { from: event.offsetX, to: event.offsetX, moved: false };
      event.currentTarget.setPointerCapture(event.pointerId);
    }
    this.#point(event);
  }

  #point(event) {
    if (!this.#place) return;
    if (this.#drag) {
      const { left, right } = this.#place.plot;
      this.#drag.to = Math.max(left, Math.min(right, event.offsetX));
      this.#drag.moved ||= Math.abs(this.#drag.to - this.#drag.from) > DRAG_MIN;
    }
    this.#move(this.#place.index(event.offsetX), event.offsetY);
  }

  #release() {
    const drag = this.#drag;
    this.#drag = null;
    if (!drag?.moved || !this.#place) return;
    const edge = (x) => this.#data.start + this.#data.step * Math.max(0, Math.min(this.#data.count - 1, this.#place.index(x)));
    const [start, end] = [edge(drag.from), edge(drag.to)].sort((a, b) => a - b);
    this.#drawCursor();
    if (end > start) this.#zoom({ start, end });
  }

  /** Shows a part of the range, or with null the whole again, unless the page takes care of it. */
  #zoom(part) {
    if (!this.#emit('zoom', part, true)) return;
    for (const name of ['start', 'end']) {
      if (part) this.setAttribute(name, part[name]);
      else this.removeAttribute(name);
    }
  }

  #key(event) {
    if (!this.#data || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.#data.count - 1;
    const at = this.#cursor ?? last;
    const leap = Math.max(1, Math.round(last / 10));
    const one = event.shiftKey ? leap : 1;
    const moves = { ArrowLeft: at - one, ArrowRight: at + one, PageDown: at - leap, PageUp: at + leap, Home: 0, End: last, Escape: null };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.#move(moves[event.key]);
  }
}

if (!customElements.get('metric-chart')) customElements.define('metric-chart', MetricChart);
