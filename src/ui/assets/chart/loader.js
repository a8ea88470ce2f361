// Loads the responses of a chart: the grid of steps, and the tail that makes it end now.

import { problemOf } from './api_error.js';
import { GRID_ONLY_STEP_MAX } from './query.js';
import { fetchAnswer, fetchData } from './request.js';

/** A scheduled refresh without a new step keeps the grid's response this long, in milliseconds. */
const KEEP_MS = 300_000;
/**
 * A younger response may lack samples of its last step that had not arrived yet, in milliseconds.
 */
const SETTLE_MS = 60_000;

/**
 * @typedef {import('./query.js').ChartQuery} ChartQuery
 * @typedef {{time: number, matrix: any[]}} Tail
 */

/**
 * Returns the responses to several range queries of one expression, from one request.
 * @param {import('./request.js').DataRequest} request with the path of one query
 * @param {URLSearchParams[]} forms of the queries
 * @returns {Promise<any[]>}
 * @throws {import('./api_error.js').ApiError} the first error of a query
 */
async function fetchBatch(request, forms) {
  const queries = forms.map((form, at) => ({ id: String(at), type: 'range', ...Object.fromEntries(form) }));
  const path = request.path.replace(/[^/]+$/, 'batch');
  const response = await fetchAnswer({ ...request, path, form: undefined, body: { queries } });
  const lines = (await response.text()).trim().split('\n');
  const answers = lines.map((line) => JSON.parse(line));
  return queries.map((query) => {
    const { id, ...answer } = answers.find((one) => one.id === query.id);
    if (answer.status === 'error') throw problemOf(answer);
    return answer;
  });
}

/** The responses of one chart. */
export class Loader {
  /** The response of the grid as the server sent it. @type {any} */
  answer = null;
  /** The response of the point after the grid. @type {Tail|null} */
  tail = null;
  /** The query of both requests. @type {ChartQuery|null} */
  query = null;
  /** @type {any} */
  #tailStats = null;
  /** `Date.now()` of the grid's response. */
  #answeredAt = 0;
  /** @type {AbortController|null} */
  #request = null;

  /** Aborts a request under way. */
  abort() {
    this.#request?.abort();
  }

  clear() {
    [this.answer, this.tail, this.query] = [null, null, null];
  }

  /** The response of the grid with the cost of both. */
  get summary() {
    const [grid, tail] = [this.answer?.stats ?? {}, this.#tailStats ?? {}];
    const sum = (/** @type {string} */ name) => (grid[name] === undefined ? undefined : grid[name] + (tail[name] ?? 0));
    const series = Math.max(grid.series ?? 0, tail.series ?? 0);
    return { ...this.answer, stats: { ...grid, series, samples: sum('samples'), elapsed_ms: sum('elapsed_ms') } };
  }

  /**
   * Loads both. Returns false if a newer call replaced this one.
   * @param {ChartQuery} query
   * @param {boolean} scheduled whether a response of the same steps may be kept
   * @param {() => void} accept called before the responses change
   * @param {boolean} [isEmbedded] whether a page of another origin asks: an expression takes one
   *   request, because each of two may need a preflight, and an error is thrown even if the server
   *   asks to wait
   * @throws {import('./api_error.js').ApiError} unless a newer call replaced this one
   */
  async load(query, scheduled, accept, isEmbedded) {
    this.abort();
    const request = new AbortController();
    const { signal } = request;
    this.#request = request;
    const kept = scheduled && this.#keeps(query) ? this.answer : null;
    const forms = [...(kept ? [] : [query.form]), ...(query.tailForm ? [query.tailForm] : [])];
    const one = { ...query, signal, isOnce: isEmbedded };
    try {
      // Without a tail at a moment on the grid as well, so that the URL stays the same.
      const mayHaveTail = query.tailForm !== null || query.grid.step > GRID_ONLY_STEP_MAX;
      const answers =
        isEmbedded && query.expr && mayHaveTail && forms.length > 0
          ? await fetchBatch(one, forms)
          : await Promise.all(forms.map((form) => fetchData({ ...one, form })));
      const [answer, tail] = kept ? [kept, ...answers] : answers;
      if (signal.aborted) return false;
      accept();
      if (!kept) this.#answeredAt = Date.now();
      [this.answer, this.query] = [answer, query];
      this.tail = tail && query.grid.tail !== null ? { time: query.grid.tail, matrix: tail.data?.result ?? [] } : null;
      this.#tailStats = tail?.stats ?? null;
      return true;
    } catch (error) {
      if (signal.aborted) return false;
      throw error;
    }
  }

  /**
   * Whether the response of the grid is still right: the same query and steps, and its last step is
   * complete.
   * @param {ChartQuery} query
   */
  #keeps({ identity, grid }) {
    const known = this.query;
    return (
      known !== null &&
      grid.tail !== null &&
      identity === known.identity &&
      grid.start === known.grid.start &&
      grid.end === known.grid.end &&
      this.#answeredAt >= grid.end * 1000 + SETTLE_MS &&
      Date.now() - this.#answeredAt < KEEP_MS
    );
  }
}
