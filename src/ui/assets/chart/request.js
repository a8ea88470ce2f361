// Requests to a promlet server: credentials, retries, and the reason when there is no answer.

import { ApiError, readError } from './api_error.js';
import { diagnose, isOwnOrigin } from './diagnosis.js';
import { TokenSource } from './token_source.js';

/** The longest Retry-After that is honoured, in seconds. */
const WAIT_MAX = 60;
const TRIES_MAX = 4;

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
 * @typedef {Object} DataRequest
 * @property {string} base URL of the server, without a slash at its end
 * @property {string} path below it
 * @property {URLSearchParams} [params]
 * @property {any} [body] sent as JSON with POST
 * @property {string} [token]
 * @property {string} [tokenEndpoint] with `token`, makes it an embed request; without both the
 *   session cookie is sent
 * @property {AbortSignal} [signal]
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
 * Sends one request with a credential. Returns the response, which may be an error.
 * @param {DataRequest} request
 * @param {string|undefined} bearer
 * @throws {ApiError} if there is no response, with the reason
 */
export async function answerOf({ base, path, params, body, signal }, bearer) {
  if (!bearer && !isOwnOrigin(base)) {
    throw new ApiError({ code: 'no_credential', detail: `A page of another origin than ${base} needs a token.` });
  }
  const send = () =>
    fetch(`${base}${path}${params ? `?${params}` : ''}`, {
      method: body === undefined ? 'GET' : 'POST',
      signal,
      cache: 'no-store',
      credentials: bearer ? 'omit' : 'same-origin',
      headers: {
        ...(bearer && { Authorization: `Bearer ${bearer}` }),
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    }).catch((error) => {
      if (error.name === 'AbortError') throw error;
      return null;
    });
  const response = await send();
  if (response) return response;
  const problem = await diagnose(base);
  if (problem) throw problem;
  const repeated = await send();
  if (repeated) return repeated;
  throw new ApiError({ code: 'origin_refused', detail: `${base} does not show its answers to ${location.origin}.` });
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
    await waitToRetry(problem, attempt, request.signal);
  }
}
