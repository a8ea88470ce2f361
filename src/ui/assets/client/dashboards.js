// Calls to the dashboards of an organisation: list, read, save, versions, stars.

import { ApiError } from '../chart/request.js';
import { orgPath, send } from './server.js';

/**
 * @typedef {{uid: string, title: string, folder: string, tags: string[], version: number, updated_at: string,
 *   updated_by: string | null, starred: boolean, panels: number, queries: number, provisioned: boolean}} Entry
 * @typedef {Entry & {dashboard: any}} Stored
 * @typedef {{version: number, saved_at?: string, saved_by?: string | null, message?: string}} Version
 * @typedef {{version: number, dashboard: any}} StoredVersion
 */

/** The most pages of a listing that are read. */
const PAGES_MAX = 50;

/**
 * @param {string} org
 * @param {string} method
 * @param {string} path below `/dashboards`
 * @param {{body?: any, version?: number, signal?: AbortSignal}} [options] `version`: the one that is
 *   changed, sent as `If-Match`
 * @returns {Promise<any>} null for 204
 */
const call = (org, method, path, { body, version, signal } = {}) =>
  send(method, `${orgPath(org)}/dashboards${path}`, body, {
    headers: version === undefined ? {} : { 'If-Match': `"${version}"` },
    signal,
  });

const at = (/** @type {string} */ uid) => `/${encodeURIComponent(uid)}`;

/**
 * All dashboards that match.
 * @param {string} org
 * @param {{q?: string, tag?: string, folder?: string}} filter empty texts are left out
 * @param {AbortSignal} [signal]
 * @returns {Promise<Entry[]>}
 */
export async function listDashboards(org, filter, signal) {
  /** @type {Entry[]} */
  const all = [];
  const given = Object.entries(filter).filter(([, value]) => value);
  let cursor = '';
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const query = new URLSearchParams([...given, ...(cursor ? [['cursor', cursor]] : [])]);
    const { data, next_cursor: next } = await call(org, 'GET', `?${query}`, { signal });
    all.push(...data);
    if (!next) break;
    cursor = next;
  }
  return all;
}

/** @param {string} org @param {string} uid @returns {Promise<Stored>} */
export const readStored = (org, uid) => call(org, 'GET', at(uid));

/**
 * @param {string} org
 * @param {{dashboard: any, folder?: string, message?: string}} body
 * @returns {Promise<Entry>}
 */
export const createDashboard = (org, body) => call(org, 'POST', '', { body });

/**
 * Saves a new version of the dashboard whose current version is `version`.
 * @param {string} org
 * @param {string} uid
 * @param {number} version
 * @param {{dashboard: any, folder?: string, message?: string}} body
 * @returns {Promise<Entry>}
 */
export const saveDashboard = (org, uid, version, body) => call(org, 'PUT', at(uid), { body, version });

/** @param {string} org @param {string} uid @param {number} version */
export const deleteDashboard = (org, uid, version) => call(org, 'DELETE', at(uid), { version });

/** @param {string} org @param {string} uid @returns {Promise<Version[]>} newest first */
export async function listVersions(org, uid) {
  const { data } = await call(org, 'GET', `${at(uid)}/versions`);
  return [...data].sort((left, right) => right.version - left.version);
}

/** @param {string} org @param {string} uid @param {number} number @returns {Promise<StoredVersion>} */
export const readVersion = (org, uid, number) => call(org, 'GET', `${at(uid)}/versions/${number}`);

/** @param {string} org @param {string} uid @param {number} number @param {number} version the current one */
export const restoreVersion = (org, uid, number, version) =>
  call(org, 'POST', `${at(uid)}/versions/${number}/restore`, { version });

/** @param {string} org @param {string} uid @param {boolean} starred */
export const setStar = (org, uid, starred) => call(org, starred ? 'PUT' : 'DELETE', `${at(uid)}/star`);

/** Whether the dashboard has changed since it was read. @param {unknown} error */
export const isConflict = (error) => error instanceof ApiError && error.status === 412;
