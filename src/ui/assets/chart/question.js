// A chart's attributes as a request (docs/specification.md C5). Pure, apart from the clock.

import { niceStep, parseDuration } from './scale.js';

/** Attributes that change the answer. */
export const QUESTION = ['src', 'org', 'expr', 'metric', 'match', 'fn', 'window', 'agg', 'by', 'without', 'q', 'k',
  'range', 'start', 'end', 'step', 'token', 'token-endpoint'];
const TIME = ['token', 'token-endpoint', 'range', 'start', 'end', 'step'];
/** Parameters of a structured query that are sent as they are. */
const PLAIN = ['metric', 'fn', 'window', 'agg', 'by', 'without', 'q', 'k'];

/** Splits `job="a,b", env=~"x|y"` at the commas that are not inside quotes. */
export function splitMatchers(text) {
  const parts = text.match(/(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^,])+/g) ?? [];
  return parts.map((part) => part.trim()).filter(Boolean);
}

/**
 * The request of a chart, or null while it has nothing to ask.
 * Start and end lie on multiples of the step, so that a refresh moves the picture and does not change it.
 * @param {Element} element
 * @param {number} width of the plot in CSS pixels: two pixels per point are enough
 * @param {string} server where the element's module came from
 */
export function question(element, width, server) {
  const read = (name) => element.getAttribute(name)?.trim() ?? '';
  const org = read('org');
  if (!org || !(read('expr') || read('metric'))) return null;
  const [from, to] = [Number(read('start')), Number(read('end'))];
  const fixed = from > 0 && to > from;
  const range = fixed ? to - from : parseDuration(read('range')) ?? 3600;
  const step = parseDuration(read('step')) ?? niceStep(range, Math.max(60, width / 2));
  const last = fixed ? Math.ceil(to / step) * step : Math.floor(Date.now() / 1000 / step) * step;
  const first = fixed ? Math.floor(from / step) * step : last - Math.ceil(range / step) * step;
  const params = new URLSearchParams();
  if (read('expr')) {
    params.set('expr', read('expr'));
  } else {
    for (const name of PLAIN) if (read(name)) params.set(name, read(name));
    for (const matcher of splitMatchers(read('match'))) params.append('match', matcher);
  }
  for (const [name, value] of [['start', first], ['end', last], ['step', step]]) params.set(name, value);
  return {
    base: read('src').replace(/\/+$/, '') || server,
    path: `/api/v1/orgs/${encodeURIComponent(org)}/query/${read('expr') ? 'expr-range' : 'range'}`,
    params,
    steps: { start: first, end: last, step },
    token: read('token'),
    tokenEndpoint: read('token-endpoint'),
    fixed,
    // Equal identity: the same request at another time. Equal subject: the same data over another range.
    identity: QUESTION.filter((name) => !name.startsWith('token')).map(read).join('\n'),
    subject: QUESTION.filter((name) => !TIME.includes(name)).map(read).join('\n'),
  };
}
