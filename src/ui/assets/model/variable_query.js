// The query of a variable: `label_values(up, job)` and its relatives, as text or as an object.

import { isObject, objectsOf, textOf } from './limits.js';

/**
 * @typedef {{kind: 'label_values', label: string, match?: string}
 *   | {kind: 'label_names', match?: string}
 *   | {kind: 'metrics', regex: string}
 *   | {kind: 'query_result', expr: string}
 *   | {kind: 'series', match: string}
 *   | {kind: 'none'}} VariableQuery
 * `match` is a series selector. The texts may still contain variables.
 */

/** Longest text of a query. */
const QUERY_TEXT_MAX = 64 * 1024;
/** Grafana's numbers in `qryType`. */
const TYPES = ['label_names', 'label_values', 'metrics', 'query_result', 'series', 'classic'];

/**
 * @param {unknown} query the text, or `{query, qryType, label, metric, labelFilters}`
 * @returns {VariableQuery}
 */
export function parseVariableQuery(query) {
  const text = isObject(query) ? textOf(query.query) || textOf(query.classicQuery) || textOf(query.expr)
    : textOf(query);
  if (text.trim() !== '') return fromText(text.trim());
  return isObject(query) ? fromParts(query) : { kind: 'none' };
}

/** @param {string} text @returns {VariableQuery} */
function fromText(text) {
  if (text.length > QUERY_TEXT_MAX) return { kind: 'none' };
  const call = /^(label_names|label_values|metrics|query_result)\s*\(([^]*)\)$/.exec(text);
  if (!call) return { kind: 'series', match: text };
  const inner = call[2].trim();
  if (call[1] === 'label_names') return inner === '' ? { kind: 'label_names' } : { kind: 'label_names', match: inner };
  if (call[1] === 'metrics') return { kind: 'metrics', regex: inner };
  if (call[1] === 'query_result') return { kind: 'query_result', expr: inner };
  const comma = inner.lastIndexOf(',');
  const label = inner.slice(comma + 1).trim();
  // A comma inside braces or quotes belongs to the selector, and no label follows it.
  if (/[{}=]/.test(label.replace(/\$\{[^}]{0,256}\}/g, ''))) return { kind: 'series', match: text };
  const match = comma < 0 ? '' : inner.slice(0, comma).trim();
  const name = /^"(?:[^"\\]|\\.)*"$/.test(label) ? label.slice(1, -1).replace(/\\(.)/g, '$1') : label;
  return match === '' ? { kind: 'label_values', label: name } : { kind: 'label_values', label: name, match };
}

/** @param {import('./limits.js').Json} query @returns {VariableQuery} */
function fromParts(query) {
  const type = typeof query.qryType === 'number' ? TYPES[query.qryType] : undefined;
  const label = textOf(query.label);
  if (type === 'query_result' && textOf(query.varQuery)) return { kind: 'query_result', expr: textOf(query.varQuery) };
  if (type === 'series' && textOf(query.seriesQuery)) return { kind: 'series', match: textOf(query.seriesQuery) };
  if (type === 'metrics') return { kind: 'metrics', regex: textOf(query.metric) || '.*' };
  const match = textOf(query.match) || selectorOf(query);
  if (type === 'label_names') return match ? { kind: 'label_names', match } : { kind: 'label_names' };
  if (label) return match ? { kind: 'label_values', label, match } : { kind: 'label_values', label };
  return { kind: 'none' };
}

/** @param {import('./limits.js').Json} query */
function selectorOf(query) {
  const filters = objectsOf(query.labelFilters).filter((filter) => textOf(filter.label) !== '').map((filter) => {
    const op = ['=', '!=', '=~', '!~'].includes(filter.op) ? filter.op : '=';
    return `${textOf(filter.label)}${op}"${textOf(filter.value).replace(/["\\]/g, '\\$&')}"`;
  });
  return filters.length === 0 ? textOf(query.metric) : `${textOf(query.metric)}{${filters.join(',')}}`;
}
