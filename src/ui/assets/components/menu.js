// The account menu of the top bar.

import { h } from '../chart/dom.js';
import { ROOT, pageUrl, send } from '../client/server.js';
import { errorText } from '../model/error_text.js';

/**
 * Ends the session.
 * @param {() => void} signedOut called afterwards
 */
export async function signOut(signedOut) {
  await send('POST', '/auth/logout');
  signedOut();
}

/**
 * @param {{me: import('../client/types.js').Me,
 *   org: import('../client/types.js').OrgOfUser|undefined, signedOut: () => void}} options
 *   `signedOut` is called after a sign-out
 */
export function accountMenu({ me, org, signedOut }) {
  const name = me.user.name || me.user.email || 'You';
  const out = h('button', { type: 'button', text: 'Sign out' });
  const problem = h('p', { class: 'hint trouble', role: 'alert' });
  out.addEventListener('click', async () => {
    out.disabled = true;
    problem.textContent = '';
    try {
      await signOut(signedOut);
    } catch (error) {
      out.disabled = false;
      problem.textContent = `You are still signed in. ${errorText(error)}`;
    }
  });
  const summary = h(
    'summary',
    { 'aria-label': `Account of ${name}` },
    h('span', { class: 'avatar', 'aria-hidden': 'true', text: name.slice(0, 1).toUpperCase() }),
  );
  const menu = h(
    'details',
    { class: 'menu' },
    summary,
    h(
      'div',
      { class: 'card' },
      h('strong', { text: name }),
      me.user.email !== name && h('span', { text: me.user.email ?? '' }),
      org && h('span', { class: 'hint', text: `${org.role} of ${org.name || org.slug}` }),
      h('a', { class: 'button', href: `${ROOT}/account`, text: 'Your account' }),
      org && h('a', { class: 'button', href: pageUrl('/organisation', { org: org.slug }), text: 'Organisation' }),
      out,
      problem,
    ),
  );
  menu.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    menu.open = false;
    summary.focus();
  });
  menu.addEventListener('focusout', (event) => {
    if (event.relatedTarget instanceof Node && !menu.contains(event.relatedTarget)) menu.open = false;
  });
  const outside = (/** @type {Event} */ event) => {
    if (!menu.isConnected) document.removeEventListener('pointerdown', outside);
    else if (event.target instanceof Node && !menu.contains(event.target)) menu.open = false;
  };
  document.addEventListener('pointerdown', outside);
  menu.addEventListener('click', ({ target }) => {
    if (target instanceof Element && target.closest('a')) menu.open = false;
  });
  return menu;
}
