// The first lines of a dashboard's page: title, star, views, time range, variables and links.

import { h } from '../chart/dom.js';

/**
 * @typedef {{title: string, starred: boolean | null, editing: boolean, tab: string | null,
 *   hrefOf: (tab: string) => string, go: (tab: string) => void}} Shown `starred` is null without a star,
 *   and `tab` without tabs
 */

/** Tabs of the address with their texts; the empty one is the grid. @type {[string, string][]} */
const VIEWS = [
  ['', 'View'],
  ['json', 'JSON'],
  ['versions', 'Versions'],
];
/** The views while the dashboard is edited. @type {[string, string][]} */
const EDITED = [
  ['', 'Panels'],
  ['variables', 'Variables'],
  ['json', 'JSON'],
];

/**
 * @param {{time: HTMLElement, bar: HTMLElement, links: HTMLElement, star: () => void,
 *   share: () => void, edit: () => void}} options `star`, `share` and `edit` are called by their buttons
 */
export function dashboardHead({ time, bar, links, star: toggleStar, share: openShare, edit: startEditing }) {
  const title = h('h1', { text: 'Loading…' });
  const star = h('button', {
    type: 'button',
    class: 'star',
    'aria-pressed': 'false',
    'aria-label': 'Star',
    text: '☆',
    hidden: true,
    on: { click: toggleStar },
  });
  const share = h('button', {
    type: 'button',
    class: 'edit-button',
    text: 'Share',
    hidden: true,
    on: { click: openShare },
  });
  const edit = h('button', {
    type: 'button',
    class: 'edit-button',
    text: 'Edit',
    hidden: true,
    on: { click: startEditing },
  });
  const tabs = h('nav', { class: 'dash-tabs', 'aria-label': 'Views' });
  const notices = h('div', { class: 'edit-slot' });
  const alert = h('p', { class: 'alert', role: 'alert' });
  const nodes = [
    h('div', { class: 'dash-head' }, title, star, tabs, share, edit, time),
    notices,
    h('div', { class: 'dash-controls' }, bar, links),
    alert,
  ];

  /** @param {Shown} shown */
  function show({ title: text, starred, editing, tab: current, hrefOf, go }) {
    title.textContent = text;
    star.hidden = starred === null;
    star.setAttribute('aria-pressed', String(starred === true));
    star.setAttribute('aria-label', `Star ${text}`);
    star.textContent = starred ? '★' : '☆';
    share.hidden = starred === null || editing || current !== '';
    tabs.hidden = current === null;
    const focused = document.activeElement instanceof HTMLElement && tabs.contains(document.activeElement);
    tabs.replaceChildren(
      ...(editing ? EDITED : VIEWS).map(([tab, name]) =>
        h('a', {
          href: hrefOf(tab),
          text: name,
          'aria-current': current === tab ? 'page' : null,
          on: {
            click: (/** @type {MouseEvent} */ event) => {
              if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
              event.preventDefault();
              go(tab);
            },
          },
        }),
      ),
    );
    const active = focused && tabs.querySelector('[aria-current]');
    if (active instanceof HTMLElement) active.focus();
  }

  return { nodes, alert, notices, edit, title, show };
}
