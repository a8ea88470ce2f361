// Moves and resizes the panels of a grid with the mouse, by touch and with the keyboard.

import { h } from '../chart/dom.js';
import { putItem, resizeItem } from '../model/edit_layout.js';
import { COLUMNS } from '../model/grid.js';

/**
 * @typedef {import('../model/edit_layout.js').Item} Item
 * @typedef {import('../model/edit_layout.js').Direction} Direction
 *
 * @typedef {Object} EditGridHost
 * @property {HTMLElement} node the grid
 * @property {() => Item[]} items the places of all panels and rows
 * @property {(id: number) => boolean} isRow
 * @property {(id: number, to: {x: number, y: number}) => void} move
 * @property {(id: number, size: {w: number, h: number}) => void} resize
 * @property {(id: number, direction: Direction) => void} step
 * @property {(id: number) => void} remove
 * @property {(id: number) => void} edit
 * @property {(id: number) => void} duplicate
 * @property {(id: number) => void} copy
 * @property {(text: string) => void} announce
 *
 * @typedef {{id: number, node: HTMLElement, kind: 'move' | 'resize', items: Item[], item: Item,
 *   pointer: number, grabX: number, grabY: number, startX: number, startY: number,
 *   x: number, y: number, active: boolean, result: Item[]}} Drag `grabX` and `grabY`: where the panel
 *   was taken, in px from its left upper corner, or from its lower right corner for a resize
 */

/** Height of a grid row and the gap of rows and columns, in px, as the style sheet has them. */
const ROW = 30;
const GAP = 8;
/** A pointer that moves less is a click, in px. */
const THRESHOLD = 4;
/** The page scrolls while a panel is dragged this close to the edge of the window, in px. */
const EDGE = 60;
const SCROLL_STEP = 14;
/** @type {Record<string, Direction>} */
const ARROWS = { ArrowLeft: 'left', ArrowRight: 'right', ArrowUp: 'up', ArrowDown: 'down' };

/** The key of a panel's frame while the dashboard is edited. @param {number | null} id */
export const keyOf = (id) => `edit.${id}`;

export class EditGrid {
  /** @type {Drag | null} */
  #drag = null;
  #frame = 0;
  #target = h('div', { class: 'drop-target', 'aria-hidden': 'true' });
  #host;
  #listeners = new AbortController();

  /** @param {EditGridHost} host */
  constructor(host) {
    this.#host = host;
    const { node } = host;
    const { signal } = this.#listeners;
    node.classList.add('editing');
    node.addEventListener('pointerdown', (event) => this.#down(event), { signal });
    node.addEventListener('pointermove', (event) => this.#moved(event), { signal });
    node.addEventListener('pointerup', () => this.#end(true), { signal });
    node.addEventListener('pointercancel', () => this.#end(false), { signal });
    node.addEventListener('keydown', (event) => this.#key(event), { signal });
    addEventListener('keydown', (event) => this.#escape(event), { signal, capture: true });
  }

  destroy() {
    this.#end(false);
    this.#listeners.abort();
    this.#host.node.classList.remove('editing');
  }

  /** Whether a panel is dragged. */
  get busy() {
    return this.#drag?.active === true;
  }

  /** @param {number} id @returns {HTMLElement | null} */
  nodeOf(id) {
    return this.#host.node.querySelector(`[data-key="${CSS.escape(keyOf(id))}"]`);
  }

  /** Puts the focus on a panel, or on the button of a row. @param {number} id */
  focus(id) {
    const node = this.nodeOf(id);
    const target = node?.classList.contains('panel') ? node : node?.querySelector('button');
    if (!(target instanceof HTMLElement)) return;
    target.focus({ preventScroll: true });
    // Back restores the scroll position of the window first.
    requestAnimationFrame(() => target.scrollIntoView({ block: 'nearest' }));
  }

  /** @param {EventTarget | null} target @returns {{id: number, node: HTMLElement} | null} */
  #panelAt(target) {
    const node = target instanceof Element ? target.closest('[data-key]') : null;
    const id = Number(/^edit\.(\d+)$/.exec(node?.getAttribute('data-key') ?? '')?.[1] ?? NaN);
    return node instanceof HTMLElement && !Number.isNaN(id) ? { id, node } : null;
  }

  /** @param {PointerEvent} event */
  #down(event) {
    const { target } = event;
    if (event.button !== 0 || this.#drag || !(target instanceof Element)) return;
    // A narrow window shows the panels in one column.
    if (getComputedStyle(this.#host.node).display !== 'grid') return;
    const found = this.#panelAt(target);
    if (!found || this.#host.isRow(found.id)) return;
    const kind = target.closest('.resize-handle') ? 'resize' : target.closest('.panel-head') ? 'move' : null;
    if (!kind || (kind === 'move' && target.closest('button, a, .popup'))) return;
    const items = this.#host.items();
    const item = items.find(({ id }) => id === found.id);
    if (!item) return;
    const { left, top, right, bottom } = found.node.getBoundingClientRect();
    const [fromX, fromY] = kind === 'move' ? [left, top] : [right, bottom];
    this.#drag = {
      ...found,
      kind,
      items,
      item,
      pointer: event.pointerId,
      grabX: event.clientX - fromX,
      grabY: event.clientY - fromY,
      startX: event.clientX,
      startY: event.clientY,
      x: event.clientX,
      y: event.clientY,
      active: false,
      result: items,
    };
    found.node.focus({ preventScroll: true });
    // The focus is set; the default would select text.
    event.preventDefault();
  }

  /** @param {PointerEvent} event */
  #moved(event) {
    const drag = this.#drag;
    if (!drag || event.pointerId !== drag.pointer) return;
    [drag.x, drag.y] = [event.clientX, event.clientY];
    if (!drag.active) {
      if (Math.hypot(drag.x - drag.startX, drag.y - drag.startY) < THRESHOLD) return;
      drag.active = true;
      this.#host.node.setPointerCapture(drag.pointer);
      this.#host.node.classList.add('dragging');
      drag.node.classList.add(drag.kind === 'move' ? 'dragged' : 'resized');
      if (drag.kind === 'move') this.#host.node.append(this.#target);
      this.#scroll();
    }
    this.#update();
  }

  /** Shows the layout for the place of the pointer. */
  #update() {
    const drag = this.#drag;
    if (!drag?.active) return;
    const box = this.#host.node.getBoundingClientRect();
    const column = (box.width + GAP) / COLUMNS;
    const row = ROW + GAP;
    const x = drag.x - box.left - drag.grabX;
    const y = drag.y - box.top - drag.grabY;
    const { item, items } = drag;
    if (drag.kind === 'move') {
      drag.result = putItem(items, { ...item, x: Math.round(x / column), y: Math.round(y / row) });
      drag.node.style.translate = `${x - item.x * column}px ${y - item.y * row}px`;
    } else {
      const size = { w: Math.round((x + GAP) / column) - item.x, h: Math.round((y + GAP) / row) - item.y };
      drag.result = resizeItem(items, item.id, size);
    }
    for (const one of drag.result) {
      const own = one.id === item.id;
      const node = own && drag.kind === 'move' ? this.#target : this.nodeOf(one.id);
      if (node) place(node, one);
    }
  }

  /** Scrolls the window while the pointer is near its edge. */
  #scroll() {
    cancelAnimationFrame(this.#frame);
    const step = () => {
      const drag = this.#drag;
      if (!drag?.active) return;
      const by = drag.y < EDGE ? -SCROLL_STEP : drag.y > innerHeight - EDGE ? SCROLL_STEP : 0;
      if (by !== 0) {
        scrollBy(0, by);
        this.#update();
      }
      this.#frame = requestAnimationFrame(step);
    };
    this.#frame = requestAnimationFrame(step);
  }

  /** @param {boolean} done false cancels */
  #end(done) {
    const drag = this.#drag;
    if (!drag) return;
    this.#drag = null;
    cancelAnimationFrame(this.#frame);
    if (!drag.active) return;
    const { node } = this.#host;
    if (node.hasPointerCapture(drag.pointer)) node.releasePointerCapture(drag.pointer);
    node.classList.remove('dragging');
    drag.node.classList.remove('dragged', 'resized');
    drag.node.style.translate = '';
    this.#target.remove();
    const found = drag.result.find(({ id }) => id === drag.id);
    for (const item of drag.items) {
      const one = this.nodeOf(item.id);
      if (one) place(one, item);
    }
    if (!done || !found) return this.#host.announce('Cancelled.');
    if (drag.kind === 'move') this.#host.move(drag.id, found);
    else this.#host.resize(drag.id, found);
  }

  /** @param {KeyboardEvent} event */
  #escape(event) {
    if (event.key !== 'Escape' || !this.busy) return;
    event.preventDefault();
    event.stopPropagation();
    this.#end(false);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const found = this.#panelAt(event.target);
    if (!found || event.ctrlKey || event.metaKey || event.altKey || this.busy) return;
    const row = this.#host.isRow(found.id);
    // The focused element inside a panel handles its own keys.
    const own = row
      ? event.target instanceof Element && event.target.closest('[data-row]') !== null
      : event.target === found.node;
    if (!own) return;
    if (!this.#command(event, found.id, row)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /**
   * @param {KeyboardEvent} event
   * @param {number} id
   * @param {boolean} row
   * @returns {boolean} whether the key is known
   */
  #command({ key, shiftKey }, id, row) {
    const direction = ARROWS[key];
    const host = this.#host;
    if (direction && shiftKey && !row) {
      const item = host.items().find((one) => one.id === id);
      const [dw, dh] = { left: [-1, 0], right: [1, 0], up: [0, -1], down: [0, 1] }[direction];
      if (item) host.resize(id, { w: item.w + dw, h: item.h + dh });
    } else if (direction) host.step(id, direction);
    else if (key === 'Delete' || key === 'Backspace') host.remove(id);
    else if (key === 'e' || (key === 'Enter' && !row)) host.edit(id);
    else if (key === 'd' && !row) host.duplicate(id);
    else if (key === 'c' && !row) host.copy(id);
    else return false;
    return true;
  }
}

/** @param {HTMLElement} node @param {Item} item */
function place(node, { x, y, w, h: height }) {
  for (const [name, value] of Object.entries({ x: x + 1, y: y + 1, w, h: height }))
    node.style.setProperty(`--${name}`, String(value));
}
