// One request with the queries of many panels; the answers arrive one by one as they are ready.

import { waitToRetry } from '../chart/retry.js';
import { request } from './server.js';

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
 * Sends a batch. Resolves after the last line, with the ids that the server did not answer.
 * @param {{org: string, start: number, end: number, queries: BatchQuery[], signal: AbortSignal,
 *   answered: (answer: BatchAnswer) => void}} batch times in unix seconds
 * @returns {Promise<string[]>}
 */
export async function queryBatch({ org, start, end, queries, signal, answered }) {
  const options = { body: { start, end, queries }, headers: { Accept: 'application/x-ndjson' }, signal };
  for (let attempt = 1; ; attempt += 1) {
    let response;
    try {
      response = await request('POST', `/orgs/${encodeURIComponent(org)}/query/batch`, options);
    } catch (error) {
      await waitToRetry(error, attempt, signal);
      continue;
    }
    return readLines(response, queries, answered);
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
