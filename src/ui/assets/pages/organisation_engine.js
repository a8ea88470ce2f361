// The engine of an organisation: where its samples are read.

import { h } from '../chart/dom.js';
import { send } from '../client/server.js';
import { choice, field, form, lines } from '../components/form.js';
import { card, saved } from '../components/parts.js';

/**
 * @typedef {import('../components/parts.js').Part} Part
 * @typedef {{type: string, username?: string, client_id?: string, token_url?: string, scopes?: string[],
 *   has_secret?: boolean}} EngineAuth
 * @typedef {{type: string, name?: string, value?: string}} EngineTenant
 * @typedef {{engine: string, version?: number, split_after_s?: number, url?: string, auth?: EngineAuth,
 *   tenant?: EngineTenant, headers?: Object<string, null>, tls?: {ca_pem?: string|null, client_cert_pem?: string|null,
 *   server_name?: string|null}, problem?: string,
 *   circuit?: {state: string, failures: number, last_error: string|null}}} Engine
 */

/** Names and texts. @param {string[][]} rows */
export const facts = (rows) =>
  h(
    'dl',
    { class: 'facts' },
    rows.flatMap(([name, text]) => [h('dt', { text: name }), h('dd', { text })]),
  );

/** The result of a probe. @param {{ok: boolean, latency_ms: number, message?: string}} found */
export const probed = ({ ok, latency_ms: ms, message }) =>
  h('p', {
    class: ok ? 'success' : 'alert',
    role: 'status',
    text: ok ? `It answered within ${ms.toFixed(1)} ms. ${message ?? ''}` : message,
  });

/** Fields side by side. @param {...import('../chart/dom.js').Child} fields */
export const fieldRow = (...fields) => h('div', { class: 'row fields' }, ...fields);

/** The attributes of a field that may be empty. @param {string} [value] */
const optional = (value = '') => ({ required: false, value, autocomplete: 'off', spellcheck: 'false' });

/**
 * The fields of a credential and a tenant.
 * @param {{auth?: EngineAuth, tenant?: EngineTenant}} target the stored one
 * @param {string[]} kinds of credentials
 */
export const targetFields = ({ auth, tenant }, kinds) => [
  fieldRow(
    choice('Credential', 'auth', kinds, auth?.type ?? 'none'),
    field('User name or client id', 'username', optional(auth?.username ?? auth?.client_id)),
    field(
      'Secret',
      'secret',
      { ...optional(), type: 'password' },
      auth?.has_secret ? 'A secret is stored. Leave this empty to keep it.' : 'Password or token.',
    ),
  ),
  fieldRow(
    choice('Tenant', 'tenant', ['none', 'header', 'path', 'label'], tenant?.type ?? 'none'),
    field('Tenant name', 'tenant_name', optional(tenant?.name), 'Of the header or label.'),
    field('Tenant value', 'tenant_value', optional(tenant?.value), 'For path, the URL has {tenant}.'),
  ),
];

/**
 * The state of the engine as facts.
 * @param {Engine} engine
 */
function stateOf(engine) {
  const after = engine.split_after_s ? ` if older than ${engine.split_after_s} s` : '';
  const there = `read from ${engine.url ?? 'another server'}${after}`;
  const rows = [['Samples', engine.engine === 'local' ? 'stored here' : there]];
  const { state, last_error: failure } = engine.circuit ?? {};
  if (state) rows.push(['State', state === 'closed' ? 'it answers' : 'it does not answer; requests are paused']);
  if (failure) rows.push(['Last failure', failure]);
  if (engine.problem) rows.push(['Problem', engine.problem]);
  return facts(rows);
}

/**
 * The body of a request from the values of the form; an empty secret keeps the stored one.
 * @param {import('../components/form.js').Values} values
 * @param {Engine} engine the stored one
 */
function bodyOf(values, engine) {
  const text = (/** @type {string} */ name) => values[name].trim() || undefined;
  const secret = values.secret || undefined;
  const auth = {
    none: { type: 'none' },
    basic: { type: 'basic', username: values.username, password: secret },
    bearer: { type: 'bearer', token: secret },
    oauth2: {
      type: 'oauth2',
      client_id: values.username,
      client_secret: secret,
      token_url: text('token_url'),
      scopes: values.scopes.split(/\s+/).filter(Boolean),
    },
  }[values.auth];
  return {
    engine: values.engine,
    split_after_s: values.engine === 'split' ? Number(values.split_after_s) : undefined,
    url: values.url.trim(),
    auth,
    tenant: { type: values.tenant, name: text('tenant_name'), value: text('tenant_value') },
    headers: engine.headers ?? {},
    tls: { ...engine.tls, has_secret: undefined, ca_pem: text('ca_pem') },
  };
}

/** @param {{base: string, signedOut: () => void}} context */
export function engine({ base, signedOut }) {
  const path = `${base}/engine`;

  const fill = async (/** @type {Part} */ part) => {
    /** @type {Engine} */
    const now = await send('GET', path);
    const { auth } = now;
    const replaces = { headers: { 'If-Match': `"${now.version ?? 0}"` } };
    const editor = form(
      {
        submit: 'Check and save',
        action: async (values) => {
          await send('PUT', path, bodyOf(values, now), replaces);
          await part.reload(saved());
        },
      },
      field(
        'URL',
        'url',
        { type: 'url', value: now.url ?? '', placeholder: 'https://mimir.example/prometheus', spellcheck: 'false' },
        'The URL below which the server has /api/v1/query. It may contain {tenant}.',
      ),
      choice('Engine', 'engine', ['upstream', 'split'], now.split_after_s ? 'split' : 'upstream'),
      field(
        'Age in seconds',
        'split_after_s',
        { ...optional(String(now.split_after_s ?? '')), type: 'number', min: '60' },
        'Only for split: older samples are read there.',
      ),
      ...targetFields(now, ['none', 'basic', 'bearer', 'oauth2']),
      field('Token URL', 'token_url', optional(auth?.token_url), 'Only for oauth2.'),
      field('Scopes', 'scopes', optional(auth?.scopes?.join(' ')), 'Only for oauth2.'),
      lines(
        'Certificate authority (PEM)',
        'ca_pem',
        now.tls?.ca_pem ?? '',
        3,
        'Empty: the public authorities are trusted.',
      ),
    );
    if (now.engine === 'local') return [stateOf(now), editor];
    const probe = part.button('Check now', async () => {
      await part.reload(probed(await send('POST', `${path}/probe`, {})));
    });
    const local = part.button(
      'Read local samples',
      async () => {
        await send('DELETE', path, undefined, replaces);
        await part.reload(saved());
      },
      {
        heading: 'Read local samples',
        loss: 'Queries are then answered from the samples that are stored here. The target is forgotten.',
        action: 'Read local samples',
      },
    );
    return [stateOf(now), h('div', { class: 'row' }, probe, local), editor];
  };

  return card({
    heading: 'Engine',
    intro: 'Another server with the API of Prometheus can answer the queries of this organisation.',
    fill,
    signedOut,
  });
}
