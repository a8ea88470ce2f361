// Transformations that order, rename and sort.

import { PATTERN_MAX, safeRegex } from '../pattern.js';
import { list, nameAlone, namesAmong, record, text, withFields, withRows } from './tools.js';

/** @typedef {import('./tools.js').Transformation} Transformation */
/** @typedef {import('../frame.js').Frame} Frame */
/** @typedef {import('../frame.js').Field} Field */

/** Longest name that a regular expression makes. */
const NAME_MAX = 4096;

const collator = new Intl.Collator('en', { sensitivity: 'base' });
const natural = new Intl.Collator('en', { sensitivity: 'base', numeric: true });

/**
 * @param {Frame[]} frames
 * @param {Record<string, any>} places name to index
 * @param {(field: Field, frame: Frame) => string} [names]
 * @returns {Frame[]}
 */
function ordered(frames, places, names = namesAmong(frames)) {
  if (!Object.keys(places).length) return frames;
  return frames.map((frame) => {
    const place = (/** @type {Field} */ field) => {
      const index = Number(places[names(field, frame)]);
      return Number.isFinite(index) ? index : Infinity;
    };
    return withFields(frame, [...frame.fields].sort((a, b) => place(a) - place(b) || 0));
  });
}

/** @param {Frame[]} frames @param {any} orderBy @returns {Frame[]} fields in order of names or label values */
function automatic(frames, orderBy) {
  const rules = list(orderBy);
  return frames.map((frame) => {
    const told = (/** @type {Field} */ field, /** @type {any} */ rule) =>
      (rule.type === 'label' ? field.labels?.[text(rule.name)] ?? '' : nameAlone(field, frame));
    const compare = (/** @type {Field} */ a, /** @type {Field} */ b) => {
      for (const rule of rules) {
        const order = natural.compare(told(a, rule), told(b, rule)) * (rule.desc ? -1 : 1);
        if (order) return order;
      }
      return 0;
    };
    // The time field stays at the front.
    const times = frame.fields.filter((field) => field.type === 'time');
    return withFields(frame, [...times, ...frame.fields.filter((field) => field.type !== 'time').sort(compare)]);
  });
}

/** Options: `indexByName`. @type {Transformation} */
export const order = (frames, options) => ordered(frames, record(options.indexByName));

/** Options: `renameByName`. @type {Transformation} */
export function rename(frames, options) {
  const names = record(options.renameByName);
  if (!Object.keys(names).length) return frames;
  return frames.map((frame) => withFields(frame, frame.fields.map((field) => {
    const name = text(names[nameAlone(field, frame)]);
    return name ? { ...field, config: { ...field.config, displayName: name } } : field;
  })));
}

/**
 * Options: `excludeByName`, `includeByName`, `indexByName` or `orderBy`, `renameByName`.
 * @type {Transformation}
 */
export function organize(frames, options, context) {
  const [exclude, include] = [record(options.excludeByName), record(options.includeByName)];
  const names = namesAmong(frames);
  const included = Object.keys(include).filter((name) => include[name]);
  const kept = frames.map((frame) => withFields(frame, frame.fields.filter((field) => {
    const name = names(field, frame);
    return !exclude[name] && !exclude[field.name]
      && (!included.length || included.includes(name) || included.includes(field.name));
  }))).filter((frame) => frame.fields.length > 0);
  const placed = options.orderByMode === 'auto' ? automatic(kept, options.orderBy)
    : ordered(kept, record(options.indexByName), names);
  return rename(placed, options, context);
}

/** Options: `regex`, `renamePattern` with `$1` for groups. @type {Transformation} */
export function renameByRegex(frames, options, context) {
  const regex = safeRegex(context.replace(text(options.regex)));
  if (!regex || !text(options.regex)) return frames;
  const pattern = context.replace(text(options.renamePattern)).slice(0, PATTERN_MAX);
  return frames.map((frame) => withFields(frame, frame.fields.map((field) => {
    const name = nameAlone(field, frame);
    if (!regex.test(name)) return field;
    return { ...field, config: { ...field.config, displayName: name.replace(regex, pattern).slice(0, NAME_MAX) } };
  })));
}

/** @param {Field} field @returns {(a: any, b: any) => number} */
function comparer(field) {
  if (field.type === 'string' || field.type === 'other') {
    return (a, b) => {
      if (a === null || a === undefined || b === null || b === undefined) return Number(a == null) - Number(b == null);
      return collator.compare(String(a), String(b));
    };
  }
  // As in Grafana no value sorts as 0, and true before false; NaN comes before all numbers.
  const sign = field.type === 'boolean' ? -1 : 1;
  const number = (/** @type {any} */ value) => (Number.isNaN(value) ? -Infinity : Number(value ?? 0) * sign);
  return (a, b) => (number(a) === number(b) ? 0 : number(a) - number(b));
}

/** Options: `sort`, of which the first `{field, desc}` counts. @type {Transformation} */
export function sortBy(frames, options, context) {
  const [first] = list(options.sort);
  if (!first?.field) return frames;
  const name = context.replace(String(first.field));
  return frames.map((frame) => {
    const field = frame.fields.find((one) => nameAlone(one, frame) === name);
    if (!field) return frame;
    const compare = comparer(field);
    const sign = first.desc ? -1 : 1;
    const rows = Array.from({ length: frame.length }, (_, row) => row);
    return withRows(frame, rows.sort((a, b) => sign * compare(field.values[a], field.values[b])));
  });
}
