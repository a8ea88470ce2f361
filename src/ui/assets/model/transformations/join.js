// Transformations that put several frames into one.

import { isNone } from '../limits.js';
import { COLUMNS_MAX, ROWS_MAX, isSeries, joinedRefId, keyOf, nameAlone, namesAmong, noticed, text, timeOf,
  withRows } from './tools.js';

/** @typedef {import('./tools.js').Transformation} Transformation */
/** @typedef {import('../frame.js').Frame} Frame */
/** @typedef {import('../frame.js').Field} Field */
/** @typedef {{frame: Frame, key: Field, rest: Field[]}} Part */

/** @param {Frame[]} frames @param {string} by @returns {Part[]} frames that have the field to join by */
function parts(frames, by) {
  const names = namesAmong(frames);
  return frames.flatMap((frame) => {
    const key = by ? frame.fields.find((field) => field.name === by || names(field, frame) === by) : timeOf(frame);
    if (!key) return [];
    const rest = frame.fields.filter((field) => field !== key).map((field) => {
      const named = frame.name && field.name === 'Value' ? frame.name : field.name;
      const labels = frame.name && field.name !== 'Value' ? { ...field.labels, name: frame.name } : { ...field.labels };
      return { ...field, name: named, labels };
    });
    return [{ frame, key, rest }];
  });
}

/** @param {Part[]} all @returns {(number | undefined)[][]} the row of each part for each key; the last one counts */
function outerRows(all) {
  /** @type {Map<string, {value: any, rows: (number | undefined)[]}>} */
  const found = new Map();
  all.forEach(({ key }, index) => {
    for (let row = 0; row < key.values.length; row += 1) {
      const value = key.values[row];
      const held = found.get(keyOf(value)) ?? { value, rows: new Array(all.length) };
      found.set(keyOf(value), held);
      held.rows[index] = row;
    }
  });
  const held = [...found.values()];
  if (all[0].key.type === 'time' || all[0].key.type === 'number') held.sort((a, b) => a.value - b.value);
  return held.map(({ rows }) => rows);
}

/** @param {Part[]} all @param {boolean} outer @returns {(number | undefined)[][]} each pair of rows with equal keys */
function tabularRows(all, outer) {
  /** @type {(number | undefined)[][]} */
  let joined = Array.from({ length: all[0].key.values.length }, (_, row) => [row]);
  const keyAt = (/** @type {(number | undefined)[]} */ rows) => {
    const part = rows.findIndex((row) => row !== undefined);
    return keyOf(all[part].key.values[rows[part] ?? 0]);
  };
  for (const [index, { key }] of all.entries()) {
    if (index === 0) continue;
    /** @type {Map<string, number[]>} */
    const byKey = new Map();
    for (let row = 0; row < key.values.length; row += 1) {
      const held = byKey.get(keyOf(key.values[row]));
      if (held) held.push(row);
      else byKey.set(keyOf(key.values[row]), [row]);
    }
    const used = new Set();
    /** @type {(number | undefined)[][]} */
    const next = [];
    for (const rows of joined) {
      const own = keyAt(rows);
      used.add(own);
      const matches = byKey.get(own) ?? (outer ? [undefined] : []);
      for (const row of matches) if (next.length <= ROWS_MAX) next.push([...rows, row]);
    }
    if (outer) {
      for (const [own, matches] of byKey) {
        if (!used.has(own)) for (const row of matches) next.push([...new Array(index).fill(undefined), row]);
      }
    }
    joined = next;
  }
  return joined;
}

/** @param {any[]} values @returns {any[]} with null instead of undefined next to a null: a gap stays a gap */
function expandNulls(values) {
  for (let row = 1; row < values.length; row += 1) {
    if (values[row] === undefined && values[row - 1] === null) values[row] = null;
  }
  for (let row = values.length - 2; row >= 0; row -= 1) {
    if (values[row] === undefined && values[row + 1] === null) values[row] = null;
  }
  return values;
}

/**
 * Options: `byField`, the first time field without it; `mode` outer, inner or outerTabular. A field has
 * undefined where its frame has no row: unlike null, it does not count as 0 in a calculation.
 * @type {Transformation}
 */
export function joinByField(frames, options) {
  const all = parts(frames, text(options.byField));
  if (frames.length < 2) return frames;
  if (!all.length) return [{ refId: joinedRefId('joinByField', frames), name: '', length: 0, fields: [] }];
  const mode = text(options.mode) || 'outer';
  const rows = mode === 'outer' ? outerRows(all) : tabularRows(all, mode === 'outerTabular');
  const kept = rows.slice(0, ROWS_MAX);
  const { key } = all[0];
  const fields = [{
    ...key,
    values: kept.map((row) => {
      const part = row.findIndex((one) => one !== undefined);
      return all[part].key.values[row[part] ?? 0];
    }),
  }];
  all.forEach(({ rest }, index) => {
    for (const field of rest) {
      if (fields.length >= COLUMNS_MAX) return;
      const values = kept.map((row) => (row[index] === undefined ? undefined : field.values[row[index]]));
      fields.push({ ...field, values: mode === 'outer' ? expandNulls(values) : values });
    }
  });
  const notice = rows.length > kept.length ? `Shows the first ${kept.length} joined rows.` : '';
  return [{ refId: joinedRefId('joinByField', frames), name: '', length: kept.length, fields,
    ...noticed(notice, frames) }];
}

/** Rows of all series in one table, newest first: Time, Metric, Value. @type {Transformation} */
export function seriesToRows(frames) {
  if (!frames.length || !frames.every(isSeries)) return frames;
  /** @type {[any, string, any][]} */
  const rows = [];
  for (const frame of frames) {
    const time = timeOf(frame);
    for (const field of frame.fields) {
      if (!time || field.type !== 'number') continue;
      const name = frame.name || nameAlone(field, frame);
      for (let row = 0; row < frame.length; row += 1) rows.push([time.values[row], name, field.values[row]]);
    }
  }
  rows.sort((a, b) => b[0] - a[0]);
  const kept = rows.slice(0, ROWS_MAX);
  const notice = rows.length > kept.length ? `Shows the newest ${kept.length} of ${rows.length} rows.` : '';
  const value = frames[0].fields.find((field) => field.type !== 'time');
  const { displayName, displayNameFromDS, ...config } = value?.config ?? {};
  return [{
    refId: joinedRefId('seriesToRows', frames),
    name: '',
    length: kept.length,
    fields: [
      { name: 'Time', type: 'time', config: {}, values: kept.map((row) => row[0]) },
      { name: 'Metric', type: 'string', config: {}, values: kept.map((row) => row[1]) },
      { name: 'Value', type: 'number', config, values: kept.map((row) => row[2]) },
    ],
    ...noticed(notice, frames),
  }];
}

/**
 * One table of all frames. Rows whose values are equal in the fields that all frames have become one
 * row, unless they differ in another field.
 * @type {Transformation}
 */
export function merge(frames) {
  const used = frames.filter((frame) => frame.fields.length > 0);
  if (used.length < 2) return frames;
  /** @type {Map<string, Field>} */
  const columns = new Map();
  for (const frame of used) {
    for (const field of frame.fields) {
      if (!columns.has(field.name) && columns.size < COLUMNS_MAX) columns.set(field.name, { ...field, values: [] });
    }
  }
  const common = [...columns.keys()].filter((name) =>
    used.every((frame) => frame.fields.some((field) => field.name === name)));
  /** @type {Map<string, any>[]} */
  const rows = [];
  /** @type {Map<string, Map<string, any>[]>} */
  const byKey = new Map();
  let total = 0;
  for (const frame of used) {
    for (let row = 0; row < frame.length; row += 1) {
      const values = new Map(frame.fields.map((field) => [field.name, field.values[row]]));
      const key = JSON.stringify(common.map((name) => keyOf(values.get(name))));
      const alike = byKey.get(key) ?? [];
      byKey.set(key, alike);
      const fits = alike.filter((held) =>
        [...values].every(([name, value]) => isNone(held.get(name)) || held.get(name) === value));
      for (const held of fits) for (const [name, value] of values) if (!isNone(value)) held.set(name, value);
      if (!fits.length) {
        total += 1;
        if (rows.length >= ROWS_MAX) continue;
        rows.push(values);
        alike.push(values);
      }
    }
  }
  const fields = [...columns.values()].map((field) => {
    const { labels, ...rest } = field;
    return { ...rest, values: rows.map((row) => row.get(field.name) ?? null) };
  });
  const notice = total > rows.length ? `Shows the first ${rows.length} of ${total} merged rows.` : '';
  return [{ refId: joinedRefId('merge', frames), name: '', length: rows.length, fields, kind: 'table',
    ...noticed(notice, frames) }];
}

/** Options: `frameNameMode` field, label or drop; `frameNameLabel`. @type {Transformation} */
export function concatenate(frames, options) {
  if (frames.length < 2) return frames;
  const mode = text(options.frameNameMode) || 'field';
  const label = text(options.frameNameLabel) || 'frame';
  const length = Math.max(...frames.map((frame) => frame.length));
  const fields = frames.flatMap((frame) => frame.fields.map((field) => {
    const values = Array.from({ length }, (_, row) => (row < frame.length ? field.values[row] : null));
    const copy = { ...field, values };
    if (!frame.name || mode === 'drop') return copy;
    if (mode === 'label') return { ...copy, labels: { ...field.labels, [label]: frame.name } };
    return { ...copy, name: field.name === 'Value' ? frame.name : `${frame.name} · ${field.name}` };
  }));
  return [{ refId: '', name: '', length, fields: fields.slice(0, COLUMNS_MAX), ...noticed('', frames) }];
}

/** Options: `format` wide joins series by time; multi and long keep one frame a series. @type {Transformation} */
export function prepareTimeSeries(frames, options, context) {
  const series = frames.filter((frame) => timeOf(frame));
  if (['wide', ''].includes(text(options.format))) return joinByField(series, { mode: 'outer' }, context);
  if (options.format !== 'multi') return series;
  return series.flatMap((frame) => {
    const time = timeOf(frame);
    return frame.fields.filter((field) => field.type === 'number').map((field) => {
      const name = field.name === 'Value' ? frame.name : nameAlone(field, frame);
      const rows = Array.from({ length: frame.length }, (_, row) => row).filter((row) => field.values[row] !== null);
      return withRows({ ...frame, name, fields: time ? [time, field] : [field] }, rows);
    });
  });
}
