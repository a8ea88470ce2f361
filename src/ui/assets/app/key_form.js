// The form of an API key, also as JSON: edited JSON is saved instead of the fields.

import { h } from '../chart/dom.js';
import { formatDuration, parseDuration } from '../chart/scale.js';
import { lines } from './parts.js';
import { field } from './sign_in.js';

const ENDPOINTS = { metrics: 'list metrics', labels: 'list labels', range: 'structured queries over time', instant: 'structured queries of now', expr: 'any PromQL' };
const SCOPES = { ingest: 'write samples', read: 'read (Grafana)', embed: 'sign embed tokens' };

/** Lines that hold something. */
const each = (text) => text.split('\n').map((line) => line.trim()).filter(Boolean);
const wrong = (message) => Object.assign(new Error(message), { fields: [] });

/** A person's JSON; nothing is nothing. */
export function read(text, name) {
  if (!text.trim()) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw wrong(`${name} is not JSON: ${error.message}`);
  }
}

export function tick(label, name, checked) {
  const box = h('input', { type: 'checkbox', name, class: 'tick' });
  box.checked = checked;
  return h('label', { class: 'row' }, box, label);
}

export const scopes = (held = []) => h('div', { class: 'row' }, Object.entries(SCOPES).map(([name, text]) => tick(text, name, held.includes(name))));
export const scopesOf = (values) => Object.keys(SCOPES).filter((name) => values[name]);

/** Fields of a policy. An empty list admits nothing; only the checkbox admits everything. */
export function policyFields(policy = {}) {
  const only = (name, label, hint) => h('div', { class: 'stack' },
    lines(`Only these ${label}s`, name, (policy[name] ?? []).join('\n'), 2, hint), tick(`any ${label}, while none is listed`, `any_${name}`, !policy[name]));
  const span = (name, label, hint) => field(label, name, { required: false, value: policy[name] ? formatDuration(policy[name]) : '', placeholder: 'no limit' }, hint);
  return [
    lines('Label matchers', 'match', (policy.match ?? []).join('\n'), 2, 'One a line, such as tenant="a": all of them hold for every series.'),
    only('metrics', 'metric', 'One a line; * stands for anything, as in http_*.'),
    h('fieldset', { class: 'row' }, h('legend', { text: 'What tokens ask' }), Object.entries(ENDPOINTS).map(([name, text]) => tick(text, `ask_${name}`, !policy.endpoints || policy.endpoints.includes(name)))),
    only('exprs', 'expression', 'One a line: the PromQL that may be asked word for word.'),
    h('div', { class: 'settings' }, span('max_lookback_s', 'How far back', 'Such as 7d.'), span('max_range_s', 'Longest range', 'Of one query.'), span('min_step_s', 'Smallest step', 'Such as 15s.')),
  ];
}

/** The policy that such fields say. */
export function policyOf(values) {
  const span = (name, label) => {
    if (!values[name].trim()) return null;
    const seconds = parseDuration(values[name]);
    if (!Number.isInteger(seconds)) throw wrong(`${label}: a duration such as 15s, 12h or 7d.`);
    return seconds;
  };
  const only = (name) => {
    const listed = each(values[name]);
    return listed.length === 0 && values[`any_${name}`] ? null : listed;
  };
  const asked = Object.keys(ENDPOINTS).filter((name) => values[`ask_${name}`]);
  return {
    endpoints: asked.length === Object.keys(ENDPOINTS).length ? null : asked, metrics: only('metrics'), match: each(values.match), exprs: only('exprs'),
    max_range_s: span('max_range_s', 'Longest range'), max_lookback_s: span('max_lookback_s', 'How far back'), min_step_s: span('min_step_s', 'Smallest step'),
  };
}

/** Whether it restricts anything. */
export const restricts = ({ match, ...rest }) => match.length > 0 || Object.values(rest).some((one) => one !== null);

/** Fields for the limits of a new key: part, setting, label, default. */
const RATES = {
  read_rps: ['read', 'rate_limit_rps', 'Requests a second, reading', '1000'], token_rps: ['embed', 'rate_limit_rps', 'Requests a second, embed tokens', 'server\u2019s default'],
  written_rps: ['ingest', 'rate_limit_rps', 'Requests a second, writing', '100'], samples: ['ingest', 'samples_per_s', 'Samples a second, writing', '2000000'],
};

export const rateFields = () => h('div', { class: 'settings' }, Object.entries(RATES).map(([name, [, , label, usual]]) => field(label, name, { required: false, inputmode: 'numeric', pattern: '[0-9]*', placeholder: usual })));

/** The limits that were entered, by part, for the scopes of the key. */
export function ratesOf(values, held) {
  const set = {};
  for (const [name, [part, setting]] of Object.entries(RATES)) {
    if (held.includes(part) && values[name].trim()) set[part] = { ...set[part], [setting]: Number(values[name]) };
  }
  return set;
}

/** What of a key a person changes. */
function settingsOf(row) {
  const { alg, ...embed } = row.embed;
  return { name: row.name, scopes: row.scopes, expires_at: row.expires_at, disabled: row.disabled, embed, ingest: row.ingest, read: row.read };
}

/** The fields of a key, and what they say. */
export function keyFields(row) {
  const number = (label, name, value) => field(label, name, { value: String(value), inputmode: 'numeric', pattern: '[0-9]+' });
  const part = (name, title, ...fields) => row.scopes.includes(name) && h('fieldset', { class: 'stack' }, h('legend', { text: title }), fields.flat());
  const labels = Object.entries(row.ingest.labels).map(([name, value]) => `${name}=${value}`).join('\n');
  const json = lines('Settings', 'json', '', 14, 'As the API has it. What is changed here is saved in place of the fields above.');
  const whole = json.querySelector('textarea');
  whole.value = JSON.stringify(settingsOf(row), null, 2);
  const shown = whole.value;
  const pem = row.embed.alg !== 'HS256' && lines('Public key', 'public_key', row.embed.public_key ?? '', 4, 'SPKI PEM or a JWK.');
  const fields = [
    field('Name', 'name', { maxlength: '200', value: row.name }), scopes(row.scopes),
    part('embed', 'Embed tokens', lines('Origins', 'origins', row.embed.origins.join('\n'), 2, 'Whose pages may use a token, one a line: scheme and host, as browsers send them; * is every page.'),
      policyFields(row.embed.policy), h('div', { class: 'settings' }, number('Requests a second', 'rps', row.embed.rate_limit_rps), number('Life of a token, s', 'ttl', row.embed.max_token_ttl_s)), pem),
    part('read', 'Reading', number('Requests a second', 'read_rps', row.read.rate_limit_rps)),
    part('ingest', 'Writing', lines('Labels forced onto every series', 'labels', labels, 2, 'name=value, one a line.'),
      h('div', { class: 'settings' }, number('Requests a second', 'written_rps', row.ingest.rate_limit_rps), number('Samples a second', 'samples', row.ingest.samples_per_s))),
    h('details', {}, h('summary', { text: 'As JSON' }), json),
  ];
  const said = (values) => {
    if (values.json !== shown) return read(values.json, 'This');
    const held = scopesOf(values);
    const set = { name: values.name, scopes: held };
    if (held.includes('embed') && values.origins !== undefined) {
      set.embed = { origins: each(values.origins), policy: policyOf(values), rate_limit_rps: Number(values.rps), max_token_ttl_s: Number(values.ttl), ...(pem ? { public_key: values.public_key.trim() } : {}) };
    }
    if (held.includes('read') && values.read_rps !== undefined) set.read = { rate_limit_rps: Number(values.read_rps) };
    if (held.includes('ingest') && values.labels !== undefined) {
      const pairs = each(values.labels).map((line) => {
        const at = line.indexOf('=');
        if (at < 1) throw wrong(`${line}: a label is name=value.`);
        return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
      });
      set.ingest = { labels: Object.fromEntries(pairs), rate_limit_rps: Number(values.written_rps), samples_per_s: Number(values.samples) };
    }
    return set;
  };
  return { fields: fields.filter(Boolean), said };
}
