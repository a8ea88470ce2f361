// Transformation `calculateField`: a new field from other fields of a row, or from rows before it.

import { fieldTest } from '../matchers.js';
import { reduceValues, reducerId, reducerOf } from '../reduce.js';
import { joinByField } from './join.js';
import { nameAlone, namesAmong, record, text, textsOf, timeOf, withFields } from './tools.js';

/** @typedef {import('./tools.js').Transformation} Transformation */
/** @typedef {import('./tools.js').Context} Context */
/** @typedef {import('../frame.js').Frame} Frame */
/** @typedef {import('../frame.js').Field} Field */

/** @type {Map<string, (left: number, right: number) => number>} */
const BINARY = new Map([
  ['+', (left, right) => left + right], ['-', (left, right) => left - right],
  ['*', (left, right) => left * right], ['/', (left, right) => left / right],
]);
/** @type {Map<string, (value: number) => number>} */
const UNARY = new Map([
  ['abs', Math.abs], ['exp', Math.exp], ['ln', Math.log], ['round', Math.round], ['floor', Math.floor],
  ['ceil', Math.ceil],
]);

/** @param {any} value @returns {number} null counts as 0, no value as NaN */
const numberOf = (value) => Number(value);

/** @param {string} name @param {any[]} values @returns {Field} */
const made = (name, values) => ({ name, type: 'number', config: {}, values });

/** @param {Frame} frame @param {string} name @returns {Field | undefined} */
const named = (frame, name) => frame.fields.find((field) => nameAlone(field, frame) === name);

/** @param {Frame} frame @param {any} options @returns {{field: Field | null}} */
function reduceRow(frame, options) {
  const { reducer, include } = record(options.reduce);
  const id = reducerId(text(reducer) || 'sum');
  const chosen = textsOf(include);
  const fields = frame.fields.filter((field) => (chosen.length
    ? chosen.includes(field.name) || chosen.includes(nameAlone(field, frame))
    : field.type === 'number'));
  if (!reducerOf(id)) return { field: null };
  const values = Array.from({ length: frame.length }, (_, row) =>
    reduceValues(fields.map((field) => field.values[row]), [id], 'null').get(id) ?? null);
  return { field: made(text(options.alias) || (reducerOf(id)?.name ?? id), values) };
}

/** @typedef {Context & {names: (field: Field, frame: Frame) => string}} Among with shown names among all frames */

/**
 * @param {any} side of a binary operation: a name or a number as text, or `{matcher}`, or `{fixed}`
 * @param {Frame} frame
 * @param {Among} context
 * @returns {{name: string, at: (row: number) => number} | null}
 */
function operand(side, frame, context) {
  const given = typeof side === 'object' && side !== null ? record(side) : { fixed: side };
  const name = given.matcher ? text(given.matcher.options) : context.replace(String(given.fixed ?? ''));
  const shown = frame.fields.find((one) => context.names(one, frame) === name);
  const field = shown ?? (given.matcher ? frame.fields.find((one) => one.name === name) : undefined);
  if (field) return { name, at: (row) => numberOf(field.values[row]) };
  const number = name.trim() === '' ? NaN : Number(name);
  return Number.isNaN(number) || given.matcher ? null : { name, at: () => number };
}

/** @param {Frame} frame @param {any} options @param {Among} context @returns {{field: Field | null}} */
function binary(frame, options, context) {
  const { left, operator, right } = record(options.binary);
  const sign = operator === undefined ? '+' : String(operator);
  const apply = BINARY.get(sign);
  const [one, other] = [operand(left, frame, context), operand(right, frame, context)];
  if (!apply || !one || !other) return { field: null };
  const values = Array.from({ length: frame.length }, (_, row) => apply(one.at(row), other.at(row)));
  return { field: made(text(options.alias) || `${one.name} ${sign} ${other.name}`, values) };
}

/**
 * A binary operation on each field that a matcher other than a name finds: results follow their fields.
 * @param {Frame} frame @param {any} options @param {Among} context @returns {Frame}
 */
function binaryEach(frame, options, context) {
  const { left, operator, right } = record(options.binary);
  const test = fieldTest(left.matcher, context.replace);
  const apply = BINARY.get(String(operator ?? '+'));
  const other = operand(right, frame, context);
  if (!test || !apply || !other) return frame;
  /** @type {Field[]} */
  const results = [];
  const fields = frame.fields.flatMap((field) => {
    if (!test(field, frame, { differ: false, label: null })) return [field];
    const values = Array.from({ length: frame.length }, (_, row) => apply(numberOf(field.values[row]), other.at(row)));
    const result = { ...made(`${field.name} ${operator ?? '+'} ${other.name}`, values), labels: field.labels };
    results.push(result);
    return [field, result];
  });
  return withFields(frame, options.replaceFields ? [...beside(frame), ...results] : fields);
}

/** @param {Frame} frame @param {any} options @returns {{field: Field | null}} */
function unary(frame, options) {
  const { fieldName, operator } = record(options.unary);
  const apply = UNARY.get(text(operator) || 'abs');
  const field = frame.fields.findLast((one) => one.type === 'number' && nameAlone(one, frame) === text(fieldName));
  if (!apply || !field) return { field: null };
  const values = Array.from(field.values, (value) => apply(numberOf(value)));
  return { field: made(text(options.alias) || `${text(operator) || 'abs'}(${text(fieldName)})`, values) };
}

/** @param {Frame} frame @param {any} options @returns {{field: Field | null}} */
function index(frame, options) {
  const percent = record(options.index).asPercentile === true;
  const values = Array.from({ length: frame.length }, (_, row) => (percent ? row / frame.length : row));
  return { field: { ...made(text(options.alias) || 'Row', values), config: percent ? { unit: 'percentunit' } : {} } };
}

/** @param {Frame} frame @param {any} options @returns {{field: Field | null}} */
function cumulative(frame, options) {
  const { field: name, reducer } = record(options.cumulative);
  const field = named(frame, text(name)) ?? frame.fields.find((one) => one.name === name);
  const mean = reducer === 'mean';
  if (!field || (reducer && reducer !== 'sum' && !mean)) return { field: null };
  let total = 0;
  const values = Array.from(field.values, (value, row) => {
    total += numberOf(value ?? 0);
    return mean ? total / (row + 1) : total;
  });
  return { field: made(text(options.alias) || `cumulative ${mean ? 'mean' : 'sum'}(${text(name)})`, values) };
}

/** @param {Frame} frame @param {any} options @returns {{field: Field | null}} */
function moving(frame, options) {
  const { field: name, reducer, windowSize, windowSizeMode, windowAlignment } = record(options.window);
  const field = named(frame, text(name)) ?? frame.fields.find((one) => one.name === name);
  const id = text(reducer) || 'mean';
  if (!field || !['mean', 'stdDev', 'variance'].includes(id)) return { field: null };
  const given = Number(windowSize ?? 0.1);
  const size = Math.max(1, Math.trunc(windowSizeMode === 'fixed' ? given : Math.ceil(given * frame.length)) || 1);
  const centered = windowAlignment === 'centered';
  const values = Array.from({ length: frame.length }, (_, row) => {
    const start = centered ? row - Math.floor(size / 2) : row - size + 1;
    const window = Array.from(field.values.slice(Math.max(0, start), Math.max(0, start + size)));
    return reduceValues(window, [id]).get(id) ?? 0;
  });
  const alignment = centered ? 'centered' : 'trailing';
  return { field: made(text(options.alias) || `${alignment} moving ${id}(${text(name)})`, values) };
}

/** @param {Frame} frame @returns {Field[]} what stays beside results that replace all fields */
function beside(frame) {
  const time = timeOf(frame);
  return time ? [time] : [];
}

/** @param {any} options @returns {boolean} whether a binary operation has a number for an operand */
function hasNumber(options) {
  const { left, right } = record(options.binary);
  return [left, right].some((side) => {
    const fixed = typeof side === 'object' && side !== null ? side.fixed : side;
    return fixed !== undefined && String(fixed).trim() !== '' && !Number.isNaN(Number(fixed));
  });
}

/**
 * Options: `mode` reduceRow, binary, unary, index, cumulativeFunctions or windowFunctions, with its own
 * options under `reduce`, `binary`, ...; `alias`; `replaceFields`. Series are joined by time first,
 * except for a binary operation with a number.
 * @type {Transformation}
 */
export function calculateField(frames, options, context) {
  const mode = text(options.mode) || 'reduceRow';
  const timed = frames.length > 1 && frames.every(timeOf);
  const joins = timed && (mode !== 'binary' || !hasNumber(options));
  const used = joins ? joinByField(frames, { mode: 'outer' }, context) : frames;
  const among = { ...context, names: namesAmong(used) };
  return used.flatMap((frame) => {
    const matcher = mode === 'binary' ? record(record(options.binary).left).matcher : undefined;
    if (matcher && matcher.id !== 'byName') return [binaryEach(frame, options, among)];
    const { field } = mode === 'reduceRow' ? reduceRow(frame, options)
      : mode === 'binary' ? binary(frame, options, among)
        : mode === 'unary' ? unary(frame, options)
          : mode === 'index' ? index(frame, options)
            : mode === 'cumulativeFunctions' ? cumulative(frame, options)
              : mode === 'windowFunctions' ? moving(frame, options) : { field: null };
    if (!field) return options.replaceFields ? [] : [frame];
    if (options.replaceFields) return [withFields(frame, [...(mode === 'index' ? [] : beside(frame)), field])];
    return [withFields(frame, [...frame.fields, field])];
  });
}
