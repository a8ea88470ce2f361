// The security cards of the account page: password, second factor, sessions, providers.

import { h } from '../chart/dom.js';
import { ROOT, send } from '../client/server.js';
import { copyButton, copyable } from '../components/copy.js';
import { sendConfirmed } from '../components/dialog.js';
import { field, form, newPassword } from '../components/form.js';
import { paged, table, time } from '../components/parts.js';

/**
 * @typedef {import('../client/types.js').Me} Me
 * @typedef {import('../client/types.js').AuthConfig} AuthConfig
 * @typedef {import('../components/parts.js').Part} Part
 * @typedef {import('../components/parts.js').Content} Content
 */

const WRONG_PASSWORD = { invalid_credentials: 'The current password is wrong.' };

/**
 * The QR code as a canvas: the content security policy forbids images from data URLs.
 * @param {string} dataUrl
 */
async function qrCode(dataUrl) {
  const bytes = Uint8Array.from(atob(dataUrl.split(',')[1]), (char) => char.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
  const canvas = h('canvas', {
    class: 'qr',
    width: String(image.width),
    height: String(image.height),
    role: 'img',
    'aria-label': 'QR code of the secret below',
  });
  canvas.getContext('2d')?.drawImage(image, 0, 0);
  return canvas;
}

const codeField = () =>
  field(
    'Code',
    'code',
    { inputmode: 'numeric', autocomplete: 'one-time-code', maxlength: '40', class: 'code' },
    'Six digits from your authenticator app.',
  );

/** @param {string[]} list */
const recoveryCodes = (list) =>
  copyable(
    'Recovery codes, shown only now. Each signs you in once without the app.',
    list.join('\n'),
    'recovery codes',
  );

/**
 * @param {Me} me
 * @param {AuthConfig} config
 * @returns {Content}
 */
export function passwordCard(me, config) {
  return form(
    {
      submit: me.user.has_password ? 'Change password' : 'Set password',
      messages: WRONG_PASSWORD,
      action: async (values, report) => {
        await sendConfirmed(me, 'POST', '/auth/password/change', values);
        me.user.has_password = true;
        report('Password changed. All your other sessions have ended.');
      },
    },
    me.user.has_password &&
      field('Current password', 'current_password', {
        type: 'password',
        autocomplete: 'current-password',
        maxlength: '1024',
      }),
    newPassword(config, { label: 'New password', name: 'new_password' }),
  );
}

/**
 * @param {Me} me
 * @param {Part} part
 * @returns {Promise<Content>}
 */
export async function secondFactorCard(me, part) {
  const enrol = async () => {
    const begun = await sendConfirmed(me, 'POST', '/auth/2fa/enroll', {});
    const confirm = form(
      {
        submit: 'Turn on',
        action: async (values) => {
          const { recovery_codes: list } = await send('POST', '/auth/2fa/confirm', values);
          me.twofa.enabled = true;
          await part.reload(recoveryCodes(list));
        },
      },
      codeField(),
    );
    const secret = h('pre', {
      class: 'snippet',
      tabindex: '0',
      role: 'group',
      'aria-label': 'Secret',
      text: begun.secret,
    });
    return [
      h('p', {
        text: 'Scan the code with an authenticator app, or type the secret. Then enter the code that the app shows.',
      }),
      await qrCode(begun.qr_png),
      secret,
      copyButton(() => begun.secret, { what: 'secret', source: secret }),
      confirm,
    ];
  };
  const state = await send('GET', '/auth/2fa');
  if (!state.enabled) {
    const place = h('div', { class: 'stack' });
    return [
      h('p', { text: 'Off: a password or a mailed link is enough to sign in.' }),
      part.button('Set up', async () => place.replaceChildren(...(await enrol()))),
      place,
    ];
  }
  const renew = form(
    {
      submit: 'New recovery codes',
      action: async (values) =>
        part.reload(recoveryCodes((await send('POST', '/auth/2fa/recovery-codes', values)).recovery_codes)),
    },
    codeField(),
  );
  const off = form(
    {
      submit: 'Turn off',
      danger: true,
      messages: { invalid_credentials: 'The password is wrong.' },
      action: async ({ given, ...rest }) => {
        const code = /^[\d ]{6,7}$/.test(given) ? { code: given } : { recovery_code: given };
        await send('POST', '/auth/2fa/disable', { ...rest, ...code });
        me.twofa.enabled = false;
        await part.reload();
      },
    },
    me.user.has_password &&
      field('Password', 'password', { type: 'password', autocomplete: 'current-password', maxlength: '1024' }),
    field('Code or recovery code', 'given', { autocomplete: 'off', spellcheck: 'false' }),
  );
  return [
    h('p', {}, 'On since ', time(state.enabled_at), `. ${state.recovery_codes_left} recovery codes left.`),
    renew,
    off,
  ];
}

/**
 * @param {Part} part
 * @param {() => void} signedOut
 * @returns {Promise<Content>}
 */
export function sessionsCard(part, signedOut) {
  const others = part.button('End all other sessions', async () => {
    await send('DELETE', '/auth/sessions');
    await part.reload();
  });
  const cells = (/** @type {any} */ row) => [
    [row.user_agent || 'Unknown browser', row.current && h('strong', { text: ' (this session)' })],
    row.ip,
    row.auth_method.replace('_', ' '),
    time(row.last_seen_at),
    part.button('End', async () => {
      await send('DELETE', `/auth/sessions/${row.id}`);
      if (row.current) signedOut();
      else await part.reload();
    }),
  ];
  return paged(part, '/auth/sessions', (rows) => [
    table(['Browser', 'Address', 'Signed in by', 'Last seen', ''], rows.map(cells), 'Sessions'),
    rows.length > 1 && others,
  ]);
}

/**
 * @param {Me} me
 * @param {AuthConfig} config
 * @param {Part} part
 * @returns {Promise<Content>}
 */
export async function providersCard(me, config, part) {
  const { identities: linked } = await send('GET', '/auth/me');
  const rows = linked.map((/** @type {any} */ row) => [
    row.provider,
    row.email ?? '',
    time(row.linked_at),
    part.button(
      'Unlink',
      async () => {
        await sendConfirmed(me, 'DELETE', `/auth/identities/${row.id}`);
        await part.reload();
      },
      {
        heading: `Unlink ${row.provider}`,
        loss: `You will no longer be able to sign in with ${row.email ?? row.provider}.`,
        action: 'Unlink',
      },
    ),
  ]);
  const more = (config.providers ?? []).map(({ name, start_url: start }) =>
    h('a', {
      class: 'button',
      href: `${ROOT}${start}?${new URLSearchParams({ mode: 'link', redirect: '/account' })}`,
      text: `Link ${name}`,
    }),
  );
  return [
    table(
      ['Provider', 'Address', 'Linked', ''],
      rows,
      'Providers',
      more.length ? 'No provider is linked.' : 'This server has no providers.',
    ),
    ...more,
  ];
}
