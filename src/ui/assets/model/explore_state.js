// The state of the explore page, as the query string of its address.

import { parseDuration } from '../chart/scale.js';

/**
 * @typedef {Object} State
 * @property {string} org
 * @property {string} expr
 * @property {string} range a duration such as 1h
 * @property {{start: number, end: number}|null} zoom a fixed range in unix seconds
 * @property {'chart'|'table'} tab
 */

/**
 * Reads `?org=&expr=&range=&tab=`, with `start` and `end` for a fixed range. Values that are not
 * understood are the defaults.
 * @param {string} search
 * @returns {State}
 */
export function readAddress(search) {
  const parameters = new URLSearchParams(search);
  const moment = (/** @type {string} */ name) =>
    Number(parameters.get(name)) > 0 ? Number(parameters.get(name)) : null;
  const [start, end] = [moment('start'), moment('end')];
  const range = parameters.get('range') ?? '';
  return {
    org: parameters.get('org') ?? '',
    expr: parameters.get('expr') ?? '',
    range: parseDuration(range) ? range : '1h',
    zoom: start && end && end > start ? { start, end } : null,
    tab: parameters.get('tab') === 'table' ? 'table' : 'chart',
  };
}

/**
 * The query string of a state.
 * @param {State} state
 */
export function writeAddress({ org, expr, range, zoom, tab }) {
  const parameters = new URLSearchParams({ org });
  if (expr) parameters.set('expr', expr);
  parameters.set('range', range);
  if (zoom) for (const [name, value] of Object.entries(zoom)) parameters.set(name, String(value));
  if (tab === 'table') parameters.set('tab', tab);
  return `?${parameters}`;
}
