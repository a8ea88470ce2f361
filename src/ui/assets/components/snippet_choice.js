// A choice of snippets: one is shown, with a button that copies it.

import { h } from '../chart/dom.js';
import { copyButton } from './copy.js';

/** @typedef {{id: string, title: string, text: string, note?: string}} Snippet */

let count = 0;

/**
 * @param {string} label of the choice, for screen readers
 * @returns {{node: HTMLElement, show: (snippets: Snippet[]) => void}} `show` replaces the snippets, at least
 *   one; the chosen one stays chosen
 */
export function snippetChoice(label) {
  count += 1;
  const group = `snippet-${count}`;
  /** @type {Snippet[]} */
  let all = [];
  let chosen = '';
  const code = h('pre', { class: 'snippet', tabindex: '0', role: 'group' });
  const note = h('p', { class: 'hint' });
  const copy = h('div', { class: 'row' });
  const kinds = h('fieldset', { class: 'segments' });

  function draw() {
    const snippet = all.find(({ id }) => id === chosen) ?? all[0];
    chosen = snippet.id;
    code.textContent = snippet.text;
    code.setAttribute('aria-label', snippet.title);
    note.textContent = snippet.note ?? '';
    copy.replaceChildren(copyButton(() => snippet.text, { what: snippet.title, source: code }));
  }

  return {
    node: h('div', { class: 'stack' }, kinds, note, code, copy),
    show(snippets) {
      const same = snippets.length === all.length && snippets.every(({ id }, index) => id === all[index].id);
      all = snippets;
      draw();
      if (same) return;
      kinds.hidden = snippets.length < 2;
      kinds.replaceChildren(
        h('legend', { class: 'unseen', text: label }),
        ...snippets.map(({ id, title }) =>
          h(
            'label',
            {},
            h('input', {
              type: 'radio',
              name: group,
              value: id,
              checked: id === chosen,
              on: {
                change: () => {
                  chosen = id;
                  draw();
                },
              },
            }),
            h('span', { text: title }),
          ),
        ),
      );
    },
  };
}
