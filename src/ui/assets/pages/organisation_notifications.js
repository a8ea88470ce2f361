// Notifications of an organisation: the document that says who gets them, tests, and the state of sending.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { request, send } from '../client/server.js';
import { form, lines } from '../components/form.js';
import { saved, table, time } from '../components/parts.js';
import { stylesheet } from '../components/stylesheet.js';
import { toast } from '../components/toast.js';
import { formatDuration } from '../model/duration.js';

/**
 * @typedef {import('../components/parts.js').Part} Part
 * @typedef {Record<string, any>} Document as the API describes it
 */

/**
 * The names of the receivers of a document.
 * @param {Document} document
 * @returns {string[]}
 */
export const receiverNames = ({ receivers = [] }) =>
  receivers.map((/** @type {any} */ one) => String(one?.name ?? '')).filter(Boolean);

/**
 * What is wrong with a document, a line for each field.
 * @param {unknown} error
 */
const problems = (error) =>
  error instanceof ApiError && error.fields.length > 0
    ? h(
        'ul',
        { class: 'field-errors' },
        error.fields.map(({ field, message }) => h('li', {}, h('code', { text: field }), ` ${message ?? ''}`)),
      )
    : null;

/** The state of sending. @param {Document} status */
function statusTable({ integrations = [], alertmanagers = [] }) {
  /** @param {string} name @param {number} waiting @param {Document} row */
  const cells = (name, waiting, { lag_ms: lag, last_error: error, next_retry: next }) => [
    name,
    waiting ? `${waiting}, for ${formatDuration(Math.round(lag / 1000))}` : '0',
    error?.text ?? error?.message ?? '',
    time(next, ''),
  ];
  const rows = [
    ...integrations.map((/** @type {Document} */ row) => cells(`${row.receiver} (${row.kind})`, row.pending, row)),
    ...alertmanagers.map((/** @type {Document} */ row) => cells(row.url, row.queued, row)),
  ];
  return table(
    ['Receiver', 'Waiting', 'Last error', 'Next try'],
    rows,
    'State of sending',
    'There are no receivers yet.',
  );
}

/**
 * @param {{base: string}} context `base` is the organisation's path
 * @param {Part} part
 */
export async function notifications({ base }, part) {
  const path = `${base}/notifications`;
  await stylesheet('alerts.css');
  const response = await request('GET', path);
  const tag = response.headers.get('ETag');
  /** @type {Document} */
  const document = await response.json();
  const state = h('div', { class: 'stack' });
  const showState = async () => state.replaceChildren(statusTable(await send('GET', `${path}/status`)));
  const wrong = h('div');
  const editor = form(
    {
      submit: 'Save',
      action: async ({ document: text }) => {
        wrong.replaceChildren();
        let body;
        try {
          body = JSON.parse(text);
        } catch (error) {
          throw new Error(`This is no JSON: ${error instanceof Error ? error.message : error}`);
        }
        try {
          await send('PUT', path, body, { headers: tag ? { 'If-Match': tag } : {} });
        } catch (error) {
          wrong.replaceChildren(problems(error) ?? '');
          throw error;
        }
        await part.reload(saved());
      },
    },
    lines(
      'Document',
      'document',
      JSON.stringify(document, null, 2),
      18,
      'Receivers, routes and Alertmanagers. Secrets are not shown; those that are left out keep their values.',
    ),
    wrong,
  );
  editor.classList.add('document');
  const tests = receiverNames(document).map((receiver) =>
    part.button(`Test ${receiver}`, async () => {
      await send('POST', `${path}/test`, { receiver });
      toast(`The test for ${receiver} was sent.`);
      await showState();
    }),
  );
  const refresh = part.button('Refresh', showState);
  await showState();
  return [
    h('h3', { text: 'State of sending' }),
    state,
    h('div', { class: 'row' }, refresh, ...tests),
    h('h3', { text: 'Configuration' }),
    editor,
  ];
}
