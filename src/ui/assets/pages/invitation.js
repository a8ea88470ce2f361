// The page of an invitation: creates an account, or adds an organisation to the current one.

import { h } from '../chart/dom.js';
import { ROOT, send } from '../client/server.js';
import { field, form, newPassword } from '../components/form.js';
import { errorText } from '../model/error_text.js';
import { gate, signIn } from './sign_in.js';

/**
 * @param {HTMLElement} view
 * @param {import('../client/types.js').AuthConfig} config
 * @param {import('../client/types.js').Me|null} me
 * @param {() => void} done
 */
export async function invitation(view, config, me, done) {
  const token = new URLSearchParams(location.hash.slice(1)).get('token') ?? '';
  document.title = 'Invitation · promlet';
  const leave = () => {
    history.replaceState(null, '', `${ROOT}/`);
    done();
  };
  const showText = (/** @type {string} */ text, /** @type {string} */ action) => {
    const button = h('button', { type: 'button', class: 'primary', text: action, on: { click: leave } });
    view.replaceChildren(gate('Invitation', text, button));
    button.focus();
  };
  let found;
  try {
    found = await send('POST', '/auth/invites/lookup', { token });
  } catch (error) {
    showText(errorText(error), 'Continue');
    return;
  }
  const org = found.org.name || found.org.slug;
  const intro = `You are invited to ${org} as ${found.role}, with the address ${found.email}.`;
  if (found.account_exists && me?.user.email !== found.email) {
    // The link stays in the address: after the sign-in this page is shown again.
    if (me)
      showText(
        `${intro} You are signed in as ${me.user.email}. Sign out, and open the link again.`,
        'Continue without it',
      );
    else signIn(view, config, done, `${intro} That address has an account: sign in with it.`);
    return;
  }
  const fresh = !found.account_exists;
  const entry = form(
    {
      submit: fresh ? 'Create account' : 'Join',
      action: async (values) => {
        await send('POST', '/auth/invites/accept', {
          token,
          name: values.name || undefined,
          password: values.password || undefined,
        });
        leave();
      },
    },
    fresh && field('Your name (optional)', 'name', { autocomplete: 'name', required: false, maxlength: '100' }),
    fresh && newPassword(config),
  );
  const other =
    me && fresh ? ` You are signed in as ${me.user.email}; this creates another account and signs in to it.` : '';
  view.replaceChildren(gate('Invitation', `${intro}${other}`, entry));
  (entry.querySelector('input') ?? entry.querySelector('button'))?.focus();
}
