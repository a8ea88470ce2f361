// The page side of uplot.mjs: the same series in <metric-chart>, in the time series panel and in uPlot.
//
// Each chart is an object of operations. The time of an operation is that of its call, of the
// microtasks after it, and of all callbacks (frames, observers) until the page is quiet again.

import { spent, timed } from './uplot_clock.mjs';
import uPlot from '/uplot/uPlot.esm.js';
import { applyFieldConfig } from '/ui/model/fields.js';
import { framesOf } from '/ui/model/frame.js';
import { draw } from '/ui/panels/timeseries.js';
import { Sync } from '/ui/plot/sync.js';
import '/ui/embed.js';

const [WIDTH, HEIGHT] = [900, 320];
/** The end of all data in unix seconds, and the distance of its points in seconds. */
const [END, STEP] = [1_790_000_000, 15];
const COLOURS = ['#2563c9', '#c2500a', '#047857', '#b0307f', '#8a6100', '#6d3fd1', '#0b7d94', '#56606e'];

/** The answer of a range query: random walks; each call has the same series with other values. */
function matrix(series, points, seed) {
  let state = seed >>> 0;
  const random = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  return Array.from({ length: series }, (_, index) => {
    let value = 100 + index;
    const values = Array.from({ length: points }, (_, at) => {
      value += random() - 0.5;
      return [END - (points - 1 - at) * STEP, String(Number(value.toFixed(4)))];
    });
    return { metric: { __name__: 'load', instance: `host-${String(index).padStart(3, '0')}` }, values };
  });
}

/** Aligned columns as uPlot takes them. */
function aligned(rows) {
  const times = Float64Array.from(rows[0].values, ([at]) => at);
  return [times, ...rows.map((row) => Float64Array.from(row.values, ([, text]) => Number(text)))];
}

const host = () => {
  const box = document.createElement('div');
  box.style.width = `${WIDTH}px`;
  document.body.append(box);
  return box;
};
const isQuiet = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
const answers = new Map();
const real = window.fetch;
window.fetch = async (address, options) => {
  const url = new URL(address, location.href);
  if (!url.pathname.includes('/query/')) return real(address, options);
  const rows = answers.get(url.searchParams.get('expr'));
  const [start, end] = ['start', 'end'].map((name) => Number(url.searchParams.get(name)));
  // A parsed answer: reading JSON is no work of a chart.
  const body = { data: { resultType: 'matrix', result: rows }, query: { start, end, step: STEP }, stats: {} };
  return { ok: true, json: async () => body };
};

/** uPlot from columns, or from the rows of an answer, which it has to turn into columns. */
class Peer {
  constructor(sets, fromRows) {
    this.sets = fromRows ? sets : sets.map(aligned);
    this.read = fromRows ? aligned : (columns) => columns;
    this.names = sets[0].map(({ metric }) => metric.instance);
    this.box = host();
  }

  first() {
    this.width = WIDTH;
    this.chart = new uPlot({
      width: WIDTH,
      height: HEIGHT,
      series: [{}, ...this.names.map((label, index) => ({ label, stroke: COLOURS[index % COLOURS.length], width: 1 }))],
    }, this.read(this.sets[0]), this.box);
  }

  resize() {
    this.width = this.width === WIDTH ? WIDTH - 20 : WIDTH;
    this.chart.setSize({ width: this.width, height: HEIGHT });
  }

  hide(index) {
    this.box.querySelectorAll('.u-legend .u-series .u-label')[index + 1].click();
  }

  newData(set) {
    this.chart.setData(this.read(this.sets[set]));
  }

  zoom(from, to) {
    this.chart.setScale('x', { min: from, max: to });
  }

  surface() {
    return this.chart.over;
  }

  hasCursor() {
    return true;
  }

  isPointed() {
    return this.chart.cursor.idx !== null;
  }

  remove() {
    this.chart?.destroy();
    this.box.remove();
  }
}

/** The time series panel, from frames as the dashboard hands them over. */
class Panel {
  constructor(sets) {
    const custom = { lineWidth: 1, fillOpacity: 0, showPoints: 'auto' };
    const config = { defaults: { color: { mode: 'palette-classic' }, custom }, overrides: [] };
    this.sets = sets.map((rows) => applyFieldConfig(
      framesOf({ resultType: 'matrix', result: rows }, { refId: 'A', legendFormat: '{{instance}}' }),
      config,
    ));
    const values = sets[0][0].values;
    this.range = { from: values[0][0] * 1000, to: END * 1000 };
    this.box = host();
    this.box.className = 'panel-body kind-timeseries';
    this.box.style.height = `${HEIGHT + 110}px`;
    this.memory = new Map();
    this.sync = new Sync();
  }

  show(frames, range) {
    const last = this.drawing;
    this.drawing = draw(this.box, {
      panel: { title: 'Load', options: { legend: { displayMode: 'list' }, tooltip: { mode: 'multi' } } },
      frames,
      range,
      theme: 'light',
      events: [],
      memory: this.memory,
      sync: this.sync,
      replace: (text) => text,
      zoom() {},
      link: () => null,
    });
    last?.destroy?.();
  }

  first() {
    this.width = WIDTH;
    this.show(this.sets[0], this.range);
  }

  resize() {
    this.width = this.width === WIDTH ? WIDTH - 20 : WIDTH;
    this.box.style.width = `${this.width}px`;
  }

  hide(index) {
    this.box.querySelectorAll('.legend-name')[index].click();
  }

  newData(set) {
    this.show(this.sets[set], this.range);
  }

  zoom(from, to) {
    this.show(this.sets[0], { from: from * 1000, to: to * 1000 });
  }

  surface() {
    return this.box.querySelector('.plot-cursor');
  }

  hasCursor() {
    return true;
  }

  isPointed() {
    return this.box.querySelectorAll('.tip-row').length > 0;
  }

  remove() {
    this.drawing?.destroy?.();
    this.box.remove();
  }
}

/** <metric-chart>, from the parsed answers of the server. */
class Embed {
  constructor(sets) {
    this.sets = sets;
    this.box = host();
    this.box.style.setProperty('--metric-chart-height', `${HEIGHT}px`);
    const [first] = sets[0][0].values;
    this.start = first[0];
  }

  /** Takes the answer to the next request. */
  answer(set) {
    answers.set('load', this.sets[set]);
  }

  first() {
    this.width = WIDTH;
    this.answer(0);
    this.chart = document.createElement('metric-chart');
    const attributes = { org: 'demo', expr: 'load', start: this.start, end: END, step: STEP, legend: '{{instance}}' };
    for (const [name, value] of Object.entries(attributes)) this.chart.setAttribute(name, value);
    this.box.append(this.chart);
  }

  resize() {
    this.width = this.width === WIDTH ? WIDTH - 20 : WIDTH;
    this.box.style.width = `${this.width}px`;
  }

  hide(index) {
    this.chart.shadowRoot.querySelectorAll('.legend button')[index].click();
  }

  newData(set) {
    this.answer(set);
    return this.chart.reload();
  }

  surface() {
    return this.chart.shadowRoot.querySelector('.cursor');
  }

  hasCursor() {
    return this.chart.shadowRoot.adoptedStyleSheets.length > 1;
  }

  isPointed() {
    return this.chart.shadowRoot.querySelectorAll('.row').length > 0;
  }

  remove() {
    this.chart?.remove();
    this.box.remove();
  }
}

const KINDS = { embed: Embed, panel: Panel };
/** @type {{ours?: any, peer?: any}} */
let charts = {};
let count = 0;

/** Prepares one of ours and uPlot with the same series: each has its data before the measurement. */
globalThis.prepare = (kind, series, points) => {
  for (const chart of Object.values(charts)) chart.remove();
  const sets = [matrix(series, points, 1), matrix(series, points, 2)];
  charts = { ours: new KINDS[kind](sets), peer: new Peer(sets, kind === 'embed') };
  count = points;
  return isQuiet().then(isQuiet);
};

/** Moves the pointer over a chart: `moves` frames with one move each. */
async function hover(chart, moves) {
  const surface = chart.surface();
  const { left, top, width, height } = surface.getBoundingClientRect();
  // The first reader of a page loads the cursor of <metric-chart>.
  surface.dispatchEvent(new PointerEvent('pointerenter', { pointerType: 'mouse' }));
  while (!chart.hasCursor()) await isQuiet();
  for (let move = 0; move < moves; move += 1) {
    const clientX = left + (width * (move + 1)) / (moves + 2);
    const clientY = top + height * (0.3 + 0.4 * (move / moves));
    const options = { bubbles: true, composed: true, clientX, clientY, movementX: 1, movementY: 1 };
    timed(() => {
      if (move === 0) surface.dispatchEvent(new MouseEvent('mouseenter', options));
      surface.dispatchEvent(new PointerEvent('pointermove', { ...options, pointerType: 'mouse' }));
      surface.dispatchEvent(new MouseEvent('mousemove', options));
    });
    await isQuiet();
  }
  if (!chart.isPointed()) throw new Error('no crosshair or values under the pointer');
}

/** Calls it and waits for the microtasks that follow. */
async function once(action) {
  const from = performance.now();
  action();
  for (let turn = 0; turn < 200; turn += 1) await null;
  spent.milliseconds += performance.now() - from;
}

const ACTIONS = {
  nothing: () => once(() => {}),
  first: (chart) => once(() => chart.first()),
  resize: (chart) => once(() => chart.resize()),
  hide: (chart) => once(() => chart.hide(3)),
  hover: (chart) => hover(chart, 24),
  'new data': (chart) => once(() => chart.newData(1)),
  /** Eight frames that each show a narrower range of the same points. */
  async zoom(chart) {
    const all = (count - 1) * STEP;
    for (let step = 1; step <= 8; step += 1) {
      await once(() => chart.zoom(END - all * (1 - step * 0.05), END - all * step * 0.05));
      await isQuiet();
    }
  },
};

/** Runs an operation of `ours` or `peer` until its frame has been produced. Returns milliseconds. */
globalThis.run = async (whose, action) => {
  charts[whose].box.scrollIntoView();
  await isQuiet();
  spent.milliseconds = 0;
  await ACTIONS[action](charts[whose]);
  await isQuiet();
  await isQuiet();
  return spent.milliseconds;
};
