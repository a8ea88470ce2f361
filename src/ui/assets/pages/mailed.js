// The pages of mailed links. The token follows the `#` and is removed from the address bar at once.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { send } from '../client/server.js';
import { field, form, newPassword } from '../components/form.js';
import { gate } from './sign_in.js';

/**
 * @typedef {import('../client/types.js').AuthConfig} AuthConfig
 * @typedef {import('../components/form.js').Values} Values
 */

/**
 * Shows the page of a path: /login/reset, /login/signup or /login/email.
 * @param {string} path
 * @param {HTMLElement} view
 * @param {AuthConfig} config
 * @param {string} token
 * @param {() => void} next
 */
export function mailed(path, view, config, token, next) {
  if (path === '/login/reset') reset(view, config, token, next);
  else if (path === '/login/signup') signUp(view, config, token, next);
  else email(view, token, next);
}

/**
 * Shows a form; asks for the address too once the server requires it.
 * @param {HTMLElement} view
 * @param {{heading: string, intro: string, submit: string, fields: () => Node[],
 *   action: (values: Values) => Promise<any>, done: () => void, leave: () => void}} options
 */
function showForm(view, { heading, intro, submit, fields, action, done, leave }) {
  const show = (/** @type {boolean} */ retype, /** @type {Values} */ typed = {}) => {
    const address =
      retype &&
      field(
        'E-mail',
        'email',
        { type: 'email', autocomplete: 'username', maxlength: '254' },
        'You opened the link in another browser: enter the address to which it was sent.',
      );
    const entry = form(
      {
        submit,
        action: async (values) => {
          try {
            await action(values);
          } catch (error) {
            if (!(error instanceof ApiError) || error.code !== 'email_confirmation_required' || retype) throw error;
            show(true, values);
            return;
          }
          done();
        },
      },
      address,
      ...fields(),
    );
    for (const [name, value] of Object.entries(typed)) {
      const input = entry.elements.namedItem(name);
      if (input instanceof HTMLInputElement) input.value = value;
    }
    const back = h('button', { type: 'button', class: 'plain', text: 'Back to sign-in', on: { click: leave } });
    document.title = `${heading} · promlet`;
    view.replaceChildren(gate(heading, intro, entry, back));
    /** @type {HTMLElement|null} */ (entry.querySelector('input, button'))?.focus();
  };
  show(false);
}

/**
 * Shows a success, and a button that continues.
 * @param {HTMLElement} view
 * @param {string} heading
 * @param {string} text
 * @param {() => void} next
 */
function showDone(view, heading, text, next) {
  const on = h('button', { type: 'button', class: 'primary', text: 'Continue', on: { click: next } });
  view.replaceChildren(gate(heading, text, on));
  on.focus();
}

/**
 * @param {HTMLElement} view
 * @param {AuthConfig} config
 * @param {string} token
 * @param {() => void} next
 */
function reset(view, config, token, next) {
  showForm(view, {
    heading: 'Set a new password',
    intro: 'All your sessions end, and you sign in with the new password.',
    leave: next,
    submit: 'Set password',
    fields: () => [newPassword(config)],
    action: (values) =>
      send('POST', '/auth/password/reset/confirm', { token, email: values.email, new_password: values.password }),
    done: () => showDone(view, 'Password set', 'Sign in with it now.', next),
  });
}

/**
 * @param {HTMLElement} view
 * @param {AuthConfig} config
 * @param {string} token
 * @param {() => void} next
 */
function signUp(view, config, token, next) {
  showForm(view, {
    heading: 'Welcome',
    intro: 'Your address is confirmed. Create your account.',
    leave: next,
    submit: 'Create account',
    fields: () => [
      field('Your name (optional)', 'name', { autocomplete: 'name', required: false, maxlength: '100' }),
      newPassword(config, { required: false, hint: 'Leave it empty to sign in by mailed links only.' }),
    ],
    action: (values) =>
      send('POST', '/auth/signup/complete', {
        token,
        email: values.email,
        name: values.name || undefined,
        password: values.password || undefined,
      }),
    done: next,
  });
}

/**
 * @param {HTMLElement} view
 * @param {string} token
 * @param {() => void} next
 */
function email(view, token, next) {
  showForm(view, {
    heading: 'Confirm your address',
    intro: 'From now on you sign in with this address. The old address is notified by mail.',
    leave: next,
    submit: 'Confirm',
    fields: () => [],
    action: () => send('POST', '/auth/email/confirm', { token }),
    done: () => showDone(view, 'Address changed', 'You sign in with it from now on.', next),
  });
}
