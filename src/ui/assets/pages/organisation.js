// The organisation page. Actions beyond the caller's role are hidden; the server refuses them too.

import { h } from '../chart/dom.js';
import { ROOT, send } from '../client/server.js';
import { copyable } from '../components/copy.js';
import { sendConfirmed } from '../components/dialog.js';
import { choice, field, form } from '../components/form.js';
import { counted } from '../model/metrics.js';
import { auditLog, card, paged, saved, table, time } from '../components/parts.js';
import { apiKeys } from './organisation_keys.js';

/**
 * @typedef {import('../client/types.js').Me} Me
 * @typedef {import('../client/types.js').Role} Role
 * @typedef {import('../client/types.js').OrgOfUser} OrgOfUser
 * @typedef {import('../components/parts.js').Part} Part
 * @typedef {import('../components/parts.js').Content} Content
 */

/** In ascending order of rights. @type {Role[]} */
const ROLES = ['viewer', 'editor', 'admin', 'owner'];
const rank = (/** @type {Role} */ role) => ROLES.indexOf(role);

/**
 * @param {Me} me
 * @param {OrgOfUser} org its row of `GET /auth/me`
 * @param {() => void} signedOut called when the session has ended
 */
export function organisation(me, org, signedOut) {
  const base = `/orgs/${encodeURIComponent(org.slug)}`;
  const may = (/** @type {Role} */ role) => rank(org.role) >= rank(role);
  const grants = ROLES.filter((role) => role !== 'owner' || may('owner'));

  /** @param {Part} part */
  const members = (part) => {
    const cells = (/** @type {any} */ row) => {
      const path = `${base}/members/${row.user_id}`;
      const own = row.user_id === me.user.id;
      const editable = may('admin') && (row.role !== 'owner' || may('owner'));
      const role = h(
        'select',
        { 'aria-label': `Role of ${row.email}` },
        ROLES.filter((name) => name === row.role || grants.includes(name)).map((name) =>
          h('option', { value: name, text: name, selected: name === row.role }),
        ),
      );
      const save = part.button('Save', async () => {
        await send('PATCH', path, { role: role.value });
        await part.reload();
      });
      const action = own ? 'Leave' : 'Remove';
      const leave = part.button(
        action,
        async () => {
          await send('DELETE', path);
          if (own) location.assign(`${ROOT}/`);
          else await part.reload();
        },
        own
          ? {
              heading: `Leave ${org.slug}`,
              loss: 'You lose access to the data of this organisation. Only an administrator can invite you again.',
              action,
            }
          : { heading: `Remove ${row.email}`, loss: `${row.email} loses access to ${org.slug} at once.`, action },
      );
      return [
        row.name || '',
        row.email,
        editable ? h('span', { class: 'row' }, role, save) : row.role,
        time(row.joined_at),
        ...(may('admin') ? [time(row.last_seen_at), row.twofa_enabled ? 'On' : 'Off'] : []),
        editable || own ? leave : '',
      ];
    };
    return paged(part, `${base}/members`, (rows) =>
      table(
        ['Name', 'Address', 'Role', 'Joined', ...(may('admin') ? ['Last seen', 'Second factor'] : []), ''],
        rows.map(cells),
        'Members',
      ),
    );
  };

  /** @param {Part} part */
  const invitations = async (part) => {
    const cells = (/** @type {any} */ row) => [
      row.email,
      row.role,
      time(row.expires_at),
      part.button('Withdraw', async () => {
        await send('DELETE', `${base}/invites/${row.id}`);
        await part.reload();
      }),
    ];
    const invite = form(
      {
        submit: 'Invite',
        action: async (values) => {
          const made = await send('POST', `${base}/invites`, values);
          await part.reload(
            made.url
              ? copyable(
                  `Send this link to ${made.email}. It works once, within seven days.`,
                  made.url,
                  'invitation link',
                )
              : h('p', { class: 'notice', role: 'status', text: `An e-mail to ${made.email} is on its way.` }),
          );
        },
      },
      field('E-mail', 'email', { type: 'email', maxlength: '254', autocomplete: 'off' }),
      choice('Role', 'role', grants, 'viewer'),
    );
    const open = await paged(part, `${base}/invites`, (rows) =>
      table(['Address', 'Role', 'Expires', ''], rows.map(cells), 'Invitations', 'No open invitations.'),
    );
    return [...open, invite];
  };

  /** @param {Part} part */
  const settings = async (part) => {
    const now = await send('GET', base);
    const inputs = Object.entries(now.settings).map(([name, value]) =>
      field(settingLabel(name), name, {
        required: false,
        value: value ?? '',
        placeholder: 'server\u2019s default',
        pattern: '[0-9]+|none',
      }),
    );
    return form(
      {
        submit: 'Save',
        action: async ({ name, ...rest }) => {
          const set = (/** @type {string} */ text) => (text === '' ? null : text === 'none' ? text : Number(text));
          const changed = Object.entries(rest).filter(([key, text]) => text !== String(now.settings[key] ?? ''));
          await send('PATCH', base, {
            name: name === now.name ? undefined : name,
            settings: Object.fromEntries(changed.map(([key, text]) => [key, set(text)])),
          });
          await part.reload(saved());
        },
      },
      field('Name', 'name', { required: false, maxlength: '100', value: now.name }),
      h('p', {
        class: 'hint',
        text: `In use: ${counted(now.usage.series, 'series', 'series')}, ${counted(now.usage.bytes, 'byte')} on disk.`,
      }),
      h('p', {
        class: 'hint',
        text: 'A limit is a number, none, or empty for the default. Only server administrators can exceed the default.',
      }),
      h('div', { class: 'settings' }, inputs),
    );
  };

  const remove = () =>
    form(
      {
        submit: 'Delete organisation',
        danger: true,
        action: async (values) => {
          await sendConfirmed(me, 'DELETE', base, values);
          location.assign(`${ROOT}/`);
        },
      },
      h('p', {
        text: 'All samples, dashboards, members and API keys of the organisation are deleted. They cannot be restored.',
      }),
      field('Short name', 'confirm', { autocomplete: 'off', spellcheck: 'false' }, `Type ${org.slug} to confirm.`),
    );

  document.title = `${org.name || org.slug} · promlet`;
  return h(
    'main',
    { class: 'explore' },
    h('h1', { tabindex: '-1', text: org.name || org.slug }),
    card({ heading: 'Members', intro: `Your role is ${org.role}.`, fill: members, signedOut }),
    may('admin') && card({ heading: 'Invitations', fill: invitations, signedOut }),
    may('admin') &&
      card({
        heading: 'API keys',
        intro: 'Keys for programs that write or read, and for signing embed tokens.',
        fill: (part) => apiKeys({ me, slug: org.slug, base }, part),
        signedOut,
      }),
    may('admin') && card({ heading: 'Settings', fill: settings, signedOut }),
    may('admin') &&
      card({ heading: 'Audit log, last 90 days', fill: auditLog(`${base}/audit`), signedOut, live: true }),
    may('owner') && card({ heading: 'Delete organisation', fill: remove, signedOut, danger: true }),
  );
}

/** Endings of setting names, and the unit they mean. @type {[RegExp, string][]} */
const UNITS = [
  [/_per_s$/, 'per second'],
  [/_bytes$/, 'bytes'],
  [/_days$/, 'days'],
  [/_hours$/, 'hours'],
  [/_s$/, 'seconds'],
  [/_ms$/, 'milliseconds'],
];

/**
 * The label of a setting: "ooo_window_s" is "Out-of-order window (seconds)".
 * @param {string} name
 */
export function settingLabel(name) {
  const unit = UNITS.find(([end]) => end.test(name));
  const words = (unit ? name.replace(unit[0], '') : name)
    .replaceAll('_', ' ')
    .replace(/\booo\b/, 'out-of-order')
    .replace(/^max /, 'maximum ');
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}${unit ? ` (${unit[1]})` : ''}`;
}
