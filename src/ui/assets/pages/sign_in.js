// The sign-in page: password, second factor, mailed link, providers.

import { h } from '../chart/dom.js';
import { ROOT, send } from '../client/server.js';
import { field, form } from '../components/form.js';
import { errorText } from '../model/error_text.js';

/** @typedef {import('../client/types.js').AuthConfig} AuthConfig */

/**
 * Reasons with which an OAuth round trip returns in /login?error=.
 * @type {Object<string, string>}
 */
const REASONS = {
  invalid_state: 'That sign-in attempt expired. Please start again.',
  oauth_error: 'The provider refused the sign-in.',
  signup_closed: 'You have no account here, and this server does not accept sign-ups.',
  domain_not_allowed: 'Addresses of that domain may not sign in here.',
  link_required: 'An account with that address exists. Sign in with its password first.',
  link_invalid: 'That link was used already, or it expired.',
  email_confirmation_required: 'Open the link in the browser in which you requested it.',
};

/**
 * The layout of the pages without a session: one card in the middle.
 * @param {string} heading
 * @param {string} intro
 * @param {...import('../chart/dom.js').Child} children
 */
export function gate(heading, intro, ...children) {
  return h(
    'main',
    { class: 'gate' },
    h('img', { class: 'mark', src: `${ROOT}/favicon.svg`, alt: '', width: '44', height: '44' }),
    h(
      'section',
      { class: 'card' },
      h('h1', { text: heading }),
      intro && h('p', { class: 'intro', text: intro }),
      ...children,
    ),
    h('p', { class: 'foot', text: 'promlet: metrics in one place' }),
  );
}

/**
 * Shows the sign-in page; calls `done` once a session exists.
 * @param {HTMLElement} view
 * @param {AuthConfig} config
 * @param {() => void} done
 * @param {string} [why] explains why a sign-in is needed
 */
export function signIn(view, config, done, why = '') {
  const parameters = new URLSearchParams(location.search);
  const email = field('E-mail', 'email', { type: 'email', autocomplete: 'username', maxlength: '254' });
  const emailInput = /** @type {HTMLInputElement} */ (email.querySelector('input'));
  const password = field('Password', 'password', {
    type: 'password',
    autocomplete: 'current-password',
    maxlength: '1024',
  });
  const notice = h('p', { class: 'notice', role: 'status' });
  const entry = form(
    {
      submit: 'Sign in',
      action: async (values) => {
        notice.textContent = '';
        const result = await send('POST', '/auth/login', values);
        if (result.requires_2fa)
          secondFactor(view, result.twofa_pending_login, () => signIn(view, config, done, why), done);
        else done();
      },
    },
    email,
    password,
  );
  /**
   * A button that has the server send a mail to the address in the field.
   * @param {string} text
   * @param {string} path
   * @param {string} sent the text after success
   * @param {Object<string, any>} [more]
   */
  const mailButton = (text, path, sent, more = {}) => {
    const button = h('button', { type: 'button', class: 'plain', text });
    button.addEventListener('click', async () => {
      entry.showError('');
      notice.textContent = '';
      if (!emailInput.value || !emailInput.validity.valid) {
        entry.showError('Enter your e-mail address first.');
        emailInput.focus();
        return;
      }
      button.disabled = true;
      try {
        await send('POST', path, { email: emailInput.value, ...more });
        notice.textContent =
          config.mailer === 'console' ? `${sent} This server prints mail on its standard output.` : sent;
      } catch (error) {
        entry.showError(errorText(error));
      } finally {
        button.disabled = false;
        // A disabled button loses the focus.
        if (document.activeElement === document.body) button.focus();
      }
    });
    return button;
  };
  const here = `${location.pathname}${location.search}`;
  const back = here.startsWith(`${ROOT}/login`) ? '/' : here;
  const link = mailButton(
    'E-mail me a sign-in link',
    '/auth/magic-link/request',
    'If that account exists, its link is on the way. Open it in this browser within ten minutes.',
    { redirect: back },
  );
  const forgot = mailButton(
    'Forgot your password?',
    '/auth/password/reset/request',
    'If that account exists, a link to set a new password is on the way. It is valid for ten minutes.',
  );
  const join =
    config.signup === 'open' &&
    mailButton('Sign up', '/auth/signup', 'A link is on the way. It is valid for ten minutes.');
  const providers = (config.providers ?? [])
    .filter((provider) => provider.start_url?.startsWith('/'))
    .map((provider) =>
      h('a', {
        class: 'button',
        href: `${ROOT}${provider.start_url}?${new URLSearchParams({ redirect: back })}`,
        text: `Continue with ${provider.name}`,
      }),
    );
  document.title = 'Sign in · promlet';
  view.replaceChildren(
    gate(
      'Sign in',
      why,
      entry,
      (config.magic_link !== false || providers.length > 0) && h('p', { class: 'or', text: 'or' }),
      config.magic_link !== false && link,
      ...providers,
      forgot,
      join,
      notice,
    ),
  );
  const reason = parameters.get('error');
  if (reason)
    entry.showError(Object.hasOwn(REASONS, reason) ? REASONS[reason] : 'Signing in did not work. Please try again.');
  emailInput.focus();
}

/**
 * Shows the step of the second factor, after any kind of login that needs one.
 * @param {HTMLElement} view
 * @param {string} pending the id of the pending login
 * @param {() => void} back
 * @param {() => void} done
 */
export function secondFactor(view, pending, back, done) {
  const show = (/** @type {boolean} */ recovery) => {
    const code = recovery
      ? field(
          'Recovery code',
          'recovery_code',
          { autocomplete: 'off', spellcheck: 'false' },
          'One of the codes you saved. Each works once.',
        )
      : field(
          'Code',
          'code',
          {
            inputmode: 'numeric',
            autocomplete: 'one-time-code',
            pattern: '[0-9 ]{6,7}',
            maxlength: '7',
            class: 'code',
          },
          'Six digits from your authenticator app.',
        );
    const entry = form(
      {
        submit: 'Continue',
        action: async (values) => {
          try {
            await send('POST', '/auth/2fa/verify', { twofa_pending_login: pending, ...values });
          } catch (error) {
            if (/** @type {any} */ (error).code === 'pending_login_invalid') back();
            throw error;
          }
          done();
        },
      },
      code,
    );
    const other = h('button', {
      type: 'button',
      class: 'plain',
      text: recovery ? 'Use the app instead' : 'Use a recovery code',
      on: { click: () => show(!recovery) },
    });
    const cancel = h('button', { type: 'button', class: 'plain', text: 'Back to sign-in', on: { click: back } });
    document.title = 'Confirm it is you · promlet';
    view.replaceChildren(gate('Confirm it is you', '', entry, h('div', { class: 'row' }, other, cancel)));
    code.querySelector('input')?.focus();
  };
  show(false);
}
