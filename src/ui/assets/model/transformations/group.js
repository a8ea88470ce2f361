// Transformations that reduce many rows to few.

import { reduceValues, reducerId, reducerOf } from '../reduce.js';
import { COLUMNS_MAX, joinedRefId, keyOf, namesAmong, noticed, record, textsOf, withFields } from './tools.js';

/** @typedef {import('./tools.js').Transformation} Transformation */
/** @typedef {import('../frame.js').Frame} Frame */
/** @typedef {import('../frame.js').Field} Field */
/** @typedef {import('../frame.js').FieldType} FieldType */

/** Reducers whose result is a number for values of any type. */
const NUMERIC = new Set(['count', 'distinctCount', 'changeCount', 'sum', 'mean', 'median', 'variance', 'stdDev',
  'range', 'delta', 'step', 'diff', 'diffperc', 'logmin']);

/** @param {string} id @param {Field} field @param {any[]} values @returns {FieldType} */
function resultType(id, field, values) {
  if (id === 'allIsZero' || id === 'allIsNull') return 'boolean';
  if (id === 'allValues' || id === 'uniqueValues') return 'other';
  if (NUMERIC.has(id) && field.type !== 'time') return 'number';
  if (id === 'count' || id === 'distinctCount' || id === 'changeCount') return 'number';
  return values.every((value) => value === null || value === undefined) ? 'number' : field.type;
}

/** @param {Field} field the name that groups are configured by */
const groupName = (field) => field.config.displayName || field.config.displayNameFromDS || field.name;

/** @param {Field} field @param {number[]} rows */
const pick = (field, rows) => rows.map((row) => field.values[row]);

/**
 * Options: `fields`, by name `{operation: groupby | aggregate, aggregations}`. A frame without a field
 * to group by is left out.
 * @type {Transformation}
 */
export function groupBy(frames, options) {
  const rules = record(options.fields);
  if (!Object.values(rules).some((rule) => rule?.operation === 'groupby')) return frames;
  return frames.flatMap((frame) => {
    const keys = frame.fields.filter((field) => record(rules[groupName(field)]).operation === 'groupby');
    if (!keys.length) return [];
    /** @type {Map<string, number[]>} */
    const groups = new Map();
    for (let row = 0; row < frame.length; row += 1) {
      const key = JSON.stringify(keys.map((field) => keyOf(field.values[row])));
      const rows = groups.get(key);
      if (rows) rows.push(row);
      else groups.set(key, [row]);
    }
    const rows = [...groups.values()];
    const firsts = rows.map(([first]) => first);
    const fields = keys.map((field) => ({ ...field, labels: undefined, values: pick(field, firsts) }));
    for (const field of frame.fields) {
      const rule = record(rules[groupName(field)]);
      if (rule.operation !== 'aggregate') continue;
      const ids = [...new Set(textsOf(rule.aggregations).map(reducerId))].filter(reducerOf);
      const results = rows.map((group) => reduceValues(pick(field, group), ids, field.config.nullValueMode));
      for (const id of ids) {
        const values = results.map((result) => result.get(id) ?? null);
        const { displayName, displayNameFromDS, ...config } = field.config;
        fields.push({ name: `${groupName(field)} (${id})`, type: resultType(id, field, values), config,
          labels: undefined, values });
      }
    }
    return [{ ...frame, length: rows.length, fields: fields.slice(0, COLUMNS_MAX) }];
  });
}

/** @param {Frame} frame @param {string[]} ids @param {boolean} times @returns {Frame} one row with the results */
function reduceFields(frame, ids, times) {
  const fields = frame.fields.filter((field) => times || field.type !== 'time').flatMap((field) => {
    const results = reduceValues(field.values, ids, field.config.nullValueMode);
    return ids.map((id) => {
      const values = [results.get(id) ?? null];
      const labels = ids.length > 1 ? { ...field.labels, reducer: reducerOf(id)?.name ?? id } : field.labels;
      return { ...field, labels, type: resultType(id, field, values), values };
    });
  });
  return { ...withFields(frame, fields), length: 1 };
}

/**
 * Options: `reducers`, `mode` seriesToRows (a row a field) or reduceFields (a frame with one row),
 * `labelsToFields`, `includeTimeField`.
 * @type {Transformation}
 */
export function reduce(frames, options) {
  const ids = [...new Set((options.reducers ? textsOf(options.reducers) : ['max']).map(reducerId))].filter(reducerOf);
  if (!ids.length) return frames;
  if (options.mode === 'reduceFields') {
    return frames.map((frame) => reduceFields(frame, ids, options.includeTimeField === true))
      .filter((frame) => frame.fields.length > 0);
  }
  const names = namesAmong(frames);
  const rows = frames.flatMap((frame) => frame.fields.filter((field) => field.type !== 'time').map((field) => ({
    field,
    name: options.labelsToFields ? field.config.displayName || field.name : names(field, frame),
    results: reduceValues(field.values, ids, field.config.nullValueMode),
  })));
  const labels = options.labelsToFields ? [...new Set(rows.flatMap(({ field }) => Object.keys(field.labels ?? {})))]
    : [];
  /** @type {Field[]} */
  const fields = [{ name: 'Field', type: 'string', config: {}, values: rows.map(({ name }) => name) }];
  for (const label of labels.slice(0, COLUMNS_MAX)) {
    fields.push({ name: label, type: 'string', config: {},
      values: rows.map(({ field }) => field.labels?.[label] ?? null) });
  }
  const configs = rows.map(({ field }) => field.config);
  for (const id of ids) {
    const values = rows.map(({ results }) => results.get(id) ?? null);
    const types = new Set(rows.map(({ field }, index) => resultType(id, field, [values[index]])));
    const [only] = types;
    // Rows of one table may have different units; the unit of the column is the one that they share.
    const unit = new Set(configs.map((config) => config.unit)).size === 1 ? configs[0]?.unit : undefined;
    fields.push({
      name: reducerOf(id)?.name ?? id, type: types.size === 1 ? only : 'other', values, config: unit ? { unit } : {},
    });
  }
  return [{ refId: joinedRefId('reduce', frames), name: '', length: rows.length, fields, ...noticed('', frames) }];
}
