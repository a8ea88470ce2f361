// Why a request to the server got no readable answer, and the words for it.
//
// fetch reports each of these as the same TypeError. Three causes can be proved: the browser is
// offline, the page's policy blocks the request, or the permission for local networks is denied.
// Every origin may read that a token is wrong (docs/specification.md B4). If this page can read
// that and a repeated request fails again, the server refuses to show its answer to this page. A
// file in place of the API would not prove it: caches and proxies have files.

import { ApiError } from './api_error.js';
import { embedWords, warnOnce } from './problems.js';
import { answerOf, tokenSource } from './request.js';
import { pause } from './retry.js';
import { claims } from './token_source.js';

/** All charts of a page share the result of one probe for this long, in milliseconds. */
const PROBE_MS = 2000;
/** The time in which the browser announces a blocked request, in seconds. */
const VIOLATION_S = 0.05;
/** Names of the permission in Chromium: since version 142, and since the loopback has its own. */
const PERMISSIONS = ['local-network-access', 'local-network', 'loopback-network'];

/** The request of an element. @typedef {import('./request.js').DataRequest & {org: string}} Query */

/** Origins that the policy of this page blocks. @type {Set<string>} */
const blocked = new Set();
/** @type {Map<string, {at: number, result: Promise<boolean>}>} */
const probes = new Map();

document.addEventListener('securitypolicyviolation', ({ effectiveDirective, blockedURI }) => {
  if (effectiveDirective === 'connect-src' && URL.canParse(blockedURI)) blocked.add(new URL(blockedURI).origin);
});

/**
 * Whether the API refuses a wrong token, which every origin may read.
 * @param {Query} query
 */
function isReachable({ base, path }) {
  const known = probes.get(base);
  if (known && performance.now() - known.at < PROBE_MS) return known.result;
  const result = answerOf({ base, path }, 'none').then(
    ({ status }) => status === 401,
    () => false,
  );
  probes.set(base, { at: performance.now(), result });
  return result;
}

async function isLocalNetworkDenied() {
  for (const name of PERMISSIONS) {
    const status = await navigator.permissions?.query(/** @type {any} */ ({ name })).catch(() => null);
    if (status?.state === 'denied') return true;
  }
  return false;
}

/**
 * Finds the reason why a request got no answer.
 * @param {Query} query
 * @returns {Promise<ApiError|null>} null if a repeated request got one
 */
async function diagnose(query) {
  const { base, token, tokenEndpoint } = query;
  const error = (/** @type {string} */ code, /** @type {string} */ detail) => new ApiError({ code, detail });
  const origin = URL.parse(base, document.baseURI)?.origin;
  if (!origin) return error('wrong_src', 'The attribute src is no URL.');
  if (await isReachable(query)) {
    const bearer = (await tokenSource({ token, tokenEndpoint })?.take('')) ?? token;
    try {
      await answerOf(query, bearer);
      return null;
    } catch {
      // The server does not let pages read this refusal either.
      const org = claims(bearer ?? '').org;
      if (org !== query.org) return error('org_mismatch', `The token is for ${org}, not for ${query.org}.`);
      return error('origin_refused', `${origin} does not show its answers to ${location.origin}.`);
    }
  }
  // The browser announces a blocked request after it has failed.
  await pause(VIOLATION_S);
  if (navigator.onLine === false) return error('offline', 'The browser is offline.');
  if (blocked.has(origin)) return error('blocked_by_page', `The policy of this page blocks requests to ${origin}.`);
  if (await isLocalNetworkDenied()) {
    return error('local_network_denied', `The browser was told not to let this page reach ${origin}.`);
  }
  return null;
}

/**
 * Explains an error of a chart on a page of another origin, and writes it to the console.
 * @param {ApiError} problem
 * @param {Query|null} query that failed
 * @param {import('./problems.js').Place} place
 * @returns {Promise<{problem: ApiError, words: import('./problems.js').Words}>}
 */
export async function explain(problem, query, place) {
  const found = (problem.code === 'unreachable' && query && (await diagnose(query))) || problem;
  const words = embedWords(found, place);
  found.hint = words.hint;
  warnOnce(found, place);
  return { problem: found, words };
}
