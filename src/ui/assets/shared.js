// The page of a public link (/share?link=) and of a frame (/frame?token=): one dashboard.
//
// The link or the token stays in the address, so that reloading and bookmarks work: the page sends no
// referrer, and the server does not log queries of addresses.

import { h } from './chart/dom.js';
import { frameAttributes, refusalText, renewedToken } from './model/shared_page.js';

const page = /** @type {HTMLElement} */ (document.getElementById('page'));
const isFramed = window.parent !== window;

/** The data that the server wrote into the page. @param {string} name */
const written = (name) => document.querySelector(`meta[name="promlet-${name}"]`)?.getAttribute('content') ?? '';

/** @param {string} refusal code of the error */
function showRefusal(refusal) {
  const { heading, advice } = refusalText(refusal);
  document.title = `${heading} · promlet`;
  page.replaceChildren(
    h('div', { class: 'notice', role: 'alert' }, h('h1', { text: heading }), h('p', { text: advice })),
  );
}

function showDashboard() {
  const attributes = frameAttributes(location.search);
  const dashboard = h('metric-dashboard', { org: written('org'), uid: written('dashboard'), ...attributes });
  if (attributes.theme) document.documentElement.dataset.theme = attributes.theme;
  dashboard.addEventListener('load', (event) => {
    const { title } = /** @type {CustomEvent} */ (event).detail;
    document.title = `${title} · promlet`;
  });
  page.replaceChildren(dashboard);
  if (!isFramed) return;
  addEventListener('message', (event) => {
    const token = event.source === window.parent ? renewedToken(event.data) : null;
    // A link is no token: it cannot be replaced.
    if (token !== null && attributes.link === undefined) dashboard.setAttribute('token', token);
  });
}

if (isFramed) {
  document.documentElement.dataset.framed = '';
  // The height says nothing about the data, so every parent may know it.
  new ResizeObserver(() => {
    const height = Math.ceil(page.getBoundingClientRect().height);
    window.parent.postMessage({ type: 'promlet-height', height }, '*');
  }).observe(page);
}
if (written('org') && written('dashboard')) showDashboard();
else showRefusal(written('refusal'));
