// The deletion of series: a selector, a preview of what matches it, and a confirmation in numbers.

import { h } from '../../chart/dom.js';
import { orgPath, readOrg, request } from '../../client/server.js';
import { seriesOf } from '../../model/cardinality.js';
import { errorText } from '../../model/error_text.js';
import { counted } from '../../model/metrics.js';
import { confirmed } from '../dialog.js';

/** The series that a preview shows. */
const SHOWN = 50;
/** The most metrics that a preview counts. */
const METRICS_MAX = 10_000;

/** The text of a series, as PromQL writes it. @param {Record<string, string>} labels */
function seriesText({ __name__: name = '', ...labels }) {
  const pairs = Object.entries(labels).map(([label, value]) => `${label}=${JSON.stringify(value)}`);
  return pairs.length > 0 ? `${name}{${pairs.join(', ')}}` : name;
}

/**
 * @param {{org: string, selector: string, fail: (error: unknown) => boolean}} options `selector`
 *   is the one to begin with; `fail` returns whether it handled the error
 * @returns {HTMLElement}
 */
export function deleteSeries({ org, selector, fail }) {
  const input = h('input', {
    id: 'delete-selector',
    class: 'selector',
    type: 'text',
    spellcheck: 'false',
    autocomplete: 'off',
    autocapitalize: 'none',
    maxlength: '4096',
    placeholder: 'temperature_celsius{city="Oslo"}',
    'aria-describedby': 'delete-hint',
  });
  input.value = selector;
  const alert = h('p', { class: 'alert', role: 'alert' });
  const done = h('p', { class: 'success', role: 'status' });
  const preview = h('div', { class: 'stack' });
  const show = h('button', { class: 'primary', text: 'Preview' });
  /** @type {AbortController|null} */
  let running = null;

  const form = h(
    'form',
    { class: 'stack', novalidate: true },
    h(
      'div',
      { class: 'field' },
      h('label', { for: 'delete-selector', text: 'Series to delete' }),
      h('div', { class: 'row selector-row' }, input, show),
      h('p', {
        id: 'delete-hint',
        class: 'hint',
        text: 'A metric or a selector. All samples of its series are deleted; later samples are stored again.',
      }),
    ),
    alert,
    done,
    preview,
  );
  const problem = (/** @type {unknown} */ error) => {
    if (!fail(error)) alert.textContent = errorText(error);
  };
  const clear = () => {
    running?.abort();
    alert.textContent = '';
    done.textContent = '';
    preview.replaceChildren();
  };
  input.addEventListener('input', clear);

  const look = async () => {
    clear();
    const text = input.value.trim();
    if (text === '') {
      alert.textContent = 'Enter a metric or a selector.';
      return input.focus();
    }
    running = new AbortController();
    const { signal } = running;
    preview.replaceChildren(h('p', { class: 'hint', role: 'status', text: 'Looking for series…' }));
    // Both listings cover all times, as the deletion does.
    const [metrics, series] = await Promise.all([
      readOrg(org, '/metrics', { match: text, start: 0, limit: METRICS_MAX }, signal),
      readOrg(org, '/prometheus/api/v1/series', { 'match[]': text, start: 0, limit: SHOWN }, signal),
    ]);
    if (signal.aborted) return;
    const least = metrics.next_cursor ? 'At least ' : '';
    const [count, names] = [seriesOf(metrics.data), metrics.data.length];
    if (count === 0) {
      preview.replaceChildren(h('p', { class: 'notice', role: 'status', text: 'No series matches.' }));
      return;
    }
    const what = `${least}${counted(count, 'series', 'series')} of ${counted(names, 'metric')}`;
    const action = `Delete ${counted(count, 'series', 'series')}`;
    const remove = h('button', { type: 'button', class: 'danger', text: action });
    remove.addEventListener('click', async () => {
      const sure = await confirmed({
        heading: `${action}?`,
        loss: `${what} and all of their samples are deleted. This cannot be undone. Selector: ${text}`,
        action,
      });
      if (!sure) return;
      remove.disabled = true;
      const path = `${orgPath(org)}/prometheus/api/v1/admin/tsdb/delete_series`;
      try {
        await request('POST', `${path}?${new URLSearchParams({ 'match[]': text })}`);
        preview.replaceChildren();
        done.textContent = `${what} deleted. Their disk space is free within 24 hours.`;
        input.focus();
      } catch (error) {
        remove.disabled = false;
        problem(error);
      }
    });
    const rows = /** @type {Record<string, string>[]} */ (series.data);
    preview.replaceChildren(
      h('p', { class: 'notice', role: 'status', text: `${what} will be deleted.` }),
      h(
        'div',
        { class: 'scroll matched', tabindex: '0', role: 'region', 'aria-label': 'Series that match' },
        h('ol', {}, rows.map((labels) => h('li', {}, h('code', { text: seriesText(labels) })))),
      ),
      count > rows.length
        ? h('p', { class: 'hint', text: `The first ${rows.length} are shown.` })
        : h('p', { class: 'hint' }),
      h('div', { class: 'row' }, remove),
    );
  };
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    show.disabled = true;
    await look().catch((error) => {
      preview.replaceChildren();
      if (!running?.signal.aborted) problem(error);
    });
    show.disabled = false;
  });
  if (selector) queueMicrotask(() => form.requestSubmit());
  return h(
    'section',
    { class: 'card part', 'aria-labelledby': 'delete-title' },
    h('h2', { id: 'delete-title', text: 'Delete series' }),
    form,
  );
}
