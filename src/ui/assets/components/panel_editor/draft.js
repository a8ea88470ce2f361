// The panel that is edited, with undo and redo.

import { getAt, setAt } from '../../model/edit_panel.js';
import { sameJson } from '../../model/limits.js';

/** @typedef {import('../../model/limits.js').Json} Json */
/** @typedef {{rebuild?: boolean, merge?: string, typing?: boolean}} How `rebuild`: forms are made again; `merge`:
 *   edits with the same name within MERGE_MS are one step of undo; `typing`: the edit continues, so queries
 *   do not run yet, and it is one step of undo with the last edit of that name at any time */

/** Steps of undo that are kept. */
const STEPS_MAX = 200;
/** Edits of one value within this time are one step, in milliseconds. */
const MERGE_MS = 1500;

export class Draft {
  /** @type {Json[]} */
  #past = [];
  /** @type {Json[]} */
  #future = [];
  #last = { merge: '', at: 0 };
  #raw;
  #saved;
  #changed;
  /** Names of the fields that are drawn. @type {string[]} */
  fields = [];
  /** Names of the fields that a transformation gets. @type {(at: number) => string[]} */
  fieldsBefore = () => [];
  /** Called when other data has arrived. */
  arrived = () => {};

  /**
   * @param {Json} raw
   * @param {(rebuild: boolean, typing: boolean) => void} changed
   */
  constructor(raw, changed) {
    this.#raw = raw;
    this.#saved = raw;
    this.#changed = changed;
  }

  get raw() {
    return this.#raw;
  }

  /** Whether the panel differs from the one that was opened or applied last. */
  get dirty() {
    return !sameJson(this.#raw, this.#saved);
  }

  get canUndo() {
    return this.#past.length > 0;
  }

  get canRedo() {
    return this.#future.length > 0;
  }

  /** @param {string | (string | number)[]} path */
  get(path) {
    return getAt(this.#raw, path);
  }

  /** @param {string | (string | number)[]} path @param {unknown} value @param {How} [how] */
  setAt(path, value, how = {}) {
    this.set(setAt(this.#raw, path, value), { merge: String(path), ...how });
  }

  /** @param {Json} next @param {How} [how] */
  set(next, { rebuild = false, merge = '', typing = false } = {}) {
    if (sameJson(next, this.#raw)) return;
    const now = Date.now();
    const isSoon = typing || now - this.#last.at < MERGE_MS;
    const merged = merge !== '' && !rebuild && merge === this.#last.merge && isSoon;
    if (!merged) this.#past = [...this.#past.slice(1 - STEPS_MAX), this.#raw];
    this.#last = { merge, at: now };
    this.#future = [];
    this.#raw = next;
    this.#changed(rebuild, typing);
  }

  undo() {
    const before = this.#past.pop();
    if (before === undefined) return;
    this.#future.push(this.#raw);
    this.#return(before);
  }

  redo() {
    const next = this.#future.pop();
    if (next === undefined) return;
    this.#past.push(this.#raw);
    this.#return(next);
  }

  /** @param {Json} raw */
  #return(raw) {
    this.#last = { merge: '', at: 0 };
    this.#raw = raw;
    this.#changed(true, false);
  }

  /** Marks the current state as the one that was applied. */
  applied() {
    this.#saved = this.#raw;
  }

  /**
   * The value at a path as controls use it.
   * @param {string | (string | number)[]} path
   * @returns {import('./controls.js').Access}
   */
  access(path) {
    return {
      get: () => this.get(path),
      set: (value, how) => this.setAt(path, value, how),
      fields: () => this.fields,
    };
  }
}
