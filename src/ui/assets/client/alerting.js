// Calls for targets, rules, alerts, silences and notifications. Shapes of answers are known here only.

import { ApiError } from '../chart/request.js';
import { orgPath, readOrg, request, send } from './server.js';

/**
 * @typedef {Record<string, string>} Labels
 * @typedef {import('../model/alerting.js').Matcher} Matcher
 * @typedef {import('../model/alerting.js').AlertState} AlertState
 * @typedef {import('../model/alerting.js').Transition} Transition
 *
 * @typedef {{labels: Labels, annotations: Labels, state: AlertState, activeAt: string, value: string}} ActiveAlert
 * @typedef {{acknowledgedBy: string|null, isInhibited: boolean}} Handling what is done about a firing alert
 * @typedef {Object} Rule
 * @property {'alerting'|'recording'} type
 * @property {string} name
 * @property {string} query
 * @property {Labels} [labels]
 * @property {Labels} [annotations]
 * @property {number} [duration] of `for`, in seconds
 * @property {number} [keepFiringFor] in seconds
 * @property {AlertState} [state]
 * @property {ActiveAlert[]} [alerts]
 * @property {'ok'|'err'|'unknown'} health
 * @property {string} [lastError]
 * @property {number} evaluationTime of the last evaluation, in seconds
 * @property {string} lastEvaluation
 *
 * @typedef {{name: string, file: string, interval: number, evaluationTime: number, lastEvaluation: string,
 *   rules: Rule[]}} Group
 * @typedef {{name: string, namespace: string, version: number, source: 'api'|'file', yaml: string,
 *   updated_at: string|null}} StoredGroup the namespace is that of the API, or the name of the file; `name` is that of
 *   paths, with the namespace and a slash before it unless that is the default one
 * @typedef {{version: number, valid_from: string, valid_until: string|null, updated_by: string|null, bytes: number}}
 *   GroupVersion `valid_until` is null for the current one
 * @typedef {{id: string, matchers: Matcher[], startsAt: string, endsAt: string, createdBy: string, comment: string,
 *   state: 'active'|'pending'|'expired'}} Silence
 * @typedef {{series: {metric: Labels, values: [number, string][]}[], transitions: Transition[],
 *   warnings: string[], estimate: import('../model/cost.js').Estimate}} Preview `estimate`: of one evaluation
 */

/** The most pages of rules that are read. */
const PAGES_MAX = 100;

/**
 * Reads from the API of Prometheus.
 * @param {string} org
 * @param {string} path below `/api/v1/`
 * @param {Record<string, any>} params
 * @param {AbortSignal} [signal]
 */
const prometheus = async (org, path, params, signal) =>
  (await readOrg(org, `/prometheus/api/v1/${path}`, params, signal)).data;

/** @param {string} org @param {AbortSignal} [signal] @returns {Promise<any>} active and dropped targets */
export const readTargets = (org, signal) => prometheus(org, 'targets', { state: 'any' }, signal);

/** The names of all scrape pools. @param {string} org @param {AbortSignal} [signal] @returns {Promise<string[]>} */
export const readPools = async (org, signal) => (await prometheus(org, 'scrape_pools', {}, signal)).scrapePools ?? [];

/**
 * The labels of a target after each step of relabelling.
 * @param {string} org
 * @param {string} scrapePool
 * @param {Labels} labels before the first step
 * @returns {Promise<import('../model/targets.js').Step[]>}
 */
export const readSteps = async (org, scrapePool, labels) =>
  (await prometheus(org, 'targets/relabel_steps', { scrapePool, labels: JSON.stringify(labels) })).steps ?? [];

/**
 * All groups of rules with their state.
 * @param {string} org
 * @param {{type?: 'alert'|'record'}} filter
 * @param {AbortSignal} [signal]
 * @returns {Promise<Group[]>}
 */
export async function readRules(org, filter, signal) {
  /** @type {Group[]} */
  const all = [];
  let token = '';
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const data = await prometheus(org, 'rules', { ...filter, group_limit: 100, group_next_token: token }, signal);
    all.push(...data.groups);
    token = data.groupNextToken ?? '';
    if (!token) break;
  }
  return all;
}

/**
 * The matrix of an expression over a grid.
 * @param {string} org
 * @param {string} expr
 * @param {{start: number, end: number, step: number}} grid
 * @param {AbortSignal} [signal]
 * @returns {Promise<any[]>}
 */
export const readMatrix = async (org, expr, grid, signal) =>
  (await readOrg(org, '/query/expr-range', { expr, ...grid }, signal)).data.result;

/** @param {string} org @param {AbortSignal} [signal] @returns {Promise<StoredGroup[]>} */
export const listGroups = async (org, signal) =>
  (await send('GET', `${orgPath(org)}/rule-groups`, undefined, { signal })).data;

/** The name of a group in its YAML. @param {StoredGroup} group */
export const bareName = ({ name, namespace }) =>
  name.startsWith(`${namespace}/`) ? name.slice(namespace.length + 1) : name;

const groupPath = (/** @type {string} */ org, /** @type {string} */ name) =>
  `${orgPath(org)}/rule-groups/${encodeURIComponent(name)}`;

/** @param {string} org @param {string} name @returns {Promise<StoredGroup>} */
export const readGroup = (org, name) => send('GET', groupPath(org, name));

/**
 * Saves a group if its version is still this one; without a version, if there is none of this name.
 * @param {string} org
 * @param {{name: string, yaml: string, version: number|null}} group
 * @returns {Promise<StoredGroup>}
 */
export const saveGroup = (org, { name, yaml, version }) => {
  /** @type {Record<string, string>} */
  const headers = version === null ? {} : { 'If-Match': `"${version}"` };
  return send('PUT', groupPath(org, name), { yaml }, { headers });
};

/** @param {string} org @param {string} name @param {number} version */
export const deleteGroup = (org, name, version) =>
  send('DELETE', groupPath(org, name), undefined, { headers: { 'If-Match': `"${version}"` } });

/**
 * The stored versions, the newest first.
 * @param {string} org
 * @param {string} name
 * @returns {Promise<GroupVersion[]>}
 */
export const listGroupVersions = async (org, name) => (await send('GET', `${groupPath(org, name)}/versions`)).data;

/**
 * The text of a version.
 * @param {string} org
 * @param {string} name
 * @param {number} version
 * @returns {Promise<string>}
 */
export const readGroupVersion = async (org, name, version) =>
  (await request('GET', `${groupPath(org, name)}/versions/${version}`)).text();

/**
 * Simulates a rule over a past range.
 * @param {string} org
 * @param {{yaml: string, start: number, end: number, step: number, query_offset?: string, limit?: number}} wanted
 *   one rule; unix seconds
 * @param {AbortSignal} signal
 * @returns {Promise<Preview>}
 */
export async function previewRule(org, wanted, signal) {
  const response = await request('POST', `${orgPath(org)}/rules/preview`, { body: wanted, signal });
  const { series, transitions, truncated, estimate } = await response.json();
  return {
    series,
    estimate,
    warnings: truncated ? ['Not everything is shown: choose a shorter range.'] : [],
    transitions: transitions.map((/** @type {any} */ one) => ({ ...one, at: Date.parse(one.at) / 1000 })),
  };
}

/**
 * Writes the past samples of a recording rule, or a first part of them.
 * @param {string} org
 * @param {{yaml: string, start: number, end: number, step: number, query_offset?: string, limit?: number}} wanted
 *   one rule; unix seconds
 * @param {AbortSignal} signal
 * @returns {Promise<import('../model/backfill.js').Part>}
 */
export async function backfillRule(org, wanted, signal) {
  const { stored, refused, next } = await send('POST', `${orgPath(org)}/rules/backfill`, wanted, { signal });
  return { stored, refused, next: next === null ? null : Date.parse(next) / 1000 };
}

/** @param {any} one in Alertmanager's form @returns {Silence} */
function silenceOf(one) {
  const matchers = one.matchers.map((/** @type {any} */ matcher) => ({ isEqual: true, ...matcher }));
  return { ...one, matchers, state: one.status.state };
}

/** @param {string} org @param {AbortSignal} [signal] @returns {Promise<Silence[]>} the next to end first */
export async function listSilences(org, signal) {
  const { data } = await send('GET', `${orgPath(org)}/silences`, undefined, { signal });
  return data
    .map(silenceOf)
    .sort(
      (/** @type {Silence} */ left, /** @type {Silence} */ right) => Date.parse(left.endsAt) - Date.parse(right.endsAt),
    );
}

/**
 * @param {string} org
 * @param {{matchers: Matcher[], seconds: number, comment: string}} silence that begins now
 */
export function createSilence(org, { matchers, seconds: length, comment }) {
  return send('POST', `${orgPath(org)}/silences`, {
    matchers,
    endsAt: new Date(Date.now() + length * 1000).toISOString(),
    comment,
  });
}

/** Ends a silence now. @param {string} org @param {string} id */
export const endSilence = (org, id) => send('DELETE', `${orgPath(org)}/silences/${encodeURIComponent(id)}`);

/**
 * The acknowledgements of firing alerts, by fingerprint.
 * @param {string} org
 * @param {AbortSignal} [signal]
 * @returns {Promise<Map<string, Handling>>}
 */
export async function readHandling(org, signal) {
  /** @type {any[]} */
  const all = await send('GET', `${orgPath(org)}/alertmanager/api/v2/alerts`, undefined, { signal });
  return new Map(
    all.map(({ fingerprint, status, acknowledgement }) => [
      fingerprint,
      { acknowledgedBy: acknowledgement?.author ?? null, isInhibited: status.inhibitedBy.length > 0 },
    ]),
  );
}

/**
 * Acknowledges an alert, or withdraws the acknowledgement.
 * @param {string} org
 * @param {string} fingerprint
 * @param {boolean} yes
 */
export const acknowledge = (org, fingerprint, yes) =>
  send(yes ? 'POST' : 'DELETE', `${orgPath(org)}/alerts/${fingerprint}/acknowledgement`, yes ? {} : undefined);

/**
 * Whether a group was changed, created or deleted on the server since it was read.
 * @param {unknown} error
 */
export const isConflict = (error) => error instanceof ApiError && [404, 412, 428].includes(error.status);
