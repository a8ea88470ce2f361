// Links of dashboards, panels and cells: addresses with variables and time, if they are safe.

import { interpolate } from './interpolate.js';
import { safeUrl } from './safe_url.js';

/**
 * @typedef {import('./interpolate.js').Selections} Selections
 * @typedef {import('./interpolate.js').Context} Context
 * @typedef {{text: string, href: string | null, newTab: boolean}} Link `href` is null for an address that is not
 *   http, https or relative: the text is shown without a link.
 */

/** Grafana's path of a dashboard: `/d/UID/name`. */
const DASHBOARD_PATH = /^\/d\/([\w-]{1,128})(?:\/[^?#]*)?(?:\?([^#]*))?/;

/**
 * @param {Record<string, any>} link as a dashboard has it: `{title, url, targetBlank, keepTime, includeVars}`
 * @param {Selections} selections
 * @param {Context} context
 * @param {{page: (uid: string, query: string) => string | null}} options `page` makes the address of a dashboard
 * @returns {Link}
 */
export function linkOf(link, selections, context, { page }) {
  const text = interpolate(String(link.title || link.tooltip || link.url || 'Link'), selections, {
    ...context,
    format: 'text',
    limit: 1000,
  });
  const values = { ...context, format: 'percentencode' };
  let url = interpolate(String(link.url ?? ''), selections, { ...values, limit: 8192 });
  const extra = [
    ...(link.keepTime === true ? [interpolate('${__url_time_range}', selections, context)] : []),
    ...(link.includeVars === true ? [interpolate('${__all_variables}', selections, context)] : []),
  ]
    .filter(Boolean)
    .join('&');
  if (extra) url += `${url.includes('?') ? '&' : '?'}${extra}`;
  const safe = safeUrl(url);
  const other = safe === null ? null : DASHBOARD_PATH.exec(safe);
  return { text, newTab: link.targetBlank === true, href: other ? page(other[1], other[2] ?? '') : safe };
}
