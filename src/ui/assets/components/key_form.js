// The fields of an API key, also as JSON: edited JSON is saved instead of the fields.

import { h } from '../chart/dom.js';
import { parseDuration } from '../chart/scale.js';
import { formatDuration } from '../model/duration.js';
import { checkbox, field, lines } from './form.js';
import { limitText, parseLimit } from '../model/limit_units.js';

/**
 * @typedef {import('./form.js').Values} Values
 * @typedef {import('../client/types.js').ApiKey} ApiKey
 * @typedef {import('../client/types.js').Policy} Policy
 */

/** The requests that a token may make, by the name in a policy. @type {Object<string, string>} */
const ENDPOINTS = {
  metrics: 'List metrics',
  labels: 'List labels',
  range: 'Structured queries over a range',
  instant: 'Structured queries at one time',
  expr: 'Any PromQL',
  dashboard: 'The dashboard of the token',
  alerts: 'Alerts, if permitted below',
};
/** The permissions of a key, by scope. @type {Object<string, string>} */
export const SCOPES = {
  ingest: 'Write samples',
  read: 'Query',
  embed: 'Sign embed tokens',
  alerting: 'Change rules and silences',
};

/** The lines of a text that are not blank. @param {string} text */
const nonEmptyLines = (text) =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean);

/**
 * The scopes of a key.
 * @param {string[]} [held]
 */
export const scopeFields = (held = []) =>
  h(
    'div',
    { class: 'row' },
    Object.entries(SCOPES).map(([name, text]) => checkbox(text, name, held.includes(name))),
  );

/** @param {Values} values */
export const scopesOf = (values) => Object.keys(SCOPES).filter((name) => values[name]);

/**
 * The fields of a policy. An empty list permits nothing; only the checkbox permits everything.
 * @param {Policy} [policy]
 */
export function policyFields(policy = {}) {
  const only = (/** @type {'metrics'|'exprs'} */ name, /** @type {string} */ label, /** @type {string} */ hint) =>
    h(
      'div',
      { class: 'stack' },
      lines(`Only these ${label}s`, name, (policy[name] ?? []).join('\n'), 2, hint),
      checkbox(`Any ${label} if none is listed`, `any_${name}`, !policy[name]),
    );
  const duration = (
    /** @type {'max_lookback_s'|'max_range_s'|'min_step_s'} */ name,
    /** @type {string} */ label,
    /** @type {string} */ hint,
  ) =>
    field(
      label,
      name,
      { required: false, value: policy[name] ? formatDuration(Number(policy[name])) : '', placeholder: 'No limit' },
      hint,
    );
  return [
    lines(
      'Label matchers',
      'match',
      (policy.match ?? []).join('\n'),
      2,
      'One per line, such as tenant="a". Every series must match all of them.',
    ),
    only('metrics', 'metric', 'One per line; * is a wildcard, as in http_*.'),
    h(
      'fieldset',
      { class: 'row' },
      h('legend', { text: 'Tokens may' }),
      Object.entries(ENDPOINTS).map(([name, text]) =>
        checkbox(text, `ask_${name}`, !policy.endpoints || policy.endpoints.includes(name)),
      ),
    ),
    only('exprs', 'expression', 'One per line: the exact PromQL that is permitted.'),
    h(
      'fieldset',
      { class: 'row' },
      h('legend', { text: 'Alerts' }),
      checkbox('Tokens may show alerts', 'alerts', Boolean(policy.alerts)),
      checkbox('Also their values', 'alerts_value', Boolean(policy.alerts?.value)),
    ),
    lines(
      'Annotations of alerts',
      'alerts_annotations',
      (policy.alerts?.annotations ?? []).join('\n'),
      2,
      'One name per line, such as summary. Texts may tell of series that the token cannot read.',
    ),
    h(
      'div',
      { class: 'settings' },
      duration('max_lookback_s', 'Oldest data', 'Such as 7d.'),
      duration('max_range_s', 'Longest range', 'Of one query.'),
      duration('min_step_s', 'Smallest step', 'Such as 15s.'),
    ),
  ];
}

/**
 * The policy of such fields.
 * @param {Values} values
 * @param {Policy} [before] the policy that it replaces: its dashboard has no field and stays
 * @returns {Policy & {match: string[]}}
 * @throws {Error} for a value that is no duration
 */
export function policyOf(values, before = {}) {
  const duration = (/** @type {string} */ name, /** @type {string} */ label) => {
    if (!values[name].trim()) return null;
    const seconds = parseDuration(values[name]);
    if (!Number.isInteger(seconds)) throw new Error(`${label}: enter a duration such as 15s, 12h or 7d.`);
    return seconds;
  };
  const only = (/** @type {string} */ name) => {
    const listed = nonEmptyLines(values[name]);
    return listed.length === 0 && values[`any_${name}`] ? null : listed;
  };
  const permitted = Object.keys(ENDPOINTS).filter((name) => values[`ask_${name}`]);
  return {
    endpoints: permitted.length === Object.keys(ENDPOINTS).length ? null : permitted,
    metrics: only('metrics'),
    match: nonEmptyLines(values.match),
    exprs: only('exprs'),
    max_range_s: duration('max_range_s', 'Longest range'),
    max_lookback_s: duration('max_lookback_s', 'Oldest data'),
    min_step_s: duration('min_step_s', 'Smallest step'),
    dashboard: before.dashboard ?? null,
    alerts: values.alerts
      ? { annotations: nonEmptyLines(values.alerts_annotations), value: Boolean(values.alerts_value) }
      : null,
  };
}

/**
 * Whether a policy restricts anything.
 * @param {Policy & {match: string[]}} policy
 */
export const restricts = ({ match, alerts: _, ...rest }) =>
  match.length > 0 || Object.values(rest).some((one) => one !== null);

/**
 * The limits of a new key by field: part, setting, label, default.
 * @type {Object<string, [string, string, string, string]>}
 */
const RATES = {
  read_rps: ['read', 'rate_limit_rps', 'Read requests per second', '1,000'],
  token_rps: ['embed', 'rate_limit_rps', 'Requests per second with embed tokens', '100'],
  query_seconds: ['embed', 'query_seconds_per_minute', 'Seconds of evaluation per minute with embed tokens', '60'],
  written_rps: ['ingest', 'rate_limit_rps', 'Write requests per second', '100'],
  samples: ['ingest', 'samples_per_s', 'Samples per second', '2,000,000'],
};

/** A whole number, with or without thousands separators. */
const COUNT = '[0-9][0-9,]*';
const countOf = (/** @type {string} */ text) => Number(text.replaceAll(',', ''));

export const rateFields = () =>
  h(
    'div',
    { class: 'settings' },
    Object.entries(RATES).map(([name, [, , label, usual]]) =>
      field(label, name, { required: false, inputmode: 'numeric', pattern: COUNT, placeholder: `Default: ${usual}` }),
    ),
  );

/**
 * The limits that were entered, by part, for the scopes of the key.
 * @param {Values} values
 * @param {string[]} held
 * @returns {Object<string, Object<string, number>>}
 */
export function ratesOf(values, held) {
  /** @type {Object<string, Object<string, number>>} */
  const set = {};
  for (const [name, [part, setting]] of Object.entries(RATES)) {
    if (held.includes(part) && values[name].trim()) set[part] = { ...set[part], [setting]: countOf(values[name]) };
  }
  return set;
}

/** The settings of a key that a person changes. @param {ApiKey} row */
function settingsOf(row) {
  const { alg, ...embed } = row.embed;
  return {
    name: row.name,
    scopes: row.scopes,
    expires_at: row.expires_at,
    disabled: row.disabled,
    embed,
    ingest: row.ingest,
    read: row.read,
  };
}

/**
 * The fields of a key, and `changes` that they make.
 * @param {ApiKey} row
 */
export function keyFields(row) {
  const number = (/** @type {string} */ label, /** @type {string} */ name, /** @type {number} */ value) =>
    field(label, name, { value: value.toLocaleString('en'), inputmode: 'numeric', pattern: COUNT });
  const part = (
    /** @type {string} */ name,
    /** @type {string} */ title,
    /** @type {(Node|Node[]|false)[]} */ ...fields
  ) => row.scopes.includes(name) && h('fieldset', { class: 'stack' }, h('legend', { text: title }), fields.flat());
  const labels = Object.entries(row.ingest.labels)
    .map(([name, value]) => `${name}=${value}`)
    .join('\n');
  const json = lines(
    'Settings',
    'json',
    '',
    14,
    'The settings in the form of the API. If you edit them, they are saved instead of the fields above.',
  );
  const whole = /** @type {HTMLTextAreaElement} */ (json.querySelector('textarea'));
  whole.value = JSON.stringify(settingsOf(row), null, 2);
  const shown = whole.value;
  const pem =
    row.embed.alg !== 'HS256' && lines('Public key', 'public_key', row.embed.public_key ?? '', 4, 'SPKI PEM or a JWK.');
  const fields = [
    field('Name', 'name', { maxlength: '200', value: row.name }),
    scopeFields(row.scopes),
    part(
      'embed',
      'Embed tokens',
      lines(
        'Origins',
        'origins',
        row.embed.origins.join('\n'),
        2,
        'Pages that may use a token: one origin (scheme and host) per line; * permits every page.',
      ),
      policyFields(row.embed.policy),
      h(
        'div',
        { class: 'settings' },
        number('Requests per second', 'rps', row.embed.rate_limit_rps),
        field('Longest token lifetime', 'ttl', { value: limitText(row.embed.max_token_ttl_s, 'seconds') }),
        field(
          'Evaluation time per minute',
          'query_time',
          { required: false, placeholder: 'No limit', value: limitText(row.embed.query_seconds_per_minute, 'seconds') },
          'Of all queries of its tokens, 1 second to 1 hour. Beyond it they are refused; members are not affected.',
        ),
      ),
      pem,
    ),
    part(
      'read',
      'Queries',
      h('div', { class: 'settings' }, number('Requests per second', 'read_rps', row.read.rate_limit_rps)),
    ),
    part(
      'ingest',
      'Writes',
      lines('Labels set on every series', 'labels', labels, 2, 'One name=value per line.'),
      h(
        'div',
        { class: 'settings' },
        number('Requests per second', 'written_rps', row.ingest.rate_limit_rps),
        number('Samples per second', 'samples', row.ingest.samples_per_s),
      ),
    ),
    h('details', {}, h('summary', { text: 'As JSON' }), json),
  ];
  const changes = (/** @type {Values} */ values) => {
    if (values.json !== shown) return parseJson(values.json);
    const held = scopesOf(values);
    /** @type {Object<string, any>} */
    const set = { name: values.name, scopes: held };
    if (held.includes('embed') && values.origins !== undefined) {
      const budget = parseLimit(values.query_time, 'seconds');
      set.embed = {
        origins: nonEmptyLines(values.origins),
        policy: policyOf(values, row.embed.policy),
        rate_limit_rps: countOf(values.rps),
        max_token_ttl_s: parseLimit(values.ttl, 'seconds'),
        query_seconds_per_minute: budget === 'none' ? null : budget,
        ...(pem ? { public_key: values.public_key.trim() } : {}),
      };
    }
    if (held.includes('read') && values.read_rps !== undefined) set.read = { rate_limit_rps: countOf(values.read_rps) };
    if (held.includes('ingest') && values.labels !== undefined) {
      const pairs = nonEmptyLines(values.labels).map((line) => {
        const at = line.indexOf('=');
        if (at < 1) throw new Error(`${line}: a label is name=value.`);
        return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
      });
      set.ingest = {
        labels: Object.fromEntries(pairs),
        rate_limit_rps: countOf(values.written_rps),
        samples_per_s: countOf(values.samples),
      };
    }
    return set;
  };
  return { fields: /** @type {HTMLElement[]} */ (fields.filter(Boolean)), changes };
}

/** @param {string} text */
function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`The settings are not JSON: ${error instanceof Error ? error.message : error}`);
  }
}
