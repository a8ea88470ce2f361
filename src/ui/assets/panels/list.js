// The dashboard list and the alert list as plain lists.

import { h } from '../chart/dom.js';
import { listDashboards } from '../client/dashboards.js';
import { readDashboardAddress } from '../model/dashboard_address.js';
import { errorText } from '../model/error_text.js';
import { pageUrl } from '../client/server.js';

/**
 * @param {HTMLElement} box
 * @param {import('./kinds.js').View} view
 * @returns {import('./kinds.js').Drawing}
 */
export function draw(box, { panel }) {
  if (panel.type === 'alertlist') {
    box.replaceChildren(h('p', { class: 'panel-quiet', text: 'There are no alert rules.' }));
    return {};
  }
  const { org } = readDashboardAddress(location.search);
  const { options } = panel;
  const tags = Array.isArray(options.tags) ? options.tags.map(String) : [];
  let gone = false;
  const fill = async () => {
    const all = await listDashboards(org, { q: options.showSearch === true ? String(options.query ?? '') : '' });
    if (gone) return;
    const wanted = all.filter(
      ({ starred, tags: own }) =>
        tags.every((tag) => own.includes(tag)) &&
        (options.showStarred !== true || options.showSearch === true || starred),
    );
    const shown = wanted.slice(0, Math.min(100, Number(options.maxItems) || 30));
    box.replaceChildren(
      shown.length === 0
        ? h('p', { class: 'panel-quiet', text: 'No dashboards.' })
        : h(
            'ul',
            { class: 'dash-links' },
            shown.map(({ uid, title }) =>
              h('li', {}, h('a', { href: pageUrl('/dashboard', { org, uid }), text: title })),
            ),
          ),
    );
  };
  fill().catch((error) => box.replaceChildren(h('p', { class: 'panel-quiet', text: errorText(error) })));
  return {
    destroy: () => {
      gone = true;
    },
  };
}
