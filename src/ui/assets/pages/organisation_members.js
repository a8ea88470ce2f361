// The members of an organisation, and the invitations that are open.

import { h } from '../chart/dom.js';
import { send } from '../client/server.js';
import { copyable } from '../components/copy.js';
import { choice, field, form } from '../components/form.js';
import { paged, table, time } from '../components/parts.js';
import { toast } from '../components/toast.js';
import { ROLES, permits } from '../model/routes.js';

/**
 * @typedef {import('../client/types.js').Role} Role
 * @typedef {import('../components/parts.js').Part} Part
 * @typedef {{me: import('../client/types.js').Me, org: import('../client/types.js').OrgOfUser,
 *   base: string, left: () => void}} Context `left` is called when the reader left the organisation
 */

/** The roles that a member may give. @param {Context} context */
const grants = ({ org }) => ROLES.filter((role) => role !== 'owner' || permits(org.role, 'owner'));

/**
 * The table of members. Actions beyond the reader's role are hidden; the server refuses them too.
 * @param {Context} context
 * @param {Part} part
 */
export function members(context, part) {
  const { me, org, base, left } = context;
  const admin = permits(org.role, 'admin');
  const cells = (/** @type {any} */ row) => {
    const path = `${base}/members/${row.user_id}`;
    const own = row.user_id === me.user.id;
    const editable = admin && (row.role !== 'owner' || permits(org.role, 'owner'));
    const save = part.button('Save', async () => {
      await send('PATCH', path, { role: role.value });
      toast(`${row.email} has the role ${role.value}.`);
      await part.reload();
    });
    save.hidden = true;
    const role = h(
      'select',
      { 'aria-label': `Role of ${row.email}`, on: { change: () => (save.hidden = role.value === row.role) } },
      ROLES.filter((name) => name === row.role || grants(context).includes(name)).map((name) =>
        h('option', { value: name, text: name, selected: name === row.role }),
      ),
    );
    const action = own ? 'Leave' : 'Remove';
    const leave = part.button(
      action,
      async () => {
        await send('DELETE', path);
        toast(own ? `You left ${org.name || org.slug}.` : `${row.email} was removed.`);
        if (own) left();
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
      row.name || '–',
      row.email,
      editable ? h('span', { class: 'row' }, role, save) : row.role,
      time(row.joined_at),
      ...(admin ? [time(row.last_seen_at), row.twofa_enabled ? 'On' : 'Off'] : []),
      editable || own ? leave : '',
    ];
  };
  return paged(part, `${base}/members`, (rows) =>
    table(
      ['Name', 'E-mail', 'Role', 'Joined', ...(admin ? ['Last seen', 'Second factor'] : []), ''],
      rows.map(cells),
      'Members',
    ),
  );
}

/**
 * Open invitations, and the form for another one.
 * @param {Context} context
 * @param {Part} part
 */
export async function invitations(context, part) {
  const { base } = context;
  const cells = (/** @type {any} */ row) => [
    row.email,
    row.role,
    time(row.expires_at),
    part.button('Withdraw', async () => {
      await send('DELETE', `${base}/invites/${row.id}`);
      toast(`The invitation of ${row.email} was withdrawn.`);
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
    h(
      'div',
      { class: 'row fields' },
      field('E-mail', 'email', { type: 'email', maxlength: '254', autocomplete: 'off' }),
      choice('Role', 'role', grants(context), 'viewer'),
    ),
    h('p', {
      class: 'hint',
      text:
        'Viewers query and look at dashboards. Editors also change dashboards and write samples. ' +
        'Admins also manage members, keys and limits.',
    }),
  );
  const open = await paged(part, `${base}/invites`, (rows) =>
    table(['E-mail', 'Role', 'Expires', ''], rows.map(cells), 'Invitations', 'No open invitations.'),
  );
  return [...open, invite];
}
