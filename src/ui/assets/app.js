// The cabinet: finds out who is there and shows sign-in, first run, explore, the account or the organisation.

import './embed.js';
import { h } from './chart/dom.js';
import { account } from './app/account.js';
import { explore, readAddress } from './app/explore.js';
import { mailed } from './app/mailed.js';
import { organisation } from './app/organisation.js';
import { invited, secondFactor, setUp, signIn } from './app/sign_in.js';
import { ROOT, ownPath, send, whoAmI } from './app/server.js';
import { recall, remember } from './app/storage.js';

const view = document.getElementById('app');
let page = null;

async function start() {
  page?.stop();
  page = null;
  const config = await send('GET', '/auth/config');
  const path = location.pathname.slice(ROOT.length).replace(/(.)\/+$/, '$1');
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  const opened = token && !config.needs_setup ? mailed(path) : null;
  if (opened) {
    // A secret must not stay in the history of this browser.
    history.replaceState(null, '', `${ROOT}/login`);
    return opened(view, config, token, () => start().catch(broken));
  }
  const me = config.needs_setup ? null : await whoAmI();
  if (path === '/invite' && !config.needs_setup) return invited(view, config, me, () => start().catch(broken));
  if (me) return cabinet(me, config, path);
  if (config.needs_setup) return setUp(view, config, start);
  const waiting = new URLSearchParams(location.hash.slice(1));
  const pending = waiting.get('pending');
  if (path === '/login/2fa' && pending) {
    const to = ownPath(waiting.get('redirect'));
    history.replaceState(null, '', `${ROOT}/login`);
    return secondFactor(view, pending, () => signIn(view, config, start), () => (to ? location.assign(to) : start()));
  }
  return signIn(view, config, start);
}

function cabinet(me, config, path) {
  const orgs = me.orgs ?? [];
  const state = readAddress(['', '/', '/organisation'].includes(path) ? location.search : '');
  const wished = [state.org, recall('org', '')].find((slug) => orgs.some((org) => org.slug === slug));
  state.org = wished ?? orgs[0]?.slug ?? '';
  const org = orgs.find(({ slug }) => slug === state.org);
  const picker = h('select', { id: 'org', 'aria-label': 'Organisation' },
    orgs.map(({ slug, name }) => h('option', { value: slug, text: name || slug, selected: slug === state.org })));
  picker.addEventListener('change', () => {
    const at = path === '/organisation' ? path : '/';
    history.pushState(null, '', `${ROOT}${at}?${new URLSearchParams({ org: picker.value })}`);
    page?.stop();
    cabinet(me, config, at);
  });
  const who = me.user?.name || me.user?.email || 'You';
  const out = h('button', { type: 'button', text: 'Sign out' });
  out.addEventListener('click', async () => {
    out.disabled = true;
    try {
      await send('POST', '/auth/logout');
    } catch (error) {
      out.disabled = false;
      menu.querySelector('.trouble')?.remove();
      out.after(h('p', { class: 'hint trouble', role: 'alert', text: `Not signed out for good: ${error.message}` }));
      return;
    }
    history.replaceState(null, '', `${ROOT}/login`);
    start().catch(broken);
  });
  const menu = h('details', { class: 'menu' },
    h('summary', { 'aria-label': `Account of ${who}` }, h('span', { class: 'avatar', 'aria-hidden': 'true', text: who.slice(0, 1).toUpperCase() })),
    h('div', { class: 'card' }, h('strong', { text: who }), me.user?.email !== who && h('span', { text: me.user?.email ?? '' }),
      org && h('span', { class: 'hint', text: `${org.role} of ${org.name || org.slug}` }),
      h('a', { class: 'button', href: `${ROOT}/account`, text: 'Your account' }),
      org && h('a', { class: 'button', href: `${ROOT}/organisation?${new URLSearchParams({ org: org.slug })}`, text: 'Organisation' }), out));
  menu.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    menu.open = false;
    menu.querySelector('summary').focus();
  });
  menu.addEventListener('focusout', (event) => { if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false; });
  const top = h('header', { class: 'top' },
    h('a', { class: 'brand', href: `${ROOT}/` }, h('img', { src: `${ROOT}/favicon.svg`, alt: '', width: '26', height: '26' }), h('span', { text: 'promlet' })),
    orgs.length > 0 && picker, menu);
  const lost = () => start().catch(broken);
  if (path === '/account' || (path === '/organisation' && org)) {
    page = null;
    if (org) remember('org', org.slug);
    view.replaceChildren(top, path === '/account' ? account(me, config, lost) : organisation(me, org, lost));
    view.querySelector('h1').focus();
    return;
  }
  if (!org) {
    view.replaceChildren(top, h('main', { class: 'explore' }, h('section', { class: 'card' }, h('h1', { text: 'No organisation' }),
      h('p', { text: 'You are signed in, but you are a member of no organisation yet. Ask an administrator to invite you.' }))));
    return;
  }
  remember('org', org.slug);
  page = explore({ state, role: org.role, lost });
  view.replaceChildren(top, page.node);
  page.start();
}

function broken(error) {
  view.replaceChildren(h('main', { class: 'gate' }, h('section', { class: 'card' }, h('h1', { text: 'promlet does not answer' }),
    h('p', { role: 'alert', text: error.message }), h('button', { type: 'button', class: 'primary', text: 'Try again', on: { click: () => start().catch(broken) } }))));
}

// Back and forward between organisations; within one, explore listens itself.
addEventListener('popstate', () => {
  const { org } = readAddress(location.search);
  if (page && org && org !== document.getElementById('org')?.value) start().catch(broken);
});

start().catch(broken);
