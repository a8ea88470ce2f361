// The frame of one panel: title, links, time override, loading, messages, errors, and the drawing.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { panelFrames } from '../model/panel_queries.js';
import { interpolate, withScope } from '../model/interpolate.js';
import { linkOf } from '../model/links.js';
import { attempt } from '../model/attempt.js';
import { kindOf, loadPanel } from '../panels/kinds.js';
import { openMenu } from './popup.js';

/**
 * @typedef {import('../model/repeat.js').Placed} Placed
 * @typedef {import('../model/panel_queries.js').PanelPlan} PanelPlan
 * @typedef {import('./panel_runner.js').Answered} Answered
 * @typedef {import('../panels/kinds.js').Drawing} Drawing
 * @typedef {import('../panels/kinds.js').View} View
 *
 * @typedef {{text: string, href?: string, run?: () => void}} Action a link, or a button that calls `run`
 *
 * @typedef {Object} FrameHost
 * @property {(placed: Placed, width: number) => PanelPlan} plan
 * @property {() => import('../model/interpolate.js').Selections} selections
 * @property {(uid: string, query: string) => string | null} page the address of another dashboard; null without one
 * @property {(range: {from: number, to: number}) => void} zoom milliseconds
 * @property {(chosen: import('../panels/kinds.js').Chosen, placed: Placed) => void} [select] after a click on a series
 * @property {(frame: PanelFrame) => void} retry
 * @property {(placed: Placed) => Action[]} actions of the menu
 * @property {(panel: number | null) => import('../model/annotations.js').AnnotationEvent[]} events
 * @property {import('../plot/sync.js').Sync} sync
 * @property {() => 'light' | 'dark'} theme
 * @property {() => string} timeZone as the dashboard names it
 * @property {(frame: PanelFrame) => void} [shown] called after the answers of a panel have arrived
 * @property {(frame: PanelFrame) => void} [gone] called before a panel is removed
 * @property {Words} words
 *
 * @typedef {Object} Words what readers are told about errors
 * @property {(error: unknown, expr: string, retry: () => void) => Node} problem in place of a drawing
 * @property {(error: unknown) => string} late beside the title of a panel that keeps its last drawing
 * @property {(texts: string[]) => string[]} notes those of the notes below a drawing that are shown
 */

let count = 0;

const transformations = () => import('../model/transformations/index.js');

export class PanelFrame {
  /** @type {Drawing | null} */
  #drawing = null;
  /** The state that panels keep over a refresh, such as hidden series. @type {Map<string, any>} */
  #memory = new Map();
  /** @type {{plan: PanelPlan, answers: Answered[]} | null} */
  #shown = null;
  #sequence = 0;
  #body;
  #notes;
  #title;
  #override;
  #status;

  /**
   * @param {Placed} placed
   * @param {FrameHost} host
   */
  constructor(placed, host) {
    this.placed = placed;
    this.host = host;
    count += 1;
    const id = `panel-title-${count}`;
    this.#title = h('h2', { id, class: 'panel-title', part: 'panel-title' });
    this.#override = h('span', { class: 'panel-time' });
    this.#status = h('span', { class: 'panel-status', role: 'status' });
    this.#body = h('div', { class: `panel-body kind-${kindOf(placed.panel.type)}` });
    this.#notes = h('ul', { class: 'panel-notes', hidden: true });
    const { description } = placed.panel;
    const menu = h(
      'button',
      { type: 'button', class: 'panel-menu', 'aria-haspopup': 'true', on: { click: () => this.#menu(menu) } },
      h('span', { 'aria-hidden': 'true', text: '⋮' }),
      h('span', { class: 'unseen', text: 'Menu of the panel' }),
    );
    const info = h(
      'button',
      {
        type: 'button',
        class: 'panel-info',
        hidden: description.trim() === '',
        on: {
          click: () =>
            openMenu(info, [
              h('p', {
                class: 'panel-description',
                text: attempt(() => this.#text(description)) ?? description.slice(0, 20_000),
              }),
            ]),
        },
      },
      h('span', { 'aria-hidden': 'true', text: 'i' }),
      h('span', { class: 'unseen', text: 'Description' }),
    );
    this.node = h(
      'div',
      {
        role: 'group',
        part: 'panel',
        class: placed.panel.transparent ? 'panel transparent' : 'panel',
        'aria-labelledby': id,
        'data-key': placed.key,
        'data-kind': placed.panel.type,
      },
      h('div', { class: 'panel-head' }, this.#title, this.#override, this.#status, info, menu),
      this.#body,
      this.#notes,
    );
    this.titles();
    // The module arrives while the server answers.
    if (placed.panel.transformations.length > 0) transformations().catch(() => {});
  }

  #selections() {
    return withScope(this.host.selections(), this.placed.scoped);
  }

  /** @param {string} text */
  #text(text) {
    const context = { ...this.#shown?.plan.context, format: 'text', limit: 20_000 };
    return interpolate(text, this.#selections(), context);
  }

  /** Writes the title again, after variables have changed. */
  titles() {
    const title = attempt(() => this.#text(this.placed.panel.title)) ?? this.placed.panel.title;
    this.#title.textContent = title;
    this.#title.title = title;
    this.#title.classList.toggle('unseen', title.trim() === '');
    if (title.trim() === '') this.#title.textContent = `Panel ${this.placed.panel.id ?? ''}`.trim();
  }

  /** @param {HTMLElement} button */
  #menu(button) {
    const selections = this.#selections();
    const context = this.#shown?.plan.context ?? {};
    const links = this.placed.panel.links.flatMap((link) => {
      const made = attempt(() => linkOf(link, selections, context, this.host));
      return made ? [made] : [];
    });
    openMenu(button, [
      ...links.map(({ text, href, newTab }) =>
        href === null
          ? h('span', { class: 'menu-text', text })
          : h('a', { href, text, ...(newTab ? { target: '_blank', rel: 'noopener noreferrer' } : {}) }),
      ),
      ...(attempt(() => this.host.actions(this.placed)) ?? []).map(({ text, href, run }) =>
        href === undefined
          ? h('button', {
              type: 'button',
              text,
              'data-closes': '',
              on: {
                click: () => {
                  // A dialog returns the focus to where it was.
                  button.focus();
                  run?.();
                },
              },
            })
          : h('a', { href, text }),
      ),
      this.#shown &&
        h('button', { type: 'button', text: 'Show the data as a table', on: { click: () => this.#asTable() } }),
    ]);
  }

  #asTable() {
    this.#memory.set('table', !this.#memory.get('table'));
    this.redraw();
  }

  /** The queries and answers that are drawn; null before the first ones. */
  get shown() {
    return this.#shown;
  }

  plan() {
    return this.host.plan(this.placed, this.#body.clientWidth || 600);
  }

  waiting() {
    this.node.classList.add('loading');
    this.node.setAttribute('aria-busy', 'true');
    if (!this.#shown && this.#body.childElementCount === 0) {
      this.#body.replaceChildren(h('p', { class: 'panel-quiet', text: 'Loading…' }));
    }
  }

  #settled() {
    this.node.classList.remove('loading');
    this.node.removeAttribute('aria-busy');
  }

  /**
   * Draws answers. The old drawing stays until the new one is there.
   * @param {PanelPlan} plan
   * @param {Answered[]} answers
   */
  show(plan, answers) {
    this.#shown = { plan, answers };
    this.#override.textContent = plan.range.info ?? '';
    this.#settled();
    this.redraw();
    this.host.shown?.(this);
  }

  /**
   * Draws answers that the last ones became, with new points.
   * @param {PanelPlan} plan
   * @param {Answered[]} answers
   */
  update(plan, answers) {
    this.#shown = { plan, answers };
    this.redraw();
  }

  /** Draws the last answers again, for instance in another colour scheme. */
  async redraw() {
    if (!this.#shown) return;
    const { plan, answers } = this.#shown;
    const { panel } = this.placed;
    const failed = answers.filter(({ answer }) => answer.status !== 'success');
    const good = answers.filter(({ answer }) => answer.status === 'success' && answer.data);
    if (failed.length > 0 && good.length === 0) {
      const { code = '', detail = '', http_status: status = 400 } = failed[0].answer;
      this.#error(new ApiError({ status, code, detail }), failed[0].query.expr);
      return;
    }
    const turn = (this.#sequence += 1);
    try {
      const replace = (/** @type {string} */ text) => this.#text(text);
      const { frames, unsupported } = panelFrames(
        panel,
        good.map(({ query, answer }) => ({
          query,
          answer: /** @type {import('../model/frame.js').Answer} */ (answer.data),
        })),
        replace,
        panel.transformations.length > 0 ? (await transformations()).transform : null,
      );
      const asTable = this.#memory.get('table') === true;
      const { draw, note } = await loadPanel(asTable ? 'table' : panel.type);
      if (turn !== this.#sequence) return;
      const selections = this.#selections();
      /** @type {View} */
      const view = {
        panel,
        frames,
        replace,
        range: plan.range,
        theme: this.host.theme(),
        timeZone: this.host.timeZone(),
        sync: this.host.sync,
        events: this.host.events(panel.id),
        memory: this.#memory,
        zoom: this.host.zoom,
        select: (chosen) => this.host.select?.(chosen, this.placed),
        link: (link, more) => attempt(() => linkOf(link, selections, { ...plan.context, ...more }, this.host)),
      };
      const { activeElement } = /** @type {Document | ShadowRoot} */ (this.node.getRootNode());
      const focused = this.#body.contains(activeElement) ? activeElement : null;
      const last = this.#drawing;
      this.#drawing = draw(this.#body, view);
      last?.destroy?.();
      if (focused instanceof HTMLElement && !focused.isConnected) {
        const key = focused.dataset.focus;
        const again = key && this.#body.querySelector(`[data-focus="${CSS.escape(key)}"]`);
        if (again instanceof HTMLElement) again.focus({ preventScroll: true });
      }
      this.#note([
        ...(asTable ? [] : note ? [note] : []),
        ...failed.map(({ query, answer }) => `Query ${query.target.refId} failed: ${answer.detail ?? answer.code}`),
        ...plan.problems,
        ...unsupported.map((name) => `The transformation ${name} is not supported.`),
        ...new Set(frames.flatMap(({ notice }) => (notice ? [notice] : []))),
        ...new Set(good.flatMap(({ answer }) => [...(answer.warnings ?? []), ...(answer.infos ?? [])])),
      ]);
      this.node.dataset.state = 'drawn';
    } catch (error) {
      this.fail(error);
    }
  }

  /** @param {string[]} texts */
  #note(texts) {
    const told = this.host.words.notes(texts);
    this.#notes.hidden = told.length === 0;
    this.#notes.replaceChildren(...told.slice(0, 3).map((text) => h('li', { text, title: text })));
  }

  /** @param {unknown} error */
  fail(error) {
    this.#settled();
    if (this.#drawing && this.#shown && error instanceof ApiError && error.status !== 400) {
      this.#status.textContent = this.host.words.late(error);
      return;
    }
    this.#error(error);
  }

  /** @param {unknown} error @param {string} [expr] */
  #error(error, expr = '') {
    this.#drawing?.destroy?.();
    this.#drawing = null;
    this.#note([]);
    this.#status.textContent = '';
    this.node.dataset.state = 'error';
    this.#body.replaceChildren(this.host.words.problem(error, expr, () => this.host.retry(this)));
  }

  resized() {
    this.#drawing?.resize?.();
  }

  destroy() {
    this.host.gone?.(this);
    this.#sequence += 1;
    this.#drawing?.destroy?.();
  }
}
