// Transformations between labels, fields and series.

import { reduceValues, reducerId } from '../reduce.js';
import { ROWS_MAX, isSeries, namesAmong, noticed, record, text, textsOf, timeOf, withFields } from './tools.js';

/** @typedef {import('./tools.js').Transformation} Transformation */
/** @typedef {import('../frame.js').Frame} Frame */
/** @typedef {import('../frame.js').Field} Field */

/** @param {Frame[]} frames @param {string[] | null} keep @returns {Frame[]} a table a field with labels */
function toRows(frames, keep) {
  const names = namesAmong(frames);
  const labelled = (/** @type {Field} */ field) => (keep ? field.labels : Object.keys(field.labels ?? {}).length > 0);
  return frames.flatMap((frame) => frame.fields.filter(labelled).map((field) => {
    const labels = field.labels ?? {};
    const pairs = (keep ?? Object.keys(labels)).map((label) =>
      [label, Object.hasOwn(labels, label) ? labels[label] : null]);
    return {
      ...frame,
      name: names(field, frame),
      length: pairs.length,
      fields: [
        { name: 'label', type: /** @type {const} */ ('string'), config: {}, values: pairs.map(([label]) => label) },
        { name: 'value', type: /** @type {const} */ ('string'), config: {}, values: pairs.map(([, value]) => value) },
      ],
    };
  }));
}

/**
 * Options: `mode` columns or rows; `keepLabels`, all without it; `valueLabel`, the label that names the
 * value field.
 * @type {Transformation}
 */
export function labelsToFields(frames, options) {
  const keep = Array.isArray(options.keepLabels) && options.keepLabels.length ? new Set(textsOf(options.keepLabels))
    : null;
  const keeps = (/** @type {string} */ label) => !keep || keep.has(label);
  if (options.mode === 'rows') return toRows(frames, keep && [...keep]);
  const valueLabel = text(options.valueLabel);
  return frames.map((frame) => {
    /** @type {Map<string, Set<string>>} */
    const found = new Map();
    const fields = frame.fields.map((field) => {
      if (!field.labels) return field;
      const copy = { ...field, labels: undefined, config: { ...field.config } };
      delete copy.config.displayName;
      delete copy.config.displayNameFromDS;
      for (const [label, value] of Object.entries(field.labels)) {
        if (!keeps(label)) continue;
        if (label === valueLabel) copy.name = value;
        else found.set(label, (found.get(label) ?? new Set()).add(value));
      }
      return copy;
    });
    for (const [label, values] of found) {
      for (const value of values) {
        fields.push({ name: label, type: 'string', config: {}, labels: undefined,
          values: new Array(frame.length).fill(value) });
      }
    }
    return withFields(frame, fields);
  });
}

/**
 * One table a query: a row a series, with a column a label and the series as `Trend`. Options: by refId
 * `{stat, inline}`.
 * @type {Transformation}
 */
export function timeSeriesTable(frames, options) {
  /** @type {Map<string, Frame[]>} */
  const byQuery = new Map();
  const others = [];
  for (const frame of frames) {
    if (!isSeries(frame)) others.push(frame);
    else byQuery.set(frame.refId, [...(byQuery.get(frame.refId) ?? []), frame]);
  }
  const tables = [...byQuery].map(([refId, all]) => {
    const rows = all.flatMap((frame) => frame.fields.filter((field) => field.type === 'number')
      .map((field) => ({ frame, field })));
    const kept = rows.slice(0, ROWS_MAX);
    const labels = [...new Set(kept.flatMap(({ field }) => Object.keys(field.labels ?? {})))];
    const { stat } = record(record(options)[refId]);
    const id = reducerId(text(stat) || 'lastNotNull');
    /** @type {Field[]} */
    const fields = labels.map((label) => ({
      name: label, type: 'string', config: {},
      values: kept.map(({ field }) => field.labels?.[label] ?? ''),
    }));
    // The value of a trend is a small frame; sorting and text use `value`.
    const values = kept.map(({ frame, field }) => {
      const time = timeOf(frame);
      return {
        ...withFields(frame, time ? [time, field] : [field]),
        value: reduceValues(field.values, [id], field.config.nullValueMode).get(id) ?? null,
      };
    });
    fields.push({ name: refId ? `Trend #${refId}` : 'Trend', type: 'other', config: {}, values });
    const notice = rows.length > kept.length ? `Shows the first ${kept.length} of ${rows.length} series.` : '';
    return { refId, name: '', length: kept.length, fields, ...noticed(notice, all) };
  });
  return [...tables, ...others];
}
