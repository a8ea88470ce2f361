// Navigation without loading the document again: links of the cabinet, back and forward.

import { ROOT } from './server.js';
import { routeAt } from '../model/routes.js';

/** The path of the address below the root. */
export const pathBelow = () => location.pathname.slice(ROOT.length) || '/';

/** @type {() => void} */
let open = () => {};

/**
 * Starts to follow links to pages of the cabinet.
 * @param {{show: () => void, moved: () => void}} options `show` shows the page of the address after
 *   a link was followed; `moved` is called after back and forward
 */
export function followLinks({ show, moved }) {
  open = show;
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.composedPath().find((node) => node instanceof HTMLAnchorElement);
    if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute('download')) return;
    if (!isPage(link)) return;
    event.preventDefault();
    visit(link.href);
  });
  addEventListener('popstate', moved);
}

/**
 * Whether an address is one of the cabinet's pages. A part of the page that is shown is not.
 * @param {{origin: string, pathname: string, search: string, hash: string}} url
 */
function isPage({ origin, pathname, search, hash }) {
  if (origin !== location.origin || !`${pathname}/`.startsWith(`${ROOT}/`)) return false;
  const same = pathname === location.pathname && search === location.search;
  return !(hash && same) && routeAt(pathname.slice(ROOT.length)) !== undefined;
}

/**
 * Goes to an address: without a load of the document if it is a page of the cabinet.
 * @param {string} href
 */
export function visit(href) {
  const url = new URL(href, location.href);
  if (!isPage(url)) return location.assign(url);
  if (url.href !== location.href) history.pushState(null, '', url);
  open();
}
