// The picker of units: a text field that searches the names of all units.

import { h } from '../../chart/dom.js';
import { textOf } from '../../model/limits.js';
import { hasWords } from '../../model/metrics.js';
import { units } from '../../model/units/names.js';

/** The most units that are offered at once. */
const SHOWN_MAX = 40;

/** @type {{id: string, name: string, category: string}[] | null} */
let all = null;
const known = () => {
  all ??= units().flatMap(({ category, units: list }) => list.map((unit) => ({ ...unit, category })));
  return all;
};

/** @param {string} id */
const nameOf = (id) => known().find((unit) => unit.id === id)?.name ?? id;

/**
 * A text that names no unit is a unit of its own, as in Grafana: the text follows the value.
 * @param {import('./controls.js').Access} access
 * @param {Record<string, any>} focus with an `id`
 */
export function unitControl(access, focus) {
  const listId = `${focus.id}-units`;
  const list = h('ul', { class: 'options', id: listId, role: 'listbox', 'aria-label': 'Units', hidden: true });
  const input = h('input', {
    ...focus,
    role: 'combobox',
    'aria-expanded': 'false',
    'aria-controls': listId,
    'aria-autocomplete': 'list',
    autocomplete: 'off',
    spellcheck: 'false',
    maxlength: '200',
    placeholder: 'No unit',
  });
  const show = () => {
    const id = textOf(access.get());
    input.value = id === '' ? '' : nameOf(id);
  };
  show();
  let active = -1;
  /** @type {{id: string, name: string, category: string}[]} */
  let found = [];
  const close = () => {
    list.hidden = true;
    active = -1;
    input.setAttribute('aria-expanded', 'false');
    input.removeAttribute('aria-activedescendant');
  };
  const take = (/** @type {string} */ id) => {
    access.set(id === '' ? undefined : id);
    show();
    close();
  };
  const mark = (/** @type {number} */ to) => {
    if (found.length === 0) return;
    active = (to + found.length) % found.length;
    [...list.children].forEach((node, at) => node.setAttribute('aria-selected', String(at === active)));
    input.setAttribute('aria-activedescendant', `${listId}-${active}`);
    list.children[active].scrollIntoView({ block: 'nearest' });
  };
  const open = (/** @type {string} */ search) => {
    found = known()
      .filter(({ id, name, category }) => hasWords(`${name} ${id} ${category}`, search))
      .slice(0, SHOWN_MAX);
    list.replaceChildren(
      ...found.map(({ id, name, category }, at) =>
        h(
          'li',
          {
            id: `${listId}-${at}`,
            role: 'option',
            'aria-selected': 'false',
            on: {
              pointerdown: (/** @type {Event} */ event) => {
                event.preventDefault();
                take(id);
              },
            },
          },
          h('span', { text: name }),
          h('span', { class: 'kind', text: category }),
        ),
      ),
    );
    active = -1;
    list.hidden = found.length === 0;
    input.setAttribute('aria-expanded', String(!list.hidden));
  };
  const settle = () => {
    const text = input.value.trim();
    const same = known().find(({ name, id }) => name === text || id === text);
    const id = same?.id ?? text;
    if (id !== textOf(access.get())) take(id);
    else show();
    close();
  };
  input.addEventListener('focus', () => input.select());
  input.addEventListener('click', () => list.hidden && open(''));
  input.addEventListener('input', () => open(input.value));
  input.addEventListener('blur', settle);
  input.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      if (list.hidden) open('');
      mark(active + (event.key === 'ArrowDown' ? 1 : -1));
    } else if (event.key === 'Enter') {
      event.preventDefault();
      if (active >= 0) take(found[active].id);
      else settle();
    } else if (event.key === 'Escape' && !list.hidden) {
      event.stopPropagation();
      event.preventDefault();
      show();
      close();
    }
  });
  return h('div', { class: 'combobox' }, input, list);
}
