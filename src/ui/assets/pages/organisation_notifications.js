// Notifications of an organisation: the configuration, tests, and the state of deliveries.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { request, send } from '../client/server.js';
import { form, lines } from '../components/form.js';
import { saved, table, time } from '../components/parts.js';
import { formatDuration } from '../model/duration.js';

/**
 * @typedef {import('../components/parts.js').Part} Part
 * @typedef {Record<string, any>} Document as the API describes it
 */

/** A document with one receiver. */
const EXAMPLE = JSON.stringify(
  {
    route: { receiver: 'on-call', group_by: ['alertname'] },
    receivers: [{ name: 'on-call', email_configs: [{ to: 'on-call@example.com' }] }],
  },
  null,
  2,
);

/**
 * The names of the receivers of a document.
 * @param {Document} document
 * @returns {string[]}
 */
export const receiverNames = ({ receivers = [] }) =>
  receivers.map((/** @type {any} */ one) => String(one?.name ?? '')).filter(Boolean);

/**
 * The errors of a document, a line for each field.
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
function statusTable({ integrations, alertmanagers }) {
  /** @param {string} name @param {number} waiting @param {Document} row */
  const cells = (name, waiting, { lag_s: lag, last_error: error, next_retry: next }) => [
    name,
    waiting ? `${waiting}, for ${formatDuration(Math.round(lag))}` : '0',
    error?.text ?? '',
    time(next, ''),
  ];
  const rows = [
    ...integrations.map((/** @type {Document} */ row) => cells(`${row.receiver} (${row.type})`, row.pending, row)),
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
 * The result of a test: a fault of a receiver is no error of the request.
 * @param {string} receiver
 * @param {Document[]} rows
 */
const testTable = (receiver, rows) =>
  table(
    ['Test', 'Result'],
    rows.map(({ type, id, ok, error }) => [
      `${type} ${id}`,
      h('span', { class: ok ? 'success' : 'alert', text: ok ? 'Delivered' : error }),
    ]),
    `Test of ${receiver}`,
    `${receiver} has no integrations: add one to the document.`,
  );

/**
 * @param {{base: string}} context `base` is the organisation's path
 * @param {Part} part
 */
export async function notifications({ base }, part) {
  const path = `${base}/notifications`;
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
  const results = h('div', { class: 'stack', role: 'status' });
  const tests = receiverNames(document).map((receiver) =>
    part.button(`Test ${receiver}`, async () => {
      results.replaceChildren(h('p', { class: 'hint', text: `Sending a test to ${receiver}…` }));
      const answer = await send('POST', `${path}/test`, { receiver }).catch((error) => {
        results.replaceChildren();
        throw error;
      });
      results.replaceChildren(testTable(receiver, answer.data));
      await showState();
    }),
  );
  const refresh = part.button('Refresh', showState);
  await showState();
  return [
    h('h3', { text: 'State of sending' }),
    state,
    h('div', { class: 'row' }, refresh, ...tests),
    results,
    h('h3', { text: 'Configuration' }),
    tests.length === 0 &&
      h(
        'details',
        {},
        h('summary', { text: 'An example' }),
        h('pre', { class: 'snippet', tabindex: '0', role: 'group', 'aria-label': 'Example', text: EXAMPLE }),
      ),
    editor,
  ];
}
