// The parts that transformations share: their context, names of fields, and frames with other rows.

import { alone } from '../matchers.js';
import { fieldName, namingOf } from '../names.js';

/** @typedef {import('../frame.js').Frame} Frame */
/** @typedef {import('../frame.js').Field} Field */
/** @typedef {import('../matchers.js').Replace} Replace */
/** @typedef {{replace: Replace}} Context */
/**
 * A transformation never changes its input: it returns new frames, which may share values.
 * Its options come from a dashboard and may hold anything.
 * @typedef {(frames: Frame[], options: any, context: Context) => Frame[]} Transformation
 */

/** The most rows and columns of a frame that a transformation makes. */
export { COLUMNS_MAX, ROWS_MAX } from '../columns.js';

/** @param {any} value @returns {Record<string, any>} an object with own properties only */
export function record(value) {
  const plain = value !== null && typeof value === 'object' && !Array.isArray(value);
  return Object.assign(Object.create(null), plain ? value : {});
}

export { textsOf } from '../limits.js';

/** @param {any} value */
export const list = (value) =>
  (Array.isArray(value) ? value.filter((one) => one !== null && typeof one === 'object') : []);

/** @param {any} value @returns {string} '' for everything but text */
export const text = (value) => (typeof value === 'string' ? value : '');

/** @param {Field} field @param {Frame} frame @returns {string} the shown name within one frame */
export const nameAlone = (field, frame) => fieldName(field, frame, alone(frame));

/** @param {Frame[]} frames @returns {(field: Field, frame: Frame) => string} shown names among all frames */
export function namesAmong(frames) {
  const naming = namingOf(frames);
  return (field, frame) => fieldName(field, frame, naming);
}

/** @param {Frame} frame @param {number[]} rows indexes, in their new order @returns {Frame} */
export function withRows(frame, rows) {
  return {
    ...frame,
    length: rows.length,
    fields: frame.fields.map((field) => ({
      ...field,
      values: field.values instanceof Float64Array ? Float64Array.from(rows, (row) => field.values[row])
        : rows.map((row) => field.values[row]),
    })),
  };
}

/** @param {Frame} frame @param {Field[]} fields @returns {Frame} */
export const withFields = (frame, fields) => ({ ...frame, fields });

/** @param {string} id @param {Frame[]} frames @returns {string} such as `merge-A-B` */
export const joinedRefId = (id, frames) => `${id}-${frames.map((frame) => frame.refId).join('-')}`;

/** @param {string} notice @param {Frame[]} frames @returns {{notice?: string}} */
export function noticed(notice, frames) {
  const all = [notice, ...frames.map((frame) => frame.notice ?? '')].filter(Boolean);
  return all.length ? { notice: [...new Set(all)].join(' ') } : {};
}

/** @param {any} value the key of a value in a group or a join; numbers and texts differ */
export const keyOf = (value) => (value === undefined || value === null ? 'null' : `${typeof value} ${String(value)}`);

/** @param {Frame} frame @returns {Field | undefined} its first time field */
export const timeOf = (frame) => frame.fields.find((field) => field.type === 'time');

/** @param {Frame} frame @returns {boolean} whether it has a time and a number field, and no text */
export function isSeries(frame) {
  const types = new Set(frame.fields.map((field) => field.type));
  return types.has('time') && types.has('number') && !types.has('string');
}
