// Entry of the cabinet: finds out the session and shows the page of the address.

import { h } from './chart/dom.js';
import { followLinks, pathBelow, visit } from './client/navigation.js';
import { ROOT, askEarly, currentUser, ownPath, pageUrl, send } from './client/server.js';
import { shell } from './components/shell.js';
import { errorText } from './model/error_text.js';
import { readAddress } from './model/explore_state.js';
import { noteUse, seenDashboards } from './model/recent.js';
import { currentPath, permits, routeAt } from './model/routes.js';
import { recall, remember } from './model/storage.js';

/**
 * @typedef {import('./client/types.js').Me} Me
 * @typedef {import('./client/types.js').AuthConfig} AuthConfig
 * @typedef {import('./client/types.js').OrgOfUser} OrgOfUser
 * @typedef {import('./model/routes.js').Route} Route
 * @typedef {{node: HTMLElement, start?: () => unknown, stop?: () => void}} Page
 */

/** The pages by the names of their files. @type {Record<string, () => Promise<Record<string, any>>>} */
const PAGES = {
  'home.js': () => import('./pages/home.js'),
  'explore.js': () => import('./pages/explore.js'),
  'dashboards.js': () => import('./pages/dashboards.js'),
  'dashboard.js': () => import('./pages/dashboard.js'),
  'series.js': () => import('./pages/series.js'),
  'targets.js': () => import('./pages/targets.js'),
  'alerts.js': () => import('./pages/alerts.js'),
  'rules.js': () => import('./pages/rules.js'),
  'ingest.js': () => import('./pages/ingest.js'),
  'organisation.js': () => import('./pages/organisation.js'),
  'account.js': () => import('./pages/account.js'),
};

const view = /** @type {HTMLElement} */ (document.getElementById('app'));
/** The page that is shown. @type {Page|null} */
let page = null;
/**
 * The frame around it, and the organisation that it belongs to.
 * @type {{org: string, frame: ReturnType<typeof shell>}|null}
 */
let around = null;
/** The session. @type {{me: Me, config: AuthConfig}|null} */
let session = null;
/** Counts navigations: a page that loads too late is not shown. */
let sequence = 0;
/** The `pageKey` of the page that is shown. */
let shownKey = '';

function leave() {
  sequence += 1;
  page?.stop?.();
  page = null;
}

async function start() {
  leave();
  around = session = null;
  preload();
  const user = currentUser();
  user.catch(() => null);
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
  const me = config.needs_setup ? null : await user;
  if (path === '/invite' && !config.needs_setup)
    return (await import('./pages/invitation.js')).invitation(view, config, me, restart);
  if (me) {
    session = { me, config };
    return open();
  }
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

const signedOut = () => {
  history.replaceState(null, '', `${ROOT}/login`);
  restart();
};

/** Loads modules and data of the page while the session is requested. */
function preload() {
  const path = currentPath(pathBelow(), location.search);
  const route = routeAt(path);
  if (route) void load(route).catch(() => null);
  const parameters = new URLSearchParams(location.search);
  const [org, uid] = ['org', 'uid'].map((name) => encodeURIComponent(parameters.get(name) ?? ''));
  if (path === '/dashboard' && org && uid) askEarly(`/orgs/${org}/dashboards/${uid}`);
}

/**
 * Loads the modules that a page needs. Returns the function that makes it.
 * @param {Route} route
 * @returns {Promise<(context: any) => Page>}
 */
async function load(route) {
  const module = await PAGES[route.module]();
  return module[route.page];
}

/** The part of the address whose change shows another page; pages handle the rest themselves. */
function pageKey() {
  const parameters = new URLSearchParams(location.search);
  return JSON.stringify([currentPath(pathBelow(), location.search), parameters.get('org'), parameters.get('uid')]);
}

/** Shows the page of the address. */
async function open() {
  if (!session) return restart();
  const { me, config } = session;
  leave();
  const turn = sequence;
  let path = currentPath(pathBelow(), location.search);
  // Addresses of sign-in pages lead to the first page, and old addresses to where the page is now.
  if (!routeAt(path)) path = '/';
  if (path !== pathBelow())
    history.replaceState(history.state, '', `${ROOT}${path}${path === '/' ? '' : location.search}`);
  const route = /** @type {Route} */ (routeAt(path));
  shownKey = pageKey();
  const orgs = me.orgs ?? [];
  const asked = route.personal ? '' : (new URLSearchParams(location.search).get('org') ?? '');
  const foreign = asked !== '' && !orgs.some(({ slug }) => slug === asked);
  const own = orgs.find(({ slug }) => slug === asked) ?? orgs.find(({ slug }) => slug === recall('org', '')) ?? orgs[0];
  const org = foreign ? undefined : own;
  const frame = frameOf(me, org);
  /** Shows a page; the frame comes with the first one. */
  const put = (/** @type {Route|null} */ shown, /** @type {HTMLElement} */ main) => {
    if (!frame.node.isConnected) view.replaceChildren(frame.node);
    frame.show(shown, main);
  };
  if (!route.personal && (!org || !permits(org.role, route.role))) {
    document.title = 'No such organisation · promlet';
    return put(null, org ? notPermitted(route) : foreign ? notMember(asked, own) : withoutOrg());
  }
  if (org) remember('org', org.slug);
  document.title = `${route.title} · promlet`;
  let make;
  try {
    make = await load(route);
  } catch {
    // A module that is missing: the server was updated, or the network is away.
    if (turn === sequence) put(null, notLoaded(route));
    return;
  }
  if (turn !== sequence) return;
  const uid = new URLSearchParams(location.search).get('uid');
  if (org && uid && path === '/dashboard') noteUse(seenDashboards(org.slug), uid);
  page = make({
    me,
    config,
    membership: org,
    org: org?.slug ?? '',
    role: org?.role ?? 'viewer',
    user: me.user.id,
    state: { ...readAddress(location.search), org: org?.slug ?? '' },
    signedOut: restart,
  });
  put(route, page.node);
  scrollTo({ top: 0, behavior: 'auto' });
  const started = page.start?.();
  // The page may have written its state into the address.
  shownKey = pageKey();
  await started;
}

const show = () => void open().catch(showFailure);

/**
 * The frame around the pages of an organisation, made once.
 * @param {Me} me
 * @param {OrgOfUser|undefined} org
 */
function frameOf(me, org) {
  const key = org?.slug ?? '';
  if (around?.org !== key) {
    const choose = (/** @type {string} */ slug) => {
      const route = routeAt(pathBelow());
      const to = route && !route.personal ? (route.parent ?? route.path) : '/';
      visit(pageUrl(to, { org: slug }));
    };
    around = { org: key, frame: shell({ me, org, signedOut, search: () => void search(), choose }) };
  }
  return around.frame;
}

/** Opens the palette. */
async function search() {
  const org = session?.me.orgs?.find(({ slug }) => slug === around?.org);
  if (!session || !org || document.querySelector('dialog[open]')) return;
  const { openPalette } = await import('./components/command_palette.js');
  openPalette({ org: org.slug, role: org.role, signedOut });
}

/**
 * A page of one message.
 * @param {string} heading
 * @param {string} text
 * @param {HTMLElement} [action]
 */
const message = (heading, text, action) =>
  h(
    'main',
    { class: 'explore' },
    h('section', { class: 'card stack' }, h('h1', { text: heading }), h('p', { text }), action && h('p', {}, action)),
  );

/** @param {string} slug @param {OrgOfUser|undefined} own */
const notMember = (slug, own) =>
  message(
    `You are not a member of ${slug}`,
    'The organisation does not exist, or you are not one of its members. Nothing was queried.',
    own &&
      h('a', {
        class: 'button primary',
        href: pageUrl('/', { org: own.slug }),
        text: `Open ${own.name || own.slug}`,
      }),
  );

const withoutOrg = () =>
  message('No organisation', 'You are not a member of an organisation yet. Ask an administrator for an invitation.');

/** @param {Route} route */
const notPermitted = (route) =>
  message(route.title, `Only members with the role ${route.role} can open this page. Ask an administrator.`);

/** @param {Route} route */
const notLoaded = (route) =>
  message(
    `${route.title} could not be loaded`,
    'The connection was lost, or the server was updated in the meantime.',
    h('button', { type: 'button', class: 'primary', text: 'Try again', on: { click: () => location.reload() } }),
  );

/** @param {unknown} error */
function showFailure(error) {
  document.title = 'No answer · promlet';
  around = null;
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

followLinks({
  show,
  // Within a page, back and forward are up to the page itself.
  moved: () => {
    if (session && pageKey() !== shownKey) show();
  },
});

document.addEventListener('keydown', (event) => {
  if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
  if (!around) return;
  event.preventDefault();
  void search();
});

restart();
