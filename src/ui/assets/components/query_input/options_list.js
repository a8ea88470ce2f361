// The list of suggestions below a text field: a listbox whose focus stays in the field.

import { h } from '../../chart/dom.js';
import { counted } from '../../model/metrics.js';

/**
 * @typedef {{text: string, insert: string, note: string, args?: string}} Option `args` are those
 *   of a function; a `‸` in `insert` marks the place of the caret
 */

/**
 * @param {{id: string, input: HTMLElement, accept: (option: Option) => void}} options `accept` is
 *   called for a click
 */
export function optionsList({ id, input, accept }) {
  const list = h('ul', {
    class: 'options',
    id: `${id}-options`,
    role: 'listbox',
    'aria-label': 'Suggestions',
    // A list that scrolls must be reachable; Tab accepts a suggestion before it gets here.
    tabindex: '0',
    hidden: true,
    // A click on the scroll bar leaves the focus in the field.
    on: { mousedown: (/** @type {Event} */ event) => event.preventDefault() },
  });
  const status = h('span', { class: 'unseen', role: 'status' });
  /** @type {Option[]} */
  let options = [];
  let active = -1;

  const close = () => {
    options = [];
    active = -1;
    list.hidden = true;
    status.textContent = '';
    input.removeAttribute('aria-activedescendant');
  };
  const row = (/** @type {Option} */ option, /** @type {number} */ index) =>
    h(
      'li',
      {
        id: `${id}-option-${index}`,
        role: 'option',
        'aria-selected': 'false',
        // This event precedes the blur that would close the list.
        on: {
          pointerdown: (/** @type {Event} */ event) => {
            event.preventDefault();
            accept(option);
          },
        },
      },
      h(
        'span',
        { class: 'term' },
        h('span', { class: 'what', text: option.text }),
        option.args && h('span', { class: 'args', text: option.args }),
      ),
      h('span', { class: 'kind', text: option.note }),
    );
  /** @param {Option[]} found */
  const open = (found) => {
    options = found;
    active = -1;
    list.replaceChildren(...options.map(row));
    list.scrollTop = 0;
    list.hidden = options.length === 0;
    input.removeAttribute('aria-activedescendant');
    status.textContent = options.length ? `${counted(options.length, 'suggestion')}, arrow down to choose` : '';
  };
  return {
    nodes: [list, status],
    close,
    isOpen: () => !list.hidden,
    /** The option that is marked; without one, the first if `orFirst`. @param {boolean} orFirst */
    chosen: (orFirst) => options[orFirst ? Math.max(0, active) : active],
    open,
    /** Removes the options without this part, and the one that is equal to it. @param {string} word */
    narrow(word) {
      const lower = word.toLowerCase();
      open(options.filter(({ text }) => text !== word && text.toLowerCase().includes(lower)));
    },
    /** Marks the next option, or with -1 the one before. @param {1 | -1} by */
    move(by) {
      const before = active < 0 && by < 0 ? options.length : active;
      active = (before + by + options.length) % options.length;
      [...list.children].forEach((node, at) => node.setAttribute('aria-selected', String(at === active)));
      input.setAttribute('aria-activedescendant', `${id}-option-${active}`);
      list.children[active]?.scrollIntoView({ block: 'nearest' });
    },
  };
}
