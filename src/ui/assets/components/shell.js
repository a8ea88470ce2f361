// The frame around every page of the cabinet: navigation, organisation picker, breadcrumbs, account.

import { h } from '../chart/dom.js';
import { ROOT, pageUrl } from '../client/server.js';
import { icon } from './icons.js';
import { accountMenu } from './menu.js';
import { navigationOf, trailOf } from '../model/routes.js';
import { recall, remember } from '../model/storage.js';

/**
 * @typedef {import('../client/types.js').Me} Me
 * @typedef {import('../client/types.js').OrgOfUser} OrgOfUser
 * @typedef {import('../model/routes.js').Route} Route
 */

/** Whether a Mac's keyboard is likely: its command key opens the palette. */
const MAC = /mac|iphone|ipad/i.test(navigator.platform);

/**
 * @param {{me: Me, org: OrgOfUser|undefined, signedOut: () => void, search: () => void,
 *   choose: (org: string) => void}} options without `org` there are no pages to go to; `search`
 *   opens the palette; `choose` is called with the slug of another organisation
 */
export function shell({ me, org, signedOut, search, choose }) {
  const orgs = me.orgs ?? [];
  const picker = h(
    'select',
    { id: 'org', 'aria-label': 'Organisation' },
    !org && h('option', { value: '', text: 'Choose…', selected: true }),
    orgs.map(({ slug, name }) => h('option', { value: slug, text: name || slug, selected: slug === org?.slug })),
  );
  picker.addEventListener('change', () => choose(picker.value));

  const to = (/** @type {string} */ path, personal = false) =>
    org && !personal ? pageUrl(path, { org: org.slug }) : `${ROOT}${path}`;
  const links = new Map(
    (org ? navigationOf(org.role) : []).map((route) => [
      route.path,
      h(
        'a',
        { href: to(route.path, route.personal), title: route.title },
        icon(route.icon ?? ''),
        h('span', { text: route.title }),
      ),
    ]),
  );
  const fold = h('button', { type: 'button', class: 'fold' }, icon('fold'), h('span', { text: 'Collapse' }));
  const side = h(
    'nav',
    { class: 'side', id: 'side', 'aria-label': 'Main' },
    h(
      'div',
      {},
      h(
        'a',
        { class: 'brand', href: to('/'), 'aria-label': 'promlet, first page' },
        h('img', { src: new URL('../favicon.svg', import.meta.url).href, alt: '', width: '26', height: '26' }),
        h('span', { text: 'promlet' }),
      ),
      orgs.length > 0 && picker,
      h(
        'ul',
        {},
        [...links.values()].map((link) => h('li', {}, link)),
      ),
      fold,
    ),
  );

  const trail = h('ol');
  const menuButton = h(
    'button',
    { type: 'button', class: 'icon-button nav-button', 'aria-label': 'Menu', 'aria-controls': 'side' },
    icon('menu'),
  );
  const searchButton = h(
    'button',
    {
      type: 'button',
      class: 'search-button',
      'aria-haspopup': 'dialog',
      'aria-keyshortcuts': 'Control+K Meta+K',
      title: 'Search pages, dashboards and metrics',
      on: { click: search },
    },
    icon('search'),
    h('span', { text: 'Search' }),
    h('kbd', { text: MAC ? '⌘K' : 'Ctrl K' }),
  );
  const top = h(
    'header',
    { class: 'top' },
    menuButton,
    h('nav', { class: 'trail', 'aria-label': 'Breadcrumb' }, trail),
    org && searchButton,
    accountMenu({ me, org, signedOut }),
  );
  const skip = h('a', { class: 'skip', href: '#content', text: 'Skip to the content' });
  const page = h('div', { class: 'page' });
  const body = h('div', { class: 'frame' }, top, page);
  const node = h('div', { class: 'shell' }, skip, side, body);

  skip.addEventListener('click', (event) => {
    event.preventDefault();
    focusHeading();
  });

  const folded = (/** @type {boolean} */ yes) => {
    node.classList.toggle('folded', yes);
    fold.setAttribute('aria-expanded', String(!yes));
    fold.setAttribute('aria-label', yes ? 'Expand the navigation' : 'Collapse the navigation');
  };
  folded(recall('navigation', false));
  fold.addEventListener('click', () => {
    const yes = !node.classList.contains('folded');
    remember('navigation', yes);
    folded(yes);
  });

  /** Opens or closes the navigation of narrow windows, where it covers the page. */
  const opened = (/** @type {boolean} */ yes) => {
    node.classList.toggle('open', yes);
    menuButton.setAttribute('aria-expanded', String(yes));
  };
  opened(false);
  menuButton.addEventListener('click', () => {
    const yes = !node.classList.contains('open');
    opened(yes);
    if (yes) side.querySelector('a')?.focus();
  });
  side.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || !node.classList.contains('open')) return;
    opened(false);
    menuButton.focus();
  });
  side.addEventListener('focusout', ({ relatedTarget: to }) => {
    if (to instanceof Node && !side.contains(to) && to !== menuButton) opened(false);
  });
  body.addEventListener('pointerdown', ({ target }) => {
    if (!(target instanceof Node && menuButton.contains(target))) opened(false);
  });

  const focusHeading = () => {
    const heading = page.querySelector('h1');
    heading?.setAttribute('tabindex', '-1');
    heading?.focus({ preventScroll: true });
  };

  /** The last part of the breadcrumbs of a page below another one: the title that it gave itself. */
  let ownTitle = false;
  const last = h('span', { 'aria-current': 'page' });
  const titled = () => {
    if (ownTitle) last.textContent = document.title.replace(/ · promlet$/, '');
  };
  const title = document.querySelector('title');
  if (title) new MutationObserver(titled).observe(title, { childList: true });

  return {
    node,
    /**
     * Shows a page; the focus goes to its heading.
     * @param {Route|null} route null for a message that is no page of the navigation
     * @param {HTMLElement} main
     */
    show(route, main) {
      opened(false);
      main.id = 'content';
      const above = route ? trailOf(route) : [];
      for (const [path, link] of links) {
        if (above.some((one) => one.path === path)) link.setAttribute('aria-current', 'page');
        else link.removeAttribute('aria-current');
      }
      ownTitle = above.length > 1;
      last.textContent = route?.title ?? '';
      titled();
      trail.replaceChildren(
        ...[
          org &&
            route?.path !== '/' &&
            !route?.personal &&
            h('a', { href: to('/'), text: org.name || org.slug }),
          ...above.slice(0, -1).map((one) => h('a', { href: to(one.path), text: one.title })),
          route && last,
        ]
          .filter((part) => part instanceof HTMLElement)
          .map((part) => h('li', {}, part)),
      );
      page.replaceChildren(main);
      focusHeading();
    },
  };
}
