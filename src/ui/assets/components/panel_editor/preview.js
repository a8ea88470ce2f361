// The live preview of a panel: queries run when they change, options are drawn at once.

import { h } from '../../chart/dom.js';
import { memberSource } from '../../client/batch.js';
import { pageUrl } from '../../client/server.js';
import { attempt } from '../../model/attempt.js';
import { fieldNames, panelOf } from '../../model/edit_panel.js';
import { interpolate } from '../../model/interpolate.js';
import { panelFrames, planPanel } from '../../model/panel_queries.js';
import { writeQuery } from '../../model/query_text.js';
import { transform } from '../../model/transformations/index.js';
import { Sync } from '../../plot/sync.js';
import { PanelFrame } from '../panel_frame.js';
import { PanelRunner } from '../panel_runner.js';
import { MEMBER_WORDS } from '../panel_words.js';

/**
 * @typedef {import('../../model/panel_queries.js').PanelPlan} PanelPlan
 * @typedef {import('../panel_runner.js').Answered} Answered
 * @typedef {import('../../model/time.js').Range} Range
 */

/** The parts of a panel whose change runs the queries again. @param {PanelPlan} plan */
const keyOf = ({ range, queries }) =>
  JSON.stringify([range.from, range.to, queries.map(({ expr, type, step }) => [expr, type, step])]);

export class Preview {
  /** @type {PanelFrame | null} */
  #frame = null;
  /** @type {{plan: PanelPlan, answers: Answered[]} | null} */
  #last = null;
  /** The queries that are asked or answered. */
  #key = '';
  /** The parts of a panel that a frame writes only once, so that their change needs a new frame. */
  #look = '';
  #asTable = false;
  #runner;
  /** @type {import('../panel_runner.js').Runnable} */
  #runnable;
  #options;
  #range;
  #draw = 0;
  node = h('div', { class: 'editor-preview' });

  /**
   * @param {{root: import('../../model/limits.js').Json, draft: import('./draft.js').Draft, org: string,
   *   selections: import('../../model/interpolate.js').Selections, range: Range, now: number,
   *   theme: () => 'light' | 'dark', zoomed: (on: boolean) => void}} options
   */
  constructor(options) {
    this.#options = options;
    this.#range = options.range;
    // The frame shows the error of an ended session: a page that is loaded again would lose the edits.
    this.#runner = new PanelRunner(memberSource({ org: options.org, signedOut: () => {} }));
    this.#runnable = {
      node: this.node,
      plan: () => this.#plan(),
      waiting: () => this.#frame?.waiting(),
      show: (plan, answers) => this.#show(plan, answers),
      fail: (error) => this.#frame?.fail(error),
    };
    this.#build();
    this.#key = attempt(() => keyOf(this.#plan())) ?? '';
    this.#runner.addHidden(this.#runnable);
    // The width of the panel decides how many points are asked.
    requestAnimationFrame(() => this.run());
    this.resizes = new ResizeObserver(() => this.#frame?.resized());
    this.resizes.observe(this.node);
  }

  #panel() {
    return panelOf(this.#options.root, this.#options.draft.raw);
  }

  #plan() {
    const { selections, now, root } = this.#options;
    return planPanel(this.#panel(), {
      selections,
      range: this.#range,
      now,
      width: this.node.clientWidth || 600,
      dashboard: { title: String(root.title ?? ''), uid: String(root.uid ?? '') },
      timeZone: String(root.timezone ?? ''),
      write: writeQuery,
    });
  }

  /** @returns {import('../../model/repeat.js').Placed} */
  #placed() {
    const panel = this.#panel();
    return {
      key: 'preview',
      panel: this.#asTable ? { ...panel, type: 'table', options: {} } : panel,
      gridPos: { x: 0, y: 0, w: 24, h: 12 },
      scoped: new Map(),
      row: null,
      collapsed: false,
    };
  }

  #build() {
    const { root, selections, org, theme, zoomed } = this.#options;
    const placed = this.#placed();
    this.#look = lookOf(placed.panel);
    this.#frame?.destroy();
    this.#frame = new PanelFrame(placed, {
      plan: () => this.#plan(),
      selections: () => selections,
      page: (uid, query) => `${pageUrl('/dashboard', { org, uid })}${query ? `&${query}` : ''}`,
      zoom: ({ from, to }) => {
        this.#range = { ...this.#range, from, to };
        zoomed(true);
        this.run();
      },
      retry: () => this.run(),
      actions: () => [],
      events: () => [],
      sync: new Sync(),
      timeZone: () => String(root.timezone ?? ''),
      theme,
      words: MEMBER_WORDS,
    });
    this.node.replaceChildren(this.#frame.node);
  }

  /** Shows an edit: runs the queries if they changed, and draws otherwise. */
  update() {
    cancelAnimationFrame(this.#draw);
    this.#draw = requestAnimationFrame(() => this.#update());
  }

  #update() {
    /** @type {PanelPlan} */
    let plan;
    try {
      plan = this.#plan();
      this.#dress();
    } catch (error) {
      this.#frame?.fail(error);
      return;
    }
    if (keyOf(plan) !== this.#key) return this.run();
    if (!this.#last || this.#last.answers.length !== plan.queries.length) return;
    this.#show(plan, this.#last.answers.map(({ answer }, at) => ({ query: plan.queries[at], answer })));
  }

  /** Gives the frame the panel as it is now. */
  #dress() {
    const placed = this.#placed();
    if (lookOf(placed.panel) !== this.#look) this.#build();
    else if (this.#frame) {
      this.#frame.placed = placed;
      this.#frame.titles();
    }
  }

  /** @param {PanelPlan} plan @param {Answered[]} answers */
  #show(plan, answers) {
    this.#last = { plan, answers };
    const good = answers.flatMap(({ query, answer }) =>
      answer.status === 'success' && answer.data
        ? [{ query, answer: /** @type {import('../../model/frame.js').Answer} */ (answer.data) }] : []);
    const replace = (/** @type {string} */ text) => interpolate(text, this.#options.selections, { format: 'text' });
    const { draft } = this.#options;
    draft.fieldsBefore = (at) => attempt(() => {
      const panel = this.#panel();
      const before = { ...panel, transformations: panel.transformations.slice(0, at) };
      return fieldNames(panelFrames(before, good, replace, transform).frames);
    }) ?? [];
    draft.fields = draft.fieldsBefore(Infinity);
    this.#frame?.show(plan, answers);
    draft.arrived();
  }

  /** Runs the queries. */
  run() {
    this.#key = attempt(() => keyOf(this.#plan())) ?? '';
    this.#last = null;
    attempt(() => this.#dress());
    this.#runner.retry(this.#runnable);
  }

  /** Shows another time range. @param {Range} range @param {number} now in milliseconds */
  follow(range, now) {
    this.#options = { ...this.#options, range, now };
    this.resetZoom();
  }

  resetZoom() {
    this.#range = this.#options.range;
    this.#options.zoomed(false);
    this.run();
  }

  /** @param {boolean} on whether the frames are shown as a table */
  showTable(on) {
    this.#asTable = on;
    this.#update();
  }

  redraw() {
    this.#frame?.redraw();
  }

  destroy() {
    cancelAnimationFrame(this.#draw);
    this.resizes.disconnect();
    this.#runner.stop();
    this.#frame?.destroy();
  }
}

/** @param {import('../../model/panel.js').Panel} panel */
const lookOf = ({ type, transparent, description }) => JSON.stringify([type, transparent, description]);
