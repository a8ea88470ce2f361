// Replaces `$name`, `${name:format}` and `[[name]]` in queries, titles and links.

import { formatValue, placeAfter, promqlValue, urlEscaped, valuesOf } from './formats.js';
import { DashboardError, isObject, own, QUERY_MAX, TEXT_MAX } from './limits.js';
import { durationMs, durationText, roundInterval } from './time.js';

/**
 * @typedef {import('./formats.js').Value} Value
 * @typedef {import('./formats.js').Place} Place
 * @typedef {{text: string, value: string}} Option
 * @typedef {{name: string, type?: string, multi?: boolean, includeAll?: boolean,
 *   allValue?: string | null, value: Value, text: Value, options?: Option[], autoCount?: number,
 *   autoMin?: string, filters?: {label: string, op: string, value: string}[]}} Selection
 * The selected value of one variable; `$__all` means All.
 * @typedef {Map<string, Selection>} Selections
 *
 * @typedef {{format?: string, limit?: number, timeZone?: string, range?: {from: number, to: number,
 *   raw?: {from: string | number, to: string | number}}, interval?: {intervalMs: number,
 *   rateIntervalMs: number}, dashboard?: {title?: string, uid?: string},
 *   org?: {id?: string | number, name?: string}, user?: {id?: string | number, login?: string,
 *   email?: string}, series?: {name?: string}, field?: {name?: string, displayName?: string,
 *   labels?: Record<string, string>}, value?: {text?: string, raw?: unknown, numeric?: unknown,
 *   time?: unknown, calc?: string}, data?: {refId?: string, fields: {name: string, text?: string,
 *   raw?: unknown, numeric?: unknown}[]}}} Context
 * `format` is the format of references that name none: `promql` in queries, `text` in titles,
 * `glob` by default.
 */

/** Value of a variable whose selection is All. */
export const ALL = '$__all';
/** Custom values of All may contain variables; this many levels are followed. */
const LEVELS_MAX = 4;

/**
 * Grafana's syntax: `$name`, `[[name:format]]`, `${name.field:format}`. Bounds keep matching
 * linear.
 */
const REFERENCE =
  /\$(\w+)|\[\[(\w{1,128}?)(?::([^\]]{1,256}))?\]\]|\$\{(\w{1,128})(?:\.([^:}]{1,256}))?(?::([^}]{1,256}))?\}/g;

/** Names of all variables that a text refers to. @param {string} text @returns {Set<string>} */
export function referencesOf(text) {
  return new Set([...text.matchAll(REFERENCE)].map((found) => found[1] ?? found[2] ?? found[4]));
}

/**
 * The text with all known variables replaced; unknown references stay. Throws a DashboardError when
 * the result is over 1 MiB, or over 64 KiB for the format `promql`.
 * @param {string} text
 * @param {Selections} selections
 * @param {Context} [context]
 * @returns {string}
 */
export function interpolate(text, selections, context = {}) {
  return replaced(text, selections, context, 0);
}

/**
 * @param {string} text
 * @param {Selections} selections
 * @param {Context} context
 * @param {number} level
 */
function replaced(text, selections, context, level) {
  const promql = context.format === 'promql';
  const limit = context.limit ?? (promql ? QUERY_MAX : TEXT_MAX);
  let result = '';
  let last = 0;
  /** @type {Place} */
  let place = '';
  /** @param {string} part */
  const append = (part) => {
    result += part;
    if (result.length > limit) {
      throw new DashboardError('text_too_long',
        `${promql ? 'The query' : 'The text'} is over ${limit} characters after variables are replaced.`, { limit });
    }
  };
  for (const found of text.matchAll(REFERENCE)) {
    const between = text.slice(last, found.index);
    append(between);
    if (promql) place = placeAfter(between, place);
    const reference = { name: found[1] ?? found[2] ?? found[4], path: found[5] ?? '', format: found[3] ?? found[6] };
    append(one(reference, selections, context, place, level) ?? found[0]);
    last = found.index + found[0].length;
  }
  append(text.slice(last));
  return result;
}

/**
 * @param {{name: string, path: string, format: string | undefined}} reference
 * @param {Selections} selections
 * @param {Context} context
 * @param {Place} place
 * @param {number} level
 * @returns {string | null} null for an unknown variable
 */
function one({ name, path, format }, selections, context, place, level) {
  const selection = selections.get(name);
  if (!selection) {
    const value = builtIn(name, path, selections, context);
    if (value === null || format === undefined) return value;
    return formatValue(value, format, { name, timeZone: context.timeZone });
  }
  const all = isAll(selection.value);
  const custom = all && typeof selection.allValue === 'string' && selection.allValue !== '';
  const written = format ?? context.format ?? 'glob';
  if (written.startsWith('queryparam')) return formatValue(selection.value, written, { name });
  if (custom && written !== 'text' && written !== 'percentencode') {
    if (level >= LEVELS_MAX) return '';
    return replaced(selection.allValue ?? '', selections, context, level + 1);
  }
  const value = custom ? selection.allValue ?? '' : valueOf(selection, context);
  const text = all ? 'All' : selection.text;
  if (path === 'text') return valuesOf(text).join(' + ');
  if (format === undefined && context.format === 'promql') return promqlValue(value, selection, place);
  return formatValue(value, written, { name, text, timeZone: context.timeZone });
}

/** Whether the value is All. @param {Value} value */
export function isAll(value) {
  return valuesOf(value)[0] === ALL;
}

/** @param {Selection} selection @param {Context} context @returns {Value} */
function valueOf(selection, context) {
  if (isAll(selection.value)) {
    return (selection.options ?? []).map((option) => option.value).filter((value) => value !== ALL);
  }
  const automatic = selection.type === 'interval' && String(selection.value).startsWith('$__auto_interval');
  return automatic ? automaticInterval(selection, context) : selection.value;
}

/** The interval of `auto`: the range in `autoCount` steps (30), at least `autoMin` (10 s).
 *  @param {Selection} selection @param {Context} context */
function automaticInterval(selection, context) {
  const range = context.range ? context.range.to - context.range.from : 3_600_000;
  const rounded = roundInterval(range / Math.max(1, selection.autoCount ?? 30));
  return durationText(Math.max(rounded, durationMs(selection.autoMin) ?? 10_000));
}

/** The selections with the ones of a repeated panel or row in front. @param {Selections} selections
 *  @param {Map<string, Selection>} scoped @returns {Selections} */
export function withScope(selections, scoped) {
  return scoped.size === 0 ? selections : new Map([...selections, ...scoped]);
}

/** @typedef {(path: string, context: Context, selections: Selections) => unknown} Macro */

/** @param {keyof NonNullable<Context['range']> & ('from' | 'to')} end @returns {Macro} */
const rangeEnd = (end) => (path, { range }) => range?.[end];
/** @param {(ms: number) => unknown} convert @returns {Macro} */
const rangeLength = (convert) => (path, { range }) => (range ? convert(Math.max(0, range.to - range.from)) : null);

/** @type {Map<string, Macro>} */
const BUILT_IN = new Map(Object.entries({
  __interval: (path, { interval }) => (interval ? durationText(interval.intervalMs) : null),
  __interval_ms: (path, { interval }) => interval?.intervalMs,
  __rate_interval: (path, { interval }) => (interval ? durationText(interval.rateIntervalMs) : null),
  __rate_interval_ms: (path, { interval }) => interval?.rateIntervalMs,
  __range: rangeLength((ms) => `${Math.round(ms / 1000)}s`),
  __range_s: rangeLength((ms) => Math.round(ms / 1000)),
  __range_ms: rangeLength((ms) => ms),
  __from: rangeEnd('from'),
  __to: rangeEnd('to'),
  timeFilter: (path, { range }) => (range ? `time >= ${range.from}ms and time <= ${range.to}ms` : null),
  __timeFilter: (path, context) => BUILT_IN.get('timeFilter')?.(path, context, new Map()),
  __timezone: (path, { timeZone }) => timeZone || 'browser',
  __all: () => ALL,
  __searchFilter: () => '.*',
  __dashboard: (path, { dashboard }) => (path === 'uid' ? dashboard?.uid : dashboard?.title),
  __org: (path, { org }) => (path === 'name' ? org?.name : org?.id),
  __user: (path, { user }) => (path === 'login' || path === 'email' ? user?.[path] : user?.id),
  __name: (path, { series, field }) => series?.name ?? field?.displayName ?? field?.name,
  __series_name: (path, { series }) => series?.name,
  __series: (path, { series }) => (path === 'name' ? series?.name : null),
  __field_name: (path, { field }) => field?.displayName ?? field?.name,
  __field: fieldPart,
  __value: valuePart,
  __value_time: (path, { value }) => value?.time,
  __cell: (path, { value }) => value?.text ?? value?.raw,
  __data: dataPart,
  __url_time_range: (path, { range }) => (range
    ? `from=${urlEscaped(String(range.raw?.from ?? range.from))}&to=${urlEscaped(String(range.raw?.to ?? range.to))}`
    : null),
  __all_variables: (path, context, selections) => [...selections.values()]
    .map((selection) => formatValue(selection.value, 'queryparam', { name: selection.name })).join('&'),
}));

/**
 * @param {string} name
 * @param {string} path
 * @param {Selections} selections
 * @param {Context} context
 * @returns {string | null}
 */
function builtIn(name, path, selections, context) {
  const cell = /^__cell_(\d{1,4})$/.exec(name);
  const macro = BUILT_IN.get(name);
  const value = cell ? dataPart(`fields[${cell[1]}]`, context) : macro?.(path, context, selections);
  return value === undefined || value === null ? null : String(value);
}

/** @param {string} path @param {Context} context */
function fieldPart(path, { field }) {
  if (path.startsWith('labels')) return own(field?.labels, unquoted(path.slice('labels'.length))) ?? '';
  return path === 'displayName' || path === '' ? field?.displayName ?? field?.name : own(field, path);
}

/** @param {string} path @param {Context} context */
function valuePart(path, { value }) {
  return path === '' ? value?.raw ?? value?.text : own(value, path);
}

/**
 * A part of the same row: `fields[0]`, `fields["name"].numeric`, `fields.name`.
 * @param {string} path
 * @param {Context} context
 */
function dataPart(path, { data }) {
  if (!data) return null;
  if (path === 'refId') return data.refId;
  const found = /^fields(?:\[("[^"]*"|'[^']*'|[^\]]+)\]|\.([^.[]+))(?:\.(\w+))?$/.exec(path);
  if (!found) return null;
  const key = unquoted(found[1] ?? found[2]);
  const field = data.fields.find((candidate) => candidate.name === key)
    ?? data.fields[/^\d+$/.test(key) ? Number(key) : -1];
  if (!isObject(field)) return '';
  return found[3] ? own(field, found[3]) ?? '' : field.text ?? field.raw ?? '';
}

/** `.name`, `["name"]` or `name` without the punctuation. @param {string} text */
function unquoted(text) {
  return text.replace(/^[.[]?["']?/, '').replace(/["']?\]?$/, '');
}
