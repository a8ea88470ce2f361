// The menu of the exports of a result: files, a picture, a command, a panel.

import { h } from '../chart/dom.js';
import { ROOT } from '../client/server.js';
import { csvOf, curlOf, fileName, panelOf } from '../model/exports.js';
import { remember } from '../model/storage.js';
import { openMenu } from './popup.js';

/** Under this key the editor of dashboards finds a copied panel. */
const PANEL_KEY = 'clipboard.panel';
/** How long the outcome is shown, in milliseconds. */
const SHOWN_MS = 4000;

/**
 * @typedef {Object} Exported
 * @property {string} org
 * @property {import('../model/explore_state.js').State} state
 * @property {any} answer the answer that is shown, unless a chart is shown; null without one
 * @property {Record<string, number>} params of a request: `time`, or `start`, `end` and `step`
 * @property {(HTMLElement & {state: string, drawn: {answer: any}}) | null} chart that is shown
 * @property {import('../client/types.js').Role} role of the account
 */

/**
 * @param {HTMLElement} button that opens the menu
 * @param {Exported} given
 * @param {(text: string) => void} say shows an outcome
 */
export function openExport(button, given, say) {
  const { org, chart, role, state } = given;
  const { expr, tab } = given.state;
  const answer = chart ? chart.drawn.answer : given.answer;
  const { start, end, step } = (chart && answer?.query) || {};
  const params = step ? { start, end, step } : given.params;
  const kind = tab === 'table' ? 'table' : 'timeseries';
  const base = `${location.origin}${ROOT}`;
  let timer = 0;
  const tell = (/** @type {string} */ text) => {
    say(text);
    clearTimeout(timer);
    timer = setTimeout(() => say(''), SHOWN_MS);
  };
  const download = (/** @type {Blob} */ blob, /** @type {string} */ name) => {
    const url = URL.createObjectURL(blob);
    h('a', { href: url, download: name }).click();
    // The download has its own reference after a moment.
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
    tell(`${name} is saved.`);
  };
  const copy = async (/** @type {string} */ text, /** @type {string} */ done) => {
    const copied = await Promise.resolve(navigator.clipboard?.writeText(text)).then(
      () => Boolean(navigator.clipboard),
      () => false,
    );
    tell(copied ? done : 'The browser does not allow copying on this page.');
  };
  const item = (/** @type {string} */ text, /** @type {() => any} */ click, /** @type {boolean} */ usable = true) => {
    const act = () => {
      button.focus();
      click();
    };
    return usable && h('button', { type: 'button', text, 'data-closes': true, on: { click: act } });
  };
  const save = (/** @type {string} */ text, /** @type {string} */ ending, /** @type {string} */ type) =>
    download(new Blob([text], { type }), fileName(expr, ending));
  const panel = panelOf({ kind, title: '', expr });
  const picture = async () => {
    const { chartPicture } = await import('./chart_picture.js');
    const drawn = chart && (await chartPicture(chart, expr));
    if (drawn) download(drawn, fileName(expr, 'png'));
    else tell('There is no chart to save.');
  };
  const add = async () => {
    const { addToDashboard } = await import('./add_to_dashboard.js');
    await addToDashboard({ org, expr, kind });
  };
  const share = async () => {
    const { shareChart } = await import('./share_dialog/open.js');
    await shareChart({ org, role, state });
  };
  openMenu(
    button,
    [
      item('CSV', () => save(csvOf(answer.data), 'csv', 'text/csv'), Boolean(answer)),
      item('JSON', () => save(JSON.stringify(answer, null, 2), 'json', 'application/json'), Boolean(answer)),
      item('PNG', picture, chart?.state === 'drawn'),
      item('Copy as curl', () =>
        copy(curlOf({ base, org, expr, params }), 'Copied. Set PROMLET_API_KEY to an API key.'),
      ),
      item('Copy as panel', () => {
        remember(PANEL_KEY, panel);
        copy(JSON.stringify(panel, null, 2), 'Copied. Paste the panel in the editor of a dashboard.');
      }),
      item('Embed this chart…', share),
      item('Add to dashboard…', add, role !== 'viewer'),
    ],
    { class: 'export-menu', label: 'Export' },
  );
}
