// The time under the pointer, shared by the plots of a dashboard as its `graphTooltip` says.

/** @typedef {(time: number | null, tooltip: boolean) => void} Follower `tooltip`: it shows its values, too */

export class Sync {
  /** @type {Set<Follower>} */
  #followers = new Set();
  #mode;
  #frame = 0;
  /** Whether the other plots show a time, or will in the next frame. */
  #shown = false;

  /** @param {() => number} [mode] 0: plots share nothing, 1: the crosshair, 2: the tooltip, too */
  constructor(mode = () => 1) {
    this.#mode = mode;
  }

  /**
   * @param {Follower} follower
   * @returns {() => void} ends it
   */
  follow(follower) {
    this.#followers.add(follower);
    return () => this.#followers.delete(follower);
  }

  /**
   * Passes the time to the other plots in the next frame of the browser.
   * @param {number | null} time in milliseconds; null without a pointer
   * @param {Follower} source
   */
  move(time, source) {
    if (this.#followers.size === Number(this.#followers.has(source))) return;
    const mode = this.#mode();
    if ((mode === 0 || time === null) && !this.#shown) return;
    const shared = mode === 0 ? null : time;
    this.#shown = shared !== null;
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => {
      for (const follower of this.#followers) if (follower !== source) follower(shared, mode === 2);
    });
  }
}
