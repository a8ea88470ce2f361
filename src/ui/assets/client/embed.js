// Calls for sharing: keys that sign embed tokens, tokens, public links, and the setting that permits them.

import { orgPath, request, send } from './server.js';

/**
 * @typedef {import('./types.js').ApiKey} ApiKey
 * @typedef {{token: string, expires_at: string, kid: string}} Minted
 * @typedef {{valid: boolean, reason: string | null, detail: string | null, claims: any, effective: any}}
 *   Introspection
 * @typedef {{id: string, name: string, url: string | null, created_at: string, created_by: string | null,
 *   expires_at: string | null, disabled: boolean, last_used_at: string | null, locked?: any, open?: any}}
 *   PublicLink
 */

/** The most rows of a listing that are read. */
const ROWS_MAX = 1000;

/**
 * The keys whose secret signs embed tokens now; only administrators may list keys.
 * @param {string} org
 * @returns {Promise<{keys: ApiKey[], own: number}>} `own`: how many keys hold a public key in place of a
 *   secret that signs
 */
export async function embedKeys(org) {
  const { data } = await send('GET', `${orgPath(org)}/api-keys?limit=${ROWS_MAX}`);
  const usable = /** @type {ApiKey[]} */ (data).filter(
    ({ scopes, disabled, expires_at: end }) =>
      scopes.includes('embed') && !disabled && (end === null || Date.parse(end) > Date.now()),
  );
  const keys = usable.filter(({ embed }) => embed.alg === 'HS256');
  return { keys, own: usable.length - keys.length };
}

/**
 * The members who may create keys.
 * @param {string} org
 * @returns {Promise<string[]>} their names or addresses
 */
export async function administrators(org) {
  const { data } = await send('GET', `${orgPath(org)}/members?limit=${ROWS_MAX}`);
  return /** @type {{name?: string, email?: string | null, role: string}[]} */ (data)
    .filter(({ role }) => role === 'admin' || role === 'owner')
    .map(({ name, email }) => name || email || '')
    .filter(Boolean);
}

/**
 * @param {string} org
 * @param {{api_key_id: string, ttl_s?: number, ms?: Object<string, any>}} body
 * @returns {Promise<Minted>}
 */
export const mintToken = (org, body) => send('POST', `${orgPath(org)}/embed/tokens`, body);

/**
 * @param {string} org
 * @param {string} token
 * @returns {Promise<Introspection>}
 */
export const introspect = (org, token) => send('POST', `${orgPath(org)}/embed/introspect`, { token });

/** @param {string} org @param {string} uid */
const linksPath = (org, uid) => `${orgPath(org)}/dashboards/${encodeURIComponent(uid)}/links`;

/** @param {string} org @param {string} uid @returns {Promise<PublicLink[]>} */
export async function listLinks(org, uid) {
  const { data } = await send('GET', linksPath(org, uid));
  return data;
}

/** @param {string} org @param {string} uid @param {Object<string, any>} body @returns {Promise<PublicLink>} */
export const createLink = (org, uid, body) => send('POST', linksPath(org, uid), body);

/** @param {string} org @param {string} uid @param {string} id @param {Object<string, any>} body */
export const changeLink = (org, uid, id, body) =>
  send('PATCH', `${linksPath(org, uid)}/${encodeURIComponent(id)}`, body);

/** @param {string} org @param {string} uid @param {string} id */
export const deleteLink = (org, uid, id) => send('DELETE', `${linksPath(org, uid)}/${encodeURIComponent(id)}`);

/** The dashboard as viewers get it. @param {string} org @param {string} uid @returns {Promise<any>} */
export const readView = (org, uid) => send('GET', `${orgPath(org)}/dashboards/${encodeURIComponent(uid)}/view`);
