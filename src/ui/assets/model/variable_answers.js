// Resolves the variables of a dashboard with their queries, and writes their values into addresses.

import { filterText } from './filter_text.js';
import { DashboardError, textOf } from './limits.js';
import { safeRegex } from './pattern.js';
import { resolveWith } from './resolve_variables.js';
import { parseVariableQuery } from './variable_query.js';

/**
 * @typedef {import('./variables.js').Variable} Variable
 * @typedef {import('./interpolate.js').Selections} Selections
 * @typedef {import('./variable_query.js').VariableQuery} VariableQuery
 * @typedef {import('./resolve_variables.js').Resolved} Resolved
 */

/**
 * @param {VariableQuery} query
 * @param {(text: string) => string} replace
 * @returns {VariableQuery}
 */
function replacedQuery(query, replace) {
  return /** @type {VariableQuery} */ (
    Object.fromEntries(
      Object.entries(query).map(([name, value]) => [name, name === 'kind' ? value : replace(textOf(value))]),
    )
  );
}

/**
 * Resolves all variables. A variable whose query fails keeps its saved value, and the others go on.
 * @param {Variable[]} variables
 * @param {Map<string, string[]>} wanted values by name, for example of the address
 * @param {{ask: (query: VariableQuery) => Promise<unknown[]>,
 *   context: import('./interpolate.js').Context}} options
 */
export function resolveVariables(variables, wanted, { ask, context }) {
  return resolveWith(variables, wanted, {
    context,
    async answer(variable, replace) {
      const query = replacedQuery(parseVariableQuery(variable.query), replace);
      if (query.kind === 'none') return [];
      const found = await ask(query);
      return query.kind === 'metrics' ? matching(found, query.regex) : found;
    },
  });
}

/** @param {unknown[]} names @param {string} text */
function matching(names, text) {
  const regex = safeRegex(text, { whole: false });
  if (!regex) {
    throw new DashboardError('bad_regex', `The regular expression ${text.slice(0, 100)} is invalid or too costly.`);
  }
  return names.filter((name) => {
    regex.lastIndex = 0;
    return regex.test(textOf(name));
  });
}

/**
 * The values to write into the address: all of them, so that a link shows the same when the
 * dashboard's defaults change.
 * @param {Variable[]} variables
 * @param {Selections} selections
 * @returns {Map<string, string[]>}
 */
export function addressValues(variables, selections) {
  /** @type {Map<string, string[]>} */
  const values = new Map();
  for (const { name, type } of variables) {
    const selection = selections.get(name);
    if (!selection || type === 'constant' || type === 'datasource') continue;
    values.set(name, type === 'adhoc' ? (selection.filters ?? []).map(filterText) : [selection.value].flat());
  }
  return values;
}
