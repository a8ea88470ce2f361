// Tabs whose choice is part of the address, `?tab=`. A panel is made when it is first shown.

import { h } from '../chart/dom.js';

/**
 * @typedef {{id: string, text: string, panel: () => (Node|false|null|undefined)[]}} Tab
 */

/** @param {Tab[]} all */
function chosen(all) {
  const wanted = new URLSearchParams(location.search).get('tab');
  return all.find(({ id }) => id === wanted) ?? all[0];
}

/**
 * @param {string} label for screen readers
 * @param {Tab[]} all at least one
 * @returns {{node: HTMLElement, stop: () => void}} `stop` ends listening to back and forward
 */
export function addressTabs(label, all) {
  /** @type {Map<string, HTMLElement>} */
  const panels = new Map();
  const place = h('div');
  const buttons = all.map(({ id, text }) =>
    h('button', {
      type: 'button',
      role: 'tab',
      id: `tab-${id}`,
      text,
      on: { click: () => go(id) },
    }),
  );
  const list = h('div', { class: 'tabs page-tabs', role: 'tablist', 'aria-label': label }, buttons);

  function show() {
    const tab = chosen(all);
    let panel = panels.get(tab.id);
    if (!panel) {
      panel = h(
        'div',
        { class: 'tab-panel', role: 'tabpanel', id: `panel-${tab.id}`, 'aria-labelledby': `tab-${tab.id}` },
        tab.panel().filter((node) => node instanceof Node),
      );
      panels.set(tab.id, panel);
      place.append(panel);
    }
    for (const [id, other] of panels) other.hidden = id !== tab.id;
    buttons.forEach((button, index) => {
      const active = all[index] === tab;
      button.setAttribute('aria-selected', String(active));
      button.tabIndex = active ? 0 : -1;
      if (active) button.scrollIntoView({ block: 'nearest', inline: 'nearest' });
      if (panels.has(all[index].id)) button.setAttribute('aria-controls', `panel-${all[index].id}`);
    });
  }
  /** @param {string} id */
  function go(id) {
    const url = new URL(location.href);
    url.searchParams.set('tab', id);
    if (url.href !== location.href) history.pushState(null, '', url);
    show();
  }
  list.addEventListener('keydown', (event) => {
    const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    const last = buttons.length - 1;
    /** @type {Record<string, number>} */
    const moves = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last };
    if (at < 0 || !Object.hasOwn(moves, event.key)) return;
    event.preventDefault();
    buttons[moves[event.key]].click();
    buttons[moves[event.key]].focus();
  });
  addEventListener('popstate', show);
  show();
  return { node: h('div', { class: 'tabbed' }, list, place), stop: () => removeEventListener('popstate', show) };
}
