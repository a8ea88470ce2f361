// Edits of a dashboard's stored variables, and their errors.

import { readDashboard } from './dashboard.js';
import { referencesOf } from './interpolate.js';
import { DashboardError, isObject, listOf, objectOf, objectsOf, textOf, VARIABLES_MAX } from './limits.js';
import { parseVariableQuery } from './variable_query.js';

/** @typedef {import('./limits.js').Json} Json */

/** Kinds in the order of the form, with their names. @type {[string, string][]} */
export const VARIABLE_KINDS = [
  ['query', 'Query'],
  ['custom', 'Custom'],
  ['interval', 'Interval'],
  ['constant', 'Constant'],
  ['textbox', 'Text box'],
  ['datasource', 'Data source'],
  ['adhoc', 'Ad hoc filters'],
];

/** Members that hold text with references to other variables. */
const REFERRING = ['query', 'definition', 'regex', 'datasource', 'allValue'];

/**
 * The stored list of variables.
 * @param {Json} root
 * @returns {Json[]}
 */
export const storedVariables = (root) => objectsOf(objectOf(root.templating).list);

/**
 * A new variable with a free name.
 * @param {string} type
 * @param {Json[]} list
 * @returns {Json}
 */
export function newVariable(type, list) {
  const common = { name: freeName(type === 'query' ? 'variable' : type, list), type, hide: 0 };
  switch (type) {
    case 'query':
      return { ...common, query: '', definition: '', refresh: 1, regex: '', sort: 1, multi: false, includeAll: false };
    case 'interval':
      return { ...common, query: '1m,5m,15m,1h,6h', auto: false, auto_count: 30, auto_min: '10s' };
    case 'datasource':
      return { ...common, query: 'prometheus', regex: '', multi: false, includeAll: false };
    case 'adhoc':
      return { ...common, filters: [] };
    default:
      return { ...common, query: '' };
  }
}

/** @param {string} wanted @param {Json[]} list */
function freeName(wanted, list) {
  const taken = new Set(list.map(({ name }) => name));
  for (let count = 1; ; count += 1) {
    const name = count === 1 ? wanted : `${wanted}${count}`;
    if (!taken.has(name)) return name;
  }
}

/** A copy of a variable with a free name. @param {Json} variable @param {Json[]} list @returns {Json} */
export function duplicateOf(variable, list) {
  return { ...structuredClone(variable), name: freeName(`${textOf(variable.name)}_copy`, list) };
}

/** One line that summarises the values of a variable. @param {Json} variable */
export function definitionOf(variable) {
  if (variable.type === 'adhoc') {
    return objectsOf(variable.filters).map(({ key, operator, value }) => `${key} ${operator} ${value}`).join(', ');
  }
  return (textOf(isObject(variable.query) ? variable.query.query : variable.query) || textOf(variable.definition))
    .slice(0, 500);
}

/**
 * The text of a variable query, in the words of Grafana.
 * @param {import('./variable_query.js').VariableQuery} query
 */
export function queryTextOf(query) {
  switch (query.kind) {
    case 'label_values':
      return query.match ? `label_values(${query.match}, ${query.label})` : `label_values(${query.label})`;
    case 'label_names':
      return `label_names(${query.match ?? ''})`;
    case 'metrics':
      return `metrics(${query.regex})`;
    case 'query_result':
      return `query_result(${query.expr})`;
    case 'series':
      return query.match;
    default:
      return '';
  }
}

/**
 * Stores the query of a variable as text; an object around it keeps its other members.
 * @param {Json} variable
 * @param {string} text
 * @returns {Json}
 */
export function withQuery(variable, text) {
  const { query } = variable;
  // Numbered parts of a query would win over its text.
  const { qryType, label, metric, labelFilters, match, varQuery, seriesQuery, classicQuery, expr, ...rest } =
    objectOf(query);
  return {
    ...variable,
    query: isObject(query) ? { ...rest, query: text } : text,
    ...(variable.type === 'query' ? { definition: text } : {}),
  };
}

/** The query of a variable in parts. @param {Json} variable */
export const queryOf = (variable) => parseVariableQuery(variable.query);

/** Names that a variable refers to. @param {Json} variable @returns {string[]} */
function referencesIn(variable) {
  if (['custom', 'interval', 'adhoc'].includes(textOf(variable.type))) return [];
  const texts = REFERRING.map((name) => (isObject(variable[name]) ? JSON.stringify(variable[name])
    : textOf(variable[name])));
  return [...referencesOf(texts.join('\n'))];
}

/** Names that dashboards always know, and groups of a regular expression.
 *  @param {string} name */
const isBuiltIn = (name) => name.startsWith('__') || /^\d+$/.test(name) || ['timeFilter', 'interval'].includes(name);

/**
 * @typedef {{at: number, text: string, blocks: boolean}} VariableProblem
 * `at` is the place in the list, -1 for the whole list. A problem that `blocks` cannot be saved.
 */

/**
 * The errors of a list of variables: names, references, cycles.
 * @param {Json} root the dashboard
 * @param {Json[]} list
 * @returns {VariableProblem[]}
 */
export function variableProblems(root, list) {
  /** @type {VariableProblem[]} */
  const found = [];
  // An exported dashboard refers to its inputs in the same way.
  const names = new Set([...list, ...objectsOf(root.__inputs)].map(({ name }) => textOf(name)));
  const seen = new Set();
  list.forEach((variable, at) => {
    const name = textOf(variable.name);
    const add = (/** @type {string} */ text, blocks = true) => found.push({ at, text, blocks });
    if (name === '') add('A variable has no name.');
    else if (!/^\w{1,128}$/.test(name)) add(`The name ${name.slice(0, 100)} may have letters, digits and _ only.`);
    else if (name.startsWith('__')) add(`The name ${name} belongs to Grafana: choose one without __ at its start.`);
    if (seen.has(name) && name !== '') add(`Two variables have the name ${name}.`);
    seen.add(name);
    for (const other of referencesIn(variable)) {
      if (!names.has(other) && !isBuiltIn(other)) add(`${name} refers to $${other}, which does not exist.`, false);
    }
  });
  if (list.length > VARIABLES_MAX) {
    found.push({ at: -1, text: `A dashboard has at most ${VARIABLES_MAX} variables.`, blocks: true });
  }
  try {
    readDashboard({ title: textOf(root.title), panels: [], templating: { list } });
  } catch (error) {
    if (!(error instanceof DashboardError)) throw error;
    const [first] = listOf(error.detail.cycle);
    if (error.code !== 'too_many_variables') {
      found.push({ at: list.findIndex(({ name }) => name === first), text: error.message, blocks: true });
    }
  }
  return found;
}

/**
 * Titles of the panels that use a variable, and names of the variables that do.
 * @param {Json} root
 * @param {string} name
 * @returns {{panels: string[], variables: string[]}}
 */
export function usesOf(root, name) {
  const uses = (/** @type {unknown} */ part) => referencesOf(JSON.stringify(part) ?? '').has(name);
  const { panels } = readDashboard({ ...root, templating: undefined, rows: root.rows }).dashboard;
  const all = panels.flatMap((panel) => [panel, ...panel.panels]);
  return {
    panels: all
      .filter(({ panels: inner, key, gridPos, ...panel }) => panel.repeat === name || uses(panel))
      .map(({ title, id }) => title || `Panel ${id ?? ''}`.trim()),
    variables: storedVariables(root)
      .filter((variable) => variable.name !== name && referencesIn(variable).includes(name))
      .map((variable) => textOf(variable.name)),
  };
}
