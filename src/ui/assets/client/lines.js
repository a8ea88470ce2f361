// The answers to a batch of queries, one a line, as they arrive.

/**
 * Reads answers until the last line. Returns the ids that the server did not answer.
 * @param {Response} response NDJSON
 * @param {{id: string}[]} queries
 * @param {(answer: import('./batch.js').BatchAnswer) => void} answered
 * @returns {Promise<string[]>}
 */
export async function readLines(response, queries, answered) {
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
