// The shown series of a chart, and their colours; both survive a refresh.

import { COLOURS } from './style.js';

/** @typedef {import('./columns.js').Series} Series */

export class Visibility {
  /** Full names of the series that the reader has hidden. @type {Set<string>} */
  hidden = new Set();
  /** Whether the whole legend is shown. */
  unfolded = false;
  /** Full name to index of colour and dash. @type {Map<string, number>} */
  #slots = new Map();

  clear() {
    this.hidden.clear();
    this.#slots.clear();
    this.unfolded = false;
  }

  /**
   * Sets the colours: a series keeps its own colour when the server changes the order.
   * @param {Series[]} series
   */
  colour(series) {
    for (const one of series) {
      const slot = this.#slots.get(one.full) ?? this.#slots.size;
      this.#slots.set(one.full, slot);
      [one.colour, one.dash] = [slot % COLOURS, Math.floor(slot / COLOURS)];
    }
  }

  /** @param {Series[]} series */
  shown(series) {
    return series.filter((one) => !this.hidden.has(one.full));
  }

  /**
   * Hides or shows a series; with `only` shows it alone, or all again if it is alone.
   * @param {Series[]} all
   * @param {Series} one
   * @param {boolean} only
   */
  pick(all, one, only) {
    const others = all.filter((other) => other !== one);
    if (only) {
      const alone = !this.hidden.has(one.full) && others.every((other) => this.hidden.has(other.full));
      this.hidden = new Set(alone ? [] : others.map((other) => other.full));
    } else if (!this.hidden.delete(one.full)) {
      this.hidden.add(one.full);
    }
  }
}
