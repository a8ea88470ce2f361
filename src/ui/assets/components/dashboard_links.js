// The links of a dashboard: addresses with variables and time, and menus of dashboards by tag.

import { h } from '../chart/dom.js';
import { listDashboards } from '../client/dashboards.js';
import { attempt } from '../model/attempt.js';
import { linkOf } from '../model/links.js';
import { openMenu } from './popup.js';

/** The most dashboards of a menu. */
const MENU_MAX = 100;

/**
 * @param {Record<string, any>[]} links of the dashboard
 * @param {{org: string, selections: import('../model/interpolate.js').Selections,
 *   context: import('../model/interpolate.js').Context, page: (uid: string, query: string) => string,
 *   fail: (error: unknown) => void}} options
 * @returns {HTMLElement[]}
 */
export function dashboardLinks(links, options) {
  const { selections, context, page } = options;
  return links.map((link) => {
    const tags = Array.isArray(link.tags) ? link.tags.map(String) : [];
    if (link.type === 'dashboards' || (!link.url && tags.length > 0)) return tagged(link, tags, options);
    const made = attempt(() => linkOf(link, selections, context, { page }));
    const { text, href, newTab } = made ?? { text: 'Link', href: null, newTab: false };
    // The text of an address that is not safe stays, so that the reader sees the omitted link.
    if (href === null) return h('span', { class: 'chip' }, h('span', { text }));
    const tab = newTab ? { target: '_blank', rel: 'noopener noreferrer' } : {};
    return h('a', { class: 'button', href, text, title: link.tooltip || null, ...tab });
  });
}

/**
 * A menu of the dashboards that have all tags of a link.
 * @param {Record<string, any>} link
 * @param {string[]} tags
 * @param {Parameters<typeof dashboardLinks>[1]} options
 */
function tagged(link, tags, { org, selections, context, page, fail }) {
  const button = h('button', { type: 'button', 'aria-haspopup': 'true', text: link.title || 'Dashboards' });
  button.addEventListener('click', async () => {
    try {
      const all = await listDashboards(org, {});
      const found = all.filter((one) => tags.every((tag) => one.tags.includes(tag))).slice(0, MENU_MAX);
      const items = found.map(({ title, uid }) => {
        const made = attempt(() => linkOf({ ...link, title, url: `/d/${uid}` }, selections, context, { page }));
        return h('a', { href: made?.href ?? page(uid, ''), text: title });
      });
      openMenu(button, items.length > 0 ? items : [h('p', { text: 'No dashboard has these tags.' })]);
    } catch (error) {
      fail(error);
    }
  });
  return h('div', { class: 'anchor' }, button);
}
