// Reads a Grafana dashboard of any public schema version into the model that the page draws.

import { readWith } from './dashboard_reader.js';
import { convertPanel } from './import_legacy.js';

/** @typedef {import('./dashboard_reader.js').Dashboard} Dashboard */
/** @typedef {import('./dashboard_reader.js').Annotation} Annotation */

/**
 * Reads a dashboard. Whatever its shape, it throws nothing but a DashboardError.
 * @param {unknown} json text, or the parsed document; it is never changed
 */
export const readDashboard = (json) => readWith(json, convertPanel);

export { DashboardError } from './limits.js';
