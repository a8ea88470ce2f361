// One dashboard for visitors: its controls, its panels, and their data.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { textButton } from '../components/buttons.js';
import { PanelGrid } from '../components/panel_grid.js';
import { PanelRunner } from '../components/panel_runner.js';
import { refreshTimer } from '../components/refresh_timer.js';
import { currentPanel, needsConversion } from '../model/current_panel.js';
import { readWith } from '../model/dashboard_reader.js';
import { planPanel } from '../model/panel_queries.js';
import { resolveRange, weekStartOf } from '../model/time.js';
import { loadPanel } from '../panels/kinds.js';
import { Sync } from '../plot/sync.js';
import { Annotations } from './annotations.js';
import { snapshotAnswers } from './source.js';
import { Variables } from './variables.js';
import { boundedRange, readView, sentValues, suggestedFilters, visitorVariables, writeReference } from './view.js';
import { messageOf, panelWords, reasonOf } from './words.js';

/**
 * @typedef {import('./source.js').DashboardSource} DashboardSource
 * @typedef {import('../model/time.js').Range} Range
 *
 * @typedef {Object} Host the element
 * @property {(name: string) => string} read an attribute, empty without it
 * @property {(name: string) => boolean} has whether there is an attribute
 * @property {() => Iterable<{name: string, value: string}>} attributes
 * @property {(name: string, detail: any, cancelable?: boolean) => boolean} emit false if a listener prevents it
 * @property {() => 'light' | 'dark'} theme
 */

/** The interval in which a live dashboard requests data without a stream. */
const LIVE_REFRESH = '30s';

export class DashboardView {
  /** @type {import('./view.js').View | null} */
  #view = null;
  /** The answer as the server sent it. @type {unknown} */
  #answer = null;
  /** @type {import('../model/dashboard_reader.js').Dashboard | null} */
  #dashboard = null;
  #now = Date.now();
  #turn = 0;
  /** The id of the panel that is shown alone, or ''. */
  #only = '';
  /** The range that the visitor chose. @type {{from: string | number, to: string | number} | null} */
  #chosen = null;
  /** The refresh interval that the visitor chose. @type {string | null} */
  #interval = null;
  /** Errors reported since the last load. @type {Set<string>} */
  #reported = new Set();
  #loading = new AbortController();
  #title = h('h1', { part: 'title' });
  #bar = h('div', { class: 'variables', part: 'variables', role: 'group', 'aria-label': 'Variables', hidden: true });
  #content = h('div', { part: 'panels' });
  #reset;
  #head;
  /** The controls: their modules are loaded unless they are left out. */
  #time = /** @type {ReturnType<typeof import('../components/time_control.js').timeControl> | null} */ (null);
  #replaceControls = /** @type {typeof import('../components/variable_bar.js').replaceControls | null} */ (null);
  #filterEditor = /** @type {typeof import('../components/filter_editor.js').filterEditor | null} */ (null);
  #annotations;
  #refreshes;
  /** @type {import('./live.js').LivePanels | null} */
  #live = null;
  #runner;
  #grid;

  /**
   * @param {Host} host
   * @param {DashboardSource} source
   * @param {import('./source.js').Snapshot | null} snapshot what is shown instead of data of the source
   */
  constructor(host, source, snapshot) {
    this.host = host;
    this.source = source;
    this.snapshot = snapshot;
    this.#chosen = snapshot?.range ?? null;
    this.#only = host.read('panel');
    const reset = { class: 'reset', part: 'reset', hidden: true };
    this.#reset = textButton('Reset zoom', () => this.#zoom(null), reset);
    this.#head = h('div', { class: 'head' }, this.#title, this.#reset);
    this.node = h('div', { class: 'frame' }, this.#head, this.#bar, this.#content);
    this.#runner = new PanelRunner({
      send: (batch) => this.source.send(batch, sentValues(this.variables.selections, this.#access)),
      failed: (error) => this.#report(error),
    });
    this.#refreshes = refreshTimer({
      interval: () => (snapshot ? null : this.#refresh() || (this.#isLive ? LIVE_REFRESH : null)),
      busy: () => this.#runner.busy,
      refresh: () => this.#tick(),
    });
    this.variables = new Variables(this.source);
    this.#annotations = new Annotations(this.#runner, {
      view: () => {
        const { selections } = this.variables;
        return { annotations: this.#dashboard?.annotations ?? [], selections, range: this.#range };
      },
      changed: () => this.#grid.redraw(),
    });
    this.#grid = new PanelGrid(this.#runner, {
      sync: new Sync(() => this.#dashboard?.graphTooltip ?? 0),
      timeZone: () => this.#zone,
      page: () => null,
      selections: () => this.variables.selections,
      theme: host.theme,
      plan: ({ panel, scoped }, width) =>
        planPanel(panel, {
          ...this.#context,
          selections: new Map([...this.variables.selections, ...scoped]),
          width,
          leastStep: this.#view?.leastStep,
          write: writeReference(panel.id, scoped),
        }),
      events: (id) => this.#annotations.of(id),
      zoom: (range) => this.#zoom(range),
      select: (chosen, { panel }) =>
        host.emit('select', { panel: panel.id, title: panel.title, ...chosen, time: chosen.time / 1000 }),
      retry: (frame) => this.#runner.retry(frame),
      shown: (frame) => this.#live?.follow(frame),
      gone: (frame) => this.#live?.leave(frame),
      words: panelWords((error) => this.#report(error)),
      actions: ({ panel }) => {
        if (host.read('panel')) return [];
        if (this.#only) return [{ text: 'Back to the dashboard', run: () => this.#alone('') }];
        return [{ text: 'View alone', run: () => this.#alone(String(panel.id)) }];
      },
    });
  }

  get #access() {
    return this.#view?.access ?? new Map();
  }

  get #zone() {
    return this.#dashboard?.timezone ?? '';
  }

  /** @returns {Range} */
  get #range() {
    const { time, weekStart } = this.#dashboard ?? {};
    const { read } = this.host;
    const written = this.#chosen ?? { from: read('from') || time?.from, to: read('to') || time?.to };
    const context = { now: this.#now, weekStart: weekStartOf(weekStart), timeZone: this.#zone };
    return boundedRange(resolveRange(written, context), this.#view?.longest ?? Infinity);
  }

  get #context() {
    const dashboard = { title: this.#dashboard?.title ?? '', uid: '' };
    return { range: this.#range, now: this.#now, dashboard, timeZone: this.#zone };
  }

  /** Whether new points are shown as they arrive, which requires a range up to now. */
  get #isLive() {
    return this.host.has('live') && this.snapshot === null && String(this.#range.raw.to) === 'now';
  }

  /** Whether the page leaves a part out. @param {'title' | 'time' | 'variables'} part */
  #isHidden(part) {
    const hidden = this.host.read('hide').split(/[\s,]+/);
    return hidden.includes(part) || (part !== 'title' && this.snapshot !== null);
  }

  /** Loads the controls that are shown. */
  async #loadControls() {
    await Promise.all([
      this.#isHidden('time') ||
        import('../components/time_control.js').then(({ timeControl }) => {
          this.#time ??= this.#timeControl(timeControl);
        }),
      this.#isHidden('variables') ||
        Promise.all([import('../components/variable_bar.js'), import('../components/filter_editor.js')]).then((both) => {
          [{ replaceControls: this.#replaceControls }, { filterEditor: this.#filterEditor }] = both;
        }),
    ]);
  }

  /** @param {typeof import('../components/time_control.js').timeControl} make */
  #timeControl(make) {
    const time = make({
      change: (range) => this.#show(range),
      refreshNow: () => this.refresh(),
      interval: (interval) => {
        this.#interval = interval;
        this.#refreshes.plan();
      },
    });
    time.node.setAttribute('part', 'time');
    this.#head.append(time.node);
    return time;
  }

  /** The interval between refreshes; empty for none. */
  #refresh() {
    return this.#interval ?? (this.host.read('refresh') || this.#dashboard?.refresh || '');
  }

  /** Asks for the dashboard, and shows it. */
  async load() {
    this.#loading.abort();
    this.#loading = new AbortController();
    const { signal } = this.#loading;
    this.#reported.clear();
    if (!this.#dashboard) this.#content.replaceChildren(h('p', { class: 'quiet', role: 'status', text: 'Loading…' }));
    try {
      const controls = this.#loadControls();
      // The promise is awaited below; until then its rejection would count as unhandled.
      controls.catch(() => {});
      const answer = await this.source.view(signal);
      const view = readView(answer);
      const old = needsConversion(view.document);
      const convert = old ? (await import('../model/import_legacy.js')).convertPanel : currentPanel;
      if (signal.aborted) return;
      [this.#answer, this.#view] = [answer, view];
      this.#dashboard = readWith(view.document, convert).dashboard;
      const { panels, variables } = this.#dashboard;
      // The modules of the panels arrive while the server answers.
      for (const type of new Set(panels.map((panel) => panel.type)))
        if (type !== 'row') loadPanel(type).catch(() => {});
      this.variables.adopt(visitorVariables(variables, view.access), view.access, this.snapshot?.selections ?? null);
      this.variables.setAttributes(this.host.attributes());
      await controls;
      if (signal.aborted) return;
      await this.#update(true);
      if (!signal.aborted) this.host.emit('load', { uid: view.uid, title: view.title, version: view.version });
    } catch (error) {
      if (signal.aborted) return;
      this.#report(error);
      this.#dashboard = null;
      for (const part of [this.#head, this.#bar]) part.hidden = true;
      this.#content.replaceChildren(messageOf('message', error, () => this.load()));
    }
  }

  /** @param {boolean} variables whether their options are asked first */
  async #update(variables) {
    const dashboard = this.#dashboard;
    if (!dashboard) return;
    this.#refreshes.cancel();
    const turn = (this.#turn += 1);
    this.#now = Date.now();
    this.#showHead();
    if (variables) {
      const resolved = await this.variables.resolve(this.#context);
      if (turn !== this.#turn) return;
      this.#showVariables(resolved);
    }
    if (this.#grid.node.parentElement !== this.#content) this.#content.replaceChildren(this.#grid.node);
    this.#grid.show(dashboard.panels, this.variables.selections, this.#only);
    await Promise.all([this.#follow(), this.#annotations.update()]);
    if (turn !== this.#turn) return;
    this.#runner.refresh();
    this.#refreshes.plan();
  }

  /** Opens the live stream for the current values and range, or ends it. */
  async #follow() {
    this.#stopLive();
    if (!this.#isLive) return;
    const { LivePanels } = await import('./live.js');
    this.#stopLive();
    this.#live = new LivePanels(this.source.live(sentValues(this.variables.selections, this.#access)), {
      retry: (frame) => this.#runner.retry(frame),
      failed: (error) => this.#report(error),
    });
  }

  #stopLive() {
    this.#live?.stop();
    this.#live = null;
  }

  #showHead() {
    this.#head.hidden = false;
    this.#title.textContent = this.#dashboard?.title ?? '';
    this.#title.hidden = this.#isHidden('title');
    this.#bar.hidden = this.#isHidden('variables') || this.#bar.childElementCount === 0;
    if (!this.#time) return;
    this.#time.node.hidden = this.#isHidden('time');
    this.#time.show(this.#range, this.#refresh(), this.#zone);
  }

  /** @param {Map<string, import('../model/resolve_variables.js').Resolved>} resolved */
  #showVariables(resolved) {
    for (const one of resolved.values()) if (one.problem) this.#report(one.problem);
    const calm = new Map([...resolved].map(([name, one]) => [name, { ...one, problem: null }]));
    const change = (/** @type {string} */ name, /** @type {string[]} */ values) => {
      this.variables.choose(name, values);
      this.#update(true).catch((error) => this.#report(error));
    };
    const edit = this.#filterEditor;
    const ask = suggestedFilters(() => this.#shown.flatMap(({ answers }) => answers));
    /** @type {import('../components/variable_bar.js').FilterEditor | null} */
    const filters = edit && ((id, variable, changed) => edit(id, variable, changed, ask));
    this.#replaceControls?.(this.#bar, calm, this.variables.selections, change, filters);
    this.#showHead();
  }

  /** @param {{from: string | number, to: string | number} | null} range null for that of the attributes */
  #show(range) {
    this.#chosen = range;
    this.#reset.hidden = true;
    this.#update(false).catch((error) => this.#report(error));
  }

  /** @param {{from: number, to: number} | null} range null for the range before, in milliseconds */
  #zoom(range) {
    if (!this.host.emit('zoom', range && { start: range.from / 1000, end: range.to / 1000 }, true)) return;
    this.#show(range ?? this.snapshot?.range ?? null);
    this.#reset.hidden = range === null;
  }

  /** @param {string} panel its id; empty for all panels */
  #alone(panel) {
    this.#only = panel;
    this.#update(false).catch((error) => this.#report(error));
  }

  /** Asks for new data. */
  refresh() {
    this.#now = Date.now();
    this.#showHead();
    this.#runner.refresh();
    this.#refreshes.plan();
  }

  /** Requests the data without a stream in each interval. */
  #tick() {
    const live = this.#live;
    if (!live) return this.refresh();
    this.#now = Date.now();
    this.#runner.refresh((frame) => !live.isComplete(frame));
    this.#refreshes.plan();
  }

  /**
   * Applies changed attributes; the visitor's choices for other settings stay.
   * @param {Set<string>} names
   */
  changed(names) {
    if (names.has('from') || names.has('to')) {
      this.#chosen = this.snapshot?.range ?? null;
      this.#reset.hidden = true;
    }
    if (names.has('panel')) this.#only = this.host.read('panel');
    if (names.has('refresh')) this.#interval = null;
    this.variables.setAttributes([...this.host.attributes()].filter(({ name }) => names.has(name)));
    this.#loadControls()
      .then(() => this.#update(true))
      .catch((error) => this.#report(error));
  }

  /** Asks again with a new credential, if something was refused. */
  renewed() {
    if (this.#reported.size === 0) return;
    this.#reported.clear();
    if (this.#dashboard) this.refresh();
    else this.load();
  }

  /** Draws again, for instance in other colours. */
  redraw() {
    this.#grid.redraw();
  }

  /** The data of panels and annotations. */
  get #shown() {
    return [...this.#grid.frames, this.#annotations].flatMap((one) => (one?.shown ? [one.shown] : []));
  }

  /** The data, for an element that makes no requests. @returns {import('./source.js').Snapshot} */
  take() {
    const { from, to } = this.#range;
    const [answers, selections] = [snapshotAnswers(this.#shown), this.variables.values()];
    return { view: this.#answer, answers, range: { from, to }, selections };
  }

  /** Reports an error to the developers of the page, once. @param {unknown} error */
  async #report(error) {
    const { code, message } = reasonOf(error);
    const key = `${code} ${message}`;
    if (this.#reported.has(key)) return;
    this.#reported.add(key);
    const reason = reasonOf(error instanceof ApiError ? await this.source.explain(error) : error);
    if (!(error instanceof ApiError)) console.warn(`metric-dashboard: ${reason.message}`);
    this.host.emit('error', reason);
    if (reason.code === 'token_expired') this.host.emit('token-expired', reason);
  }

  stop() {
    this.#turn += 1;
    this.#loading.abort();
    this.#stopLive();
    this.#refreshes.destroy();
    this.#runner.stop();
    this.#grid.destroy();
  }
}
