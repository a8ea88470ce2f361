// Requests of the cabinet, all to its own origin with the session cookie.

import { ApiError, fetchData, readError } from '../chart/request.js';
import { ROOT } from './root.js';

export { ROOT };

const BASE = `${location.origin}${ROOT}/api/v1`;

/** The path of an organisation below /api/v1. @param {string} org */
export const orgPath = (org) => `/orgs/${encodeURIComponent(org)}`;

/** Whether a request failed because the session has ended. @param {unknown} error */
export const isSignedOut = (error) => error instanceof ApiError && error.status === 401;

/** Whether the server does not know the path of a request. @param {unknown} error */
export const isMissing = (error) => error instanceof ApiError && error.status === 404;

/** Dispatches `change` after each request that changed something on the server. */
export const changes = new EventTarget();

/**
 * The absolute path of a path of this server; null for one that leads to another site.
 * @param {string|null|undefined} text
 */
export function ownPath(text) {
  if (!text || !/^\/(?![/\\])[\x21-\x5b\x5d-\x7e]*$/.test(text)) return null;
  const url = new URL(text, location.origin);
  const path = `${url.pathname}${url.search}${url.hash}`;
  if (url.origin !== location.origin || path.startsWith('//')) return null;
  return path === ROOT || path.startsWith(`${ROOT}/`) ? path : `${ROOT}${path}`;
}

/**
 * The URL of a page of this server with parameters.
 * @param {string} path
 * @param {Object<string, string>} parameters
 */
export const pageUrl = (path, parameters) => `${ROOT}${path}?${new URLSearchParams(parameters)}`;

/**
 * The parts of a request besides method and path. `body` is sent as JSON.
 * @typedef {{body?: any, headers?: Record<string, string>, signal?: AbortSignal}} RequestOptions
 */

/** The longest age of an answer of `askEarly` in milliseconds. */
const EARLY_MS = 10_000;
/**
 * Answers to requests of `askEarly` by path, and when they were asked for.
 * @type {Map<string, {answer: Promise<Response>, at: number}>}
 */
const early = new Map();

/** Sends a request in advance; the page's own request gets its answer. @param {string} path below /api/v1 */
export function askEarly(path) {
  const answer = answerTo('GET', path);
  answer.catch(() => null);
  early.set(path, { answer, at: performance.now() });
}

/**
 * Sends a request.
 * @param {string} method
 * @param {string} path below /api/v1
 * @param {RequestOptions} [options]
 * @returns {Promise<Response>}
 * @throws {ApiError} for an error response, and without a response
 */
export function request(method, path, options = {}) {
  const asked = early.get(path);
  // Whatever changes the session or the server makes the others old.
  if (method === 'GET') early.delete(path);
  else early.clear();
  const isFresh = method === 'GET' && asked && performance.now() - asked.at < EARLY_MS;
  return isFresh ? asked.answer : answerTo(method, path, options);
}

/** @param {string} method @param {string} path @param {RequestOptions} [options] @returns {Promise<Response>} */
async function answerTo(method, path, { body, headers = {}, signal } = {}) {
  const response = await fetch(`${BASE}${path}`, {
    method,
    credentials: 'same-origin',
    cache: 'no-store',
    signal,
    headers: body === undefined ? headers : { 'Content-Type': 'application/json', ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  }).catch((error) => {
    if (signal?.aborted) throw error;
    throw new ApiError({ code: 'unreachable', detail: 'The server does not answer. Is it still running?' });
  });
  if (!response.ok) throw await readError(response);
  return response;
}

/**
 * Sends a request. Returns the JSON body, or null for 204.
 * @param {string} method
 * @param {string} path below /api/v1
 * @param {any} [body]
 * @param {RequestOptions} [options]
 * @returns {Promise<any>}
 */
export async function send(method, path, body, options = {}) {
  const response = await request(method, path, { ...options, body });
  const answer = response.status === 204 ? null : await response.json();
  if (method !== 'GET') changes.dispatchEvent(new Event('change'));
  return answer;
}

/**
 * Reads data of an organisation; waits and retries where the server asks for it.
 * @param {string} org
 * @param {string} path below the organisation
 * @param {Object<string, any>} [params] undefined and '' are left out
 * @param {AbortSignal} [signal]
 */
export function readOrg(org, path, params = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== undefined && value !== ''));
  return fetchData({ base: BASE, path: `${orgPath(org)}${path}`, params: query, signal });
}

/**
 * The account that is signed in, or null.
 * @returns {Promise<import('./types.js').Me|null>}
 */
export async function currentUser() {
  try {
    return await send('GET', '/auth/me');
  } catch (error) {
    if (isSignedOut(error)) return null;
    throw error;
  }
}
