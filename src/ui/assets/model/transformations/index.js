// The transformations of a panel, applied in order.

import { frameTest } from '../matchers.js';
import { calculateField } from './calculate.js';
import { convertFieldType } from './convert.js';
import { filterByRefId, filterByValue, filterFields, filterFieldsByName, limit } from './filter.js';
import { groupBy, reduce } from './group.js';
import { histogram } from './histogram.js';
import { concatenate, joinByField, merge, prepareTimeSeries, seriesToRows } from './join.js';
import { labelsToFields, timeSeriesTable } from './labels.js';
import { order, organize, rename, renameByRegex, sortBy } from './organize.js';
import { COLUMNS_MAX, noticed, record, text } from './tools.js';

/** @typedef {import('./tools.js').Transformation} Transformation */
/** @typedef {import('../frame.js').Frame} Frame */

/** @type {Map<string, Transformation>} */
const TRANSFORMATIONS = new Map(Object.entries({
  calculateField, concatenate, convertFieldType, filterByRefId, filterByValue, filterFields, filterFieldsByName,
  groupBy, histogram, joinByField, labelsToFields, limit, merge, order, organize, prepareTimeSeries, reduce, rename,
  renameByRegex,
  seriesToRows, sortBy, timeSeriesTable,
  /** @type {Transformation} */
  seriesToColumns: (frames, options, context) => joinByField(frames, { ...options, mode: 'outer' }, context),
  /** @type {Transformation} */
  noop: (frames) => frames,
}));

/** The most transformations of one panel. */
export const TRANSFORMATIONS_MAX = 100;

/** Ids of all transformations. */
export const TRANSFORMATION_IDS = [...TRANSFORMATIONS.keys()];

/** @param {Frame} frame @returns {Frame} without the columns that are too many */
function cut(frame) {
  if (frame.fields.length <= COLUMNS_MAX) return frame;
  const notice = `Shows the first ${COLUMNS_MAX} columns.`;
  const known = frame.notice?.includes(notice);
  return { ...frame, fields: frame.fields.slice(0, COLUMNS_MAX), ...noticed(known ? '' : notice, [frame]) };
}

/**
 * Applies transformations as a dashboard lists them: `{id, options, disabled, filter, topic}`. `filter`
 * is a frame matcher; frames that it does not match follow unchanged. Transformations of annotations
 * are left out.
 * @param {Frame[]} frames
 * @param {unknown} transformations
 * @param {{replace?: (text: string) => string}} [context] `replace` fills in variables
 * @returns {{frames: Frame[], unsupported: string[]}} `unsupported`: each unknown id once
 */
export function transform(frames, transformations, { replace = (one) => one } = {}) {
  const unsupported = new Set();
  let current = frames;
  for (const item of Array.isArray(transformations) ? transformations.slice(0, TRANSFORMATIONS_MAX) : []) {
    const { id, disabled, filter, topic, options } = record(item);
    if (disabled === true || (text(topic) && topic !== 'series')) continue;
    const apply = TRANSFORMATIONS.get(text(id));
    if (!apply) {
      unsupported.add(String(id));
      continue;
    }
    const test = record(filter).id ? frameTest(filter) : null;
    const chosen = test ? current.filter(test) : current;
    const rest = test ? current.filter((frame) => !test(frame)) : [];
    if (test && !chosen.length) continue;
    current = [...apply(chosen, record(options), { replace }).map(cut), ...rest];
  }
  return { frames: current, unsupported: [...unsupported] };
}
