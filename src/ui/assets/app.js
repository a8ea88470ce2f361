// Entry of the cabinet: finds out the session and shows the page of the address.

import './embed.js';
import { h } from './chart/dom.js';
import { ROOT, currentUser, ownPath, pageUrl, send } from './client/server.js';
import { accountMenu } from './components/menu.js';
import { errorText } from './model/error_text.js';
import { readAddress } from './model/explore_state.js';
import { recall, remember } from './model/storage.js';
import { explore } from './pages/explore.js';

/**
 * @typedef {import('./client/types.js').Me} Me
 * @typedef {import('./client/types.js').AuthConfig} AuthConfig
 */

/** The paths of the pages that need the style sheet of dashboards. */
const DASHBOARDS = ['/dashboards', '/dashboard'];

const view = /** @type {HTMLElement} */ (document.getElementById('app'));
/** The page that is shown, if it has timers. @type {{stop: () => void}|null} */
let page = null;

async function start() {
  page?.stop();
  page = null;
  const config = /** @type {AuthConfig} */ (await send('GET', '/auth/config'));
  const path = location.pathname.slice(ROOT.length).replace(/(.)\/+$/, '$1');
  const fragment = new URLSearchParams(location.hash.slice(1));
  const token = fragment.get('token');
  if (token && !config.needs_setup && ['/login/reset', '/login/signup', '/login/email'].includes(path)) {
    const { mailed } = await import('./pages/mailed.js');
    // A secret must not stay in the history of this browser.
    history.replaceState(null, '', `${ROOT}/login`);
    return mailed(path, view, config, token, restart);
  }
  const me = config.needs_setup ? null : await currentUser();
  if (path === '/invite' && !config.needs_setup)
    return (await import('./pages/invitation.js')).invitation(view, config, me, restart);
  if (me) return cabinet(me, config, path);
  if (config.needs_setup) return (await import('./pages/set_up.js')).setUp(view, config, restart);
  const { secondFactor, signIn } = await import('./pages/sign_in.js');
  const pending = fragment.get('pending');
  if (path === '/login/2fa' && pending) {
    const to = ownPath(fragment.get('redirect'));
    history.replaceState(null, '', `${ROOT}/login`);
    return secondFactor(
      view,
      pending,
      () => signIn(view, config, restart),
      () => (to ? location.assign(to) : restart()),
    );
  }
  // The entry of the history keeps its state: the draft of a query survives the sign-in.
  return signIn(view, config, restart);
}

const restart = () => void start().catch(showFailure);

/**
 * @param {Me} me
 * @param {AuthConfig} config
 * @param {string} path below the root
 */
async function cabinet(me, config, path) {
  const orgs = me.orgs ?? [];
  const state = readAddress(['', '/', '/organisation', ...DASHBOARDS].includes(path) ? location.search : '');
  const foreign = state.org !== '' && !orgs.some(({ slug }) => slug === state.org);
  const org =
    orgs.find(({ slug }) => slug === state.org) ?? orgs.find(({ slug }) => slug === recall('org', '')) ?? orgs[0];
  const picker = h(
    'select',
    { id: 'org', 'aria-label': 'Organisation' },
    foreign && h('option', { value: '', text: 'Choose…', selected: true }),
    orgs.map(({ slug, name }) =>
      h('option', { value: slug, text: name || slug, selected: !foreign && slug === org?.slug }),
    ),
  );
  picker.addEventListener('change', () => {
    const at = path === '/organisation' ? path : DASHBOARDS.includes(path) ? '/dashboards' : '/';
    history.pushState(null, '', pageUrl(at, { org: picker.value }));
    page?.stop();
    page = null;
    cabinet(me, config, at).catch(showFailure);
  });
  const signedOut = () => {
    history.replaceState(null, '', `${ROOT}/login`);
    restart();
  };
  const top = h(
    'header',
    { class: 'top' },
    h(
      'a',
      { class: 'brand', href: `${ROOT}/` },
      h('img', { src: `${ROOT}/favicon.svg`, alt: '', width: '26', height: '26' }),
      h('span', { text: 'promlet' }),
    ),
    orgs.length > 0 && picker,
    org && !foreign && navigation(org.slug, path),
    accountMenu({ me, org: foreign ? undefined : org, signedOut }),
  );
  const show = (/** @type {Node} */ main) => {
    view.replaceChildren(top, main);
    const heading = view.querySelector('h1');
    heading?.setAttribute('tabindex', '-1');
    heading?.focus();
  };
  if (path === '/account') {
    const { account } = await import('./pages/account.js');
    return show(account(me, config, restart));
  }
  if (foreign || !org) {
    document.title = 'No such organisation · promlet';
    return show(
      h(
        'main',
        { class: 'explore' },
        h(
          'section',
          { class: 'card stack' },
          ...(foreign
            ? [
                h('h1', { text: `You are not a member of ${state.org}` }),
                h('p', {
                  text: 'The organisation does not exist, or you are not one of its members. Nothing was queried.',
                }),
                org &&
                  h(
                    'p',
                    {},
                    h('a', {
                      class: 'button primary',
                      href: pageUrl('/', { org: org.slug }),
                      text: `Open ${org.name || org.slug}`,
                    }),
                  ),
              ]
            : [
                h('h1', { text: 'No organisation' }),
                h('p', {
                  text: 'You are not a member of an organisation yet. Ask an administrator for an invitation.',
                }),
              ]),
        ),
      ),
    );
  }
  remember('org', org.slug);
  if (path === '/organisation') {
    const { organisation } = await import('./pages/organisation.js');
    return show(organisation(me, org, restart));
  }
  if (DASHBOARDS.includes(path)) {
    const [{ stylesheet }, shown] = await Promise.all([
      import('./components/stylesheet.js'),
      path === '/dashboard'
        ? import('./pages/dashboard.js').then(({ dashboardPage }) => dashboardPage)
        : import('./pages/dashboards.js').then(({ dashboards }) => dashboards),
    ]);
    await stylesheet('dashboards.css');
    const made = shown({ org: org.slug, role: org.role, user: me.user.id, signedOut: restart });
    page = made;
    show(made.node);
    return made.start();
  }
  state.org = org.slug;
  const made = explore({ state, role: org.role, signedOut: restart });
  page = made;
  view.replaceChildren(top, made.node);
  made.start();
}

/**
 * The links between the pages of an organisation.
 * @param {string} org
 * @param {string} path of the page that is shown
 */
const navigation = (org, path) =>
  h(
    'nav',
    { class: 'pages', 'aria-label': 'Pages' },
    [
      { text: 'Explore', at: '/', paths: ['', '/'] },
      { text: 'Dashboards', at: '/dashboards', paths: DASHBOARDS },
    ].map(({ text, at, paths }) =>
      h('a', { href: pageUrl(at, { org }), text, 'aria-current': paths.includes(path) ? 'page' : null }),
    ),
  );

/** @param {unknown} error */
function showFailure(error) {
  document.title = 'No answer · promlet';
  view.replaceChildren(
    h(
      'main',
      { class: 'gate' },
      h(
        'section',
        { class: 'card' },
        h('h1', { text: 'promlet does not answer' }),
        h('p', { role: 'alert', text: errorText(error) }),
        h('button', { type: 'button', class: 'primary', text: 'Try again', on: { click: restart } }),
      ),
    ),
  );
}

// Back and forward between organisations; within one, the explore page listens itself.
addEventListener('popstate', () => {
  const { org } = readAddress(location.search);
  const picker = document.getElementById('org');
  if (!page || (org && picker instanceof HTMLSelectElement && org !== picker.value)) restart();
});

restart();
