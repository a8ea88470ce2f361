// The live line of the page Add data: whether samples arrive, and which were refused meanwhile.

import { h } from '../../chart/dom.js';
import { orgPath, pageUrl, send } from '../../client/server.js';
import { after, arrivalText, waiting } from '../../model/arrival.js';
import { counted } from '../../model/metrics.js';
import { reasonOf, refusedSince } from '../../model/refusals.js';

/** The time between two requests for figures, in milliseconds. */
const POLL_MS = 2000;
/** The most refusals that are shown. */
const REFUSALS_MAX = 5;

/** @typedef {import('../../model/refusals.js').Refusal} Refusal */

/**
 * @param {{org: string, role: import('../../client/types.js').Role,
 *   figures?: (figures: import('../../model/arrival.js').Figures) => void}} options `figures` is
 *   called with each new reading
 * @returns {{node: HTMLElement, start: () => void, stop: () => void}}
 */
export function arrivalCard({ org, role, figures = () => {} }) {
  const base = orgPath(org);
  const began = Date.now();
  const text = h('p', { class: 'waiting', text: 'Waiting for samples…' });
  // A line that changes each second would be read aloud each second.
  const spoken = h('p', { class: 'unseen', role: 'status' });
  const link = h('a', { class: 'button primary', href: pageUrl('/explore', { org }), text: 'Open Explore' });
  const refused = h('div', { class: 'stack' });
  link.hidden = true;
  /** @type {import('../../model/arrival.js').Arrival|null} */
  let arrival = null;
  /** @type {AbortController|null} */
  let request = null;
  let timer = 0;
  let stopped = true;
  let shownRefusals = '';

  const show = () => {
    if (!arrival) return;
    const arrived = arrival.firstAt !== null;
    text.textContent = arrivalText(arrival, Date.now());
    text.className = arrived ? 'arrived' : 'waiting';
    if (arrived && link.hidden) spoken.textContent = text.textContent;
    link.hidden = !arrived;
  };
  const showRefused = (/** @type {Refusal[]} */ rows) => {
    const fresh = refusedSince(rows, began);
    const key = JSON.stringify(fresh);
    if (key === shownRefusals) return;
    shownRefusals = key;
    refused.replaceChildren();
    if (fresh.length === 0) return;
    refused.append(
      h('h3', { text: 'Refused since you opened this page' }),
      h(
        'ul',
        { class: 'refusals' },
        fresh.slice(0, REFUSALS_MAX).map(({ code, reason, series, count }) =>
          h(
            'li',
            {},
            h('strong', { text: `${reasonOf(code)}${count > 1 ? `, ${counted(count, 'time')}` : ''}` }),
            h('span', { text: reason }),
            series && h('code', { text: series }),
          ),
        ),
      ),
      h('a', { href: pageUrl('/series', { org, view: 'refused' }), text: 'All refused samples' }),
    );
  };
  const poll = async () => {
    if (document.hidden) return wait();
    request = new AbortController();
    const { signal } = request;
    try {
      const [{ usage }, rejects] = await Promise.all([
        send('GET', base, undefined, { signal }),
        role === 'viewer' ? { data: [] } : send('GET', `${base}/ingest/rejects`, undefined, { signal }),
      ]);
      if (stopped) return;
      const now = { series: usage.series, samples: usage.samples_today };
      arrival = arrival ? after(arrival, now, Date.now()) : waiting(now);
      figures(now);
      show();
      showRefused(rejects.data);
    } catch {
      // The next reading may succeed; the line keeps its text until then.
    }
    if (!stopped) wait();
  };
  const wait = () => {
    timer = setTimeout(poll, POLL_MS);
  };
  const node = h(
    'section',
    { class: 'card part', 'aria-labelledby': 'arrival-title' },
    h('h2', { id: 'arrival-title', text: 'Arriving samples' }),
    text,
    spoken,
    h('div', { class: 'row' }, link),
    refused,
  );
  return {
    node,
    start: () => {
      stopped = false;
      poll();
    },
    stop: () => {
      stopped = true;
      clearTimeout(timer);
      request?.abort();
    },
  };
}
