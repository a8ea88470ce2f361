// The popup with earlier queries: a search, stars, and a click that brings one back.

import { h } from '../chart/dom.js';
import { counted } from '../model/metrics.js';
import { foundQueries, withStar } from '../model/query_history.js';
import { recall, remember } from '../model/storage.js';
import { openMenu } from './popup.js';

/**
 * @param {HTMLElement} button that opens the popup
 * @param {{org: string, choose: (expr: string) => void}} options
 */
export function openHistory(button, { org, choose }) {
  const starredKey = `starred.${org}`;
  const search = h('input', {
    id: 'history-search',
    type: 'search',
    placeholder: 'Search earlier queries',
    'aria-label': 'Search earlier queries',
    autocomplete: 'off',
    spellcheck: 'false',
    on: {
      input: () => fill(),
      keydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== 'Enter') return;
        // The form around the popup would run the query of the field.
        event.preventDefault();
        list.querySelector('button.entry')?.dispatchEvent(new MouseEvent('click'));
      },
    },
  });
  const list = h('ul', { class: 'history' });
  const status = h('p', { class: 'hint', role: 'status' });
  const fill = () => {
    const found = foundQueries(recall(`history.${org}`, []), recall(starredKey, []), search.value);
    status.textContent = found.length ? counted(found.length, 'query', 'queries') : 'No earlier query matches.';
    list.replaceChildren(...found.map(entry));
  };
  const entry = (/** @type {{expr: string, star: boolean}} */ { expr, star }) => {
    const toggle = h('button', {
      type: 'button',
      class: 'star',
      'aria-pressed': String(star),
      'aria-label': `Star ${expr}`,
      text: star ? '★' : '☆',
      on: {
        click: () => {
          const on = toggle.getAttribute('aria-pressed') !== 'true';
          remember(starredKey, withStar(recall(starredKey, []), expr, on));
          // The entry keeps its place and the focus until the list is made again.
          toggle.setAttribute('aria-pressed', String(on));
          toggle.textContent = on ? '★' : '☆';
        },
      },
    });
    return h(
      'li',
      {},
      toggle,
      h('button', {
        type: 'button',
        class: 'entry',
        text: expr,
        on: {
          click: () => {
            close();
            choose(expr);
          },
        },
      }),
    );
  };
  fill();
  const close = openMenu(button, [search, status, list], { class: 'history-popup', label: 'Earlier queries' });
}
