// Resolves the variables of a dashboard in the order of their dependence.

import { filterText, readFilterTexts } from './adhoc.js';
import { DashboardError, isObject, textOf } from './limits.js';
import { safeRegex } from './pattern.js';
import { interpolate, optionsOf, order, parseVariableQuery, selectionOf } from './variables.js';

/**
 * @typedef {import('./variables.js').Variable} Variable
 * @typedef {import('./interpolate.js').Selections} Selections
 * @typedef {import('./interpolate.js').Option} Option
 * @typedef {import('./variable_query.js').VariableQuery} VariableQuery
 *
 * @typedef {{variable: Variable, options: Option[], problem: unknown}} Resolved
 * `problem`: why the options could not be read; null without one.
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
 * @returns {Promise<{selections: Selections, resolved: Map<string, Resolved>}>}
 */
export async function resolveVariables(variables, wanted, { ask, context }) {
  /** @type {Selections} */
  const selections = new Map();
  /** @type {Map<string, Resolved>} */
  const resolved = new Map();
  /** @type {Map<string, Promise<void>>} */
  const done = new Map();
  const sorted = order(variables);
  sorted.forEach((variable, at) => {
    // Variables that the query mentions are before this one; the others are asked at the same time.
    const before = sorted
      .slice(0, at)
      .map(({ name }) => name)
      .filter((name) => mentions(variable, name));
    done.set(
      variable.name,
      Promise.all(before.map((name) => done.get(name))).then(() => resolve(variable)),
    );
  });

  /** @param {Variable} saved */
  async function resolve(saved) {
    const texts = saved.type === 'adhoc' ? wanted.get(saved.name) : undefined;
    const variable = texts ? { ...saved, filters: readFilterTexts(texts) } : saved;
    const replace = (/** @type {string} */ text, format = 'promql') =>
      interpolate(text, selections, { ...context, format });
    /** @type {Option[]} */
    let options = [];
    let problem = null;
    try {
      let answer = /** @type {unknown[]} */ ([]);
      if (variable.type === 'query') {
        const query = replacedQuery(parseVariableQuery(variable.query), replace);
        answer = query.kind === 'none' ? [] : await ask(query);
        if (query.kind === 'metrics') answer = matching(answer, query.regex);
      } else if (variable.type === 'datasource') answer = ['promlet'];
      const regex = replace(variable.regex, 'regex');
      options = optionsOf(variable, answer, variable.type === 'datasource' ? { regex: '' } : { regex });
    } catch (error) {
      problem = error;
      options = variable.options;
    }
    resolved.set(variable.name, { variable, options, problem });
    const values = wanted.get(variable.name);
    const list = values?.map((value) => (value === 'All' ? '$__all' : value));
    let chosen = variable.multi ? list : list?.[0];
    const before = [variable.current.value].flat().filter((value) => value !== '' && value !== '$__all');
    const given = (list ?? before)
      .filter((value) => value !== '' && value !== '$__all')
      .map((value) => ({ text: value, value }));
    // A value of the address counts although the options lack it, as in Grafana; so does a saved
    // one of a variable that could not be asked.
    const extra = variable.type === 'datasource' ? [] : list || problem ? given : [];
    if (variable.type === 'datasource') chosen = undefined;
    // The text that the dashboard was saved with is the default.
    if (variable.type === 'textbox' && !list && before.length === 0) chosen = textOf(variable.query);
    selections.set(
      variable.name,
      selectionOf(
        variable,
        [
          ...options,
          ...extra.filter(({ value }) => !options.some((option) => option.value === value || option.text === value)),
        ],
        chosen,
      ),
    );
  }

  await Promise.all(done.values());
  // In the order of the dashboard.
  return {
    selections: new Map(
      variables.map(({ name }) => [name, /** @type {import('./interpolate.js').Selection} */ (selections.get(name))]),
    ),
    resolved,
  };
}

/** @param {Variable} variable @param {string} name */
function mentions(variable, name) {
  const texts = [variable.query, variable.regex, variable.datasource].map((part) =>
    isObject(part) ? JSON.stringify(part) : textOf(part),
  );
  return texts.some((text) => text.includes(`$${name}`) || text.includes(`{${name}`) || text.includes(`[[${name}`));
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
