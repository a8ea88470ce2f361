// The cost of a query while it is typed: a quiet line, or the error that the server found.

import { ApiError } from '../chart/request.js';
import { niceStep } from '../chart/scale.js';
import { readOrg } from '../client/server.js';
import { costText } from '../model/cost.js';
import { looksComplete } from '../model/promql_tokens.js';

/** The pause after the last key press before the cost is requested, in milliseconds. */
const PAUSE_MS = 500;
const POINTS = 300;

/**
 * @param {{org: string, line: HTMLElement, span: () => {start: number, end: number},
 *   invalid: (expr: string, error: ApiError) => void}} options
 *   `span` is the range that would be queried, in unix seconds; `invalid` is called for an error of the query's text
 */
export function estimator({ org, line, span, invalid }) {
  let timer = 0;
  /** @type {AbortController | null} */
  let request = null;
  /** @type {number | null} */
  let msPerSample = null;

  const clear = () => {
    clearTimeout(timer);
    request?.abort();
    line.textContent = '';
    line.classList.remove('over');
  };
  const say = (/** @type {string} */ text, /** @type {boolean} */ over) => {
    line.textContent = text;
    line.classList.toggle('over', over);
  };
  const load = async (/** @type {string} */ expr) => {
    request = new AbortController();
    const { signal } = request;
    const { start, end } = span();
    try {
      const params = { expr, start, end, step: niceStep(end - start, POINTS) };
      const { data } = await readOrg(org, '/query/estimate', params, signal);
      if (signal.aborted) return;
      const { text, over } = costText(data, msPerSample);
      say(text, over);
    } catch (error) {
      if (signal.aborted || !(error instanceof ApiError)) return;
      if (error.code === 'bad_expr') invalid(expr, error);
      else if (error.status === 422) say(error.message, true);
    }
  };
  return {
    clear,
    /** The text was edited. @param {string} text */
    edited(text) {
      clear();
      const expr = text.trim();
      // Half of an expression is not sent: its error is no news.
      if (looksComplete(expr)) timer = setTimeout(() => load(expr), PAUSE_MS);
    },
    /**
     * Learns the speed of this server from an answer.
     * @param {import('../client/types.js').QueryStats} stats
     */
    learn({ samples = 0, elapsed_ms: ms = 0 }) {
      if (samples >= 1000 && ms > 0) msPerSample = ms / samples;
    },
  };
}
