// Tabs: a list with arrow keys, and three ways to keep the panels.

import { h } from '../chart/dom.js';

/**
 * A list of tabs. Arrow keys, Home and End choose among them; the caller shows the panel.
 * @template {string} Id
 * @param {{label: string, tabs: readonly {id: Id, text: string}[], choose: (id: Id) => void, class?: string,
 *   prefix?: string, panel?: string}} options `label` names the list for screen readers; ids of elements begin
 *   with `prefix`, `tab-` by default; `panel` is the id of the panel that all tabs share, else each has its own,
 *   `panel-` and the id of the tab
 * @returns {{list: HTMLElement, select: (id: Id) => void}} `select` shows which tab is chosen
 */
export function tabList({ label, tabs, choose, class: name = 'tabs', prefix = 'tab-', panel }) {
  const buttons = tabs.map(({ id, text }) =>
    h('button', {
      type: 'button',
      role: 'tab',
      id: `${prefix}${id}`,
      'aria-controls': panel ?? `panel-${id}`,
      'data-focus': `tab ${id}`,
      text,
      on: { click: () => choose(id) },
    }),
  );
  const list = h('div', { class: name, role: 'tablist', 'aria-label': label }, buttons);
  list.addEventListener('keydown', (event) => {
    const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    const last = buttons.length - 1;
    /** @type {Map<string, number>} */
    const moves = new Map([['ArrowRight', at + 1], ['ArrowLeft', at - 1], ['Home', 0], ['End', last]]);
    const to = moves.get(event.key);
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = (to + buttons.length) % buttons.length;
    choose(tabs[next].id);
    buttons[next].focus();
  });
  return {
    list,
    select: (id) =>
      buttons.forEach((button, index) => {
        const active = tabs[index].id === id;
        button.setAttribute('aria-selected', String(active));
        button.tabIndex = active ? 0 : -1;
      }),
  };
}

/**
 * @typedef {{id: string, text: string, panel: () => (Node|false|null|undefined)[]}} Tab
 */

/** @param {Tab[]} all */
function chosen(all) {
  const wanted = new URLSearchParams(location.search).get('tab');
  return all.find(({ id }) => id === wanted) ?? all[0];
}

/**
 * Tabs whose choice is part of the address, `?tab=`. A panel is made when it is first shown.
 * @param {string} label for screen readers
 * @param {Tab[]} all at least one
 * @returns {{node: HTMLElement, stop: () => void}} `stop` ends listening to back and forward
 */
export function addressTabs(label, all) {
  /** @type {Map<string, HTMLElement>} */
  const panels = new Map();
  const place = h('div');
  const { list, select } = tabList({ label, tabs: all, choose: go, class: 'tabs page-tabs' });

  function show() {
    const tab = chosen(all);
    if (!panels.has(tab.id)) {
      const panel = h(
        'div',
        { class: 'tab-panel', role: 'tabpanel', id: `panel-${tab.id}`, 'aria-labelledby': `tab-${tab.id}` },
        tab.panel().filter((node) => node instanceof Node),
      );
      panels.set(tab.id, panel);
      place.append(panel);
    }
    for (const [id, other] of panels) other.hidden = id !== tab.id;
    select(tab.id);
    list.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }
  /** @param {string} id */
  function go(id) {
    const url = new URL(location.href);
    url.searchParams.set('tab', id);
    if (url.href !== location.href) history.pushState(null, '', url);
    show();
  }
  addEventListener('popstate', show);
  show();
  return { node: h('div', { class: 'tabbed' }, list, place), stop: () => removeEventListener('popstate', show) };
}

/**
 * Tabs with panels that exist from the start.
 * @template {string} Id
 * @param {string} label of the list, for screen readers
 * @param {readonly {id: Id, text: string}[]} tabs
 * @param {(id: Id) => void} choose
 */
export function tabsWithPanels(label, tabs, choose) {
  const panels = new Map(
    tabs.map(({ id }) => [
      id,
      h('div', { id: `panel-${id}`, role: 'tabpanel', 'aria-labelledby': `tab-${id}`, hidden: true }),
    ]),
  );
  const { list, select } = tabList({ label, tabs, choose });
  return {
    list,
    panels: [...panels.values()],
    /** @param {Id} id */
    panel: (id) => /** @type {HTMLElement} */ (panels.get(id)),
    /** Shows one panel. @param {Id} id */
    show(id) {
      select(id);
      for (const [other, panel] of panels) panel.hidden = other !== id;
    },
  };
}

/**
 * Tabs with one panel, whose content is made each time a tab is chosen.
 * @param {{label: string, tabs: {id: string, text: string, content: () => Node}[], chosen: string,
 *   change?: (id: string) => void}} options `label` names the list for screen readers
 * @returns {{node: HTMLElement, show: (id: string) => void, shown: () => string}}
 */
export function tabsWithContent({ label, tabs, chosen: first, change = () => {} }) {
  let current = tabs.some(({ id }) => id === first) ? first : tabs[0].id;
  const panel = h('div', { role: 'tabpanel', id: `panel-${tabs[0].id}`, class: 'stack' });
  const choose = (/** @type {string} */ id) => {
    show(id);
    change(id);
  };
  const { list, select } = tabList({ label, tabs, choose, class: 'tabs tab-list', panel: panel.id });
  const show = (/** @type {string} */ id) => {
    current = id;
    select(id);
    panel.setAttribute('aria-labelledby', `tab-${id}`);
    panel.replaceChildren(/** @type {{content: () => Node}} */ (tabs.find((tab) => tab.id === id)).content());
  };
  show(current);
  return { node: h('div', { class: 'stack' }, list, panel), show, shown: () => current };
}
