// The source of a dashboard: a server, or a snapshot that makes no requests.

import { fetchAnswer, fetchData } from '../chart/request.js';
import { readLines } from '../client/lines.js';
import { isObject, numberOf, objectOf, textsOf } from '../model/limits.js';
import { snapshotKey } from './view.js';

/**
 * @typedef {import('../chart/api_error.js').ApiError} ApiError
 * @typedef {{base: string, token?: string, tokenEndpoint?: string}} Credential
 * @typedef {Record<string, string[]>} Values of open variables by name
 *
 * @typedef {Object} DashboardSource
 * @property {(signal: AbortSignal) => Promise<unknown>} view
 * @property {(variable: string, variables: Values, range: import('../model/time.js').Range) => Promise<unknown[]>}
 *   options the values that a query variable offers
 * @property {(batch: import('../components/panel_runner.js').Batch, variables: Values) => Promise<string[]>} send
 * @property {(variables: Values) => import('../chart/live_hub.js').StreamAddress} live the stream of new points
 * @property {(error: ApiError) => Promise<ApiError>} explain writes the reason of an error to the console, and
 *   returns it
 *
 * @typedef {{view: unknown, answers: Record<string, any>, range: {from: number, to: number},
 *   selections: Record<string, string[]>}} Snapshot
 * `answers` by the names of their queries, each with `status`, `data` and `step`; times in milliseconds.
 */

/**
 * @param {{org: string, uid: string, credential: () => Credential}} options `credential` is read for each request
 * @returns {DashboardSource}
 */
export function serverSource({ org, uid, credential }) {
  const path = `/orgs/${encodeURIComponent(org)}/dashboards/${encodeURIComponent(uid)}`;
  const request = (/** @type {string} */ end, /** @type {any} */ body, /** @type {AbortSignal} */ signal) => ({
    ...credential(),
    path: `/api/v1${path}/${end}`,
    body,
    signal,
  });
  return {
    view: (signal) => fetchData(request('view', undefined, signal)),
    async options(variable, variables, { from, to }) {
      const times = { start: from / 1000, end: to / 1000 };
      const { data } = await fetchData(
        request('options', { variable, variables, ...times }, AbortSignal.timeout(60_000)),
      );
      return Array.isArray(data) ? data : [];
    },
    async send({ start, end, queries, signal, answered }, variables) {
      const body = {
        variables,
        start,
        end,
        // An instant query is evaluated at its end.
        queries: queries.map(({ ask, time, ...times }) => ({ ...times, end: time ?? times.end, ...ask })),
      };
      return readLines(await fetchAnswer(request('data', body, signal)), queries, answered);
    },
    live: (variables) => ({ ...credential(), path: `/api/v1${path}/live`, body: { variables } }),
    async explain(error) {
      const { base } = credential();
      const place = { server: new URL(base, document.baseURI).origin, page: location.origin, org };
      const asked = /** @type {any} */ (request('view', undefined, AbortSignal.timeout(10_000)));
      try {
        const { explain } = await import('../chart/later.js');
        return (await explain(error, asked, place)).problem;
      } catch {
        // Without a network, there is no module that explains errors either.
        return error;
      }
    },
  };
}

/**
 * Reads a snapshot of any shape; null for anything but an object.
 * @param {unknown} value
 * @returns {Snapshot | null}
 */
export function readSnapshot(value) {
  if (!isObject(value)) return null;
  const { from, to } = objectOf(value.range);
  const answers = Object.entries(objectOf(value.answers)).filter(([, answer]) => isObject(answer));
  const selections = Object.entries(objectOf(value.selections)).map(([name, values]) => [name, textsOf(values)]);
  return {
    view: value.view,
    answers: Object.fromEntries(answers),
    range: { from: numberOf(from) ?? 0, to: numberOf(to) ?? 0 },
    selections: Object.fromEntries(selections),
  };
}

/**
 * @param {Snapshot} snapshot
 * @returns {DashboardSource}
 */
export const snapshotSource = (snapshot) => ({
  view: async () => snapshot.view,
  options: async () => [],
  live: () => ({ base: '', path: '' }),
  explain: async (error) => error,
  async send({ queries, answered }) {
    for (const { id, ask, type } of queries) {
      answered({
        ...(snapshot.answers[snapshotKey(ask, type)] ?? {
          status: 'success',
          data: { resultType: 'matrix', result: [] },
        }),
        id,
      });
    }
    return [];
  },
});

/**
 * The answers that panels show, as a snapshot has them.
 * @param {Iterable<{plan: import('../model/panel_queries.js').PanelPlan,
 *   answers: import('../components/panel_runner.js').Answered[]}>} shown
 */
export function snapshotAnswers(shown) {
  /** @type {Snapshot['answers']} */
  const answers = Object.create(null);
  for (const { answers: all } of shown) {
    for (const { query, answer } of all) {
      const { id: _, ...rest } = answer;
      answers[snapshotKey(query.ask, query.type)] = rest;
    }
  }
  return { ...answers };
}
