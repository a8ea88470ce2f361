// Keeps the responses of a chart up to date by the live stream of its page.

import { LivePoints } from './live_points.js';
import { subscribe } from './live_hub.js';
import { GRID_ONLY_STEP_MAX } from './query.js';
import { fetchData } from './request.js';

/** A lost stream that is back within this time is not reported, in milliseconds. */
const CALM_MS = 3000;
/** The least and the greatest step of a live query, in seconds, inclusive. */
const [STEP_MIN, STEP_MAX] = [1, 3600];

/**
 * @typedef {import('./api_error.js').ApiError} ApiError
 * @typedef {import('./query.js').ChartQuery} ChartQuery
 *
 * @typedef {Object} FollowerHost
 * @property {() => void} changed the responses have new points
 * @property {() => void} reload the responses are too old to be continued
 * @property {(problem: ApiError, isFinal: boolean) => void} failed no points come; `isFinal`: the
 *   stream is over
 * @property {() => void} recovered the stream is open, perhaps again
 */

/**
 * The step of the live query of a grid, in seconds: a short one that meets all steps of the grid,
 * so that the points between them are the tail. null if no step of a live query does.
 * @param {number} step of the grid, in seconds
 */
export function liveStep(step) {
  if (!(step >= STEP_MIN) || !Number.isInteger(step)) return null;
  if (step > GRID_ONLY_STEP_MAX && step % GRID_ONLY_STEP_MAX === 0) return GRID_ONLY_STEP_MAX;
  return step <= STEP_MAX ? step : null;
}

/**
 * Continues a query that has just been loaded. Returns the function that ends it, or null for a
 * fixed range, a structured query, and a step that cannot be live.
 * @param {ChartQuery} query
 * @param {import('./live_points.js').Responses} responses of the query
 * @param {FollowerHost} host
 * @returns {(() => void)|null}
 */
export function follow(query, responses, host) {
  const { base, org, expr, token, tokenEndpoint, grid } = query;
  const step = expr && !query.isFixed ? liveStep(grid.step) : null;
  if (step === null) return null;
  const points = new LivePoints(responses);
  const request = new AbortController();
  const { signal } = request;
  let worry = 0;
  const calm = () => {
    clearTimeout(worry);
    worry = 0;
  };

  /**
   * Queries steps that the stream left out.
   * @param {number} start unix seconds
   * @param {number} end unix seconds, inclusive
   */
  async function fill(start, end) {
    const first = Math.ceil(start / grid.step) * grid.step;
    const last = Math.floor(end / grid.step) * grid.step;
    // The new window has no point of the current one.
    if (first <= grid.start || last - grid.end >= grid.end - grid.start) return host.reload();
    if (!(last >= first)) return;
    try {
      const answer = await fetchData({ ...query, form: query.between(first, last), signal });
      points.insert(answer.data?.result ?? []);
      host.changed();
    } catch {
      if (!signal.aborted) host.reload();
    }
  }

  const leave = subscribe(
    { base, path: `/api/v1/orgs/${encodeURIComponent(org)}/query/live`, token, tokenEndpoint },
    {
      query: { expr, step },
      since: grid.tail ?? grid.end,
      points: ({ time, data }) => {
        calm();
        points.append(time, data?.result ?? []);
        host.changed();
      },
      gap: ({ start, end }) => fill(start, end),
      opened: () => {
        calm();
        host.recovered();
      },
      failed: (problem, isFinal) => {
        if (isFinal) host.failed(problem, true);
        else worry ||= setTimeout(() => host.failed(problem, false), CALM_MS);
      },
    },
  );
  return () => {
    calm();
    request.abort();
    leave();
  };
}
