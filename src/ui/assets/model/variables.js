// Variables of a dashboard: their options, their order by dependence, and the selected values.

import { ALL, isAll, referencesOf } from './interpolate.js';
import { valuesOf } from './formats.js';
import { DashboardError, isObject, listOf, numberOf, objectsOf, textOf } from './limits.js';
import { safeRegex } from './pattern.js';

/**
 * @typedef {import('./interpolate.js').Option} Option
 * @typedef {import('./interpolate.js').Selection} Selection
 * @typedef {import('./interpolate.js').Selections} Selections
 * @typedef {import('./formats.js').Value} Value
 *
 * @typedef {{key: string, name: string, type: string, label: string, description: string,
 *   hide: number, query: unknown, regex: string, sort: number, multi: boolean, includeAll: boolean,
 *   allValue: string | null, current: {text: Value, value: Value}, options: Option[],
 *   refresh: number, datasource: unknown, auto: boolean, autoCount: number, autoMin: string,
 *   valuesFormat: string, supported: boolean, filters: {label: string, op: string,
 *   value: string}[]}} Variable
 * `hide`: 0 shows label and value, 1 the value, 2 nothing. `filters`: the matchers of an ad hoc
 * variable.
 */

/** Kinds of variables that the page offers. */
export const VARIABLE_TYPES = new Set(['query', 'custom', 'interval', 'constant', 'textbox', 'datasource', 'adhoc']);
/** The most options of a variable; more are dropped. */
export const OPTIONS_MAX = 10_000;

/** Text in which a variable may refer to others. @param {Variable} variable */
function sourceOf(variable) {
  if (variable.type === 'custom' || variable.type === 'interval' || variable.type === 'adhoc') return '';
  const parts = [variable.query, variable.regex, variable.type === 'query' ? variable.datasource : ''];
  return parts.map((part) => (isObject(part) ? JSON.stringify(part) : textOf(part))).join('\n');
}

/**
 * The variables with each one after those that it refers to; otherwise in their given order. Throws
 * a DashboardError that names the cycle when variables refer to each other.
 * @param {Variable[]} variables
 * @returns {Variable[]}
 */
export function order(variables) {
  const byName = new Map(variables.map((variable) => [variable.name, variable]));
  /** @type {Set<Variable>} */
  const done = new Set();
  /** @type {Variable[]} */
  const path = [];
  /** @param {Variable} variable */
  const visit = (variable) => {
    if (done.has(variable)) return;
    const start = path.indexOf(variable);
    if (start >= 0) {
      const cycle = [...path.slice(start), variable].map((member) => member.name);
      throw new DashboardError('cyclic_variables', `Variables refer to each other: ${cycle.join(' → ')}.`, { cycle });
    }
    path.push(variable);
    for (const name of referencesOf(sourceOf(variable))) {
      const other = byName.get(name);
      if (other) visit(other);
    }
    path.pop();
    done.add(variable);
  };
  variables.forEach(visit);
  return [...done];
}

/** Variables that change when `name` changes, in no particular order. @param {Variable[]} variables
 *  @param {string} name @returns {Set<string>} */
export function dependents(variables, name) {
  const result = new Set([name]);
  for (const variable of order(variables)) {
    const uses = [...referencesOf(sourceOf(variable))].some((other) => result.has(other));
    if (uses) result.add(variable.name);
  }
  result.delete(name);
  return result;
}

/**
 * Options of a variable.
 * @param {Variable} variable
 * @param {unknown[]} [answer] of a query: strings, `{text, value}`, or `{metric, value}` of an
 *   instant query; of a datasource variable: its data sources
 * @param {{regex?: string}} [replaced] the regular expression after its variables are replaced
 * @returns {Option[]}
 */
export function optionsOf(variable, answer = [], replaced = {}) {
  let options = rawOptions(variable, answer);
  if (variable.type === 'query' || variable.type === 'datasource') {
    options = filtered(options, replaced.regex ?? variable.regex);
  }
  if (variable.type === 'query') options = sorted(options, variable.sort);
  const seen = new Set();
  options = options.filter(({ value }) => !seen.has(value) && seen.add(value)).slice(0, OPTIONS_MAX);
  return variable.includeAll ? [{ text: 'All', value: ALL }, ...options] : options;
}

/** @param {Variable} variable @param {unknown[]} answer @returns {Option[]} */
function rawOptions(variable, answer) {
  const query = textOf(variable.query);
  switch (variable.type) {
    case 'custom':
      return variable.valuesFormat === 'json' ? jsonOptions(query) : customOptions(query);
    case 'interval': {
      const steps = [...query.matchAll(/"([^"]*)"|'([^']*)'|([^\s,"']+)/g)]
        .map((found) => same((found[1] ?? found[2] ?? found[3]).trim()));
      return variable.auto ? [{ text: 'auto', value: `$__auto_interval_${variable.name}` }, ...steps] : steps;
    }
    case 'constant':
    case 'textbox':
      return [same(query)];
    case 'adhoc':
      return [];
    default:
      return listOf(answer).slice(0, OPTIONS_MAX * 10).map(answered);
  }
}

/** @param {string} text @returns {Option} */
function same(text) {
  return { text, value: text };
}

/** `a, text : value, with\, comma`. @param {string} query @returns {Option[]} */
function customOptions(query) {
  return (query.match(/(?:\\,|[^,])+/g) ?? []).map((part) => {
    const text = part.replaceAll('\\,', ',').trim();
    const colon = text.lastIndexOf(' : ');
    return colon > 0 ? { text: text.slice(0, colon).trim(), value: text.slice(colon + 3).trim() } : same(text);
  });
}

/** @param {string} query @returns {Option[]} */
function jsonOptions(query) {
  try {
    return listOf(JSON.parse(query)).map(answered);
  } catch (error) {
    if (error instanceof SyntaxError) return [];
    throw error;
  }
}

/** @param {unknown} item @returns {Option} */
function answered(item) {
  if (!isObject(item)) return same(textOf(item));
  if (isObject(item.metric)) return same(seriesText(item));
  const text = textOf(item.text, textOf(item.value));
  return { text, value: textOf(item.value, text) };
}

/** One series as `query_result` shows it: `up{job="a"} 1 1700000000000`.
 *  @param {import('./limits.js').Json} item */
function seriesText(item) {
  const { __name__: name = '', ...labels } = item.metric;
  const inner = Object.entries(labels).map(([label, value]) => `${label}="${textOf(value)}"`).join(',');
  const selector = `${textOf(name)}{${inner}}`;
  if (!Array.isArray(item.value)) return inner === '' ? textOf(name) : selector;
  return `${selector} ${textOf(item.value[1])} ${Math.round((numberOf(item.value[0]) ?? 0) * 1000)}`;
}

/**
 * Options that the regular expression matches: named groups `text` and `value`, else the first
 * group, else all of the option.
 * @param {Option[]} options @param {string} text @returns {Option[]}
 */
function filtered(options, text) {
  if (text.trim() === '') return options;
  const regex = safeRegex(text);
  if (!regex) {
    throw new DashboardError('bad_regex', `The regular expression ${text.slice(0, 100)} is invalid or too costly.`,
      { regex: text.slice(0, 1000) });
  }
  /** @type {Option[]} */
  const result = [];
  for (const option of options) {
    regex.lastIndex = 0;
    for (let found = regex.exec(option.value); found; found = regex.global ? regex.exec(option.value) : null) {
      result.push(matched(option, found));
      // A global expression that matches the empty text would match at the same position again.
      if (found[0] === '') regex.lastIndex += 1;
      if (result.length >= OPTIONS_MAX) return result;
    }
  }
  return result;
}

/** @param {Option} option @param {RegExpExecArray} found @returns {Option} */
function matched(option, found) {
  const { text, value } = /** @type {{text?: string, value?: string}} */ (found.groups ?? {});
  if (text !== undefined || value !== undefined) return { text: text ?? value ?? '', value: value ?? text ?? '' };
  const first = found.slice(1).find((group) => group !== undefined);
  return first === undefined ? option : same(first);
}

/**
 * Grafana's orders: 0 none, 1 and 2 by text, 3 and 4 by the first number in it, 5 and 6 by text
 * without case, 7 and 8 natural; even ones descend.
 * @param {Option[]} options
 * @param {number} sort
 * @returns {Option[]}
 */
function sorted(options, sort) {
  if (sort < 1 || sort > 8) return options;
  /** @type {(left: Option, right: Option) => number} */
  let compare;
  if (sort <= 2) compare = (left, right) => codes(left.text, right.text);
  else if (sort <= 4) compare = (left, right) => firstNumber(left.text) - firstNumber(right.text);
  else if (sort <= 6) compare = (left, right) => codes(left.text.toLowerCase(), right.text.toLowerCase());
  else compare = natural;
  const result = [...options].sort(compare);
  return sort % 2 === 0 ? result.reverse() : result;
}

/** @param {string} left @param {string} right */
function codes(left, right) {
  return left < right ? -1 : Number(left > right);
}

/** @param {string} text */
function firstNumber(text) {
  const found = /\d+/.exec(text);
  return found ? Number(found[0]) : -1;
}

const COLLATOR = new Intl.Collator('en', { numeric: true, sensitivity: 'accent' });
/** @param {Option} left @param {Option} right */
function natural(left, right) {
  return COLLATOR.compare(left.text, right.text);
}

/**
 * The selection of a variable: the wanted value as far as the options have it, else the first
 * option.
 * @param {Variable} variable
 * @param {Option[]} options
 * @param {Value} [wanted] value or text, for example from the URL; otherwise the current value
 * @returns {Selection}
 */
export function selectionOf(variable, options, wanted = variable.current.value) {
  const base = { name: variable.name, type: variable.type, multi: variable.multi, includeAll: variable.includeAll,
    allValue: variable.allValue, options, autoCount: variable.autoCount, autoMin: variable.autoMin,
    filters: variable.filters };
  if (variable.type === 'textbox' || variable.type === 'constant') {
    const value = variable.type === 'constant' ? textOf(variable.query) : valuesOf(wanted)[0] ?? '';
    return { ...base, value, text: value };
  }
  if (isAll(wanted) && variable.includeAll) return { ...base, value: variable.multi ? [ALL] : ALL, text: 'All' };
  const byName = new Map(options.map((option) => [option.text, option]));
  for (const option of options) byName.set(option.value, option);
  let chosen = valuesOf(wanted).map((value) => byName.get(value)).filter((option) => option !== undefined);
  if (chosen.length === 0) chosen = options.slice(0, 1);
  if (!variable.multi) {
    return { ...base, value: chosen[0]?.value ?? '', text: chosen[0]?.text ?? '' };
  }
  return { ...base, value: chosen.map((option) => option.value), text: chosen.map((option) => option.text) };
}

/** The matchers in an ad hoc variable of a dashboard. @param {unknown} filters */
export function readFilters(filters) {
  return objectsOf(filters).map((filter) => ({
    label: textOf(filter.key), op: ['=', '!=', '=~', '!~'].includes(filter.operator) ? textOf(filter.operator) : '=',
    value: textOf(filter.value),
  })).filter((filter) => filter.label !== '');
}

export { interpolate, referencesOf, withScope } from './interpolate.js';
