// The cabinet's calls, all to its own origin with the session cookie.

import { Refusal, ask, refusal } from '../chart/source.js';

/** Where this server's paths begin: empty, or the path of the public URL behind a proxy. */
export const ROOT = new URL('..', import.meta.url).pathname.replace(/\/+$/, '');
const BASE = `${location.origin}${ROOT}/api/v1`;

/** The absolute URL of a path of this server; null for a path that leads to another site. */
export function ownPath(text) {
  if (!text || !/^\/(?![/\\])[\x21-\x5b\x5d-\x7e]*$/.test(text)) return null;
  const url = new URL(text, location.origin);
  const path = `${url.pathname}${url.search}${url.hash}`;
  if (url.origin !== location.origin || path.startsWith('//')) return null;
  return path === ROOT || path.startsWith(`${ROOT}/`) ? path : `${ROOT}${path}`;
}

/** A call that may change something. Answers the JSON body, or null where there is none. */
export async function send(method, path, body) {
  const response = await fetch(`${BASE}${path}`, {
    method,
    credentials: 'same-origin',
    cache: 'no-store',
    headers: body === undefined ? {} : { 'Content-Type': 'application/json' },
    body: body === undefined ? undefined : JSON.stringify(body),
  }).catch(() => { throw new Refusal({ code: 'unreachable', detail: 'The server does not answer. Is it still running?' }); });
  if (!response.ok) throw await refusal(response);
  return response.status === 204 ? null : response.json();
}

/** A question of the organisation; waits and asks again where the server says so. */
export function look(org, path, params = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== undefined && value !== ''));
  return ask({ base: BASE, path: `/orgs/${encodeURIComponent(org)}${path}`, params: query, signal });
}

/** Who is signed in, or null. */
export async function whoAmI() {
  try {
    return await send('GET', '/auth/me');
  } catch (error) {
    if (error.status === 401) return null;
    throw error;
  }
}
