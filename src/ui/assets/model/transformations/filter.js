// Transformations that leave out fields, frames or rows.

import { fieldTest, frameTest, valueTest } from '../matchers.js';
import { fieldName, namingOf } from '../names.js';
import { safeRegex } from '../pattern.js';
import { list, namesAmong, record, text, textsOf, withFields, withRows } from './tools.js';

/** @typedef {import('./tools.js').Transformation} Transformation */
/** @typedef {import('./tools.js').Context} Context */
/** @typedef {import('../frame.js').Frame} Frame */

/** @param {any} options @param {Context} context @returns {((name: string[]) => boolean) | null} */
function nameTest(options, context) {
  const { names, pattern, variable } = record(options);
  const listed = new Set(textsOf(names));
  const filled = text(variable) ? context.replace(variable) : '';
  for (const name of filled.replace(/^\{(.*)\}$/, '$1').split(',')) if (filled) listed.add(name.trim());
  const regex = text(pattern) ? safeRegex(context.replace(pattern)) : null;
  if (!listed.size && !text(pattern)) return null;
  return (all) => all.some((name) => listed.has(name)) || (regex !== null && regex.test(all[1]));
}

/** Options: `include` and `exclude`, each with `names`, `pattern` and `variable`. @type {Transformation} */
export function filterFieldsByName(frames, options, context) {
  const include = nameTest(options.byVariable ? { variable: record(options.include).variable } : options.include,
    context);
  const exclude = nameTest(options.byVariable ? { variable: record(options.exclude).variable } : options.exclude,
    context);
  if (!include && !exclude) return frames;
  const naming = namingOf(frames);
  return keep(frames, (field, frame) => {
    const names = [field.name, fieldName(field, frame, naming)];
    return (!include || include(names)) && !exclude?.(names);
  });
}

/**
 * @param {Frame[]} frames
 * @param {(field: import('../frame.js').Field, frame: Frame) => boolean} test
 * @returns {Frame[]} frames that keep a field
 */
function keep(frames, test) {
  return frames.map((frame) => withFields(frame, frame.fields.filter((field) => test(field, frame))))
    .filter((frame) => frame.fields.length > 0);
}

/** Options: `include` and `exclude`, each a field matcher. @type {Transformation} */
export function filterFields(frames, options, context) {
  const include = options.include ? fieldTest(options.include, context.replace) : null;
  const exclude = options.exclude ? fieldTest(options.exclude, context.replace) : null;
  if (!include && !exclude) return frames;
  const naming = namingOf(frames);
  return keep(frames, (field, frame) => (!include || include(field, frame, naming))
    && !exclude?.(field, frame, naming));
}

/** Options: `include` or `exclude`, a refId or a regular expression. @type {Transformation} */
export function filterByRefId(frames, options) {
  const include = options.include ? frameTest({ id: 'byRefId', options: options.include }) : null;
  const exclude = options.exclude ? frameTest({ id: 'byRefId', options: options.exclude }) : null;
  return frames.filter((frame) => (!include || include(frame)) && !exclude?.(frame));
}

/** Options: `type` include or exclude, `match` any or all, `filters`. @type {Transformation} */
export function filterByValue(frames, options, context) {
  const filters = list(options.filters);
  if (!filters.length) return frames;
  const excludes = options.type === 'exclude';
  const names = namesAmong(frames);
  return frames.map((frame) => {
    const tests = filters.flatMap((filter) => {
      const field = frame.fields.find((one) => names(one, frame) === filter.fieldName);
      const test = field && valueTest(filter.config, field, context.replace);
      return field && test ? [(/** @type {number} */ row) => test(field.values[row])] : [];
    });
    const matches = (/** @type {number} */ row) =>
      (options.match === 'all' ? tests.length > 0 && tests.every((test) => test(row))
      : tests.some((test) => test(row)));
    const rows = Array.from({ length: frame.length }, (_, row) => row).filter((row) => matches(row) !== excludes);
    return withRows(frame, rows);
  });
}

/** Options: `limitField`, the number of rows; from the end if negative. @type {Transformation} */
export function limit(frames, options, context) {
  const given = options.limitField ?? 10;
  const count = Math.trunc(Number(typeof given === 'string' ? context.replace(given) : given));
  if (!Number.isFinite(count)) return frames;
  return frames.map((frame) => {
    if (Math.abs(count) >= frame.length) return frame;
    const rows = Array.from({ length: frame.length }, (_, row) => row);
    return withRows(frame, count < 0 ? rows.slice(count) : rows.slice(0, count));
  });
}
