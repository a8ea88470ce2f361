// Drafts of dashboards that this browser keeps until they are saved or discarded.

import { isObject, JSON_MAX } from './limits.js';

/**
 * @typedef {{version: number, at: number, document: Record<string, any>, folder: string}} Draft
 *   `version`: the stored version that was edited; `at`: milliseconds since 1970
 */

const PREFIX = 'promlet.draft.';
/** The most drafts of this browser; older ones are removed. */
export const DRAFTS_MAX = 20;
/** Longest draft, in UTF-16 code units, with some room for the fields around the document. */
export const DRAFT_MAX = JSON_MAX + 1024;

/** @param {string} org @param {string} uid */
const keyOf = (org, uid) => `${PREFIX}${encodeURIComponent(org)}/${encodeURIComponent(uid)}`;

/**
 * The keys of all drafts, the oldest first.
 * @param {Storage} storage
 */
function keys(storage) {
  /** @type {{key: string, at: number}[]} */
  const found = [];
  for (let index = 0; index < storage.length; index += 1) {
    const key = storage.key(index);
    if (!key?.startsWith(PREFIX)) continue;
    // The time comes first, so that the document need not be parsed.
    const at = Number(/^\{"at":(\d{1,16}),/.exec((storage.getItem(key) ?? '').slice(0, 32))?.[1] ?? 0);
    found.push({ key, at });
  }
  return found.sort((left, right) => left.at - right.at).map(({ key }) => key);
}

/**
 * Keeps a draft. Older drafts make room for it.
 * @param {Storage | null} storage null where the browser refuses it
 * @param {string} org
 * @param {string} uid
 * @param {Draft} draft
 * @returns {boolean} whether it was kept: it is too large, or the browser refuses
 */
export function keepDraft(storage, org, uid, { at, version, folder, document }) {
  const text = JSON.stringify({ at, version, folder, document });
  if (!storage || text.length > DRAFT_MAX) return false;
  const own = keyOf(org, uid);
  try {
    const others = keys(storage).filter((key) => key !== own);
    for (const key of others.splice(0, Math.max(0, others.length - (DRAFTS_MAX - 1)))) storage.removeItem(key);
    for (;;) {
      try {
        storage.setItem(own, text);
        return true;
      } catch (error) {
        const oldest = others.shift();
        if (!oldest) throw error;
        storage.removeItem(oldest);
      }
    }
  } catch {
    return false;
  }
}

/**
 * The draft of a dashboard; null without one, and for text that is no draft.
 * @param {Storage | null} storage null where the browser refuses it
 * @param {string} org
 * @param {string} uid
 * @returns {Draft | null}
 */
export function findDraft(storage, org, uid) {
  try {
    const text = storage?.getItem(keyOf(org, uid)) ?? '';
    if (text === '' || text.length > DRAFT_MAX) return null;
    const { at, version, folder, document } = JSON.parse(text);
    const usable = Number.isSafeInteger(at) && Number.isSafeInteger(version) && typeof folder === 'string';
    return usable && isObject(document) ? { at, version, folder, document } : null;
  } catch {
    return null;
  }
}

/** @param {Storage | null} storage @param {string} org @param {string} uid */
export function dropDraft(storage, org, uid) {
  try {
    storage?.removeItem(keyOf(org, uid));
  } catch {
    // A browser that refuses storage has no drafts.
  }
}
