// Tabs: a list of tabs with arrow keys, and one panel that shows the chosen one.

import { h } from '../chart/dom.js';

/**
 * Tabs in the order given. The content of a tab is made each time it is chosen.
 * @param {{label: string, tabs: {id: string, label: string, show: () => Node}[], chosen: string,
 *   change?: (id: string) => void}} options `label` names the list for screen readers
 * @returns {{node: HTMLElement, show: (id: string) => void, shown: () => string}}
 */
export function tabList({ label, tabs, chosen, change = () => {} }) {
  let current = tabs.some(({ id }) => id === chosen) ? chosen : tabs[0].id;
  const panel = h('div', { role: 'tabpanel', id: `panel-${tabs[0].id}`, class: 'stack' });
  const buttons = tabs.map(({ id, label: text }) =>
    h('button', {
      type: 'button',
      role: 'tab',
      id: `tab-${id}`,
      'aria-controls': panel.id,
      text,
      on: { click: () => choose(id) },
    }),
  );
  const list = h('div', { class: 'tabs tab-list', role: 'tablist', 'aria-label': label }, buttons);
  const show = (/** @type {string} */ id) => {
    current = id;
    tabs.forEach((tab, at) => {
      buttons[at].setAttribute('aria-selected', String(tab.id === id));
      buttons[at].tabIndex = tab.id === id ? 0 : -1;
    });
    panel.setAttribute('aria-labelledby', `tab-${id}`);
    panel.replaceChildren(/** @type {{show: () => Node}} */ (tabs.find((tab) => tab.id === id)).show());
  };
  const choose = (/** @type {string} */ id) => {
    show(id);
    change(id);
  };
  list.addEventListener('keydown', (event) => {
    const at = tabs.findIndex(({ id }) => id === current);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + tabs.length) % tabs.length;
    choose(tabs[next].id);
    buttons[next].focus();
  });
  show(current);
  return { node: h('div', { class: 'stack' }, list, panel), show, shown: () => current };
}
