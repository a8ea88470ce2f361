// Puts points of a live query into the responses of a chart.

import { fullName } from './scale.js';

/** A live chart holds at most this many series; columns.js draws fewer. */
const SERIES_MAX = 2000;
/** Times that differ by less are the same step, in seconds. */
const SAME_S = 1e-3;

/**
 * @typedef {{metric?: Object<string, string>, values?: [number, string][]}} Row
 * @typedef {Pick<import('./loader.js').Loader, 'answer'|'tail'|'query'>} Responses
 */

export class LivePoints {
  #to;
  /** @type {Map<string, Row>} */
  #rows;

  /** @param {Responses} to responses of a matrix, which no other points enter meanwhile */
  constructor(to) {
    this.#to = to;
    this.#rows = new Map(
      (to.answer?.data?.result ?? []).map((/** @type {Row} */ row) => [fullName(row.metric ?? {}), row]),
    );
  }

  /**
   * Takes the points of one step. The window moves on with the grid; points between its steps are
   * the tail.
   * @param {number} time unix seconds
   * @param {Row[]} matrix
   */
  append(time, matrix) {
    const { query, answer, tail } = this.#to;
    if (!query || !(time >= query.grid.start)) return;
    const { grid } = query;
    const step = grid.end + Math.round((time - grid.end) / grid.step) * grid.step;
    if (Math.abs(time - step) > SAME_S) {
      if (time > Math.max(grid.end, tail?.time ?? 0)) this.#to.tail = { time, matrix };
      return;
    }
    if (step > grid.end) {
      [grid.start, grid.end] = [grid.start + step - grid.end, step];
      answer.query = { ...answer.query, start: grid.start, end: grid.end };
    }
    this.insert(matrix);
    if (tail && tail.time <= grid.end) this.#to.tail = null;
  }

  /**
   * Takes points of steps of the grid. A point replaces one of its time. Points before the window
   * leave it.
   * @param {Row[]} matrix
   */
  insert(matrix) {
    const { query, answer } = this.#to;
    if (!query || !answer?.data) return;
    for (const { metric = {}, values = [] } of matrix) {
      const name = fullName(metric);
      const known = this.#rows.get(name);
      if (known) known.values = merged(known.values ?? [], values);
      else if (this.#rows.size < SERIES_MAX) this.#rows.set(name, { metric, values: [...values] });
    }
    const start = query.grid.start - SAME_S;
    for (const [name, row] of this.#rows) {
      const first = row.values?.findIndex(([time]) => time >= start) ?? -1;
      if (first < 0) this.#rows.delete(name);
      else if (first > 0) row.values?.splice(0, first);
    }
    answer.data.result = [...this.#rows.values()];
  }
}

/**
 * Two lists of points in the order of time; a point of `more` replaces one of its time.
 * @param {[number, string][]} points is changed
 * @param {[number, string][]} more
 * @returns {[number, string][]}
 */
function merged(points, more) {
  const last = points.at(-1)?.[0] ?? -Infinity;
  if (more.every(([time], index) => time > (index > 0 ? more[index - 1][0] : last))) {
    points.push(...more);
    return points;
  }
  const all = new Map([...points, ...more].map((point) => [point[0], point]));
  return [...all.values()].sort((a, b) => a[0] - b[0]);
}
