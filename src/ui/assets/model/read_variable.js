// One variable of a dashboard's JSON, of any version.

import { valuesOf } from './formats.js';
import { isObject, listOf, objectOf, objectsOf, own, textOf, wholeOf } from './limits.js';
import { isPrometheus } from './support.js';
import { readFilters, VARIABLE_TYPES } from './variables.js';

/** @typedef {import('./limits.js').Json} Json */
/** @typedef {import('./variables.js').Variable} Variable */
/** @typedef {import('./formats.js').Value} Value */

/** Longest value of an input, and longest text with inputs replaced. */
const INPUT_MAX = 4096;
const REPLACED_MAX = 64 * 1024;

/** @param {unknown} value @returns {Value} */
function valueOf(value) {
  return Array.isArray(value) ? value.slice(0, 10_000).map((item) => textOf(item)) : textOf(value);
}

/**
 * Replaces the constants of an exported dashboard, `${VAR_NAME}`, in a text or in the texts of a
 * small object.
 * @param {unknown} value
 * @param {Map<string, string>} inputs
 * @param {number} [level]
 * @returns {unknown}
 */
function withInputs(value, inputs, level = 0) {
  if (inputs.size === 0 || level > 3) return value;
  if (typeof value === 'string') {
    const replaced = value.length > INPUT_MAX ? value
      : value.replace(/\$\{(\w{1,128})\}/g, (match, name) => inputs.get(name) ?? match);
    return replaced.length > REPLACED_MAX ? value : replaced;
  }
  if (Array.isArray(value)) return value.map((item) => withInputs(item, inputs, level + 1));
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, withInputs(item, inputs, level + 1)]));
}

/** The constants that an exported dashboard asks for on import. @param {Json} root */
export function constantInputs(root) {
  return new Map(objectsOf(own(root, '__inputs')).filter((input) => input.type === 'constant')
    .map((input) => [textOf(input.name), textOf(input.value).slice(0, INPUT_MAX)]));
}

/**
 * @param {Json} source
 * @param {string} key
 * @param {Map<string, string>} inputs
 * @param {(what: string, severity?: 'info' | 'warning' | 'error') => void} note
 * @returns {Variable}
 */
export function readVariable(source, key, inputs, note) {
  const name = textOf(source.name);
  const type = textOf(source.type, 'query');
  /** @type {Json} */
  const raw = { ...source, query: withInputs(source.query, inputs), current: withInputs(source.current, inputs),
    options: withInputs(source.options, inputs) };
  const supported = VARIABLE_TYPES.has(type);
  if (!supported) note(`the variable ${name} has the type ${type}, which is not supported`, 'error');
  const query = isObject(raw.query) ? raw.query : textOf(raw.query);
  if (type === 'datasource' && textOf(query) !== '' && !isPrometheus(textOf(query))) {
    note(`the variable ${name} selects a data source of the type ${textOf(query)}`, 'warning');
  }
  const current = isObject(raw.current) ? raw.current : { text: raw.current, value: raw.current };
  const multi = raw.multi === true;
  const value = valueOf(current.value ?? current.text);
  const text = valueOf(current.text ?? current.value);
  return {
    key, name, type, supported, label: textOf(raw.label), description: textOf(raw.description),
    hide: wholeOf(raw.hide, 0, 3, 0), query, regex: textOf(raw.regex), sort: wholeOf(raw.sort, 0, 8, 0), multi,
    includeAll: raw.includeAll === true, allValue: textOf(raw.allValue) === '' ? null : textOf(raw.allValue),
    current: multi ? { text: valuesOf(text), value: valuesOf(value) }
      : { text: valuesOf(text)[0] ?? '', value: valuesOf(value)[0] ?? '' },
    options: objectsOf(raw.options).slice(0, 10_000).map((option) => ({
      text: valuesOf(valueOf(option.text))[0] ?? '', value: valuesOf(valueOf(option.value ?? option.text))[0] ?? '' })),
    refresh: raw.refresh === true ? 1 : wholeOf(raw.refresh, 0, 2, 0), datasource: raw.datasource ?? null,
    auto: raw.auto === true, autoCount: wholeOf(raw.auto_count, 1, 10_000, 30), autoMin: textOf(raw.auto_min, '10s'),
    valuesFormat: textOf(raw.valuesFormat, 'csv'),
    filters: readFilters(listOf(raw.filters ?? objectOf(raw.current).filters)),
  };
}

/**
 * Fields of the variable that differ from `before`, in Grafana's names.
 * @param {Variable} variable
 * @param {Variable | undefined} before
 * @param {(left: unknown, right: unknown) => boolean} same
 * @returns {Json}
 */
export function variableFields(variable, before, same) {
  /** @type {Json} */
  const fields = {};
  /** @type {[keyof Variable, string][]} */
  const names = [['name', 'name'], ['type', 'type'], ['label', 'label'], ['description', 'description'],
    ['hide', 'hide'], ['query', 'query'], ['regex', 'regex'], ['sort', 'sort'], ['multi', 'multi'],
    ['includeAll', 'includeAll'], ['allValue', 'allValue'], ['current', 'current'], ['options', 'options'],
    ['refresh', 'refresh'], ['datasource', 'datasource'], ['auto', 'auto'], ['autoCount', 'auto_count'],
    ['autoMin', 'auto_min']];
  for (const [name, raw] of names) if (!before || !same(variable[name], before[name])) fields[raw] = variable[name];
  if (fields.query !== undefined && before && typeof variable.query === 'string') fields.definition = variable.query;
  if (!same(variable.filters, before?.filters ?? [])) {
    fields.filters = variable.filters.map(({ label, op, value }) => ({ key: label, operator: op, value }));
  }
  return fields;
}
