// The link of a panel's menu that opens its first query on the explore page.

import { pageUrl } from '../client/server.js';
import { planPanel } from '../model/panel_queries.js';
import { writeQuery } from '../model/query_text.js';

/**
 * @param {string} org
 * @param {import('../model/panel.js').Panel} panel
 * @param {Omit<Parameters<typeof planPanel>[1], 'write'>} context
 * @returns {{text: string, href: string}[]} empty for a panel without a query
 */
export function exploreLinks(org, panel, context) {
  if (!panel.targets.some(({ expr, hide }) => expr && !hide)) return [];
  const { queries, range } = planPanel(panel, { ...context, write: writeQuery });
  if (queries.length === 0) return [];
  const seconds = (/** @type {number} */ ms) => String(Math.floor(ms / 1000));
  const parameters = { org, expr: queries[0].expr, start: seconds(range.from), end: seconds(range.to) };
  return [{ text: 'Explore the query', href: pageUrl('/', parameters) }];
}
