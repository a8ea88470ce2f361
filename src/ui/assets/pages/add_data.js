// How to send the first data, shown while an organisation has no metrics.

import { h } from '../chart/dom.js';
import { ROOT, readOrg, send } from '../client/server.js';
import { copyButton } from '../components/copy.js';
import { errorText } from '../model/error_text.js';

/** The time between two looks for the first sample, in milliseconds. */
const WAIT_MS = 3000;

/**
 * @param {{org: string, role: import('../client/types.js').Role, arrived: () => void}} options
 *   `arrived` is called once the organisation has metrics
 */
export function addData({ org, role, arrived }) {
  const url = `${location.origin}${ROOT}/api/v1/orgs/${org}/write`;
  let key = 'msk_your_key';
  const text = () => `remote_write:\n  - url: ${url}\n    authorization:\n      credentials: ${key}\n`;
  const snippet = h('pre', {
    class: 'snippet',
    tabindex: '0',
    role: 'group',
    'aria-label': 'Configuration for prometheus.yml',
  });
  const status = h('p', { class: 'hint', role: 'status' });
  const waiting = h('p', { class: 'waiting', role: 'status', text: 'Waiting for the first sample…' });
  const show = () => {
    snippet.textContent = text();
  };
  const make = h('button', { type: 'button', class: 'primary', text: 'Create a key and fill it in' });
  make.addEventListener('click', async () => {
    make.disabled = true;
    try {
      const made = await send('POST', `/orgs/${encodeURIComponent(org)}/api-keys`, {
        name: 'prometheus',
        scopes: ['ingest'],
      });
      key = made.secret;
      show();
      make.remove();
      status.textContent = 'The key is shown only now. It can write to this organisation, and nothing else.';
    } catch (error) {
      status.textContent = errorText(error);
      make.disabled = false;
    }
  });
  show();
  let timer = 0;
  let stopped = false;
  const wait = () => {
    timer = setTimeout(async () => {
      const { data } = document.hidden
        ? { data: [] }
        : await readOrg(org, '/metrics', { limit: 1 }).catch(() => ({ data: [] }));
      if (stopped) return;
      if (data.length > 0) arrived();
      else wait();
    }, WAIT_MS);
  };
  wait();
  const mayCreate = ['owner', 'admin'].includes(role);
  const node = h(
    'section',
    { class: 'card add-data', 'aria-labelledby': 'add-title' },
    h('h2', { id: 'add-title', text: 'Add data' }),
    h('p', { text: 'This organisation has no metrics yet. Add this to prometheus.yml and reload Prometheus:' }),
    snippet,
    h('div', { class: 'row' }, mayCreate && make, copyButton(text, { what: 'configuration', source: snippet })),
    status,
    waiting,
  );
  return {
    node,
    stop: () => {
      stopped = true;
      clearTimeout(timer);
    },
  };
}
