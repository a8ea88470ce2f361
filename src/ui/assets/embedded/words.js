// The texts that visitors see for errors: one calm sentence each. The page's developers get the
// reason in an event.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { visitorWords } from '../chart/visitor_words.js';

/** An error that does not come from a server. */
const UNKNOWN = { code: '', status: -1, retryAfter: 0 };

/** The reason of an error, for events. @param {unknown} error */
export function reasonOf(error) {
  const known = error instanceof ApiError ? error : new ApiError({ code: 'unreadable_answer', detail: String(error) });
  const { code, message, hint, status, requestId, retryAfter } = known;
  return { code, message, hint, status, requestId, retryAfter };
}

/** The words for any error. @param {unknown} error */
export const wordsFor = (error) => visitorWords(error instanceof ApiError ? error : UNKNOWN, 'dashboard', false);

/**
 * The message in place of a panel or of the whole dashboard.
 * @param {string} name of the class
 * @param {unknown} error
 * @param {() => void} retry
 */
export function messageOf(name, error, retry) {
  const { text, retry: when } = wordsFor(error);
  return h(
    'div',
    { class: name, role: 'alert' },
    h('p', { text }),
    when !== 'never' && h('button', { type: 'button', text: 'Try again', on: { click: retry } }),
  );
}

/**
 * @param {(error: unknown) => void} report
 * @returns {import('../components/panel_frame.js').Words}
 */
export const panelWords = (report) => ({
  problem(error, _, retry) {
    report(error);
    return messageOf('panel-error', error, retry);
  },
  late(error) {
    report(error);
    return 'Not up to date';
  },
  // Notes are about queries and transformations, which visitors cannot change.
  notes: () => [],
});
