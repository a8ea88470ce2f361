// Tabs with their panels: the arrow keys move between them.

import { h } from '../chart/dom.js';

/**
 * @template {string} Name
 * @param {string} label of the list, for screen readers
 * @param {readonly [Name, string][]} names each with its text
 * @param {(name: Name) => void} chosen
 */
export function tabList(label, names, chosen) {
  const panels = new Map(
    names.map(([name]) => [
      name,
      h('div', { id: `panel-${name}`, role: 'tabpanel', 'aria-labelledby': `tab-${name}`, hidden: true }),
    ]),
  );
  const buttons = names.map(([name, text]) =>
    h('button', {
      type: 'button',
      role: 'tab',
      id: `tab-${name}`,
      'aria-controls': `panel-${name}`,
      text,
      on: { click: () => chosen(name) },
    }),
  );
  /** @type {Map<string, number>} */
  const steps = new Map([['ArrowRight', 1], ['ArrowLeft', -1]]);
  buttons.forEach((button, index) =>
    button.addEventListener('keydown', (event) => {
      const step = steps.get(event.key);
      if (step === undefined) return;
      const next = buttons[(index + step + buttons.length) % buttons.length];
      next.click();
      next.focus();
    }),
  );
  return {
    list: h('div', { class: 'tabs', role: 'tablist', 'aria-label': label }, buttons),
    panels: [...panels.values()],
    /** @param {Name} name */
    panel: (name) => /** @type {HTMLElement} */ (panels.get(name)),
    /** Shows one panel. @param {Name} name */
    show(name) {
      buttons.forEach((button) => {
        const is = button.id === `tab-${name}`;
        button.setAttribute('aria-selected', String(is));
        button.tabIndex = is ? 0 : -1;
      });
      for (const [other, panel] of panels) panel.hidden = other !== name;
    },
  };
}
