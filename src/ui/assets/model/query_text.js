// The PromQL of a panel's query: with its variables replaced, and with the ad hoc filters.

import { withMatchers } from './adhoc.js';
import { interpolate } from './interpolate.js';
import { DashboardError, QUERY_MAX } from './limits.js';

/** @typedef {import('./interpolate.js').Selections} Selections */

/**
 * A query with its variables replaced, and with the ad hoc filters of the dashboard.
 * @param {string} text
 * @param {Selections} selections
 * @param {import('./interpolate.js').Context} context
 */
export function queryText(text, selections, context) {
  const filters = [...selections.values()].flatMap(({ type, filters: own }) => (type === 'adhoc' && own ? own : []));
  const expr = withMatchers(interpolate(text, selections, { ...context, format: 'promql' }), filters);
  if (expr.length > QUERY_MAX)
    throw new DashboardError('text_too_long', `The query is over ${QUERY_MAX} characters with its filters.`);
  return expr;
}

/** @type {import('./panel_queries.js').Write} */
export function writeQuery(target, selections, context) {
  const expr = queryText(target.expr, selections, context);
  return expr.trim() === '' ? null : { expr, ask: { expr } };
}
