// Pages behind mailed links. The token follows the `#` and is removed from the address bar at once.

import { h } from '../chart/dom.js';
import { card, field, form } from './sign_in.js';
import { send } from './server.js';

/** The view for a path with a token, or null where it is none of these. */
export function mailed(path) {
  return { '/login/reset': reset, '/login/signup': signup, '/login/email': email }[path] ?? null;
}

const password = (config, required, hint) => {
  const least = config.password?.min_length ?? 8;
  return field('Password', 'password', { type: 'password', autocomplete: 'new-password', minlength: String(least), maxlength: '1024', required },
    hint ?? `At least ${least} characters; a sentence is good.`);
};

const address = () => field('E-mail', 'email', { type: 'email', autocomplete: 'username', maxlength: '254' },
  'You opened the link in another browser: type the address it was sent to.');

/** Shows a form; asks for the address, too, once the server wants it. */
function ask(view, { heading, intro, submit, fields, action, done, leave }) {
  const show = (retype, typed = {}) => {
    const entry = form({
      submit,
      action: async (values, say) => {
        try {
          await action(values);
        } catch (error) {
          if (error.code !== 'email_confirmation_required' || retype) throw error;
          show(true, values).say('');
          return;
        }
        done(say);
      },
    }, retype && address(), ...fields());
    for (const [name, value] of Object.entries(typed)) entry.elements.namedItem(name).value = value;
    const back = h('button', { type: 'button', class: 'plain', text: 'Back to sign-in', on: { click: leave } });
    document.title = `${heading} · promlet`;
    view.replaceChildren(card(heading, intro, entry, back));
    entry.querySelector('input, button').focus();
    return entry;
  };
  show(false);
}

/** Says that it worked, and leads on. */
function finish(view, heading, text, next) {
  const on = h('button', { type: 'button', class: 'primary', text: 'Continue', on: { click: next } });
  view.replaceChildren(card(heading, text, on));
  on.focus();
}

function reset(view, config, token, next) {
  ask(view, {
    heading: 'Set a new password',
    intro: 'You will be signed out everywhere, and sign in with the new one.',
    leave: next,
    submit: 'Set password',
    fields: () => [password(config, true)],
    action: (values) => send('POST', '/auth/password/reset/confirm', { token, email: values.email, new_password: values.password }),
    done: () => finish(view, 'Password set', 'Sign in with it now.', next),
  });
}

function signup(view, config, token, next) {
  ask(view, {
    heading: 'Welcome',
    intro: 'Your address is confirmed; this makes your account.',
    leave: next,
    submit: 'Create account',
    fields: () => [
      field('Your name (optional)', 'name', { autocomplete: 'name', required: false, maxlength: '100' }),
      password(config, false, 'Leave it empty to sign in by mailed links only.'),
    ],
    action: (values) => send('POST', '/auth/signup/complete', {
      token, email: values.email, name: values.name || undefined, password: values.password || undefined,
    }),
    done: next,
  });
}

function email(view, config, token, next) {
  ask(view, {
    heading: 'Confirm your address',
    intro: 'From now on you sign in with this address. A mail to the old one says so.',
    leave: next,
    submit: 'Confirm',
    fields: () => [],
    action: () => send('POST', '/auth/email/confirm', { token }),
    done: () => finish(view, 'Address changed', 'You sign in with it from now on.', next),
  });
}
