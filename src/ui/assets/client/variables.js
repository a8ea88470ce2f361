// Asks the options of a query variable.

import { readOrg } from './server.js';

/**
 * A reader of options for one time range; equal queries are asked once.
 * @param {string} org
 * @param {{from: number, to: number}} range in milliseconds
 * @returns {(query: import('../model/variable_query.js').VariableQuery) => Promise<unknown[]>}
 */
export function variableReader(org, { from, to }) {
  const times = { start: from / 1000, end: to / 1000 };
  /** @type {Map<string, Promise<unknown[]>>} */
  const asked = new Map();
  const listing = (/** @type {string} */ path, /** @type {string} */ match) =>
    readOrg(org, `/prometheus/api/v1/${path}`, { ...times, 'match[]': match }).then(({ data }) => data);
  const ask = (/** @type {import('../model/variable_query.js').VariableQuery} */ query) => {
    switch (query.kind) {
      case 'label_values':
        return listing(`label/${encodeURIComponent(query.label)}/values`, query.match ?? '');
      case 'label_names':
        return listing('labels', query.match ?? '');
      case 'metrics':
        return listing('label/__name__/values', '');
      case 'series':
        return listing('series', query.match).then((rows) =>
          rows.map((/** @type {Record<string, string>} */ metric) => ({ metric })),
        );
      case 'query_result':
        return readOrg(org, '/query/expr-instant', { expr: query.expr, time: times.end }).then(({ data }) =>
          Array.isArray(data.result) && data.resultType !== 'scalar'
            ? data.result
            : [{ metric: {}, value: data.result }],
        );
      default:
        return Promise.resolve([]);
    }
  };
  return (query) => {
    const key = JSON.stringify(query);
    const found = asked.get(key) ?? ask(query);
    asked.set(key, found);
    return found;
  };
}
