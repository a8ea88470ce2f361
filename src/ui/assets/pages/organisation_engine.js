// The engine of an organisation: where its samples are read.

import { h } from '../chart/dom.js';
import { send } from '../client/server.js';
import { choice, field, form, lines } from '../components/form.js';
import { card, facts, probed, saved } from '../components/parts.js';

/**
 * @typedef {import('../components/parts.js').Part} Part
 * @typedef {{type: string, username?: string, client_id?: string, token_url?: string, scopes?: string[],
 *   has_secret?: boolean}} EngineAuth
 * @typedef {{type: string, name?: string, value?: string}} EngineTenant
 * @typedef {{engine: string, version?: number, split_after_s?: number, url?: string, auth?: EngineAuth, tenant?: EngineTenant,
 *   headers?: Object<string, null>, tls?: {ca_pem?: string|null, client_cert_pem?: string|null,
 *   server_name?: string|null}, problem?: string,
 *   circuit?: {state: string, failures: number, last_error: string|null}}} Engine
 */

const STATES = new Map([
  ['closed', 'it answers'],
  ['open', 'it does not answer; requests are paused'],
  ['half_open', 'it did not answer; the next request tries again'],
]);

/**
 * The state of the engine as facts.
 * @param {Engine} engine
 */
function stateOf(engine) {
  const after = engine.split_after_s ? ` if older than ${engine.split_after_s} s, else stored here` : '';
  const there = `read from ${engine.url ?? 'another server'}${after}`;
  const rows = [['Samples', engine.engine === 'local' ? 'stored here' : there]];
  if (engine.circuit) rows.push(['State', STATES.get(engine.circuit.state) ?? engine.circuit.state]);
  if (engine.circuit?.last_error) rows.push(['Last failure', engine.circuit.last_error]);
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
    tls: { ...tls(engine), ca_pem: text('ca_pem') },
  };
}

/** @param {Engine} engine */
const tls = (engine) => ({
  client_cert_pem: engine.tls?.client_cert_pem ?? undefined,
  server_name: engine.tls?.server_name ?? undefined,
});

/** @param {{base: string, signedOut: () => void}} context */
export function engine({ base, signedOut }) {
  const path = `${base}/engine`;

  const fill = async (/** @type {Part} */ part) => {
    /** @type {Engine} */
    const now = await send('GET', path);
    const auth = now.auth ?? { type: 'none' };
    const tenant = now.tenant ?? { type: 'none' };
    const optional = { required: false, autocomplete: 'off', spellcheck: 'false' };
    const replaces = { headers: { 'If-Match': `"${now.version ?? 0}"` } };
    const kept = auth.has_secret ? 'Leave it empty to keep the stored one.' : '';
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
        'Age of samples that are read there, in seconds',
        'split_after_s',
        { ...optional, type: 'number', min: '60', value: String(now.split_after_s ?? '') },
        'Only for split. Newer samples are stored and read here.',
      ),
      choice('Credential', 'auth', ['none', 'basic', 'bearer', 'oauth2'], auth.type),
      field('User name or client id', 'username', { ...optional, value: auth.username ?? auth.client_id ?? '' }),
      field('Password, token or client secret', 'secret', { ...optional, type: 'password' }, kept),
      field('Token URL', 'token_url', { ...optional, value: auth.token_url ?? '' }, 'Only for oauth2.'),
      field('Scopes', 'scopes', { ...optional, value: (auth.scopes ?? []).join(' ') }, 'Only for oauth2.'),
      choice('Tenant', 'tenant', ['none', 'header', 'path', 'label'], tenant.type),
      field(
        'Name of the header or label',
        'tenant_name',
        { ...optional, value: tenant.name ?? '', placeholder: 'X-Scope-OrgID' },
      ),
      field('Tenant id', 'tenant_value', { ...optional, value: tenant.value ?? '' }),
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
