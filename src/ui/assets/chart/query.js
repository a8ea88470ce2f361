// A chart's attributes as requests (docs/specification.md C5). Pure, apart from the clock.
//
// The grid of requested steps lies on multiples of the step, so that a refresh moves the picture
// without changing it and cached results stay useful. Its last step may be up to one step older
// than now, which at two hours a step would hide the newest samples. A second query for one point
// at `now` (the tail) closes that gap; for steps of at most GRID_ONLY_STEP_MAX seconds the grid
// alone is new enough. A step after `now` is never asked: the server's lookback would find nothing
// there.

import { ApiError } from './api_error.js';
import { niceStep, parseDuration } from './scale.js';

/** Attributes that change the response. */
export const QUERY_ATTRIBUTES = [
  'src',
  'org',
  'expr',
  'metric',
  'match',
  'fn',
  'window',
  'agg',
  'by',
  'without',
  'q',
  'k',
  'range',
  'start',
  'end',
  'step',
  'token',
  'token-endpoint',
];
const TIME_ATTRIBUTES = ['token', 'token-endpoint', 'range', 'start', 'end', 'step'];
/** Parameters of a structured query that are sent as they are. */
const PLAIN = ['metric', 'fn', 'window', 'agg', 'by', 'without', 'q', 'k'];
/** The longest step, in seconds, whose grid needs no tail. */
export const GRID_ONLY_STEP_MAX = 15;
/** The greatest length of an attribute of the query, in characters. */
const ATTRIBUTE_MAX = 16_384;

/**
 * Splits `job="a,b", env=~"x|y"` at the commas that are not inside quotes.
 * @param {string} text
 * @returns {string[]}
 */
export function splitMatchers(text) {
  const parts = text.match(/(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^,])+/g) ?? [];
  return parts.map((part) => part.trim()).filter(Boolean);
}

/**
 * The grid of a range: both ends are inclusive and multiples of `step`. `tail` is the time of one
 * more point, or null.
 * @param {{now: number, range: number, step: number, fixed?: {start: number, end: number}|null}}
 *   wanted unix seconds
 * @returns {{start: number, end: number, step: number, tail: number|null}}
 */
export function timeGrid({ now, range, step, fixed = null }) {
  const whole = Math.floor(now);
  if (!fixed) {
    const end = Math.floor(now / step) * step;
    return {
      start: end - Math.ceil(range / step) * step,
      end,
      step,
      tail: step > GRID_ONLY_STEP_MAX && whole > end ? whole : null,
    };
  }
  const start = Math.floor(fixed.start / step) * step;
  const end = Math.ceil(fixed.end / step) * step;
  if (end <= now || start > now) return { start, end, step, tail: null };
  // The range ends in the step of now: its last step lies in the future.
  const last = Math.max(start, Math.floor(now / step) * step);
  return { start, end: last, step, tail: whole > last ? whole : null };
}

/**
 * @typedef {Object} ChartQuery
 * @property {string} base URL of the server, without a slash at its end
 * @property {string} path
 * @property {URLSearchParams} form the parameters of the grid
 * @property {URLSearchParams|null} tailForm those of the one point after the grid
 * @property {(start: number, end: number) => URLSearchParams} between those of a part of the grid
 * @property {{start: number, end: number, step: number, tail: number|null}} grid
 * @property {string} org
 * @property {string} expr '' for a structured query
 * @property {boolean} isFixed whether the range does not end now
 * @property {string} token
 * @property {string} tokenEndpoint
 * @property {string} identity equal for the same request at another time
 * @property {string} subject equal for the same series over another range
 */

/**
 * The requests of a chart, or null while it has nothing to show.
 * @param {{getAttribute: (name: string) => string|null}} element
 * @param {number} width of the plot in CSS pixels: two pixels for each point are enough
 * @param {string} server the origin of the element's module
 * @param {number} [now] unix seconds
 * @returns {ChartQuery|null}
 * @throws {ApiError} for an attribute that is too long
 */
export function chartQuery(element, width, server, now = Date.now() / 1000) {
  const read = (/** @type {string} */ name) => {
    const text = element.getAttribute(name)?.trim() ?? '';
    if (text.length <= ATTRIBUTE_MAX) return text;
    const detail = `The attribute ${name} has more than ${ATTRIBUTE_MAX} characters.`;
    throw new ApiError({ code: 'attribute_too_long', detail });
  };
  const org = read('org');
  if (!org || !(read('expr') || read('metric'))) return null;
  const [from, to] = [Number(read('start')), Number(read('end'))];
  const fixed = from > 0 && to > from ? { start: from, end: to } : null;
  const range = fixed ? to - from : (parseDuration(read('range')) ?? 3600);
  const step = parseDuration(read('step')) ?? niceStep(range, Math.max(60, width / 2));
  const grid = timeGrid({ now, range, step, fixed });
  const expr = read('expr');
  const params = new URLSearchParams();
  if (expr) {
    params.set('expr', expr);
  } else {
    for (const name of PLAIN) if (read(name)) params.set(name, read(name));
    for (const matcher of splitMatchers(read('match'))) params.append('match', matcher);
  }
  const between = (/** @type {number} */ start, /** @type {number} */ end) => {
    const all = new URLSearchParams(params);
    for (const [name, value] of Object.entries({ start, end, step })) all.set(name, String(value));
    return all;
  };
  return {
    base: read('src').replace(/\/+$/, '') || server,
    path: `/api/v1/orgs/${encodeURIComponent(org)}/query/${expr ? 'expr-range' : 'range'}`,
    form: between(grid.start, grid.end),
    between,
    tailForm: grid.tail === null ? null : between(grid.tail, grid.tail),
    grid,
    org,
    expr,
    isFixed: fixed !== null,
    token: read('token'),
    tokenEndpoint: read('token-endpoint'),
    identity: QUERY_ATTRIBUTES.filter((name) => !name.startsWith('token'))
      .map(read)
      .join('\n'),
    subject: QUERY_ATTRIBUTES.filter((name) => !TIME_ATTRIBUTES.includes(name))
      .map(read)
      .join('\n'),
  };
}
