// The time under the pointer, shared by all plots of a dashboard.

/** @typedef {(time: number | null, source: unknown) => void} Follower */

export class Sync {
  /** @type {Set<Follower>} */
  #followers = new Set();

  /**
   * @param {Follower} follower
   * @returns {() => void} ends it
   */
  follow(follower) {
    this.#followers.add(follower);
    return () => this.#followers.delete(follower);
  }

  /** @param {number | null} time in milliseconds; null without a pointer @param {unknown} source */
  move(time, source) {
    for (const follower of this.#followers) if (follower !== source) follower(time, source);
  }
}
