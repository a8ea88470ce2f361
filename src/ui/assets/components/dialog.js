// Dialogs: a confirmation that states the loss, and the prompt to sign in again.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { send } from '../client/server.js';
import { errorText } from '../model/error_text.js';
import { field, form } from './form.js';
import { signOut } from './menu.js';

let count = 0;

/**
 * Shows a modal dialog until `close` is called or Escape is pressed; then the focus returns.
 * @template T
 * @param {string} heading
 * @param {T} cancelled the result of Escape
 * @param {(close: (result: T) => void, title: HTMLElement) => (Node|null|false)[]} content `title` is
 *   the heading, whose text may change
 * @param {{class?: string}} [options]
 * @returns {Promise<T>}
 */
export function openDialog(heading, cancelled, content, { class: name = '' } = {}) {
  const before = document.activeElement;
  count += 1;
  const title = h('h2', { id: `dialog-title-${count}`, text: heading });
  const dialog = h('dialog', { class: `card stack ${name}`.trim(), 'aria-labelledby': title.id }, title);
  return new Promise((resolve) => {
    const close = (/** @type {T} */ result) => {
      dialog.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      resolve(result);
    };
    dialog.append(...content(close, title).filter((node) => node instanceof Node));
    dialog.addEventListener('cancel', () => close(cancelled));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * Asks for a confirmation.
 * @param {{heading: string, loss: string, action: string}} question `loss` says what will be lost,
 *   `action` is the text of the button
 * @returns {Promise<boolean>}
 */
export function confirmed({ heading, loss, action }) {
  return openDialog(heading, false, (close) => [
    h('p', { text: loss }),
    h(
      'div',
      { class: 'row' },
      h('button', { type: 'button', class: 'danger', text: action, on: { click: () => close(true) } }),
      h('button', { type: 'button', text: 'Cancel', autofocus: true, on: { click: () => close(false) } }),
    ),
  ]);
}

/**
 * For people who do not know their password: the page loads again without a session, asks for the
 * sign-in, and then shows the same address.
 */
function signInAgain() {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const button = h('button', { type: 'button', text: 'Sign out and sign in again' });
  button.addEventListener('click', async () => {
    button.disabled = true;
    try {
      await signOut(() => location.reload());
    } catch (error) {
      button.disabled = false;
      alert.textContent = errorText(error);
    }
  });
  return h('div', { class: 'stack' }, button, alert);
}

/**
 * Asks for the password or a code, where an action needs a recent login; a new sign-in works, too. Returns
 * whether the login succeeded.
 * @param {import('../client/types.js').Me} me
 * @returns {Promise<boolean>}
 */
function reauthenticate(me) {
  const possible = me.user.has_password || me.twofa.enabled;
  const given = me.user.has_password
    ? field('Password', 'password', { type: 'password', autocomplete: 'current-password', maxlength: '1024' })
    : field('Code of your authenticator app', 'code', { inputmode: 'numeric', autocomplete: 'one-time-code' });
  return openDialog('Confirm it is you', false, (close) => [
    h('p', {
      class: 'hint',
      text: possible
        ? 'Your last login is older than fifteen minutes.'
        : 'Your last login is older than fifteen minutes. Sign out and in again; this page comes back.',
    }),
    possible
      ? form(
          {
            submit: 'Continue',
            messages: { invalid_credentials: 'The password is wrong.' },
            action: async (values) => {
              await send('POST', '/auth/reauth', values);
              close(true);
            },
          },
          given,
        )
      : null,
    possible && h('p', { class: 'hint', text: 'Or sign out and sign in again; this page comes back.' }),
    signInAgain(),
    h('button', { type: 'button', class: 'plain', text: 'Cancel', on: { click: () => close(false) } }),
  ]);
}

/**
 * Sends a request; where the server demands a recent login, asks for it and sends again.
 * @param {import('../client/types.js').Me} me
 * @param {string} method
 * @param {string} path
 * @param {Object<string, any>} [body]
 */
export async function sendConfirmed(me, method, path, body) {
  try {
    return await send(method, path, body);
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 'reauth_required' || !(await reauthenticate(me))) throw error;
    return send(method, path, body);
  }
}
