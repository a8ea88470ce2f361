// Undo and redo over states that are never changed in place.

/** The most steps that can be undone; older ones are forgotten. */
export const STEPS_MAX = 200;

/**
 * @template State
 * @typedef {{state: State, label: string, merge: string}} Step `label` names the change that led to
 *   the state, `merge` the object of a change that continues, such as `move 3`
 */

/** @template State */
export class EditHistory {
  /** @type {Step<State>[]} */
  #steps;
  #at = 0;

  /** @param {State} state */
  constructor(state) {
    this.#steps = [{ state, label: '', merge: '' }];
  }

  get state() {
    return this.#steps[this.#at].state;
  }

  /** The change that `undo` takes back, or an empty text. */
  get undoLabel() {
    return this.#at > 0 ? this.#steps[this.#at].label : '';
  }

  /** The change that `redo` makes again, or an empty text. */
  get redoLabel() {
    return this.#steps[this.#at + 1]?.label ?? '';
  }

  get canUndo() {
    return this.#at > 0;
  }

  get canRedo() {
    return this.#at + 1 < this.#steps.length;
  }

  /**
   * Records a new state. With the same `merge` as the last step, both are one step.
   * @param {State} state
   * @param {string} label
   * @param {string} [merge]
   */
  push(state, label, merge = '') {
    if (state === this.state) return;
    const last = this.#steps[this.#at];
    const continues = merge !== '' && this.#at > 0 && !this.canRedo && last.merge === merge;
    this.#steps.length = this.#at + (continues ? 0 : 1);
    this.#steps.push({ state, label, merge });
    if (this.#steps.length > STEPS_MAX + 1) this.#steps.shift();
    this.#at = this.#steps.length - 1;
  }

  /** Goes back by one step. Returns its label, or null without one. */
  undo() {
    if (!this.canUndo) return null;
    const { label } = this.#steps[this.#at];
    this.#at -= 1;
    return label;
  }

  /** Makes the last step that was undone again. Returns its label, or null without one. */
  redo() {
    if (!this.canRedo) return null;
    this.#at += 1;
    // A change after a redo is a step of its own.
    this.#steps[this.#at].merge = '';
    return this.#steps[this.#at].label;
  }
}
