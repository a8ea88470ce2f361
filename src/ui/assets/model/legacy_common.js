// The parts that all conversions of old panels share: calculations, thresholds, value mappings,
// links.

import { defined, isObject, listOf, numberOf, objectOf, objectsOf, textOf } from './limits.js';

/** @typedef {import('./limits.js').Json} Json */
/**
 * @typedef {(what: string, severity?: 'info' | 'warning' | 'error') => void} Note adds a line to
 *   the report
 */
/**
 * @typedef {{defaults: Json, overrides: {matcher: Json, properties: {id: string,
 *   value: unknown}[]}[]}} FieldConfig
 */
/**
 * @typedef {{type: string, fieldConfig: FieldConfig, options: Json, transformations?: Json[]}}
 *   Converted
 */

/** Old names of calculations, in `valueName`, in legends and in table columns. */
const CALCULATIONS = new Map(Object.entries({
  current: 'lastNotNull', avg: 'mean', total: 'sum', mean: 'mean', last: 'last', lastNotNull: 'lastNotNull',
  last_time: 'lastNotNull', name: 'lastNotNull', min: 'min', max: 'max', sum: 'sum', first: 'firstNotNull',
  firstNotNull: 'firstNotNull', delta: 'delta', diff: 'diff', range: 'range', count: 'count', step: 'step',
}));

/** Name of the same calculation today. @param {unknown} name @param {string} [fallback] */
export function calculationOf(name, fallback = 'mean') {
  const text = textOf(name);
  return CALCULATIONS.get(text) ?? (text || fallback);
}

/** Numbers in `"85,95"` or in a list. @param {unknown} value @returns {(number | null)[]} */
function numbersOf(value) {
  const parts = typeof value === 'string' ? value.split(',').slice(0, 100) : listOf(value);
  return parts.map(numberOf).filter((number) => number !== null);
}

/**
 * Thresholds of singlestat and of table columns: one colour more than limits.
 * @param {unknown} limits
 * @param {unknown} colors
 */
export function thresholdsOf(limits, colors) {
  const names = listOf(colors).map((color) => textOf(color)).filter(Boolean);
  const values = [null, ...numbersOf(limits)];
  const steps = values.map((value, at) => ({ color: names[Math.min(at, names.length - 1)] ?? 'green', value }));
  return { mode: 'absolute', steps };
}

/**
 * Thresholds of any version as today's: steps in ascending order, the first one without a limit
 * (`null`).
 * @param {unknown} value a list of steps, or `{mode, steps}`
 */
export function stepsOf(value) {
  const steps = objectsOf(Array.isArray(value) ? value : objectOf(value).steps)
    .map((step) => ({ ...step, color: textOf(step.color, 'green'), value: numberOf(step.value) }));
  steps.sort((left, right) => (left.value ?? -Infinity) - (right.value ?? -Infinity));
  if (steps.length > 0) steps[0].value = null;
  return { mode: objectOf(value).mode === 'percentage' ? 'percentage' : 'absolute', steps };
}

/** @param {unknown} value */
function isNull(value) {
  return value === null || value === 'null';
}

/** @param {unknown} value @param {Json} result @returns {Json} */
function valueMapping(value, result) {
  if (isNull(value)) return { type: 'special', options: { match: 'null', result } };
  return { type: 'value', options: Object.fromEntries([[textOf(value), result]]) };
}

/** @param {unknown} from @param {unknown} to @param {Json} result @returns {Json} */
function rangeMapping(from, to, result) {
  if (isNull(from) && isNull(to)) return { type: 'special', options: { match: 'null', result } };
  return { type: 'range', options: { from: numberOf(from), to: numberOf(to), result } };
}

/**
 * `valueMaps` and `rangeMaps` of singlestat and table columns; `mappingType` says which of them
 * counts.
 * @param {Json} source
 * @returns {Json[]}
 */
export function oldMappingsOf(source) {
  const type = numberOf(source.mappingType);
  if (type === 2) {
    return objectsOf(source.rangeMaps).map((map, index) => (
      rangeMapping(map.from, map.to, { text: textOf(map.text), index })));
  }
  return objectsOf(source.valueMaps).map((map, index) => valueMapping(map.value, { text: textOf(map.text), index }));
}

/**
 * Mappings of any version as today's `{type, options}`. Versions before 8 have
 * `{type: 1, value, text}` and `{type: 2, from, to, text}`.
 * @param {unknown} mappings
 * @returns {Json[]}
 */
export function mappingsOf(mappings) {
  return objectsOf(mappings).map((map, index) => {
    if (typeof map.type === 'string' && isObject(map.options)) return map;
    const result = defined({ text: textOf(map.text), color: map.color, index });
    const isRange = numberOf(map.type) === 2 || map.type === 'range';
    return isRange ? rangeMapping(map.from, map.to, result) : valueMapping(map.value, result);
  });
}

/** An override for one series or column. @param {string} name `/expression/` or the name
 *  @param {Record<string, unknown>} properties */
export function overrideOf(name, properties) {
  const isRegex = name.length > 1 && /^\/.*\/[a-z]*$/s.test(name);
  return {
    matcher: { id: isRegex ? 'byRegexp' : 'byName', options: name },
    properties: Object.entries(properties).filter(([, value]) => value !== undefined)
      .map(([id, value]) => ({ id, value })),
  };
}

/** A fixed colour as a property of a field. @param {unknown} color */
export function fixedColor(color) {
  return { mode: 'fixed', fixedColor: textOf(color) };
}

/**
 * Links of panels and dashboards, old ones (`type: 'dashboard'`, `params`) included.
 * @param {unknown} links
 * @returns {Json[]}
 */
export function linksOf(links) {
  return objectsOf(links).map((link) => {
    const params = textOf(link.params);
    const plain = textOf(link.url) || textOf(link.dashUri);
    const url = params === '' ? plain : `${plain}${plain.includes('?') ? '&' : '?'}${params}`;
    const title = textOf(link.title) || textOf(link.dashboard);
    return { ...link, title, url, targetBlank: link.targetBlank === true };
  });
}

/**
 * Options of a reduction to one value.
 * @param {unknown} calculation
 * @param {Json} [more]
 * @returns {Json}
 */
export function reduceOptions(calculation, more = {}) {
  return { values: false, calcs: [calculationOf(calculation)], fields: '', ...more };
}
