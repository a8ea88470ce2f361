// The server's bounds of a dashboard, checked before it is saved (docs/specification.md C9).

import { readDashboard } from './dashboard.js';
import { DashboardError, listOf, textOf } from './limits.js';

/** Deepest nesting of a stored dashboard, in arrays and objects; the document is the first level. */
const NESTING_MAX = 64;
const TAGS_MAX = 50;
/** Longest title, folder and message, in characters. */
export const NAME_MAX = 200;

/** @param {string} code @param {string} message @param {number} limit */
const refused = (code, message, limit) => new DashboardError(code, message, { limit });

/**
 * @param {Record<string, any>} document
 * @param {string} folder
 * @throws {DashboardError} that names the limit
 */
export function checkBeforeSaving(document, folder) {
  // Size, panels, queries, variables and cycles of variables.
  readDashboard(document);
  const title = [...textOf(document.title)].length;
  if (title === 0) throw refused('no_title', 'The dashboard needs a title.', 1);
  for (const [what, length] of /** @type {const} */ ([
    ['title', title],
    ['folder', [...folder].length],
  ]))
    if (length > NAME_MAX)
      throw refused('too_long', `The ${what} has ${length} characters; the limit is ${NAME_MAX}.`, NAME_MAX);
  const tags = listOf(document.tags).length;
  if (tags > TAGS_MAX)
    throw refused('too_many_tags', `The dashboard has ${tags} tags; the limit is ${TAGS_MAX}.`, TAGS_MAX);
  let level = /** @type {unknown[]} */ ([document]);
  for (let depth = 1; level.length > 0; depth += 1) {
    if (depth > NESTING_MAX)
      throw refused('too_deep', `The dashboard is nested over ${NESTING_MAX} levels.`, NESTING_MAX);
    level = level.flatMap((value) => (typeof value === 'object' && value !== null ? Object.values(value) : []));
    level = level.filter((value) => typeof value === 'object' && value !== null);
  }
}
