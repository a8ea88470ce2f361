// The backfill of a recording rule: its range, its estimated samples, and the requests that write it.

import { isRecording } from './rule_text.js';

/**
 * @typedef {import('../chart/api_error.js').ApiError} ApiError
 * @typedef {{start: number, end: number, step: number}} Grid unix seconds, both ends inclusive
 * @typedef {{stored: number, refused: number, next: number|null}} Part of a backfill; `next` in unix seconds is the
 *   start of the next request, and null if the backfill is complete
 * @typedef {{stored: number, refused: number, next: number|null, error: unknown, at: number|null}} Outcome `next` is
 *   null if the backfill is complete; `at` is the time of the step that failed, if the server names it
 */

const DAY = 86_400;
/** The ranges to choose from, in seconds, and their texts. @type {[number, string][]} */
const PRESETS = [
  [3600, 'Last hour'],
  [DAY, 'Last day'],
  [7 * DAY, 'Last 7 days'],
  [30 * DAY, 'Last 30 days'],
  [90 * DAY, 'Last 90 days'],
];
/** The range that is proposed if the retention is longer, in seconds. */
const PROPOSED = 7 * DAY;
/** The steps at which a preview counts series. */
const SAMPLED_STEPS = 50;

/**
 * The ranges to choose from, the shortest first, and the proposed one: the retention or the last 7 days, whichever is
 * shorter.
 * @param {number|null} retentionDays null: samples are never too old
 * @returns {{ranges: {seconds: number, text: string}[], proposed: number}}
 */
export function backfillRanges(retentionDays) {
  const most = retentionDays === null ? Infinity : retentionDays * DAY;
  const ranges = PRESETS.filter(([seconds]) => seconds < most).map(([seconds, text]) => ({ seconds, text }));
  const days = `${retentionDays} ${retentionDays === 1 ? 'day' : 'days'}`;
  if (most < Infinity) ranges.push({ seconds: most, text: `The retention, ${days}` });
  return { ranges, proposed: Math.min(PROPOSED, most) };
}

/**
 * The evaluations of a range: the multiples of the step, as `promlet rules backfill` has them.
 * @param {number} start unix seconds, inclusive
 * @param {number} end inclusive
 * @param {number} step seconds
 * @returns {Grid|null} null if no evaluation is in the range
 */
export function backfillGrid(start, end, step) {
  const [first, last] = [Math.ceil(start / step) * step, Math.floor(end / step) * step];
  return first > last ? null : { start: first, end: last, step };
}

/** The number of steps, also of fractions of seconds. @param {Grid} grid */
export const stepsOf = ({ start, end, step }) => Math.floor((end - start) / step + 1e-6) + 1;

/** A part of the steps, with which a preview estimates the samples. @param {Grid} grid @returns {Grid} */
export function sampledGrid(grid) {
  const step = grid.step * Math.max(1, Math.ceil((stepsOf(grid) - 1) / SAMPLED_STEPS));
  return { ...grid, step };
}

/**
 * The samples that a backfill is expected to write.
 * @param {Grid} grid of the backfill
 * @param {{values: unknown[]}[]} series the result of the rule on `sampledGrid(grid)`
 */
export function estimatedSamples(grid, series) {
  const found = series.reduce((sum, { values }) => sum + values.length, 0);
  return Math.round((found * stepsOf(grid)) / stepsOf(sampledGrid(grid)));
}

/** The finished part of the steps, from 0 to 1. @param {Grid} grid @param {number|null} next */
export const finishedPart = (grid, next) =>
  next === null ? 1 : Math.min(1, Math.max(0, (next - grid.start) / (grid.end + grid.step - grid.start)));

/**
 * Sends requests one after another until the backfill is complete, one fails, or it is aborted. Never throws.
 * @param {Grid} grid
 * @param {(start: number) => Promise<Part>} write writes from a time until the end of the grid, or a part of it
 * @param {{signal: AbortSignal, from?: Outcome, progress: (outcome: Outcome) => void}} options `from` is the outcome of
 *   an interrupted backfill, which continues at its `next`
 * @returns {Promise<Outcome>}
 */
export async function runBackfill(grid, write, { signal, from, progress }) {
  let { stored, refused, next } = from ?? { stored: 0, refused: 0, next: grid.start };
  const outcome = (/** @type {unknown} */ error = null, /** @type {number|null} */ at = null) =>
    ({ stored, refused, next, error, at });
  while (next !== null && !signal.aborted) {
    try {
      /** @type {Part} */
      const part = await write(next);
      if (part.next !== null && part.next <= next) throw new Error('The server made no progress.');
      stored += part.stored;
      refused += part.refused;
      next = part.next;
      progress(outcome());
    } catch (error) {
      if (signal.aborted) break;
      return outcome(error, failedAt(error));
    }
  }
  return outcome();
}

/** The time of the step that failed, in unix seconds. @param {any} error @returns {number|null} */
function failedAt(error) {
  const at = Date.parse(error?.body?.at ?? '');
  return Number.isNaN(at) ? null : at / 1000;
}

/**
 * The reason of a failed step without its time, which is shown beside it.
 * @param {string} text
 */
export const withoutTime = (text) => text.replace(/^\d{4}-\d\d-\d\dT[\d:.]+Z: /, '');

/**
 * The outcome without the step that failed; as live evaluation, the backfill has no samples there.
 * @param {Grid} grid
 * @param {Outcome} outcome
 * @returns {Outcome}
 */
export function skipped(grid, outcome) {
  const next = (outcome.at ?? outcome.next ?? grid.end) + grid.step;
  return { ...outcome, next: next > grid.end ? null : next, error: null, at: null };
}

/**
 * The recording rules of a group whose text differs from those of an older text, by their names.
 * @param {import('./rule_text.js').RuleText[]} rules
 * @param {import('./rule_text.js').RuleText[]} before
 */
export function changedRecordingRules(rules, before) {
  const old = new Set(before.map(({ text }) => text));
  return rules.filter((rule) => rule.name !== '' && isRecording(rule) && !old.has(rule.text));
}
