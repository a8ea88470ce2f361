// The plan of a query with its cost, as rows of a table.

/** The most rows that are shown. */
const ROWS_MAX = 500;

/**
 * @typedef {{series: number, samples: number, memory_bytes?: number, elapsed_ms?: number}} Cost
 * @typedef {{node: string, depth: number, estimated: Cost | null, actual: Cost | null, ownMs: number, share: number}}
 *   PlanRow
 * `ownMs` is the time of the node without its inputs, `share` its part of the whole time, 0 to 1.
 */

/**
 * The nodes of a plan, each before its inputs. The plan of another server may have any shape, so
 * values that are no nodes are skipped.
 * @param {any} plan as the server sends it
 * @returns {{rows: PlanRow[], truncated: boolean}}
 */
export function planRows(plan) {
  const whole = costOf(plan?.actual)?.elapsed_ms ?? 0;
  /** @type {PlanRow[]} */
  const rows = [];
  const waiting = [{ at: plan, depth: 0 }];
  while (waiting.length > 0 && rows.length < ROWS_MAX) {
    const { at, depth } = /** @type {{at: any, depth: number}} */ (waiting.pop());
    if (typeof at !== 'object' || at === null) continue;
    const inputs = Array.isArray(at.inputs) ? at.inputs : [];
    const actual = costOf(at.actual);
    const below = inputs
      .map((/** @type {any} */ one) => costOf(one?.actual)?.elapsed_ms ?? 0)
      .reduce((/** @type {number} */ sum, /** @type {number} */ ms) => sum + ms, 0);
    const ownMs = Math.max(0, (actual?.elapsed_ms ?? 0) - below);
    rows.push({
      node: String(at.node ?? ''),
      depth,
      estimated: costOf(at.estimated),
      actual,
      ownMs,
      share: whole > 0 ? Math.min(1, ownMs / whole) : 0,
    });
    for (const input of inputs.toReversed()) waiting.push({ at: input, depth: depth + 1 });
  }
  return { rows, truncated: waiting.length > 0 };
}

/** @param {any} value @returns {Cost | null} */
function costOf(value) {
  if (typeof value !== 'object' || value === null) return null;
  const numbers = Object.entries(value).filter(([, one]) => typeof one === 'number' && Number.isFinite(one));
  return { series: 0, samples: 0, ...Object.fromEntries(numbers) };
}
