// The words for an error: the sentence for the visitor of a page, and a hint for its author.

import { visitorWords } from './visitor_words.js';

/**
 * @typedef {import('./api_error.js').ApiError} ApiError
 * @typedef {import('./visitor_words.js').Retry} Retry
 * @typedef {import('./visitor_words.js').Thing} Thing
 *
 * @typedef {Object} Place
 * @property {string} server
 * @property {string} page an origin
 * @property {string} org
 * @property {string} [element] the name of the element; metric-chart by default
 *
 * @typedef {Object} Words
 * @property {string} visitor
 * @property {string} hint '' if the reason says it all
 * @property {Retry} retry
 */

/** The hints by code. SERVER and PAGE are origins, ORG is the organisation. @type {Object<string, string>} */
const HINTS = {
  no_credential: 'Set token-endpoint to a path of this site that returns an embed token, or token to such a token.',
  origin_refused: 'Add PAGE to the origins of the API key, and to ms.origins of the token if it has them.',
  blocked_by_page: 'Add SERVER to connect-src of the Content-Security-Policy of this page.',
  local_network_denied: 'Browsers ask before a page reaches a local machine; promlet doctor lists which pages can.',
  token_expired:
    'Set token-endpoint, so that the element gets the next token by itself, or set the attribute token again.',
  token_invalid:
    'An editor gets the reason from POST SERVER/api/v1/orgs/ORG/embed/introspect or `promlet token inspect`.',
  token_not_yet_valid: 'Compare the clocks of the backend that signs and of promlet.',
  org_mismatch: 'The token belongs to another organisation than the attribute org.',
  embed_restricted: "Widen ms of the token or the policy of its key, or narrow the chart's query.",
  attribute_too_long: 'Shorten the attribute.',
  wrong_src: 'Set src to the URL of the server, or leave it out.',
  not_a_matrix: 'Write an expression that returns a vector or a scalar.',
  offline: '',
  unreachable: 'Check that SERVER runs, that this network reaches it, and that no extension of the browser blocks it.',
  shutting_down: '',
  token_endpoint: 'See the response of token-endpoint in the network log of the browser.',
};

/** @param {ApiError} problem @param {Thing} thing */
function hintOf({ code, status }, thing) {
  if (code === 'embed_restricted' && thing === 'list') {
    return 'Name alerts in the policy of the API key and in ms of the token; endpoints must not leave them out.';
  }
  if (status === 429) return 'Raise embed.rate_limit_rps of the API key, or let the charts refresh less often.';
  if (Object.hasOwn(HINTS, code)) return HINTS[code];
  if (status === 401 || status === 403) return HINTS.token_invalid;
  if (status === 404) return 'Compare the attributes org and src with the server.';
  return status >= 400 && status < 500 ? 'Correct the attributes of the query.' : '';
}

/**
 * The words for an error of an element that a page embeds.
 * @param {ApiError} problem
 * @param {Place} place
 * @returns {Words}
 */
export function embedWords(problem, { server, page, org, element }) {
  const thing = element === 'metric-alerts' ? 'list' : 'chart';
  const { text, retry } = visitorWords(problem, thing, true);
  const hint = hintOf(problem, thing)
    .replace('SERVER', () => server)
    .replace('PAGE', () => page)
    .replace('ORG', () => org || '{slug}');
  return { visitor: text, hint, retry };
}

/** Warnings that were written, at most WARNINGS_MAX of them. @type {Set<string>} */
const written = new Set();
const WARNINGS_MAX = 100;

/**
 * Writes the reason and the hint to the console, once for each reason.
 * @param {ApiError} problem
 * @param {{server: string, element?: string}} place
 */
export function warnOnce({ code, message, hint }, { server, element = 'metric-chart' }) {
  const key = `${server} ${code} ${message}`;
  if (written.has(key) || written.size >= WARNINGS_MAX) return;
  written.add(key);
  console.warn(`${element}: ${code || 'error'}: ${message}${hint ? ` ${hint}` : ''}`);
}
