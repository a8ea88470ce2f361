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
 * @param {string} name
 */
export function applyZone(name) {
  current = name;
  try {
    useTimeZone(name === 'browser' ? undefined : name === 'utc' ? 'UTC' : name);
  } catch {
    current = 'browser';
    useTimeZone(undefined);
  }
  remember(KEY, current);
}

/** Uses the remembered zone. */
export function useStoredZone() {
  const stored = recall(KEY, 'browser');
  applyZone(typeof stored === 'string' ? stored : 'browser');
}
