// The words for an error: one sentence for the visitor of a page, the reason and a hint for its
// author.

/** @typedef {import('./api_error.js').ApiError} ApiError */

/**
 * What follows an error: `never` until an attribute changes; `ask` when the visitor asks for it;
 * `self` after a pause.
 * @typedef {'never'|'ask'|'self'} Retry
 *
 * @typedef {Object} Words
 * @property {string} visitor
 * @property {string} hint '' if the reason says it all
 * @property {Retry} retry
 */

const UNAVAILABLE = 'This chart is not available.';
const MISPLACED = 'This chart cannot be shown on this page.';
const WRONG = 'This chart cannot be drawn.';
const LATER = 'This chart is not available right now.';

/**
 * The words by code: the sentence, the hint, the retry. SERVER and PAGE are origins, ORG is the
 * organisation.
 * @type {Object<string, [string, string, Retry]>}
 */
const BY_CODE = {
  no_credential: [
    'This chart is not set up yet.',
    'Set token-endpoint to a path of this site that returns an embed token, or token to such a token.',
    'never',
  ],
  origin_refused: [
    MISPLACED,
    'Add PAGE to the origins of the API key, and to ms.origins of the token if it has them.',
    'never',
  ],
  blocked_by_page: [MISPLACED, 'Add SERVER to connect-src of the Content-Security-Policy of this page.', 'never'],
  local_network_denied: [
    'The browser does not let this page reach your local network. Allow it for this site, then reload the page.',
    'Browsers ask before a page reaches a local machine; promlet doctor lists which pages can.',
    'never',
  ],
  token_expired: [
    'This chart has expired. Reload the page to see it again.',
    'Set token-endpoint, so that the element gets the next token by itself, or set the attribute token again.',
    'never',
  ],
  token_invalid: [
    UNAVAILABLE,
    'An editor gets the reason from POST SERVER/api/v1/orgs/ORG/embed/introspect or `promlet token inspect`.',
    'never',
  ],
  token_not_yet_valid: [LATER, 'Compare the clocks of the backend that signs and of promlet.', 'ask'],
  org_mismatch: [UNAVAILABLE, 'The token belongs to another organisation than the attribute org.', 'never'],
  embed_restricted: [
    UNAVAILABLE,
    "Widen ms of the token or the policy of its key, or narrow the chart's query.",
    'never',
  ],
  attribute_too_long: [WRONG, 'Shorten the attribute.', 'never'],
  wrong_src: [WRONG, 'Set src to the URL of the server, or leave it out.', 'never'],
  not_a_matrix: [WRONG, 'Write an expression that returns a vector or a scalar.', 'never'],
  offline: ['You are offline. The chart comes back with the connection.', '', 'self'],
  unreachable: [
    'The chart cannot be reached. It comes back by itself.',
    'Check that SERVER runs, that this network reaches it, and that no extension of the browser blocks it.',
    'self',
  ],
  shutting_down: ['The chart cannot be reached. It comes back by itself.', '', 'self'],
  token_endpoint: [LATER, 'See the response of token-endpoint in the network log of the browser.', 'self'],
};

/** @param {number} seconds */
const inSeconds = (seconds) =>
  seconds < 1 ? 'by itself' : seconds < 120 ? `in ${Math.ceil(seconds)} s` : `in ${Math.ceil(seconds / 60)} minutes`;

/**
 * The words for an error of a chart that a page embeds.
 * @param {ApiError} problem
 * @param {{server: string, page: string, org: string}} place
 * @returns {Words}
 */
export function embedWords(problem, { server, page, org }) {
  const { code, status, retryAfter } = problem;
  const words = (/** @type {string} */ visitor, /** @type {string} */ hint, /** @type {Retry} */ retry) => ({
    visitor,
    hint: hint.replace('SERVER', () => server).replace('PAGE', () => page).replace('ORG', () => org || '{slug}'),
    retry,
  });
  if (code === 'token_endpoint' && (status === 401 || status === 403)) {
    return words('This chart needs you to sign in on this page.', BY_CODE.token_endpoint[1], 'ask');
  }
  if (status === 429) {
    const hint = 'Raise embed.rate_limit_rps of the API key, or let the charts refresh less often.';
    return words(`Too many requests. The chart comes back ${inSeconds(retryAfter)}.`, hint, 'self');
  }
  if (Object.hasOwn(BY_CODE, code)) return words(...BY_CODE[code]);
  if (status === 503) return words(`The server is busy. The chart comes back ${inSeconds(retryAfter)}.`, '', 'self');
  if (status === 401 || status === 403) return words(UNAVAILABLE, BY_CODE.token_invalid[1], 'never');
  if (status === 404) return words(UNAVAILABLE, 'Compare the attributes org and src with the server.', 'never');
  if (status >= 400 && status < 500) return words(WRONG, 'Correct the attributes of the query.', 'never');
  return words(LATER, '', 'ask');
}

/** Warnings that were written, at most WARNINGS_MAX of them. @type {Set<string>} */
const written = new Set();
const WARNINGS_MAX = 100;

/**
 * Writes the reason and the hint to the console, once for each reason.
 * @param {ApiError} problem
 * @param {string} server
 */
export function warnOnce({ code, message, hint }, server) {
  const key = `${server} ${code} ${message}`;
  if (written.has(key) || written.size >= WARNINGS_MAX) return;
  written.add(key);
  console.warn(`metric-chart: ${code || 'error'}: ${message}${hint ? ` ${hint}` : ''}`);
}
