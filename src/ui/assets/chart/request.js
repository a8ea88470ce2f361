// Requests to a promlet server: credentials, retries, errors.

import { ApiError, readError } from './api_error.js';
import { TokenSource } from './token_source.js';


export { ApiError, readError };

/**
 * @typedef {Object} DataRequest
 * @property {string} base URL of the server, without a slash at its end
 * @property {string} path below it
 * @property {URLSearchParams} [params] in the URL
 * @property {URLSearchParams} [form] sent with POST if there is a token, otherwise in the URL
 * @property {any} [body] sent as JSON with POST
 * @property {string} [token]
 * @property {string} [tokenEndpoint] with `token`, makes it an embed request; without both the
 *   session cookie is sent
 * @property {string} [tag] the ETag of a known response, in whose place 304 is returned
 * @property {AbortSignal} [signal]
 * @property {boolean} [isOnce] whether to throw even if the server asks to wait
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
 *
 * A page of another origin needs a preflight, which browsers reuse for two hours if the URL is the
 * same. Chromium does not reuse it for requests with `no-store`, and with `default` a tag means
 * `no-store`. Requests with a token need neither, and `force-cache` finds nothing: the responses
 * have `Cache-Control: no-store`.
 * @param {DataRequest} request
 * @param {string|undefined} bearer
 * @throws {ApiError} `no_credential` before the request, `unreachable` without a response
 */
export async function answerOf({ base, path, params, form, body, tag, signal }, bearer) {
  if (!bearer && !isOwnOrigin(base)) {
    throw new ApiError({ code: 'no_credential', detail: `A page of another origin than ${base} needs a token.` });
  }
  const query = bearer ? params : (params ?? form);
  const content = body ? JSON.stringify(body) : bearer && form;
  return fetch(`${base}${path}${query ? `?${query}` : ''}`, {
    ...(content && { method: 'POST', body: content }),
    signal,
    cache: bearer ? (tag ? 'force-cache' : 'default') : 'no-store',
    credentials: bearer ? 'omit' : 'same-origin',
    headers: {
      ...(bearer && { Authorization: `Bearer ${bearer}` }),
      ...(body && { 'Content-Type': 'application/json' }),
      ...(tag && !content && { 'If-None-Match': tag }),
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
    if (response.ok || response.status === 304) return response;
    const problem = await readError(response);
    if (source?.mayReplace(problem) && !refused) {
      refused = bearer ?? '';
      continue;
    }
    if (request.isOnce || ![429, 503].includes(problem.status)) throw problem;
    const { waitToRetry } = await import('./later.js');
    await waitToRetry(problem, attempt, request.signal);
  }
}
