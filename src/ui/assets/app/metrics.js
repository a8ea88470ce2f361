// Which metrics exist, and how the first ones get in.

import { h } from '../chart/dom.js';
import { firstQuery } from './promql.js';
import { ROOT, look, send } from './server.js';
import { copy } from './storage.js';

const LISTED_MAX = 200;
const WAIT_MS = 3000;

/** The list of metrics with a filter; a click asks a first question about one. */
export function metricBrowser({ org, run }) {
  const list = h('ul', { class: 'metrics' });
  const count = h('p', { class: 'hint', role: 'status' });
  const filter = h('input', { id: 'metric-filter', type: 'search', placeholder: 'Filter by name', autocomplete: 'off', spellcheck: 'false' });
  let waiting = null;
  let timer = 0;
  const fill = async () => {
    waiting?.abort();
    waiting = new AbortController();
    const { signal } = waiting;
    try {
      const { data, next_cursor: more } = await look(org, '/metrics', { search: filter.value.trim(), limit: LISTED_MAX }, signal);
      if (signal.aborted) return data.length;
      count.textContent = data.length === 0 ? 'No metric has that in its name.' : `${data.length}${more ? ' and more' : ''} metrics`;
      list.replaceChildren(...data.map((metric) => h('li', {}, h('button', { type: 'button', title: firstQuery(metric), on: { click: () => run(firstQuery(metric)) } },
        h('span', { class: 'name', text: metric.name }),
        h('span', { class: 'about' }, metric.type && metric.type !== 'unknown' && h('span', { class: 'type', text: metric.type }),
          h('span', { text: `${Number(metric.series ?? 0).toLocaleString('en')} series` })),
        metric.help && h('span', { class: 'help', text: metric.help })))));
      return data.length;
    } catch (error) {
      if (!signal.aborted) count.textContent = error.message;
      return null;
    }
  };
  filter.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(fill, 150);
  });
  const node = h('section', { class: 'card browser', 'aria-labelledby': 'browser-title' },
    h('div', { class: 'row spread' }, h('h2', { id: 'browser-title', text: 'Metrics' }),
      h('div', { class: 'filter' }, h('label', { class: 'unseen', for: 'metric-filter', text: 'Filter metrics' }), filter)),
    count, list);
  return { node, fill };
}

/** What to paste into Prometheus, while an organisation has no metrics. `arrived` is called when it has. */
export function addData({ org, role, arrived }) {
  const url = `${location.origin}${ROOT}/api/v1/orgs/${org}/write`;
  let key = 'msk_your_key';
  const text = () => `remote_write:\n  - url: ${url}\n    authorization:\n      credentials: ${key}\n`;
  const snippet = h('pre', { class: 'snippet', tabindex: '0', 'aria-label': 'Configuration for prometheus.yml' });
  const said = h('p', { class: 'hint', role: 'status' });
  const live = h('p', { class: 'waiting', role: 'status', text: 'Waiting for the first sample…' });
  const show = () => { snippet.textContent = text(); };
  const copyButton = h('button', { type: 'button', text: 'Copy', on: { click: () => copy(text(), copyButton) } });
  const make = h('button', { type: 'button', class: 'primary', text: 'Create a key and fill it in' });
  make.addEventListener('click', async () => {
    make.disabled = true;
    try {
      const made = await send('POST', `/orgs/${encodeURIComponent(org)}/api-keys`, { name: 'prometheus', scopes: ['ingest'] });
      key = made.secret;
      show();
      make.remove();
      said.textContent = 'The key is shown only now. It may write to this organisation, and nothing else.';
    } catch (error) {
      said.textContent = error.message;
      make.disabled = false;
    }
  });
  show();
  let timer = 0;
  let gone = false;
  const wait = () => {
    timer = setTimeout(async () => {
      const { data } = document.hidden ? { data: [] } : await look(org, '/metrics', { limit: 1 }).catch(() => ({ data: [] }));
      if (gone) return;
      if (data.length > 0) arrived();
      else wait();
    }, WAIT_MS);
  };
  wait();
  const may = ['owner', 'admin'].includes(role);
  const node = h('section', { class: 'card add-data', 'aria-labelledby': 'add-title' },
    h('h2', { id: 'add-title', text: 'Add data' }),
    h('p', { text: 'This organisation has no metrics yet. Add this to prometheus.yml and reload Prometheus:' }),
    snippet, h('div', { class: 'row' }, may && make, copyButton), said, live);
  return { node, stop: () => { gone = true; clearTimeout(timer); } };
}
