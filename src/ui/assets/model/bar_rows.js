// The rows and columns that a bar chart draws: one group of bars a row.

import { joinByField } from './transformations/join.js';
import { isSeries } from './transformations/tools.js';

/** @typedef {import('./frame.js').Frame} Frame */
/** @typedef {import('./frame.js').Field} Field */

/** The most groups of bars, and bars of a group. */
export const ROWS_MAX = 200;
export const COLUMNS_MAX = 100;

/** @param {Field} field */
const nameOf = (field) => field.config.displayName || field.name;

/**
 * One frame of all frames: series are joined by time. Other frames are not joined; the first one counts.
 * @param {Frame[]} frames at least one
 * @param {(field: Field) => boolean} isChosen
 */
function joined(frames, isChosen) {
  const joins = (/** @type {Frame} */ frame) =>
    isSeries(frame) && !frame.fields.some((field) => isChosen(field) && field.type !== 'time');
  if (!joins(frames[0])) return frames[0];
  return joinByField(frames.filter(joins), { mode: 'outer' }, { replace: (text) => text })[0];
}

/**
 * Returns the fields that a bar chart draws, the rows to draw (`from` inclusive, `to` exclusive),
 * and a note about omitted rows; null without numbers. The newest rows stay if a row is a time.
 * @param {Frame[]} frames with their field configuration applied
 * @param {unknown} xField the name of the field that names the groups; otherwise the first text or time
 * @returns {{category: Field | undefined, numbers: Field[], from: number, to: number, note: string} | null}
 */
export function barRows(frames, xField) {
  const filled = frames.filter(({ fields, length }) => length > 0 && fields.some(({ type }) => type === 'number'));
  if (filled.length === 0) return null;
  const isChosen = (/** @type {Field} */ field) => field.name === xField || nameOf(field) === xField;
  const { fields, length } = joined(filled, isChosen);
  const category = fields.find(isChosen)
    ?? fields.find(({ type }) => type === 'string') ?? fields.find(({ type }) => type === 'time');
  const all = fields.filter((field) =>
    field.type === 'number' && field !== category && field.config.custom?.hideFrom?.viz !== true);
  if (all.length === 0) return null;
  const numbers = all.slice(0, COLUMNS_MAX);
  const rows = Math.min(length, ROWS_MAX);
  const times = category?.type === 'time' ? category.values : [];
  const from = times[0] < times[length - 1] ? length - rows : 0;
  const notes = [
    rows < length && `${times.length > 0 ? 'The newest ' : ''}${rows} of ${length} rows are shown.`,
    numbers.length < all.length && `${numbers.length} of ${all.length} series are shown.`,
  ];
  return { category, numbers, from, to: from + rows, note: notes.filter(Boolean).join(' ') };
}
