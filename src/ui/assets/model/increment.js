// Refreshes of a range query that ask for the new steps only, and the answers put together.

/**
 * @typedef {import('./frame.js').Answer} Answer
 * @typedef {import('./frame.js').Row} Row
 * @typedef {{start: number, end: number, step: number}} Steps
 * Unix seconds: the steps are `start`, `start + step`, ... up to `end`, inclusive. `start` is a
 * multiple of `step`, so that the same steps come again.
 * @typedef {Steps & {answer: Answer, refreshes: number}} Known
 * The last answer to a query; `refreshes` counts those since the whole range was asked.
 */

/** Steps before the newest one that are asked again, for samples that arrived late. */
const OVERLAP = 2;
/** The whole range is asked again after this many refreshes. */
const WHOLE_EVERY = 20;

/**
 * Whether old steps can change without new samples for them: `@ end()` follows the range, and a
 * negative offset reads samples that come later. Such text inside quotes counts, too.
 * @param {string} expr
 */
const looksAhead = (expr) => /@|offset\s*-/i.test(expr);

/**
 * Returns the first step to ask: that of the range, or a later one if the last answer has those
 * before it.
 * @param {string} expr
 * @param {Steps} wanted
 * @param {Known | undefined} known the last answer to the same query with the same step
 */
export function firstStep(expr, wanted, known) {
  if (!known || known.refreshes >= WHOLE_EVERY || looksAhead(expr)) return wanted.start;
  const { start, end, step } = wanted;
  const newest = known.start + Math.floor((known.end - known.start) / step) * step;
  const usable = known.step === step && known.start <= start && start <= newest && known.end <= end;
  const aligned = (start - known.start) % step === 0;
  return usable && aligned && known.answer.resultType === 'matrix' ? Math.max(start, newest - OVERLAP * step) : start;
}

/**
 * The answer for the whole range from the last one and the steps since `from`. Null if the oldest
 * step that both have differs: samples arrived later than the overlap allows for.
 * @param {Known} known
 * @param {Answer} part
 * @param {{start: number, from: number}} times of the wanted range and of `part`, unix seconds
 * @returns {Answer | null}
 */
export function joinSteps(known, part, { start, from }) {
  if (part.resultType !== 'matrix') return null;
  /** @type {Map<string, Row>} */
  const fresh = new Map(part.result.map((/** @type {Row} */ row) => [identity(row), row]));
  /** @type {Row[]} */
  const rows = [];
  /** @type {string[]} */
  const keys = [];
  for (const old of known.answer.result) {
    const key = identity(old);
    const row = fresh.get(key);
    fresh.delete(key);
    if (pointAt(old, from) !== pointAt(row, from)) return null;
    const joined = joinRow(old, row, start, from);
    if (joined) {
      rows.push(joined);
      keys.push(key);
    }
  }
  // A new series before `from` would be in the last answer.
  for (const row of fresh.values()) if (pointAt(row, from) !== '') return null;
  const sorted = keys.every((key, index) => index === 0 || keys[index - 1] <= key);
  for (const [key, row] of fresh) {
    const place = sorted ? keys.findIndex((other) => other > key) : -1;
    const at = place < 0 ? keys.length : place;
    rows.splice(at, 0, row);
    keys.splice(at, 0, key);
  }
  return { ...part, result: rows };
}

/** The labels of a series in one order. @param {Row} row */
function identity({ metric = {} }) {
  const names = Object.keys(metric).sort();
  return JSON.stringify(names.map((name) => [name, metric[name]]));
}

/** The point of a series at a step as text, or '' without one. @param {Row | undefined} row @param {number} time */
function pointAt(row, time) {
  for (const points of [row?.values ?? [], row?.histograms ?? []]) {
    const at = firstFrom(points, time);
    if (at < points.length && points[at][0] === time) return JSON.stringify(points[at][1]);
  }
  return '';
}

/** @param {[number, unknown][]} points by time @param {number} time @returns {number} index of the first from there */
function firstFrom(points, time) {
  let [low, high] = [0, points.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * @param {Row} old
 * @param {Row | undefined} row
 * @param {number} start
 * @param {number} from
 * @returns {Row | null} null without points
 */
function joinRow(old, row, start, from) {
  /** @template T @param {[number, T][]} before @param {[number, T][]} after @returns {[number, T][]} */
  const join = (before = [], after = []) => [
    ...before.slice(firstFrom(before, start), firstFrom(before, from)),
    ...after,
  ];
  const values = join(old.values, row?.values);
  const histograms = join(old.histograms, row?.histograms);
  if (values.length === 0 && histograms.length === 0) return null;
  return {
    metric: old.metric,
    ...(values.length > 0 ? { values } : {}),
    ...(histograms.length > 0 ? { histograms } : {}),
  };
}
