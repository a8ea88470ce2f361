// One's own account: name, address, password, second factor, where one is signed in, providers, and its end.

import { h } from '../chart/dom.js';
import { audit, card, insist, pages, secret, table, when } from './parts.js';
import { field, form } from './sign_in.js';
import { ROOT, send } from './server.js';

/** The QR code as a drawing: the page's policy takes no image from a text. */
async function drawn(dataUrl) {
  const bytes = Uint8Array.from(atob(dataUrl.split(',')[1]), (char) => char.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
  const canvas = h('canvas', { class: 'qr', width: String(image.width), height: String(image.height), role: 'img', 'aria-label': 'QR code of the secret below' });
  canvas.getContext('2d').drawImage(image, 0, 0);
  return canvas;
}

const codeField = (label = 'Code') => field(label, 'code', { inputmode: 'numeric', autocomplete: 'one-time-code', maxlength: '40', class: 'code' }, 'Six digits from your authenticator app.');
const codes = (list) => secret('Recovery codes, shown this once: each lets you in without the app, one time.', list.join('\n'));

/** `lost` is called when there is no session any more. */
export function account(me, config, lost) {
  const least = config.password?.min_length ?? 8;
  const profile = () => {
    const name = form({
      submit: 'Save',
      action: async (values, say) => { await send('PATCH', '/auth/me', values); me.user.name = values.name; say('Saved.'); },
    }, field('Name', 'name', { autocomplete: 'name', required: false, maxlength: '100', value: me.user.name }));
    const address = form({
      submit: 'Change address',
      action: async (values, say) => {
        await insist(me, 'POST', '/auth/email/change', values);
        say(`A link is on its way to ${values.new_email}; until it is opened you sign in with ${me.user.email}.`);
      },
    }, field('New e-mail address', 'new_email', { type: 'email', autocomplete: 'email', maxlength: '254' }, `Now: ${me.user.email}`));
    return [name, address];
  };
  const password = () => form({
    submit: me.user.has_password ? 'Change password' : 'Set password',
    action: async (values, say) => {
      await insist(me, 'POST', '/auth/password/change', values);
      me.user.has_password = true;
      say('Changed. Every other session has ended.');
    },
  },
  me.user.has_password && field('Current password', 'current_password', { type: 'password', autocomplete: 'current-password', maxlength: '1024' }),
  field('New password', 'new_password', { type: 'password', autocomplete: 'new-password', minlength: String(least), maxlength: '1024' }, `At least ${least} characters; a sentence is good.`));

  const enrol = async (part) => {
    const begun = await insist(me, 'POST', '/auth/2fa/enroll', {});
    const confirm = form({
      submit: 'Turn on',
      action: async (values) => {
        const { recovery_codes: list } = await send('POST', '/auth/2fa/confirm', values);
        me.twofa.enabled = true;
        part.again(codes(list));
      },
    }, codeField());
    return [h('p', { text: 'Scan this with an authenticator app, or type the secret; then enter the code it shows.' }),
      await drawn(begun.qr_png), h('pre', { class: 'snippet', text: begun.secret }), confirm];
  };
  const factor = async (part) => {
    const state = await send('GET', '/auth/2fa');
    if (!state.enabled) {
      const place = h('div', { class: 'stack' });
      return [h('p', { text: 'Off: a password or a mailed link is enough to sign in.' }),
        part.button('Set up', async () => place.replaceChildren(...await enrol(part))), place];
    }
    const renew = form({
      submit: 'New recovery codes',
      action: async (values) => part.again(codes((await send('POST', '/auth/2fa/recovery-codes', values)).recovery_codes)),
    }, codeField());
    const off = form({
      submit: 'Turn off',
      action: async ({ given, ...rest }) => {
        const code = /^[\d ]{6,7}$/.test(given) ? { code: given } : { recovery_code: given };
        await send('POST', '/auth/2fa/disable', { ...rest, ...code });
        me.twofa.enabled = false;
        part.again();
      },
    },
    me.user.has_password && field('Password', 'password', { type: 'password', autocomplete: 'current-password', maxlength: '1024' }),
    field('Code or recovery code', 'given', { autocomplete: 'off', spellcheck: 'false' }));
    return [h('p', {}, 'On since ', when(state.enabled_at), `; ${state.recovery_codes_left} recovery codes left.`), renew, off];
  };
  const sessions = async (part) => {
    const others = part.button('End all others', async () => { await send('DELETE', '/auth/sessions'); part.again(); });
    const cells = (row) => [
      [row.user_agent || 'unknown program', row.current && h('strong', { text: ' (this one)' })].filter(Boolean), row.ip, row.auth_method.replace('_', ' '), when(row.last_seen_at),
      part.button('End', async () => {
        await send('DELETE', `/auth/sessions/${row.id}`);
        if (row.current) lost();
        else part.again();
      }),
    ];
    return pages(part, '/auth/sessions', (rows) => [table(['Program', 'Address', 'Signed in by', 'Last seen', ''], rows.map(cells)), rows.length > 1 && others]);
  };
  const identities = async (part) => {
    const { identities: linked } = await send('GET', '/auth/me');
    const rows = linked.map((row) => [row.provider, row.email ?? '', when(row.linked_at),
      part.button('Unlink', async () => { await insist(me, 'DELETE', `/auth/identities/${row.id}`); part.again(); })]);
    const more = (config.providers ?? []).map(({ name, start_url: start }) => h('a', {
      class: 'button', href: `${ROOT}${start}?${new URLSearchParams({ mode: 'link', redirect: '/account' })}`, text: `Link ${name}`,
    }));
    return [table(['Provider', 'Address', 'Since', ''], rows, more.length ? 'None yet.' : 'This server knows no provider.'), ...more];
  };
  const orgs = () => {
    const make = me.user.is_admin && form({
      submit: 'Make organisation',
      action: async (values) => { await send('POST', '/orgs', values); location.assign(`${ROOT}/organisation?${new URLSearchParams({ org: values.slug })}`); },
    },
    field('Name', 'name', { maxlength: '100', required: false }),
    field('Short name', 'slug', { pattern: '[a-z0-9]([a-z0-9\\-]{0,61}[a-z0-9])?', spellcheck: 'false', autocapitalize: 'none' }, 'Stands in addresses and never changes: a to z, digits and dashes.'));
    const rows = me.orgs.map(({ slug, name, role }) => [h('a', { href: `${ROOT}/organisation?${new URLSearchParams({ org: slug })}`, text: name || slug }), slug, role]);
    return [table(['Organisation', 'Short name', 'Your role'], rows), make].filter(Boolean);
  };
  const people = async (part) => {
    const change = (row, text, set, sure) => part.button(text, async () => { await insist(me, 'PATCH', `/admin/users/${row.id}`, set); part.again(); }, sure);
    const cells = (row) => [
      row.email, row.orgs.map(({ slug, role }) => `${slug} (${role})`).join(', '), when(row.last_seen_at), row.twofa_enabled ? 'yes' : 'no',
      h('span', { class: 'row' },
        row.disabled ? change(row, 'Enable', { disabled: false }) : change(row, 'Disable', { disabled: true }, `Keep ${row.email} out, and end their sessions?`),
        row.is_admin ? change(row, 'No administrator', { is_admin: false }, `Take the administration of the server from ${row.email}?`) : change(row, 'Administrator', { is_admin: true }, `Let ${row.email} administer the server?`)),
    ];
    return pages(part, '/admin/users', (rows) => table(['Address', 'Organisations', 'Last seen', 'Second factor', ''],
      rows.toSorted((one, other) => one.email.localeCompare(other.email)).map(cells)));
  };
  const end = (part) => part.button('Delete my account', async () => {
    await insist(me, 'DELETE', '/auth/me');
    lost();
  }, `Delete the account ${me.user.email} for good?`);
  document.title = 'Account · promlet';
  return h('main', { class: 'explore' }, h('h1', { tabindex: '-1', text: 'Your account' }),
    card('Profile', '', profile, lost), card('Password', '', password, lost),
    card('Second factor', 'A code from your phone beside whatever you sign in with.', factor, lost),
    card('Sessions', 'Where you are signed in. A session lives for thirty days after its last use.', sessions, lost),
    card('Sign-in by a provider', '', identities, lost), card('Organisations', '', orgs, lost),
    me.user.is_admin && card('Accounts of this server', 'You administer it.', people, lost),
    me.user.is_admin && card('What was done on this server', 'Logins and administration, ninety days.', audit('/admin/audit'), lost),
    card('End of this account', '', end, lost));
}
