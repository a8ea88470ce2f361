// The texts that visitors of a page see for an error: one or two calm sentences. The only table of
// them.

/** @typedef {'chart' | 'dashboard' | 'list'} Thing */

/**
 * The next step after an error: `never` until an attribute changes; `ask` when the visitor asks for
 * it; `self` after a pause.
 * @typedef {'never'|'ask'|'self'} Retry
 */

const UNAVAILABLE = 'This THING is not available.';
const MISPLACED = 'This THING cannot be shown on this page.';
const WRONG = 'This THING cannot be drawn.';
const LATER = 'This THING is not available right now.';
const UNREACHABLE = 'The THING cannot be reached.';

/**
 * The sentence and the retry by code. THING is the kind of element.
 * @type {Object<string, [string, Retry]>}
 */
const BY_CODE = {
  no_credential: ['This THING is not set up yet.', 'never'],
  origin_refused: [MISPLACED, 'never'],
  blocked_by_page: [MISPLACED, 'never'],
  local_network_denied: [
    'The browser does not let this page reach your local network. Allow it for this site, then reload the page.',
    'never',
  ],
  token_expired: ['This THING has expired. Reload the page to see it again.', 'never'],
  token_invalid: [UNAVAILABLE, 'never'],
  token_not_yet_valid: [LATER, 'ask'],
  org_mismatch: [UNAVAILABLE, 'never'],
  embed_restricted: [UNAVAILABLE, 'never'],
  attribute_too_long: [WRONG, 'never'],
  wrong_src: [WRONG, 'never'],
  not_a_matrix: [WRONG, 'never'],
  offline: ['You are offline.', 'self'],
  unreachable: [UNREACHABLE, 'self'],
  shutting_down: [UNREACHABLE, 'self'],
  token_endpoint: [LATER, 'self'],
};

/** @param {number} seconds */
const inSeconds = (seconds) =>
  seconds < 1 ? 'by itself' : seconds < 120 ? `in ${Math.ceil(seconds)} s` : `in ${Math.ceil(seconds / 60)} minutes`;

/** @param {{code: string, status: number}} problem @returns {[string, Retry]} */
function wordsOf({ code, status }) {
  if (code === 'token_endpoint' && (status === 401 || status === 403)) {
    return ['This THING needs you to sign in on this page.', 'ask'];
  }
  if (status === 429) return ['Too many requests.', 'self'];
  if (Object.hasOwn(BY_CODE, code)) return BY_CODE[code];
  if (status === 503) return ['The server is busy.', 'self'];
  if (status === 401 || status === 403 || status === 404) return [UNAVAILABLE, 'never'];
  if (status >= 400 && status < 500) return [WRONG, 'never'];
  return [LATER, 'ask'];
}

/** The text while an element retries. @param {{code: string, retryAfter: number}} problem */
function promiseOf({ code, retryAfter }) {
  if (code === 'token_endpoint') return '';
  if (code === 'offline') return ' The THING comes back with the connection.';
  if (code === 'unreachable' || code === 'shutting_down') return ' It comes back by itself.';
  return ` The THING comes back ${inSeconds(retryAfter)}.`;
}

/**
 * @param {{code: string, status: number, retryAfter: number}} problem
 * @param {Thing} thing
 * @param {boolean} returns whether the element tries again by itself where that may help
 * @returns {{text: string, retry: Retry}}
 */
export function visitorWords(problem, thing, returns) {
  const [sentence, retry] = wordsOf(problem);
  const text = retry === 'self' && returns ? sentence + promiseOf(problem) : sentence;
  return { text: text.replaceAll('THING', thing), retry: retry === 'self' && !returns ? 'ask' : retry };
}
