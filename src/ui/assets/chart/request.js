// Requests to a promlet server: credentials, retries, errors.

import { ApiError, readError } from './api_error.js';
import { TokenSource } from './token_source.js';

/** The longest Retry-After that is honoured, in seconds. */
const WAIT_MAX = 60;
const TRIES_MAX = 4;
/** The longest pause that no server asked for, in seconds. */
const PAUSE_MAX = 30;

export { ApiError, readError };

/**
 * Resolves after `seconds`; rejects at once when the request is aborted.
 * @param {number} seconds
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener(
      'abort',
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });
}

/**
 * Waits as long as a refused request asks for. Throws the error where a retry would not help: 429 and
 * busy responses carry Retry-After, but a timed-out query would time out again.
 * @param {unknown} error
 * @param {number} attempt the number of requests so far
 * @param {AbortSignal} [signal]
 */
export async function waitToRetry(error, attempt, signal) {
  if (!(error instanceof ApiError) || ![429, 503].includes(error.status) || attempt >= TRIES_MAX) throw error;
  const wait = error.retryAfter || (error.status === 429 ? 1 : 0);
  if (wait === 0 || wait > WAIT_MAX) throw error;
  // Jitter spreads the retries.
  await pause(wait + Math.random() * 0.5, signal);
}

/**
 * The pause before the next try, in seconds. Half of it is random, so that the pages of a restarted
 * server do not come at once.
 * @param {number} failures in a row, at least 1
 * @param {number} asked Retry-After, or 0
 * @param {number} random at least 0, below 1
 */
export function reconnectPause(failures, asked, random) {
  const pause = Math.min(PAUSE_MAX, 2 ** Math.min(failures - 1, 10));
  return asked > 0 ? asked + random * Math.min(asked, PAUSE_MAX) : pause * (0.5 + random / 2);
}

/**
 * @typedef {Object} DataRequest
 * @property {string} base URL of the server, without a slash at its end
 * @property {string} path below it
 * @property {URLSearchParams} [params]
 * @property {any} [body] sent as JSON with POST
 * @property {string} [token]
 * @property {string} [tokenEndpoint] with `token`, makes it an embed request; without both the
 *   session cookie is sent
 * @property {AbortSignal} [signal]
 * @property {number} [tries] requests at most, where the server asks to wait; default TRIES_MAX
 */

/**
 * The source of tokens of a request; null for a fixed token and for the session cookie.
 * @param {{token?: string, tokenEndpoint?: string}} request
 */
export function tokenSource({ token, tokenEndpoint }) {
  const source = tokenEndpoint ? TokenSource.at(tokenEndpoint) : null;
  source?.offer(token);
  return source;
}

/**
 * Whether a server has the origin of this page, which may use the session cookie.
 * @param {string} base URL of the server; one without an origin is relative to the page
 */
export const isOwnOrigin = (base) =>
  !globalThis.location || URL.parse(base, document.baseURI)?.origin === location.origin;

/**
 * Sends one request with a credential. Returns the response, which may be an error.
 * @param {DataRequest} request
 * @param {string|undefined} bearer
 * @throws {ApiError} `no_credential` before the request, `unreachable` without a response
 */
export async function answerOf({ base, path, params, body, signal }, bearer) {
  if (!bearer && !isOwnOrigin(base)) {
    throw new ApiError({ code: 'no_credential', detail: `A page of another origin than ${base} needs a token.` });
  }
  return fetch(`${base}${path}${params ? `?${params}` : ''}`, {
    ...(body && { method: 'POST', body: JSON.stringify(body) }),
    signal,
    cache: 'no-store',
    credentials: bearer ? 'omit' : 'same-origin',
    headers: {
      ...(bearer && { Authorization: `Bearer ${bearer}` }),
      ...(body && { 'Content-Type': 'application/json' }),
    },
  }).catch((error) => {
    if (error.name === 'AbortError') throw error;
    throw new ApiError({ code: 'unreachable', detail: `No answer from ${base}.` });
  });
}

/**
 * Returns the JSON of a data endpoint.
 * @param {DataRequest} request
 * @returns {Promise<any>}
 */
export const fetchData = async (request) => (await fetchAnswer(request)).json();

/**
 * Returns the response of a data endpoint; retries where the server asks for it with Retry-After.
 * @param {DataRequest} request
 * @returns {Promise<Response>}
 */
export async function fetchAnswer(request) {
  const source = tokenSource(request);
  let refused = '';
  for (let attempt = 1; ; attempt += 1) {
    const bearer = source ? await source.take(refused) : request.token;
    const response = await answerOf(request, bearer);
    if (response.ok) return response;
    const problem = await readError(response);
    if (source?.mayReplace(problem) && !refused) {
      refused = bearer ?? '';
      continue;
    }
    if (attempt >= (request.tries ?? TRIES_MAX)) throw problem;
    await waitToRetry(problem, attempt, request.signal);
  }
}
