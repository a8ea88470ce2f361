// Lays panels and rows out in the grid of a dashboard, and keeps the panels that stay.

import { h } from '../chart/dom.js';
import { attempt } from '../model/attempt.js';
import { expandRepeats } from '../model/repeat.js';
import { interpolate, withScope } from '../model/interpolate.js';
import { PanelFrame } from './panel_frame.js';

/**
 * @typedef {import('../model/repeat.js').Placed} Placed
 * @typedef {import('../model/interpolate.js').Selections} Selections
 *
 * @typedef {Object} GridEditor
 * @property {(frame: PanelFrame) => void} shown called for each panel that is shown
 * @property {(panel: import('../model/panel.js').Panel) => HTMLElement[]} rowTools buttons of a row
 * @property {(panel: import('../model/panel.js').Panel) => void} toggle closes or opens a row
 */

export class PanelGrid {
  /** @type {Map<string, PanelFrame>} */
  #frames = new Map();
  /** Rows that were opened or closed since the page was loaded. @type {Map<string, boolean>} */
  #collapsed = new Map();
  /** @type {{panels: import('../model/panel.js').Panel[], selections: Selections, only: string} | null} */
  #last = null;
  node = h('div', { class: 'panel-grid' });
  /** The editor of the dashboard; null in the view. @type {GridEditor | null} */
  editor = null;

  /**
   * @param {import('./panel_runner.js').PanelRunner} runner
   * @param {import('./panel_frame.js').FrameHost} host
   */
  constructor(runner, host) {
    this.runner = runner;
    this.host = host;
  }

  get frames() {
    return [...this.#frames.values()];
  }

  /**
   * Shows the panels for the selected values.
   * @param {import('../model/panel.js').Panel[]} panels
   * @param {Selections} selections
   * @param {string} only the id of the only panel that is shown; empty for all
   */
  show(panels, selections, only) {
    this.#last = { panels, selections, only };
    // While the dashboard is edited, rows are closed and opened in the document.
    const own = this.editor ? new Map() : this.#collapsed;
    const collapsed = only ? new Map([...this.#allRows(panels)].map((key) => [key, false])) : own;
    const { placed, omitted } = expandRepeats(panels, selections, { collapsed });
    const wanted = only
      ? placed.filter(({ panel }) => String(panel.id) === only && panel.type !== 'row').slice(0, 1)
      : placed;
    this.node.classList.toggle('single', only !== '');
    /** @type {HTMLElement[]} */
    const nodes = [];
    const kept = new Set();
    for (const one of wanted) {
      if (one.panel.type === 'row') {
        nodes.push(position(this.#row(one, placed, selections), one));
        continue;
      }
      let frame = this.#frames.get(one.key);
      if (frame && frame.placed.panel !== one.panel) {
        this.#drop(frame);
        frame = undefined;
      }
      if (!frame) {
        frame = new PanelFrame(one, this.host);
        this.#frames.set(one.key, frame);
        this.runner.add(frame);
      } else {
        frame.placed = one;
        frame.titles();
      }
      kept.add(one.key);
      nodes.push(position(frame.node, one));
      this.editor?.shown(frame);
    }
    for (const frame of this.frames) if (!kept.has(frame.placed.key)) this.#drop(frame);
    if (omitted > 0) nodes.push(h('p', { class: 'hint', text: `${omitted} copies of repeated panels are left out.` }));
    if (wanted.length === 0) {
      const none = this.editor ? 'Choose “Add” for the first panel.' : 'This dashboard has no panels.';
      nodes.push(
        h('p', { class: 'quiet', text: only ? 'The dashboard has no such panel.' : none }),
      );
    }
    replaceInPlace(this.node, nodes);
  }

  /** @param {import('../model/panel.js').Panel[]} panels */
  #allRows(panels) {
    return new Set(panels.filter(({ type }) => type === 'row').map(({ key }) => key));
  }

  /** @param {PanelFrame} frame */
  #drop(frame) {
    this.runner.remove(frame);
    frame.destroy();
    for (const [key, value] of this.#frames) if (value === frame) this.#frames.delete(key);
  }

  /** @param {Placed} one @param {Placed[]} all @param {Selections} selections */
  #row(one, all, selections) {
    const title =
      attempt(() => interpolate(one.panel.title, withScope(selections, one.scoped), { format: 'text', limit: 2000 })) ??
      one.panel.title.slice(0, 200);
    const inside = one.collapsed ? one.panel.panels.length : all.filter(({ row }) => row === one.key).length;
    const button = h(
      'button',
      {
        type: 'button',
        'aria-expanded': String(!one.collapsed),
        'data-row': one.key,
        on: {
          click: () => {
            if (this.editor) this.editor.toggle(one.panel);
            else this.#collapsed.set(one.key, !one.collapsed);
            if (this.#last && !this.editor) this.show(this.#last.panels, this.#last.selections, this.#last.only);
            const again = this.node.querySelector(`[data-row="${CSS.escape(one.key)}"]`);
            if (again instanceof HTMLElement) again.focus({ preventScroll: true });
          },
        },
      },
      h('span', { class: 'chevron', 'aria-hidden': 'true', text: one.collapsed ? '▸' : '▾' }),
      title || 'Row',
      one.collapsed && inside > 0 && h('small', { text: `${inside} ${inside === 1 ? 'panel' : 'panels'}` }),
    );
    const tools = this.editor?.rowTools(one.panel) ?? [];
    return h('div', { class: 'dash-row', 'data-key': one.key }, h('h2', {}, button), ...tools);
  }

  redraw() {
    for (const frame of this.frames) frame.redraw();
  }

  destroy() {
    for (const frame of this.frames) frame.destroy();
  }
}

/** @param {HTMLElement} node @param {Placed} placed */
function position(node, { gridPos: { x, y, w, h: height } }) {
  for (const [name, value] of Object.entries({ x: x + 1, y: y + 1, w, h: height }))
    node.style.setProperty(`--${name}`, String(value));
  return node;
}

/**
 * Puts nodes in order without moving those that are in place: a canvas that moves loses the focus.
 * @param {HTMLElement} parent
 * @param {HTMLElement[]} nodes
 */
function replaceInPlace(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.children]) if (!wanted.has(/** @type {HTMLElement} */ (child))) child.remove();
  /** @type {ChildNode | null} */
  let at = parent.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
}
