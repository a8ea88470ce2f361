// Resolves the variables of a dashboard with the answers to their queries.

import { readFilterTexts } from './filter_text.js';
import { interpolate } from './interpolate.js';
import { isObject, textOf } from './limits.js';
import { optionsOf, order, selectionOf } from './variables.js';

/**
 * @typedef {import('./variables.js').Variable} Variable
 * @typedef {import('./interpolate.js').Selections} Selections
 * @typedef {import('./interpolate.js').Option} Option
 *
 * @typedef {{variable: Variable, options: Option[], problem: unknown}} Resolved
 * `problem`: why the options could not be read; null without one.
 *
 * @typedef {(variable: Variable, replace: (text: string) => string) => Promise<unknown[]>} Answer the answer to the
 *   query of a variable; `replace` fills in the variables before it
 */

/**
 * Resolves all variables. A variable whose query fails keeps its saved value, and the others go on.
 * @param {Variable[]} variables
 * @param {Map<string, string[]>} wanted values by name, for example of the address
 * @param {{answer: Answer, context: import('./interpolate.js').Context}} options
 * @returns {Promise<{selections: Selections, resolved: Map<string, Resolved>}>}
 */
export async function resolveWith(variables, wanted, { answer, context }) {
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
      let found = /** @type {unknown[]} */ ([]);
      if (variable.type === 'query') found = await answer(variable, replace);
      else if (variable.type === 'datasource') found = ['promlet'];
      const regex = replace(variable.regex, 'regex');
      options = optionsOf(variable, found, variable.type === 'datasource' ? { regex: '' } : { regex });
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
  // The variables in the order of the dashboard.
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
