// Loads the content of the tabs Table and Explain, and puts it into the panel of the tab.

import { h } from '../chart/dom.js';
import { readOrg } from '../client/server.js';
import { unitOf } from '../model/promql.js';

/**
 * @typedef {import('../client/types.js').QueryAnswer & {explain?: any}} QueryAnswer
 * @typedef {{labels: Record<string, string>, points?: [number, string][]}} Series
 */

/**
 * Sends the query and shows the answer. A refresh of the same query keeps the scroll position and the focus.
 * @param {HTMLElement} panel
 * @param {{tab: 'table' | 'explain', org: string, expr: string, params: Record<string, number | undefined>,
 *   signal: AbortSignal, order: {descending: boolean}, samples: (series: Series) => void}} options
 * @returns {Promise<{answer: QueryAnswer, empty: boolean} | null>} null after an abort
 * @throws {import('../chart/request.js').ApiError}
 */
export async function loadResult(panel, { tab, org, expr, params, signal, order, samples }) {
  const refreshed = panel.dataset.expr === expr;
  delete panel.dataset.expr;
  if (!refreshed) panel.replaceChildren(h('p', { class: 'quiet', text: 'Loading…' }));
  /** @type {QueryAnswer} */
  let answer;
  /** @type {Node[]} */
  let content;
  let empty = false;
  if (tab === 'table') {
    const [{ resultTable }, loaded] = await Promise.all([
      import('./result_table.js'),
      readOrg(org, '/query/expr-instant', { expr, ...params }, signal),
    ]);
    answer = loaded;
    const { result, resultType } = answer.data;
    empty = Array.isArray(result) && ['vector', 'matrix'].includes(resultType) && result.length === 0;
    content = empty
      ? [h('p', { class: 'quiet', text: 'No data at this time' })]
      : [resultTable(answer.data, unitOf(expr), order, samples)];
  } else {
    const [{ explainView }, loaded] = await Promise.all([
      import('./explain_view.js'),
      readOrg(org, '/query/expr-range', { expr, ...params, explain: 'true', nocache: 'true' }, signal),
    ]);
    answer = loaded;
    content = explainView(answer.explain);
  }
  if (signal.aborted) return null;
  const scrolled = panel.querySelector('.scroll')?.scrollTop ?? 0;
  const focused = panel.querySelector('th button:focus') !== null;
  panel.replaceChildren(...content);
  if (refreshed) panel.querySelector('.scroll')?.scrollTo(0, scrolled);
  if (focused) panel.querySelector('button')?.focus();
  panel.dataset.expr = expr;
  return { answer, empty };
}

/** The text of a refused query. @param {import('../chart/request.js').ApiError} problem */
export const refusal = (problem) =>
  h(
    'div',
    { class: 'refused', role: 'alert' },
    h('strong', { text: 'This query cannot run' }),
    h('p', { text: problem.message }),
    h('p', { class: 'code', text: [problem.code, problem.requestId].filter(Boolean).join(' · ') }),
  );
