// One request with the queries of many panels; the answers arrive one by one as they are ready.

import { waitToRetry } from '../chart/retry.js';
import { readLines } from './lines.js';
import { isSignedOut, orgPath, request } from './server.js';

/**
 * @typedef {import('../components/panel_runner.js').Batch} Batch
 *
 * @typedef {{id: string, status: 'success' | 'error', data?: import('../model/frame.js').Answer, code?: string,
 *   detail?: string, http_status?: number, warnings?: string[], infos?: string[], stats?: any}} BatchAnswer
 */

/**
 * Sends a batch. Resolves after the last line, with the ids that the server did not answer.
 * @param {Batch & {org: string}} batch
 * @returns {Promise<string[]>}
 */
async function queryBatch({ org, start, end, queries, signal, answered }) {
  const body = { start, end, queries: queries.map(({ ask, ...times }) => ({ ...times, ...ask })) };
  const options = { body, headers: { Accept: 'application/x-ndjson' }, signal };
  for (let attempt = 1; ; attempt += 1) {
    let response;
    try {
      response = await request('POST', `${orgPath(org)}/query/batch`, options);
    } catch (error) {
      await waitToRetry(error, attempt, signal);
      continue;
    }
    return readLines(response, queries, answered);
  }
}

/**
 * The requests of a `PanelRunner`: the queries of panels as a member of the organisation.
 * @param {{org: string, signedOut: () => void}} options `signedOut`: the session has ended
 * @returns {import('../components/panel_runner.js').Source}
 */
export const memberSource = ({ org, signedOut }) => ({
  send: (batch) => queryBatch({ ...batch, org }),
  failed(error) {
    if (isSignedOut(error)) signedOut();
  },
});
