// The text of an error for people.

import { ApiError } from '../chart/request.js';

/** Texts for error codes whose message addresses programs. @type {Object<string, string>} */
const MESSAGES = {
  invalid_credentials: 'The e-mail address or the password is wrong.',
  login_throttled: 'Too many wrong passwords.',
  twofa_throttled: 'Too many wrong codes.',
  mail_throttled: 'Too many e-mails were requested.',
  rate_limited: 'Too many requests.',
  code_already_used: 'The code was already used. The app shows a new one every 30 seconds.',
  pending_login_invalid: 'The sign-in took too long. Please start again.',
  link_invalid: 'The link was already used, or it has expired. Request a new one.',
};

/**
 * The text of an error.
 * @param {unknown} error
 * @param {Object<string, string>} [messages] texts by error code, before the general ones
 */
export function errorText(error, messages = {}) {
  if (!(error instanceof ApiError)) return sentence(error instanceof Error ? error.message : String(error));
  const { code, body, detail, retryAfter } = error;
  if (code === 'invalid_code' && body?.attempts_left !== undefined) {
    return `The code is wrong. ${body.attempts_left} tries left.`;
  }
  const known = [messages, MESSAGES].find((all) => Object.hasOwn(all, code));
  const text = known ? known[code] : sentence(detail);
  return retryAfter > 0 && !/try again/i.test(text) ? `${text} Try again in ${duration(retryAfter)}.` : text;
}

/** @param {string} text */
const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;

/** @param {number} seconds */
function duration(seconds) {
  const minutes = Math.ceil(seconds / 60);
  if (seconds < 120) return seconds === 1 ? 'a second' : `${seconds} seconds`;
  return minutes < 120 ? `${minutes} minutes` : `${Math.ceil(minutes / 60)} hours`;
}
