// The account page as tabs: profile, security, linked sign-ins, and the accounts of the server.

import { h } from '../chart/dom.js';
import { pageUrl, send } from '../client/server.js';
import { auditLog } from '../components/audit_log.js';
import { confirmLoss } from '../components/confirm.js';
import { sendConfirmed } from '../components/dialog.js';
import { field, form, shortName } from '../components/form.js';
import { card, paged, table, time } from '../components/parts.js';
import { addressTabs } from '../components/tabs.js';
import { SERVER_ACTIONS } from '../model/audit.js';
import { counted } from '../model/metrics.js';
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
 * @param {{me: Me, config: import('../client/types.js').AuthConfig, signedOut: () => void}} context
 *   `signedOut` is called when the session has ended
 */
export function accountPage({ me, config, signedOut }) {
  const remove = (/** @type {Part} */ part) => {
    const button = part.button('Delete account…', async () => {
      const deleted = await confirmLoss({
        heading: 'Delete account',
        loss: `${me.user.email} is deleted and cannot be restored. Organisations and their data remain.`,
        action: 'Delete account',
        count: async () => {
          const { data } = await send('GET', '/auth/sessions');
          return [counted(data.length, 'session'), counted(me.orgs.length, 'membership')];
        },
        run: () => sendConfirmed(me, 'DELETE', '/auth/me'),
      });
      if (deleted) signedOut();
    });
    button.classList.add('danger');
    return [h('p', { text: 'Your sessions end, and the account cannot be restored.' }), button];
  };
  /** @type {import('../components/tabs.js').Tab[]} */
  const all = [
    {
      id: 'profile',
      text: 'Profile',
      panel: () => [
        card({ heading: 'Profile', fill: () => profile(me), signedOut }),
        card({ heading: 'Organisations', fill: () => organisations(me), signedOut }),
        card({ heading: 'Danger zone', fill: remove, signedOut, danger: true }),
      ],
    },
    {
      id: 'security',
      text: 'Security',
      panel: () => [
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
      ],
    },
    {
      id: 'sign-ins',
      text: 'Linked sign-ins',
      panel: () => [
        card({ heading: 'Linked sign-ins', fill: (part) => providersCard(me, config, part), signedOut }),
      ],
    },
  ];
  if (me.user.is_admin)
    all.push({
      id: 'server',
      text: 'Server',
      panel: () => [
        card({
          heading: 'Accounts of this server',
          intro: 'You are an administrator of this server.',
          fill: (part) => accounts(me, part),
          signedOut,
        }),
        card({
          heading: 'Server audit log, last 90 days',
          intro: 'Logins and administration.',
          fill: auditLog('/admin/audit', SERVER_ACTIONS),
          signedOut,
          live: true,
        }),
      ],
    });
  const tabs = addressTabs('Account', all);
  const node = h(
    'main',
    { class: 'explore cabinet' },
    h(
      'div',
      { class: 'page-head' },
      h('h1', { text: 'Your account' }),
      h('p', { class: 'hint', text: me.user.email ?? '' }),
    ),
    tabs.node,
  );
  return { node, stop: tabs.stop };
}
