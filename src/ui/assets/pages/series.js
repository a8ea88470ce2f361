// The page Metrics: metrics, their cardinality, refused samples, and deletion of series.

import { h } from '../chart/dom.js';
import { isSignedOut, pageUrl } from '../client/server.js';
import { cardinality } from '../components/cardinality/overview.js';
import { deleteSeries } from '../components/cardinality/delete_series.js';
import { refusedSamples } from '../components/cardinality/refused.js';
import { tabsWithContent } from '../components/tabs.js';
import { metricBrowser } from './metrics.js';

/**
 * @param {{org: string, role: import('../client/types.js').Role, user: string,
 *   signedOut: () => void}} options
 * @returns {{node: HTMLElement, start: () => void, stop: () => void}}
 */
export function seriesPage({ org, role, signedOut }) {
  document.title = 'Metrics · promlet';
  const given = new URLSearchParams(location.search);
  const browser = metricBrowser({ org, run: (expr) => location.assign(pageUrl('/explore', { org, expr })) });
  const deletes = role === 'admin' || role === 'owner';
  let selector = (given.get('match') ?? '').slice(0, 4096);
  const fail = (/** @type {unknown} */ error) => {
    const ended = isSignedOut(error);
    if (ended) signedOut();
    return ended;
  };
  const change = (/** @type {string} */ view) => {
    history.replaceState(null, '', pageUrl('/series', { org, view }));
  };
  const remove = (/** @type {string} */ text) => {
    selector = text;
    tabs.show('delete');
    change('delete');
    document.getElementById('tab-delete')?.focus();
  };
  const tabs = tabsWithContent({
    label: 'Views of metrics',
    chosen: given.get('view') ?? '',
    change,
    tabs: [
      { id: 'list', text: 'All metrics', content: () => browser.node },
      {
        id: 'cardinality',
        text: 'Cardinality',
        content: () => cardinality({ org, remove: deletes ? remove : null, fail }),
      },
      ...(role === 'viewer'
        ? []
        : [{ id: 'refused', text: 'Refused samples', content: () => refusedSamples({ org, fail }) }]),
      ...(deletes
        ? [
            {
              id: 'delete',
              text: 'Delete series',
              content: () => {
                const shown = deleteSeries({ org, selector, fail });
                selector = '';
                return shown;
              },
            },
          ]
        : []),
    ],
  });
  const node = h('main', { class: 'explore series' }, h('h1', { text: 'Metrics' }), tabs.node);
  return { node, start: () => void browser.fill(), stop: browser.stop };
}
