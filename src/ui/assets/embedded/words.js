// What visitors are told about errors: one calm sentence. The reason goes to the page's developers.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';

/** The reason of an error, for events. @param {unknown} error */
export function reasonOf(error) {
  const known = error instanceof ApiError ? error : new ApiError({ code: 'unreadable_answer', detail: String(error) });
  const { code, message, hint, status, requestId, retryAfter } = known;
  return { code, message, hint, status, requestId, retryAfter };
}

/** @param {unknown} error */
export function visitorText(error) {
  const status = error instanceof ApiError ? error.status : -1;
  const code = error instanceof ApiError ? error.code : '';
  if (code === 'no_credential') return 'This dashboard is not set up yet.';
  if (status === 0) return 'There is no connection to the data at the moment.';
  if (status === 401) return 'Access to this dashboard has ended.';
  if (status === 403) return 'This is not shared with you.';
  if (status === 404) return 'This dashboard does not exist any more.';
  if (status === 429 || status >= 500) return 'The server is busy at the moment.';
  return 'This cannot be shown at the moment.';
}

/** Whether the same request may succeed later. @param {unknown} error */
const mayRetry = (error) =>
  !(error instanceof ApiError) ||
  (error.status === 0 && error.code !== 'no_credential') ||
  error.status === 429 ||
  error.status >= 500;

/**
 * The message in place of a panel or of the whole dashboard.
 * @param {string} name of the class
 * @param {unknown} error
 * @param {() => void} retry
 */
export const messageOf = (name, error, retry) =>
  h(
    'div',
    { class: name, role: 'alert' },
    h('p', { text: visitorText(error) }),
    mayRetry(error) && h('button', { type: 'button', text: 'Try again', on: { click: retry } }),
  );

/**
 * @param {(error: unknown) => void} report
 * @returns {import('../components/panel_frame.js').Words}
 */
export const visitorWords = (report) => ({
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
