// The account page: profile, security, organisations, and the accounts of the server.

import { h } from '../chart/dom.js';
import { pageUrl, send } from '../client/server.js';
import { sendConfirmed } from '../components/dialog.js';
import { field, form, shortName } from '../components/form.js';
import { auditLog, card, paged, table, time } from '../components/parts.js';
import { passwordCard, providersCard, secondFactorCard, sessionsCard } from './account_security.js';

/**
 * @typedef {import('../client/types.js').Me} Me
 * @typedef {import('../components/parts.js').Part} Part
 * @typedef {import('../components/parts.js').Content} Content
 */

/**
 * @param {Me} me
 * @returns {Content}
 */
function profile(me) {
  const name = form(
    {
      submit: 'Save',
      action: async (values, report) => {
        await send('PATCH', '/auth/me', values);
        me.user.name = values.name;
        report('Saved.');
      },
    },
    field('Name', 'name', { autocomplete: 'name', required: false, maxlength: '100', value: me.user.name }),
  );
  const address = form(
    {
      submit: 'Change address',
      action: async (values, report) => {
        await sendConfirmed(me, 'POST', '/auth/email/change', values);
        report(`A link is on its way to ${values.new_email}. Until it is opened, you sign in with ${me.user.email}.`);
      },
    },
    field(
      'New e-mail address',
      'new_email',
      { type: 'email', autocomplete: 'email', maxlength: '254' },
      `Currently ${me.user.email}.`,
    ),
  );
  return [name, address];
}

/**
 * @param {Me} me
 * @returns {Content}
 */
function organisations(me) {
  const create =
    me.user.is_admin &&
    form(
      {
        submit: 'Create organisation',
        action: async (values) => {
          await send('POST', '/orgs', values);
          location.assign(pageUrl('/organisation', { org: values.slug }));
        },
      },
      field('Name', 'name', { maxlength: '100', required: false }),
      shortName(),
    );
  const rows = me.orgs.map(({ slug, name, role }) => [
    h('a', { href: pageUrl('/organisation', { org: slug }), text: name || slug }),
    slug,
    role,
  ]);
  return [
    table(
      ['Organisation', 'Short name', 'Your role'],
      rows,
      'Organisations',
      'You are not a member of an organisation.',
    ),
    create,
  ];
}

/**
 * @param {Me} me
 * @param {Part} part
 * @returns {Promise<Content>}
 */
function accounts(me, part) {
  /**
   * @param {any} row
   * @param {string} text
   * @param {Object<string, boolean>} set
   * @param {string} [loss]
   */
  const change = (row, text, set, loss) =>
    part.button(
      text,
      async () => {
        await sendConfirmed(me, 'PATCH', `/admin/users/${row.id}`, set);
        await part.reload();
      },
      loss ? { heading: `${text}: ${row.email}`, loss, action: text } : undefined,
    );
  const cells = (/** @type {any} */ row) => [
    row.email,
    row.orgs.map((/** @type {any} */ { slug, role }) => `${slug} (${role})`).join(', '),
    time(row.last_seen_at),
    row.twofa_enabled ? 'On' : 'Off',
    h(
      'span',
      { class: 'row' },
      row.disabled
        ? change(row, 'Enable', { disabled: false })
        : change(row, 'Disable', { disabled: true }, 'The account can no longer sign in, and all its sessions end.'),
      row.is_admin
        ? change(row, 'Remove administrator', { is_admin: false }, 'The account can no longer administer this server.')
        : change(
            row,
            'Make administrator',
            { is_admin: true },
            'The account will be able to administer this server, including every organisation and account.',
          ),
    ),
  ];
  return paged(part, '/admin/users', (rows) =>
    table(
      ['Address', 'Organisations', 'Last seen', 'Second factor', ''],
      rows.toSorted((one, other) => one.email.localeCompare(other.email)).map(cells),
      'Accounts',
    ),
  );
}

/**
 * @param {Me} me
 * @param {import('../client/types.js').AuthConfig} config
 * @param {() => void} signedOut called when the session has ended
 */
export function account(me, config, signedOut) {
  const remove = (/** @type {Part} */ part) => [
    h('p', { text: 'Your sessions end, and the account cannot be restored.' }),
    part.button(
      'Delete account',
      async () => {
        await sendConfirmed(me, 'DELETE', '/auth/me');
        signedOut();
      },
      {
        heading: 'Delete account',
        action: 'Delete account',
        loss: `${me.user.email} is deleted with its sessions and memberships. Organisations and their data remain.`,
      },
    ),
  ];
  document.title = 'Account · promlet';
  return h(
    'main',
    { class: 'explore' },
    h('h1', { tabindex: '-1', text: 'Your account' }),
    card({ heading: 'Profile', fill: () => profile(me), signedOut }),
    card({ heading: 'Password', fill: () => passwordCard(me, config), signedOut }),
    card({
      heading: 'Second factor',
      intro: 'A code from your phone, in addition to the password or the mailed link.',
      fill: (part) => secondFactorCard(me, part),
      signedOut,
    }),
    card({
      heading: 'Sessions',
      intro: 'A session ends 30 days after its last use.',
      fill: (part) => sessionsCard(part, signedOut),
      signedOut,
    }),
    card({ heading: 'Sign-in providers', fill: (part) => providersCard(me, config, part), signedOut }),
    card({ heading: 'Organisations', fill: () => organisations(me), signedOut }),
    me.user.is_admin &&
      card({
        heading: 'Accounts of this server',
        intro: 'You are an administrator of this server.',
        fill: (part) => accounts(me, part),
        signedOut,
      }),
    me.user.is_admin &&
      card({
        heading: 'Server audit log, last 90 days',
        intro: 'Logins and administration.',
        fill: auditLog('/admin/audit'),
        signedOut,
        live: true,
      }),
    card({ heading: 'Delete account', fill: remove, signedOut, danger: true }),
  );
}
