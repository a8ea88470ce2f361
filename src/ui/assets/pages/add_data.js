// The card of an organisation without metrics: it leads to the page Add data, and waits.

import { h } from '../chart/dom.js';
import { pageUrl, readOrg } from '../client/server.js';

/** The time between two looks for the first sample, in milliseconds. */
const WAIT_MS = 3000;

/**
 * @param {{org: string, role: import('../client/types.js').Role, arrived: () => void}} options
 *   `arrived` is called once the organisation has metrics
 */
export function addData({ org, role, arrived }) {
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
  const node = h(
    'section',
    { class: 'card add-data', 'aria-labelledby': 'add-title' },
    h('h2', { id: 'add-title', text: 'No metrics yet' }),
    role === 'viewer'
      ? h('p', { text: 'This organisation has no samples. Ask an editor or an administrator to add data.' })
      : h('p', { text: 'Send samples from Prometheus, OpenTelemetry or a script, or look around with demo data.' }),
    role !== 'viewer' &&
      h(
        'div',
        { class: 'row' },
        h('a', { class: 'button primary', href: pageUrl('/ingest', { org }), text: 'Add data' }),
      ),
    h('p', { class: 'waiting', role: 'status', text: 'Waiting for the first sample…' }),
  );
  return {
    node,
    stop: () => {
      stopped = true;
      clearTimeout(timer);
    },
  };
}
