// The page of an organisation. Actions beyond the caller's role are hidden; the server refuses them too.

import { h } from '../chart/dom.js';
import { keyFields, policyFields, policyOf, rateFields, ratesOf, restricts, scopes, scopesOf } from './key_form.js';
import { audit, card, choice, insist, lines, pages, saved, secret, table, when } from './parts.js';
import { field, form } from './sign_in.js';
import { ROOT, send } from './server.js';

const ROLES = ['viewer', 'editor', 'admin', 'owner'];
const rank = (role) => ROLES.indexOf(role);

/** `org` is its row of `GET /auth/me`; `lost` is called when there is no session any more. */
export function organisation(me, org, lost) {
  const base = `/orgs/${encodeURIComponent(org.slug)}`;
  const may = (role) => rank(org.role) >= rank(role);
  const grants = ROLES.filter((role) => role !== 'owner' || may('owner'));

  const members = async (part) => {
    const cells = (row) => {
      const path = `${base}/members/${row.user_id}`;
      const own = row.user_id === me.user.id;
      const mine = may('admin') && (row.role !== 'owner' || may('owner'));
      const role = h('select', { 'aria-label': `Role of ${row.email}` }, ROLES.filter((name) => name === row.role || grants.includes(name))
        .map((name) => h('option', { value: name, text: name, selected: name === row.role })));
      const save = part.button('Save', async () => { await send('PATCH', path, { role: role.value }); part.again(); });
      const leave = part.button(own ? 'Leave' : 'Remove', async () => {
        await send('DELETE', path);
        if (own) location.assign(`${ROOT}/`);
        else part.again();
      }, own ? `Leave ${org.slug}?` : `Remove ${row.email} from ${org.slug}?`);
      return [row.name || '', row.email, mine ? h('span', { class: 'row' }, role, save) : row.role, when(row.joined_at),
        ...(may('admin') ? [when(row.last_seen_at), row.twofa_enabled ? 'yes' : 'no'] : []), mine || own ? leave : ''];
    };
    return pages(part, `${base}/members`, (rows) => table(['Name', 'Address', 'Role', 'Since', ...(may('admin') ? ['Last seen', 'Second factor'] : []), ''], rows.map(cells)));
  };

  const invites = async (part) => {
    const cells = (row) => [row.email, row.role, when(row.expires_at),
      part.button('Withdraw', async () => { await send('DELETE', `${base}/invites/${row.id}`); part.again(); })];
    const invite = form({
      submit: 'Invite',
      action: async (values) => {
        const made = await send('POST', `${base}/invites`, values);
        part.again(made.url && secret(`Give this link to ${made.email}; it is good for seven days, once.`, made.url) || h('p', { class: 'notice', role: 'status', text: `A mail to ${made.email} is on its way.` }));
      },
    }, field('E-mail', 'email', { type: 'email', maxlength: '254', autocomplete: 'off' }), choice('Role', 'role', grants, 'viewer'));
    const open = await pages(part, `${base}/invites`, (rows) => table(['Address', 'Role', 'Until', ''], rows.map(cells), 'No invitation is open.'));
    return [...open, invite];
  };

  const keyRow = (part, row) => {
    const path = `${base}/api-keys/${row.id}`;
    const { fields, said } = keyFields(row);
    const change = form({
      submit: 'Save',
      action: async (values) => { await insist(me, 'PATCH', path, said(values)); part.again(saved()); },
    }, ...fields);
    const overlap = h('select', { 'aria-label': 'How long the old secret works on' },
      [['0', 'at once'], ['3600', 'after an hour'], ['86400', 'after a day'], ['604800', 'after a week']].map(([value, text]) => h('option', { value, text: `old one ends ${text}` })));
    const about = [`${row.hint} · ${row.embed.alg}`, row.disabled && ' · disabled', row.expires_at && [' · until ', when(row.expires_at)]].flat().filter(Boolean);
    return h('details', { class: 'key' }, h('summary', {}, h('strong', { text: row.name }), ` ${row.scopes.join(', ')} `, h('small', { class: 'hint' }, row.id, ' · ', ...about, ' · used ', when(row.last_used_at))),
      h('div', { class: 'stack' }, h('div', { class: 'row' },
        part.button('Rotate', async () => {
          const made = await insist(me, 'POST', `${path}/rotate`, { overlap_s: Number(overlap.value) });
          part.again(secret(`New secret of ${row.name}, shown this once:`, made.secret));
        }), overlap,
        row.scopes.includes('embed') && part.button('Refuse its tokens', async () => { await send('POST', `${path}/revoke-tokens`); part.again(); }, 'Refuse every embed token that was made until now?'),
        part.button(row.disabled ? 'Enable' : 'Disable', async () => { await insist(me, 'PATCH', path, { disabled: !row.disabled }); part.again(); }),
        part.button('Delete', async () => { await send('DELETE', path); part.again(); }, `Delete ${row.name}? It is refused from now on, and so are its tokens.`)), change));
  };
  const keys = async (part) => {
    const make = form({
      submit: 'Make key',
      action: async (values) => {
        const held = scopesOf(values);
        const publicKey = values.public_key.trim();
        const policy = policyOf(values);
        const embed = { ...(values.alg !== 'HS256' || publicKey ? { alg: values.alg, public_key: publicKey || undefined } : {}), origins: values.origins.split(/\s+/).filter(Boolean), policy };
        const rates = ratesOf(values, held);
        const days = Number(values.days);
        const made = await insist(me, 'POST', `${base}/api-keys`, {
          name: values.name, scopes: held, ingest: rates.ingest, read: rates.read, embed: held.includes('embed') || publicKey || restricts(policy) ? { ...embed, ...rates.embed } : undefined,
          expires_at: days > 0 ? new Date(Date.now() + days * 86_400_000).toISOString() : undefined,
        });
        part.again(secret(`Secret of ${made.name}, shown this once:`, made.secret));
      },
    },
    field('Name', 'name', { maxlength: '200', autocomplete: 'off' }, 'What it is for.'),
    scopes(),
    field('Days until it ends', 'days', { inputmode: 'numeric', pattern: '[0-9]{1,5}', required: false }, 'Empty: it does not end by itself.'),
    h('details', {}, h('summary', { text: 'Limits' }), rateFields()),
    h('details', {}, h('summary', { text: 'Embed tokens: who signs them, and what they may see' }), h('div', { class: 'stack' },
      choice('Signed by', 'alg', ['HS256', 'EdDSA', 'ES256', 'RS256'], 'HS256'),
      lines('Public key', 'public_key', '', 3, 'SPKI PEM or a JWK, for EdDSA, ES256 and RS256; HS256 takes the secret.'),
      lines('Origins', 'origins', '*', 2, 'Whose pages may use a token, one a line; * is every page.'), policyFields())));
    const there = await pages(part, `${base}/api-keys`, (rows) => (rows.length ? rows.map((row) => keyRow(part, row)) : h('p', { class: 'hint', text: 'None yet.' })));
    return [...there, h('h3', { text: 'A new key' }), make];
  };

  const settings = async (part) => {
    const now = await send('GET', base);
    const inputs = Object.entries(now.settings).map(([name, value]) => field(name.replaceAll('_', ' '), name, { required: false, value: value ?? '', placeholder: 'server\u2019s default', pattern: '[0-9]+|none' }));
    return form({
      submit: 'Save',
      action: async ({ name, ...rest }) => {
        const set = (text) => (text === '' ? null : text === 'none' ? text : Number(text));
        const changed = Object.entries(rest).filter(([key, text]) => text !== String(now.settings[key] ?? ''));
        await send('PATCH', base, { name: name === now.name ? undefined : name, settings: Object.fromEntries(changed.map(([key, text]) => [key, set(text)])) });
        await part.again(saved());
      },
    }, field('Name', 'name', { required: false, maxlength: '100', value: now.name }),
    h('p', { class: 'hint', text: `Now ${now.usage.series.toLocaleString()} series, ${now.usage.bytes.toLocaleString()} bytes on the disk. Limits: a number, none, or empty for the server\u2019s default; only the administrator of the server raises them above it.` }),
    h('div', { class: 'settings' }, inputs));
  };

  const end = () => form({
    submit: 'Delete this organisation',
    action: async (values) => { await insist(me, 'DELETE', base, values); location.assign(`${ROOT}/`); },
  }, field('Its short name', 'confirm', { autocomplete: 'off', spellcheck: 'false' }, `Type ${org.slug}: everything in it is deleted, its keys at once.`));

  document.title = `${org.name || org.slug} · promlet`;
  return h('main', { class: 'explore' }, h('h1', { tabindex: '-1', text: org.name || org.slug }),
    card('Members', `Your role is ${org.role}.`, members, lost),
    may('admin') && card('Invitations', '', invites, lost),
    may('admin') && card('API keys', 'How machines write and read, and what embed tokens are signed with.', keys, lost),
    may('admin') && card('Settings', '', settings, lost),
    may('admin') && card('What was done', 'Ninety days.', audit(`${base}/audit`), lost),
    may('owner') && card('End of this organisation', '', end, lost));
}
