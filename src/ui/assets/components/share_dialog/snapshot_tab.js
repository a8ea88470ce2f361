// The tab Snapshot: a file that holds the data of the dashboard and asks nothing.

import { h } from '../../chart/dom.js';
import { ROOT } from '../../client/server.js';
import { errorText } from '../../model/error_text.js';
import { sizeText } from '../../model/limit_units.js';
import { counted } from '../../model/metrics.js';
import { laterParts, snapshotHtml, withoutQueries } from '../../model/share_snapshot.js';
import { define, fileUrl } from './preview.js';

/** How long panels may take, and how often they are looked at, in milliseconds. */
const WAIT_MS = 60_000;
const LOOK_MS = 100;

/**
 * @typedef {import('../../model/share_snapshot.js').Snapshot} Snapshot
 * @typedef {HTMLElement & {snapshot: Snapshot | null}} DashboardElement
 */

/** @param {string} file of this server */
async function textOf(file) {
  const response = await fetch(fileUrl(file));
  if (!response.ok) throw new Error(`This server has no ${file}: update it to save snapshots.`);
  return response.text();
}

/** @param {string} text */
async function sha256(text) {
  const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
  return btoa(String.fromCharCode(...new Uint8Array(hash)));
}

/**
 * Resolves when the element has drawn all its panels.
 * @param {HTMLElement} element
 */
async function drawn(element) {
  /** @type {string | null} */
  let problem = null;
  let loaded = false;
  element.addEventListener('load', () => (loaded = true));
  element.addEventListener('error', (event) => (problem ??= /** @type {any} */ (event).detail?.message));
  for (const end = Date.now() + WAIT_MS; Date.now() < end;) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    const left = element.shadowRoot?.querySelector('.panel:not([data-state])');
    if (loaded && !left) return;
    if (problem !== null && !loaded) throw new Error(problem);
  }
  throw new Error('The panels did not get their data within a minute.');
}

/** How many series and points a snapshot has. @param {Snapshot} snapshot */
function contents({ answers }) {
  let [series, points] = [0, 0];
  for (const { data } of Object.values(answers)) {
    const rows = Array.isArray(data?.result) ? data.result : [];
    series += rows.length;
    for (const row of rows) points += Array.isArray(row?.values) ? row.values.length : 1;
  }
  return { series, points };
}

/** @param {import('./subject.js').Subject & {dashboard: import('./subject.js').SharedDashboard}} subject */
export function snapshotTab({ org, range, dashboard }) {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const status = h('p', { role: 'status' });
  const stage = h('div', { class: 'share-stage', inert: true, 'aria-hidden': 'true' });
  const save = h('button', { type: 'button', class: 'primary', text: 'Download the snapshot' });

  async function make() {
    status.textContent = 'Reading the data…';
    const script = await textOf('embed-dashboard.js');
    // A server with PROMLET_UI_DIR serves sources.
    if (/^import /m.test(script)) throw new Error('This server has no bundle of the element, which a snapshot needs.');
    await define('metric-dashboard');
    const names = laterParts(script);
    const texts = await Promise.all(names.map(textOf));
    const element = /** @type {DashboardElement} */ (
      h('metric-dashboard', {
        org,
        uid: dashboard.uid,
        src: `${location.origin}${ROOT}`,
        from: range.from,
        to: range.to,
      })
    );
    for (const { name, values } of dashboard.variables)
      if (values.length > 0) element.setAttribute(`var-${name}`, values.join(','));
    stage.replaceChildren(element);
    await drawn(element);
    if (!element.snapshot) throw new Error('The dashboard has no data.');
    const data = withoutQueries(element.snapshot);
    const html = await snapshotHtml({
      title: dashboard.title,
      script,
      parts: names.map((name, at) => [name, texts[at]]),
      data,
      digest: crypto.subtle ? sha256 : null,
    });
    const file = new Blob([html], { type: 'text/html' });
    const url = URL.createObjectURL(file);
    const { series, points } = contents(data);
    const day = new Date(range.to).toISOString().slice(0, 10);
    const name = `${dashboard.title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '') || 'dashboard'}-${day}.html`;
    h('a', { href: url, download: name }).click();
    // The download has its own reference after a moment.
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
    const held = `${counted(series, 'series', 'series')} and ${counted(points, 'point')}`;
    status.textContent = `${name}: ${sizeText(file.size)} with ${held}.`;
  }

  save.addEventListener('click', async () => {
    alert.textContent = '';
    save.disabled = true;
    try {
      await make();
    } catch (error) {
      status.textContent = '';
      alert.textContent = errorText(error);
    }
    stage.replaceChildren();
    save.disabled = false;
    if (document.activeElement === document.body) save.focus();
  });
  return h(
    'div',
    { class: 'stack' },
    h('p', { text: 'Download a file that holds the data and asks nothing.' }),
    h('p', {
      class: 'hint',
      text:
        'It shows the dashboard with the range and values that you see now, in any browser and without a network. ' +
        'It contains the results of the queries, names and labels included, but no query and no token. ' +
        'Everyone who has the file has the data; it cannot be revoked.',
    }),
    h('div', { class: 'row' }, save),
    alert,
    status,
    stage,
  );
}
