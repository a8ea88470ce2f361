// The list of metrics: one entry a family, a filter, and the first query of each.

import { h } from '../chart/dom.js';
import { readOrg } from '../client/server.js';
import { counted, families, matchesFilter } from '../model/metrics.js';
import { firstQuery } from '../model/promql.js';
import { errorText } from '../model/error_text.js';

/** The most metrics that are loaded; the filter searches only these. */
const LOADED_MAX = 5000;
/** The most families that are shown at once. */
const SHOWN_MAX = 200;
/** The time between two updates of the list, in milliseconds. */
const UPDATE_MS = 30_000;

/** @typedef {import('../model/metrics.js').Family} Family */

/**
 * The list of metrics; a click runs the first query of one.
 * @param {{org: string, run: (expr: string) => void}} options
 */
export function metricBrowser({ org, run }) {
  const list = h('ul', { class: 'metrics' });
  const count = h('p', { class: 'hint', role: 'status' });
  const filter = h('input', {
    id: 'metric-filter',
    type: 'search',
    placeholder: 'Filter by name, type or help',
    autocomplete: 'off',
    spellcheck: 'false',
  });
  /** @type {AbortController|null} */
  let request = null;
  let timer = 0;
  let truncated = false;
  /** @type {Family[]} */
  let all = [];
  /** The shown families as text: an update without a change leaves the list alone. */
  let shownKey = '';

  const entry = (/** @type {Family} */ family) => {
    const query = firstQuery(family.first);
    return h(
      'li',
      {},
      h(
        'button',
        { type: 'button', title: query, on: { click: () => run(query) } },
        h('span', { class: 'name', text: family.name }),
        h(
          'span',
          { class: 'about' },
          family.type && family.type !== 'unknown' && h('span', { class: 'type', text: family.type }),
          h('span', { text: `${family.series.toLocaleString('en')} series` }),
        ),
        family.help && h('span', { class: 'help', text: family.help }),
      ),
    );
  };
  const show = () => {
    const found = all.filter((family) => matchesFilter(family, filter.value.trim()));
    const shown = found.slice(0, SHOWN_MAX);
    const more =
      found.length > shown.length ? `, the first ${SHOWN_MAX} are shown` : truncated ? ', more were not loaded' : '';
    count.textContent =
      found.length === 0 && all.length > 0
        ? 'No metric matches the filter.'
        : `${counted(found.length, 'metric')}${more}`;
    const key = JSON.stringify(shown.map(({ name, type, series, help }) => [name, type, series, help]));
    if (key === shownKey) return;
    shownKey = key;
    const focused = list.contains(document.activeElement)
      ? document.activeElement?.querySelector('.name')?.textContent
      : null;
    list.replaceChildren(...shown.map(entry));
    const again = [...list.querySelectorAll('button')].find(
      (button) => button.querySelector('.name')?.textContent === focused,
    );
    again?.focus();
  };
  /** Loads the list. Returns the number of metrics, or null after an error. */
  const fill = async () => {
    clearTimeout(timer);
    request?.abort();
    request = new AbortController();
    const { signal } = request;
    try {
      const { data, next_cursor: more } = await readOrg(org, '/metrics', { limit: LOADED_MAX }, signal);
      if (signal.aborted) return null;
      [all, truncated] = [families(data), Boolean(more)];
      show();
      return all.length;
    } catch (error) {
      if (!signal.aborted) count.textContent = errorText(error);
      return null;
    } finally {
      if (!signal.aborted) timer = setTimeout(update, UPDATE_MS);
    }
  };
  const update = () => {
    // A hidden page updates when it becomes visible.
    if (!document.hidden) fill();
  };
  document.addEventListener('visibilitychange', update);
  filter.addEventListener('input', show);
  const node = h(
    'section',
    { class: 'card browser', 'aria-labelledby': 'browser-title' },
    h(
      'div',
      { class: 'row spread' },
      h('h2', { id: 'browser-title', text: 'Metrics' }),
      h(
        'div',
        { class: 'filter' },
        h('label', { class: 'unseen', for: 'metric-filter', text: 'Filter metrics' }),
        filter,
      ),
    ),
    count,
    list,
  );
  const stop = () => {
    request?.abort();
    clearTimeout(timer);
    document.removeEventListener('visibilitychange', update);
  };
  return { node, fill, stop };
}
