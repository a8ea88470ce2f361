// Grafana's matchers: which fields, frames and values an override or a transformation is about.

import { isNone, textsOf } from './limits.js';
import { fieldName, namingOf } from './names.js';
import { safeRegex } from './pattern.js';
import { reduceField } from './reduce.js';

/** @typedef {import('./frame.js').Frame} Frame */
/** @typedef {import('./frame.js').Field} Field */
/** @typedef {import('./names.js').Naming} Naming */
/** @typedef {(text: string) => string} Replace fills in variables */
/** @typedef {{id?: string, options?: any}} Matcher */
/** @typedef {(field: Field, frame: Frame, naming: Naming) => boolean} FieldTest */

/** Nesting of anyMatch, allMatch and invertMatch; deeper matchers match nothing. */
const DEPTH_MAX = 8;

/** @param {any} left @param {string} op @param {any} right */
export function compares(left, op, right) {
  const none = left === null || left === undefined;
  switch (op) {
    case 'eq': case '=': case '==': return left === right;
    case 'neq': case '!=': return left !== right;
    case 'lt': case '<': return !none && left < right;
    case 'lte': case '<=': return !none && left <= right;
    case 'gt': case '>': return !none && left > right;
    case 'gte': case '>=': return !none && left >= right;
    default: return false;
  }
}

/** @type {(field: Field, frame: Frame, naming: Naming) => string} the name when a matcher first asked for it */
function shownName(field, frame, naming) {
  const name = naming.asked?.get(field) ?? fieldName(field, frame, naming);
  naming.asked?.set(field, name);
  return name;
}

/** @param {(name: string) => boolean} test @returns {FieldTest} a test of the name that is shown */
const byShownName = (test) => (field, frame, naming) => test(shownName(field, frame, naming));

/** @param {any} pattern @returns {FieldTest} */
function byPattern(pattern) {
  const regex = safeRegex(pattern);
  return byShownName((name) => regex !== null && regex.test(name));
}

/** @param {string[]} names @returns {FieldTest} a test of a field's own and shown name */
const byAnyName = (names) => (field, frame, naming) =>
  names.includes(field.name) || names.includes(shownName(field, frame, naming));

/** @param {any} options @param {Replace} replace @returns {FieldTest} */
function byRegexpOrNames(options, replace) {
  const variable = typeof options?.variable === 'string' ? replace(options.variable) : '';
  const listed = variable.startsWith('{') && variable.endsWith('}') ? variable.slice(1, -1).split(',') : [variable];
  const names = byAnyName([...textsOf(options?.names), ...(variable ? listed.map((name) => name.trim()) : [])]);
  const pattern = options?.pattern ? byPattern(replace(String(options.pattern))) : () => false;
  return (field, frame, naming) => names(field, frame, naming) || pattern(field, frame, naming);
}

/** @param {any} options @returns {FieldTest} */
function byNames(options) {
  const names = byAnyName(textsOf(Array.isArray(options) ? options : options?.names));
  return options?.mode === 'exclude' ? (field, frame, naming) => !names(field, frame, naming) : names;
}

/** @param {any} options {reducer, op, value} @returns {FieldTest} */
function byReducedValue(options) {
  return (field) => {
    const value = reduceField(field, String(options?.reducer ?? ''));
    return compares(value, String(options?.op ?? ''), options?.value);
  };
}

/**
 * Returns the test of a field matcher; null for an unknown one.
 * @param {Matcher | undefined} matcher
 * @param {Replace} [replace]
 * @param {number} [depth]
 * @returns {FieldTest | null}
 */
export function fieldTest(matcher, replace = (text) => text, depth = 0) {
  const options = matcher?.options;
  if (depth > DEPTH_MAX) return () => false;
  const inner = () => (Array.isArray(options) ? options : [options])
    .map((one) => fieldTest(one, replace, depth + 1) ?? (() => false));
  switch (matcher?.id) {
    case 'byName': return byAnyName([String(options ?? '')]);
    case 'byNames': return byNames(options);
    case 'byRegexp': return byPattern(typeof options === 'string' ? replace(options) : options);
    case 'byRegexpOrNames': return byRegexpOrNames(options, replace);
    case 'byType': return (field) => field.type === options;
    case 'byTypes': return (field) => textsOf(options).includes(field.type);
    case 'byFrameRefID': return (_, frame) => frame.refId === options;
    case 'byValue': return byReducedValue(options);
    case 'numeric': return (field) => field.type === 'number';
    case 'time': return (field) => field.type === 'time';
    case 'first': return (field, frame) => frame.fields[0] === field;
    case 'firstTimeField': return (field, frame) => frame.fields.find((one) => one.type === 'time') === field;
    case 'anyMatch': return ((tests) => (field, frame, naming) =>
      tests.some((test) => test(field, frame, naming)))(inner());
    case 'allMatch': return ((tests) => (field, frame, naming) =>
      tests.every((test) => test(field, frame, naming)))(inner());
    case 'invertMatch': return ((test) => (field, frame, naming) => !test(field, frame, naming))(inner()[0]);
    case 'alwaysMatch': return () => true;
    case 'neverMatch': return () => false;
    default: return null;
  }
}

/**
 * Returns the test of a frame matcher. `byRefId` takes a name or a regular expression.
 * @param {Matcher | undefined} matcher
 * @returns {(frame: Frame) => boolean}
 */
export function frameTest(matcher) {
  const { id, options } = matcher ?? {};
  const regex = id === 'byRefId' || id === 'byName' ? safeRegex(options ?? '') : null;
  if (id === 'byRefId') return (frame) => regex !== null && regex.test(frame.refId);
  if (id === 'byName') return (frame) => regex !== null && regex.test(frame.name);
  return () => id !== 'neverMatch';
}

/**
 * Returns the test of a value matcher; null for an unknown one.
 * @param {Matcher | undefined} matcher
 * @param {Field} field
 * @param {Replace} [replace]
 * @returns {((value: any) => boolean) | null}
 */
export function valueTest(matcher, field, replace = (text) => text) {
  const fill = (/** @type {any} */ value) => (typeof value === 'string' ? replace(value) : value);
  const wanted = fill(matcher?.options?.value);
  const [low, high] = [fill(matcher?.options?.from), fill(matcher?.options?.to)];
  const number = (/** @type {any} */ value) => (field.type === 'time' && typeof value === 'string' ? Date.parse(value)
    : Number(value));
  // null counts as 0, as in Grafana.
  const numbers = (/** @type {(value: number) => boolean} */ test) => (/** @type {any} */ value) => test(Number(value));
  // eslint-disable-next-line eqeqeq -- a dashboard holds "1" for the number 1
  const equal = (/** @type {any} */ value) => value == wanted;
  const part = String(wanted ?? '').toLowerCase();
  const holds = (/** @type {any} */ value) => part === ''
    || (typeof value === 'string' && value.toLowerCase().includes(part));
  switch (matcher?.id) {
    case 'isNull': return isNone;
    case 'isNotNull': return (value) => !isNone(value);
    case 'greater': return numbers((value) => value > number(wanted));
    case 'greaterOrEqual': return numbers((value) => value >= number(wanted));
    case 'lower': return numbers((value) => value < number(wanted));
    case 'lowerOrEqual': return numbers((value) => value <= number(wanted));
    case 'between': return numbers((value) => value > number(low) && value < number(high));
    case 'equal': return equal;
    case 'notEqual': return (value) => !equal(value);
    case 'substring': return holds;
    case 'notSubstring': return (value) => typeof value === 'string' && value !== '' && !holds(value);
    case 'regex': {
      const regex = safeRegex(wanted ?? '', { whole: false });
      return (value) => regex !== null && regex.test(String(value));
    }
    default: return null;
  }
}

/** @param {Frame} frame @returns {Naming} names of one frame, as most transformations see them */
export const alone = (frame) => namingOf([frame]);
