// The rows of a tooltip, written into the same nodes for each move of the pointer.

import { h } from './dom.js';

/** Height of a row in pixels, with a share of the frame. */
const ROW_HEIGHT = 22;
/** The fewest rows that a tooltip has room for, even in a low plot, and the most. */
const [ROWS_LEAST, ROWS_MAX] = [4, 24];

/** The number of rows that fit beside a plot, below the time. @param {number} height of the plot in pixels */
export const fittingRows = (height) =>
  Math.max(ROWS_LEAST, Math.min(ROWS_MAX, Math.floor(height / ROW_HEIGHT) - 2));

/**
 * @typedef {Object} TipRow
 * @property {string} name
 * @property {string} value
 * @property {boolean} near whether it is the series nearest to the pointer
 * @property {string} mark the look of its series
 */

export class TipRows {
  #time = document.createTextNode('');
  #when = h('div', { class: 'when' }, this.#time);
  /**
   * Each with the content of its nodes: reading that of a node takes longer.
   * @type {{node: HTMLElement, swatch: HTMLElement, texts: Text[], content: TipRow}[]}
   */
  #rows = [];
  /** @type {Node[]} */
  #nodes = [];
  #row;
  #paint;

  /**
   * @param {string} row class of a row
   * @param {(swatch: HTMLElement, mark: string) => void} paint gives a row the look of its series
   */
  constructor(row, paint) {
    this.#row = row;
    this.#paint = paint;
  }

  /** @param {number} index */
  #at(index) {
    const known = this.#rows[index];
    if (known) return known;
    const texts = [document.createTextNode(''), document.createTextNode('')];
    const swatch = h('span', { class: 'swatch', 'aria-hidden': 'true' });
    const node = h(
      'div',
      { class: this.#row },
      swatch,
      h('span', { class: 'name' }, texts[0]),
      h('b', { class: 'value' }, texts[1]),
    );
    this.#rows[index] = { node, swatch, texts, content: { name: '', value: '', near: false, mark: '' } };
    return this.#rows[index];
  }

  /**
   * Returns the nodes of the tooltip: the same array as the last time if they are the same nodes.
   * @param {string} when
   * @param {TipRow[]} rows
   * @param {Node[]} more nodes after the rows
   */
  update(when, rows, more) {
    if (this.#time.data !== when) this.#time.data = when;
    /** @type {Node[]} */
    const nodes = [this.#when];
    for (let index = 0; index < rows.length; index += 1) {
      const content = rows[index];
      const { name, value, near, mark } = content;
      const row = this.#at(index);
      const last = row.content;
      row.content = content;
      if (last.name !== name) row.texts[0].data = name;
      if (last.value !== value) row.texts[1].data = value;
      if (last.near !== near) row.node.classList.toggle('near', near);
      if (last.mark !== mark) this.#paint(row.swatch, mark);
      nodes.push(row.node);
    }
    nodes.push(...more);
    const same = nodes.length === this.#nodes.length && nodes.every((node, index) => node === this.#nodes[index]);
    if (!same) this.#nodes = nodes;
    return this.#nodes;
  }
}

/** A line below the rows of a tooltip, whose node stays the same. */
export class TipNote {
  #text = document.createTextNode('');
  #node = h('div', { class: 'more' }, this.#text);

  /** @param {string} text @returns {Node[]} nothing without a text */
  update(text) {
    if (text === '') return [];
    if (this.#text.data !== text) this.#text.data = text;
    return [this.#node];
  }
}

/** The part of a long list that a tooltip shows. It stays in place while the pointer's row is in it. */
export class TipWindow {
  #first = 0;

  /**
   * Returns the rows to show.
   * @template Row
   * @param {Row[]} all
   * @param {number} near index of the pointer's row; below 0 without one
   * @param {number} most rows of the tooltip
   * @returns {{first: number, rows: Row[]}} `first`: the index of the first row in `all`
   */
  of(all, near, most) {
    if (near < this.#first || near >= this.#first + most) this.#first = near - (most >> 1);
    this.#first = Math.max(0, Math.min(this.#first, all.length - most));
    return { first: this.#first, rows: all.slice(this.#first, this.#first + most) };
  }
}

/** The tooltip of a plot in its box. */
export class Tip {
  window = new TipWindow();
  #rows = new TipRows('row', (swatch, mark) => {
    swatch.className = mark;
  });
  #note = new TipNote();
  /** @type {Node[]} */
  #nodes = [];

  /** @param {HTMLElement} box */
  constructor(box) {
    this.box = box;
  }

  hide() {
    if (!this.box.hidden) this.box.hidden = true;
  }

  /**
   * @param {string} when
   * @param {{rows: TipRow[], more: string}} content `more`: a line below the rows, or ''
   */
  show(when, { rows, more }) {
    if (this.box.hidden) this.box.hidden = false;
    const nodes = this.#rows.update(when, rows, this.#note.update(more));
    if (nodes !== this.#nodes) this.box.replaceChildren(...nodes);
    this.#nodes = nodes;
  }
}

/**
 * Places the tooltip next to the crosshair, inside the plot. The browser computes the place from
 * the size of the box, so that nothing has to measure it while the pointer moves.
 * @param {HTMLElement} box
 * @param {{width: number, height: number}} plot in pixels
 * @param {number} x of the crosshair
 * @param {number} y of the pointer
 */
export function placeTooltip(box, plot, x, y) {
  const [at, width, height] = [Math.round(x), Math.round(plot.width), Math.round(plot.height)];
  const left = x > plot.width / 2 ? `max(0px, ${at - 14}px - 100%)` : `max(0px, min(${at + 14}px, ${width}px - 100%))`;
  const top = `max(0px, min(${Math.round(y - 20)}px, ${height}px - 100%))`;
  box.style.transform = `translate(${left}, ${top})`;
}
