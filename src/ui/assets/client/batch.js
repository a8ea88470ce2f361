// One request with the queries of many panels; the answers arrive one by one as they are ready.

import { ApiError, readError } from '../chart/request.js';
import { ROOT } from './server.js';

/** Attempts before a busy server is an error, and the longest wait between two, in seconds. */
const TRIES_MAX = 4;
const WAIT_MAX = 60;
/** Most queries of one request, as the server allows. */
export const BATCH_MAX = 1000;

/**
 * @typedef {{id: string, expr: string, type: 'range' | 'instant', start?: number, end?: number, step?: number,
 *   time?: number}} BatchQuery
 * Times in unix seconds, `step` in seconds; `start` and `end` are those of the batch by default.
 * @typedef {{id: string, status: 'success' | 'error', data?: import('../model/frame.js').Answer, code?: string,
 *   detail?: string, http_status?: number, warnings?: string[], infos?: string[], stats?: any}} BatchAnswer
 */

/**
 * @param {number} seconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener(
      'abort',
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });
}

/**
 * Sends a batch. Resolves after the last line, with the ids that the server did not answer.
 * @param {{org: string, start: number, end: number, queries: BatchQuery[], signal: AbortSignal,
 *   answered: (answer: BatchAnswer) => void}} batch times in unix seconds
 * @returns {Promise<string[]>}
 */
export async function queryBatch({ org, start, end, queries, signal, answered }) {
  const body = JSON.stringify({ start, end, queries });
  for (let attempt = 1; ; attempt += 1) {
    const response = await fetch(`${ROOT}/api/v1/orgs/${encodeURIComponent(org)}/query/batch`, {
      method: 'POST',
      credentials: 'same-origin',
      cache: 'no-store',
      signal,
      headers: { 'Content-Type': 'application/json', Accept: 'application/x-ndjson' },
      body,
    }).catch((error) => {
      if (signal.aborted) throw error;
      throw new ApiError({ code: 'unreachable', detail: 'The server does not answer. Is it still running?' });
    });
    if (response.ok) return readLines(response, queries, answered);
    const problem = await readError(response);
    const wait = problem.retryAfter || (problem.status === 429 ? 1 : 0);
    if (![429, 503].includes(problem.status) || wait === 0 || wait > WAIT_MAX || attempt >= TRIES_MAX) throw problem;
    // Jitter spreads the retries of several tabs.
    await pause(wait + Math.random() * 0.5, signal);
  }
}

/**
 * @param {Response} response NDJSON
 * @param {BatchQuery[]} queries
 * @param {(answer: BatchAnswer) => void} answered
 */
async function readLines(response, queries, answered) {
  const missing = new Set(queries.map(({ id }) => id));
  const take = (/** @type {string} */ line) => {
    if (line.trim() === '') return;
    const answer = JSON.parse(line);
    if (missing.delete(answer.id)) answered(answer);
  };
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  /** Pieces of the line that has not ended yet. @type {string[]} */
  let rest = [];
  for (let chunk = await reader?.read(); chunk && !chunk.done; chunk = await reader?.read()) {
    const lines = chunk.value.split('\n');
    rest.push(lines[0]);
    if (lines.length === 1) continue;
    take(rest.join(''));
    lines.slice(1, -1).forEach(take);
    rest = [lines[lines.length - 1]];
  }
  take(rest.join(''));
  return [...missing];
}
