// Beside the query of the explore page: earlier queries, the formatter, and the estimated cost.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { readOrg } from '../client/server.js';
import { errorText } from '../model/error_text.js';

/** Smaller answers say little about the time of a sample. */
const LEARNED_MIN = 1000;

/**
 * @typedef {ReturnType<typeof import('./query_input.js').queryInput>} QueryInput
 */

/**
 * @param {{org: string, params: () => Record<string, number>, input: () => QueryInput,
 *   invalid: (expr: string, error: ApiError) => void}} options
 *   `params` are those of the request that would be sent; `invalid` is called for an error of the query's text
 */
export function queryTools({ org, params, input, invalid }) {
  const estimate = h('p', { class: 'estimate', role: 'status' });
  const keys = h(
    'p',
    { class: 'hint', id: 'query-hint' },
    h('kbd', { text: 'Enter' }),
    ' or ',
    h('kbd', { text: 'Ctrl+Enter' }),
    ' runs, ',
    h('kbd', { text: 'Shift+Enter' }),
    ' adds a line, ',
    h('kbd', { text: '↑' }),
    ' goes to earlier queries, ',
    h('kbd', { text: '/' }),
    ' returns to this field',
  );
  const line = h('div', { class: 'ask-line' }, estimate, keys);
  /** @type {ReturnType<typeof import('./estimate.js').estimator>|null} */
  let estimates = null;
  let cleared = false;
  /** @type {number|null} */
  let msPerSample = null;
  const say = (/** @type {string} */ text) => {
    estimate.textContent = text;
    estimate.classList.toggle('over', text !== '');
  };

  const format = async () => {
    const { input: field, rewrite } = input();
    const before = field.value;
    const expr = before.trim();
    if (!expr) return;
    try {
      const { data } = await readOrg(org, '/prometheus/api/v1/format_query', { query: expr });
      if (field.value === before && data !== before) rewrite(data);
    } catch (error) {
      if (error instanceof ApiError && error.status === 400) invalid(expr, error);
      else say(errorText(error));
    }
  };
  const past = h('button', {
    type: 'button',
    class: 'plain',
    'aria-haspopup': 'dialog',
    'aria-expanded': 'false',
    text: 'History',
    on: {
      click: async () => {
        const { openHistory } = await import('./query_history.js');
        openHistory(past, { org, choose: (expr) => input().rewrite(expr) });
      },
    },
  });
  return {
    buttons: [
      h('div', { class: 'anchor' }, past),
      h('button', { type: 'button', class: 'plain', text: 'Format', on: { click: format } }),
    ],
    line,
    /** @param {string} text */
    async edited(text) {
      cleared = false;
      const { estimator } = await import('./estimate.js');
      estimates ??= estimator({ org, line: estimate, params, invalid, speed: () => msPerSample });
      if (!cleared) estimates.edited(text);
    },
    clear() {
      cleared = true;
      estimates?.clear();
      say('');
    },
    /**
     * Learns the speed of this server from an answer.
     * @param {import('../client/types.js').QueryStats} stats
     */
    learn({ samples = 0, elapsed_ms: ms = 0 }) {
      if (samples >= LEARNED_MIN && ms > 0) msPerSample = ms / samples;
    },
  };
}
