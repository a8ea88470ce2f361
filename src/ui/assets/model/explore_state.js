// The state of the explore page, as the query string of its address, and moves of its time range.

import { parseDuration } from '../chart/scale.js';

/** The views of a result. */
const TABS = /** @type {const} */ (['chart', 'table', 'explain']);

/**
 * @typedef {typeof TABS[number]} Tab
 * @typedef {{start: number, end: number}} Span unix seconds
 *
 * @typedef {Object} State
 * @property {string} org
 * @property {string} expr
 * @property {string} range a duration such as 1h
 * @property {Span|null} zoom a fixed range
 * @property {Tab} tab
 */

/** The shortest and the longest range, in seconds: the server answers at most a year. */
const SPAN_MIN = 10;
const SPAN_MAX = 365 * 86400;

/**
 * Reads `?org=&expr=&range=&tab=`, with `start` and `end` for a fixed range. Values that are not
 * understood are the defaults.
 * @param {string} search
 * @returns {State}
 */
export function readAddress(search) {
  const parameters = new URLSearchParams(search);
  const moment = (/** @type {string} */ name) =>
    Number(parameters.get(name)) > 0 ? Number(parameters.get(name)) : null;
  const [start, end] = [moment('start'), moment('end')];
  const range = parameters.get('range') ?? '';
  return {
    org: parameters.get('org') ?? '',
    expr: parameters.get('expr') ?? '',
    range: parseDuration(range) ? range : '1h',
    zoom: start && end && end > start ? { start, end } : null,
    tab: TABS.find((tab) => tab === parameters.get('tab')) ?? 'chart',
  };
}

/**
 * The query string of a state.
 * @param {State} state
 */
export function writeAddress({ org, expr, range, zoom, tab }) {
  const parameters = new URLSearchParams({ org });
  if (expr) parameters.set('expr', expr);
  parameters.set('range', range);
  if (zoom) for (const [name, value] of Object.entries(zoom)) parameters.set(name, String(value));
  if (tab !== 'chart') parameters.set('tab', tab);
  return `?${parameters}`;
}

/**
 * The range that is shown, in whole seconds.
 * @param {Pick<State, 'range' | 'zoom'>} state
 * @param {number} now unix seconds
 * @returns {Span}
 */
export function spanOf({ range, zoom }, now) {
  const end = Math.floor(now);
  return zoom ?? { start: end - (parseDuration(range) ?? 3600), end };
}

/**
 * A range of the same length with the newest sample three quarters into it; it ends now at the latest.
 * Returns null if the range that is shown has that sample, so that no other range shows more.
 * @param {number} newest unix seconds
 * @param {Pick<State, 'range' | 'zoom'>} state
 * @param {number} now unix seconds
 * @returns {Span|null}
 */
export function newestSpan(newest, { range, zoom }, now) {
  const shown = spanOf({ range, zoom }, now);
  // A sample may have arrived after a query that ended then.
  if (newest >= shown.start && (!zoom || newest <= shown.end)) return null;
  const seconds = parseDuration(range) ?? 3600;
  const end = Math.ceil(Math.min(newest + seconds * 0.25, Math.max(now, newest + 1)));
  return { start: Math.floor(newest - seconds * 0.75), end };
}

/**
 * The range moved by a part of its length, 0.5 for later by half; it ends now at the latest.
 * @param {Span} span
 * @param {number} by
 * @param {number} now unix seconds
 * @returns {Span}
 */
export function moved({ start, end }, by, now) {
  const length = end - start;
  const last = Math.min(Math.round(end + by * length), Math.max(end, Math.floor(now)));
  const first = Math.max(1, last - length);
  return { start: first, end: first + length };
}

/**
 * A range of twice the length around the same middle; it ends now at the latest.
 * @param {Span} span
 * @param {number} now unix seconds
 * @returns {Span}
 */
export function widened({ start, end }, now) {
  const length = Math.min(SPAN_MAX, Math.max(SPAN_MIN, 2 * (end - start)));
  const last = Math.min(Math.round((start + end + length) / 2), Math.max(end, Math.floor(now)));
  return { start: Math.max(1, last - length), end: last };
}

/**
 * The range of two ends as they were written: `now-3h` to `now` stays relative.
 * @param {string} from
 * @param {string} to
 * @param {Span} span the ends in unix seconds
 * @returns {{range?: string, zoom: Span | null}}
 */
export function rangeChange(from, to, span) {
  const relative = /^now-(\w+)$/.exec(from.trim())?.[1];
  if (relative && to.trim() === 'now' && parseDuration(relative)) return { range: relative, zoom: null };
  return { zoom: { start: Math.floor(span.start), end: Math.ceil(span.end) } };
}
