// The time zone that this browser shows times in: that of the browser, UTC, or a named one.

import { useTimeZone } from '../chart/scale.js';
import { recall, remember } from '../model/storage.js';

const KEY = 'zone';
let current = 'browser';

/** The chosen zone: `browser`, `utc` or an IANA name. */
export const zoneName = () => current;

/**
 * Uses a zone for the texts and ticks of all charts and tables, and remembers it. An unknown one
 * counts as the browser's.
 * @param {unknown} name
 */
export function applyZone(name) {
  current = isZone(name) ? name : 'browser';
  useTimeZone(current);
  remember(KEY, current);
}

/** Uses the remembered zone. */
export const useStoredZone = () => applyZone(recall(KEY, 'browser'));

/** @param {unknown} name @returns {name is string} */
function isZone(name) {
  if (typeof name !== 'string') return false;
  if (name === 'browser' || name === 'utc') return true;
  try {
    return Boolean(new Intl.DateTimeFormat('en', { timeZone: name }));
  } catch {
    return false;
  }
}
