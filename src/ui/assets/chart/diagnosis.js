// Why a request to the server got no readable answer.
//
// fetch reports each of these as the same TypeError. What is provable: the browser knows that it is
// offline, it announces requests that the page's policy blocks, it states a denied permission for
// local networks, and the element's module is readable from any origin. If that module can be read
// and a repeated request fails again, the server refuses to show its answer to this page.

import { ApiError } from './api_error.js';

/** All charts of a page share the result of one probe for this long, in milliseconds. */
const PROBE_MS = 2000;
/** Names of the permission in Chromium: since version 142, and since the loopback has its own. */
const PERMISSIONS = ['local-network-access', 'local-network', 'loopback-network'];

/** Origins that the policy of this page blocks. @type {Set<string>} */
const blocked = new Set();
/** @type {Map<string, {at: number, result: Promise<boolean>}>} */
const probes = new Map();

if (globalThis.document) {
  document.addEventListener('securitypolicyviolation', ({ effectiveDirective, blockedURI }) => {
    if (effectiveDirective === 'connect-src' && URL.canParse(blockedURI)) blocked.add(new URL(blockedURI).origin);
  });
}

/**
 * Whether a server has the origin of this page, which may use the session cookie.
 * @param {string} base URL of the server; one without an origin is relative to the page
 */
export const isOwnOrigin = (base) =>
  !globalThis.location || new URL(base, document.baseURI).origin === location.origin;

/**
 * Whether a server answers with a file that every origin may read.
 * @param {string} base
 */
function isReachable(base) {
  const known = probes.get(base);
  if (known && performance.now() - known.at < PROBE_MS) return known.result;
  const result = fetch(`${base}/embed.js`, { method: 'HEAD', cache: 'no-store', credentials: 'omit' }).then(
    (response) => response.ok,
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
 * Returns the reason why a request failed; null if the server is reachable, so that a repeated
 * request tells whether it refuses this page.
 * @param {string} base URL of the server, without a slash at its end
 * @returns {Promise<ApiError|null>}
 */
export async function diagnose(base) {
  const { origin, protocol } = new URL(base, globalThis.document?.baseURI);
  const error = (/** @type {string} */ code, /** @type {string} */ detail) => new ApiError({ code, detail });
  const own = isOwnOrigin(base);
  if (!own && (await isReachable(base))) return null;
  if (navigator.onLine === false) return error('offline', 'The browser is offline.');
  if (blocked.has(origin)) return error('blocked_by_page', `The policy of this page blocks requests to ${origin}.`);
  if (!own && (await isLocalNetworkDenied())) {
    return error('local_network_denied', `The browser was told not to let this page reach ${origin}.`);
  }
  if (globalThis.location?.protocol === 'https:' && protocol === 'http:' && !isSecureContextHost(origin)) {
    return error('mixed_content', `This page is https, but ${origin} is not.`);
  }
  return error('unreachable', `No answer from ${base}.`);
}

/**
 * Whether browsers treat an http origin as secure: a loopback address.
 * @param {string} origin
 */
function isSecureContextHost(origin) {
  return /^http:\/\/(localhost|[\w.-]+\.localhost|127(\.\d+){3}|\[::1\])(:|$)/.test(origin);
}
