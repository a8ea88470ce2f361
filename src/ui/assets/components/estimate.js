// The cost of a query while it is typed: a quiet line, or the error that the server found.

import { ApiError } from '../chart/request.js';
import { readOrg } from '../client/server.js';
import { costText } from '../model/cost.js';
import { looksComplete } from '../model/promql_tokens.js';

/** The pause after the last key press before the cost is requested, in milliseconds. */
const PAUSE_MS = 500;

/**
 * @param {{org: string, line: HTMLElement, params: () => Record<string, number>, speed: () => number | null,
 *   invalid: (expr: string, error: ApiError) => void}} options
 *   `params` are those of the request that would be sent, `speed` is the time of a sample in milliseconds; `invalid` is
 *   called for an error of the query's text
 */
export function estimator({ org, line, params, speed, invalid }) {
  let timer = 0;
  /** The limit of samples of this organisation; null for the server's. @type {Promise<number | null> | null} */
  let samplesMax = null;
  /** @type {AbortController | null} */
  let request = null;

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
    try {
      samplesMax ??= readOrg(org, '').then(({ settings }) => settings?.max_samples_per_query ?? null).catch(() => null);
      const [{ data }, limit] = await Promise.all([
        readOrg(org, '/query/estimate', { expr, ...params() }, signal),
        samplesMax,
      ]);
      if (signal.aborted) return;
      const { text, over } = costText(data, speed(), limit);
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
  };
}
