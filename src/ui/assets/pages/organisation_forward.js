// The forwarding targets of an organisation: servers that get every accepted sample.

import { h } from '../chart/dom.js';
import { send } from '../client/server.js';
import { checkbox, choice, field, form, lines } from '../components/form.js';
import { saved, table, time } from '../components/parts.js';
import { toast } from '../components/toast.js';
import { sizeText } from '../model/limit_units.js';
import { counted } from '../model/metrics.js';
import { facts, fieldRow, probed, targetFields } from './organisation_engine.js';

/**
 * @typedef {import('../components/parts.js').Part} Part
 * @typedef {{base: string}} Context `base` is the organisation's path
 * @typedef {Record<string, any>} Target as the API describes it
 */

/** States of a target in words. @type {Record<string, string>} */
const STATES = {
  running: 'Sending',
  retrying: 'Retrying',
  misconfigured: 'Wrong configuration',
  damaged: 'The log cannot be read',
  stopped: 'Stopped',
};

/**
 * A duration of some seconds in words.
 * @param {number} seconds
 */
const lagText = (seconds) => {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
};

/**
 * The body of a request from the values of the form. Members that the form does not show keep their
 * values, and the server keeps secrets that are not sent.
 * @param {Record<string, any>} values
 * @param {Target|null} stored
 */
export function targetBody(values, stored) {
  const before = stored?.target ?? {};
  /** @type {Record<string, any>} */
  const auth = { type: values.auth };
  if (values.auth === 'basic') auth.username = values.username;
  if (values.secret && values.auth === 'basic') auth.password = values.secret;
  if (values.secret && values.auth === 'bearer') auth.token = values.secret;
  if (values.auth === 'oauth2') {
    const { has_secret: _, ...kept } = before.auth;
    Object.assign(auth, kept);
    if (values.secret) auth.client_secret = values.secret;
  }
  /** @type {Record<string, any>} */
  const target = { url: values.url, auth, headers: before.headers ?? {} };
  target.tenant = { type: values.tenant };
  if (values.tenant !== 'none') target.tenant.value = values.tenant_value;
  if (values.tenant === 'header' || values.tenant === 'label') target.tenant.name = values.tenant_name;
  if (before.tls) {
    const { has_secret: _, ...kept } = before.tls;
    target.tls = kept;
  }
  return {
    name: values.name,
    target,
    protocol: values.protocol,
    compression: values.compression,
    rules: JSON.parse(values.rules.trim() || '[]'),
    enabled: Boolean(values.enabled),
  };
}

/**
 * The form of a target.
 * @param {Context} context
 * @param {Part} part
 * @param {Target|null} stored
 */
function targetForm({ base }, part, stored) {
  const target = stored?.target ?? {};
  const kinds = ['none', 'basic', 'bearer', ...(target.auth?.type === 'oauth2' ? ['oauth2'] : [])];
  const rules = stored?.rules?.length ? JSON.stringify(stored.rules, null, 2) : '';
  return form(
    {
      submit: stored ? 'Save' : 'Add target',
      action: async (values) => {
        let body;
        try {
          body = targetBody(values, stored);
        } catch {
          throw new Error('Rules: a JSON array is expected.');
        }
        if (stored) await send('PUT', `${base}/forward/${stored.id}`, body);
        else await send('POST', `${base}/forward`, body);
        await part.reload(saved());
      },
    },
    fieldRow(
      field('Name', 'name', { maxlength: '64', value: stored?.name ?? '' }),
      field(
        'URL for remote write',
        'url',
        { type: 'url', maxlength: '2048', value: target.url ?? '', placeholder: 'https://mimir.example/api/v1/push' },
      ),
    ),
    ...targetFields(target, kinds),
    fieldRow(
      choice('Protocol', 'protocol', ['auto', 'rw1', 'rw2'], stored?.protocol ?? 'auto'),
      choice('Compression', 'compression', ['snappy', 'zstd'], stored?.compression ?? 'snappy'),
    ),
    lines('Rules', 'rules', rules, 4, 'A JSON array like write_relabel_configs of Prometheus; may be empty.'),
    checkbox('Send samples', 'enabled', stored?.enabled ?? true),
  );
}

/**
 * The last bodies that a target refused.
 * @param {string} path
 */
async function refusedTable(path) {
  const { data } = await send('GET', `${path}/refused`);
  return table(
    ['When', 'Status', 'Samples', 'First series', 'Response'],
    data.map((/** @type {Record<string, any>} */ row) => [
      time(row.at),
      String(row.status),
      String(row.samples),
      row.first_series,
      row.text,
    ]),
    'Refused bodies',
    'No refused bodies since the start of the server.',
  );
}

/**
 * @param {Context} context
 * @param {Part} part
 * @param {Target} row
 */
function targetRow(context, part, row) {
  const path = `${context.base}/forward/${row.id}`;
  const { status } = row;
  const state = status ? (STATES[status.state] ?? status.state) : 'Paused';
  const rows = status
    ? [
        ['Behind', `${lagText(status.lag_s)}, ${sizeText(status.lag_bytes)} of the log`],
        ['Waiting', counted(status.lag_samples, 'sample')],
        ['Sent', counted(status.sent_samples, 'sample')],
        ['Refused', counted(status.refused_samples, 'sample')],
        ['Forgotten', counted(status.forgotten_samples, 'sample')],
        ['Lost', counted(status.lost_records, 'log record')],
        ['Protocol', status.protocol],
      ]
    : [];
  const more = h('div', { class: 'stack' });
  return h(
    'details',
    { class: 'key' },
    h(
      'summary',
      {},
      h('strong', { text: row.name }),
      h('span', { class: 'chips' }, h('span', { class: 'badge', text: state })),
      h('small', { class: 'hint', text: row.target.url ?? row.target.problem ?? '' }),
    ),
    h(
      'div',
      { class: 'stack' },
      status?.error && h('p', { class: 'alert', role: 'alert', text: status.error }),
      facts(rows),
      h(
        'div',
        { class: 'row' },
        part.button('Test', async () => {
          more.replaceChildren(probed(await send('POST', `${path}/probe`)));
        }),
        part.button('Show refused bodies', async () => {
          more.replaceChildren(await refusedTable(path));
        }),
        part.button(
          'Remove',
          async () => {
            await send('DELETE', path);
            toast(`${row.name} was removed.`);
            await part.reload();
          },
          {
            heading: `Remove ${row.name}`,
            loss: 'It gets no further samples. They stay stored here.',
            action: 'Remove target',
          },
        ),
      ),
      more,
      targetForm(context, part, row),
    ),
  );
}

/**
 * The list of targets, and the form for another one.
 * @param {Context} context
 * @param {Part} part
 */
export async function forwarding(context, part) {
  const { data } = await send('GET', `${context.base}/forward`);
  return [
    ...data.map((/** @type {Target} */ row) => targetRow(context, part, row)),
    data.length === 0 && h('p', { class: 'hint', text: 'No targets.' }),
    h('details', { class: 'key' }, h('summary', { text: 'New target' }), targetForm(context, part, null)),
  ];
}
