// Results that a hostile dashboard may prevent, such as texts that are too long.

import { DashboardError } from './limits.js';

/**
 * The result, or null for a DashboardError.
 * @template T
 * @param {() => T} make
 * @returns {T | null}
 */
export function attempt(make) {
  try {
    return make();
  } catch (error) {
    if (error instanceof DashboardError) return null;
    throw error;
  }
}
