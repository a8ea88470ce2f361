// The page Add data: an ingest key, snippets that use it, arriving samples, and demo data.

import { h } from '../chart/dom.js';
import { ROOT, orgPath, pageUrl, send } from '../client/server.js';
import { addBuiltin } from '../components/builtin_dashboards.js';
import { copyButton } from '../components/copy.js';
import { arrivalCard } from '../components/ingest/arrival.js';
import { keyCard } from '../components/ingest/key_card.js';
import { tabsWithContent } from '../components/tabs.js';
import { errorText } from '../model/error_text.js';
import { mayConfigureScraping } from '../model/routes.js';
import { SCRAPE, sources } from '../model/snippets.js';

/** @typedef {import('../model/snippets.js').Snippet} Snippet */

/** The code blocks of a source of samples. @param {Snippet[]} snippets */
const blocks = (snippets) =>
  h(
    'div',
    { class: 'stack' },
    snippets.map(({ title, text, note }) => {
      const shown = h('pre', { class: 'snippet', tabindex: '0', role: 'group', 'aria-label': title, text });
      return h(
        'div',
        { class: 'block' },
        h(
          'div',
          { class: 'row spread' },
          h('h3', { text: title }),
          copyButton(() => text, { what: title, source: shown }),
        ),
        note && h('p', { class: 'hint', text: note }),
        shown,
      );
    }),
  );

/** How the server collects samples by itself. @param {string} org @param {boolean} configures */
const scraping = (org, configures) =>
  h(
    'div',
    { class: 'stack' },
    blocks([SCRAPE]),
    configures
      ? h('p', {}, h('a', { href: pageUrl('/targets', { org, tab: 'configuration' }), text: 'Targets: Configuration' }))
      : h('p', { class: 'hint', text: 'An administrator writes it on the page Targets.' }),
  );

/** The card that writes the samples of the demo shop. @param {string} org */
function demoCard(org) {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const status = h('p', { class: 'hint', role: 'status' });
  const load = h('button', { type: 'button', text: 'Load demo data' });
  load.addEventListener('click', async () => {
    alert.textContent = '';
    status.textContent = 'Writing the samples…';
    load.disabled = true;
    try {
      await send('POST', `${orgPath(org)}/demo-data`, {});
      location.assign(pageUrl('/dashboard', { org, uid: await addBuiltin(org, 'shop') }));
    } catch (error) {
      status.textContent = '';
      alert.textContent = errorText(error, {
        already_exists:
          'This organisation already has metrics whose names begin with shop_. Delete their series under Metrics.',
      });
      load.disabled = false;
    }
  });
  return h(
    'section',
    { class: 'card part', 'aria-labelledby': 'demo-title' },
    h('h2', { id: 'demo-title', text: 'No data at hand?' }),
    h('p', {
      class: 'hint',
      text: 'Six hours of a generated web shop: 276 series, about 393,000 samples, and a dashboard that shows them.',
    }),
    alert,
    h('div', { class: 'row' }, load),
    status,
  );
}

/**
 * @param {{org: string, role: import('../client/types.js').Role, user: string,
 *   me: import('../client/types.js').Me, signedOut: () => void}} options
 * @returns {{node: HTMLElement, start: () => void, stop: () => void}}
 */
export function ingestPage({ org, role, me }) {
  document.title = 'Add data · promlet';
  const base = `${location.origin}${ROOT}/api/v1${orgPath(org)}`;
  let key = '';
  const first = sources({ base, key });
  const configures = mayConfigureScraping(me, role);
  const tabs = tabsWithContent({
    label: 'Ways to send samples',
    chosen: new URLSearchParams(location.search).get('from') ?? '',
    change: (id) => history.replaceState(null, '', pageUrl('/ingest', { org, from: id })),
    tabs: [
      ...first.map(({ id, label }, at) => ({
        id,
        text: label,
        content: () => blocks(sources({ base, key })[at].snippets),
      })),
      { id: 'scrape', text: 'Scrape', content: () => scraping(org, configures) },
    ],
  });
  const writes = role !== 'viewer';
  const arrival = arrivalCard({ org, role });
  const changed = (/** @type {string} */ secret) => {
    key = secret;
    tabs.show(tabs.shown());
  };
  const node = h(
    'main',
    { class: 'explore ingest' },
    h('h1', { text: 'Add data' }),
    h(
      'div',
      { class: 'with-aside' },
      h(
        'div',
        { class: 'stack' },
        writes
          ? keyCard({ org, role, changed })
          : h('p', { class: 'card part hint', text: 'Viewers cannot add data. Ask an editor or an administrator.' }),
        h(
          'section',
          { class: 'card part', 'aria-labelledby': 'send-title' },
          h('h2', { id: 'send-title', text: 'Send samples' }),
          tabs.node,
        ),
      ),
      h('div', { class: 'stack' }, arrival.node, writes && demoCard(org)),
    ),
  );
  return { node, start: arrival.start, stop: arrival.stop };
}
