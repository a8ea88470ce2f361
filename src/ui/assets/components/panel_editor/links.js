// The form of links: of a panel, or of its data.

import { h } from '../../chart/dom.js';
import { moved, setAt } from '../../model/edit_panel.js';
import { objectsOf } from '../../model/limits.js';
import { control, listButtons } from './controls.js';

/** @type {import('./controls.js').Option[]} */
const FIELDS = [
  { path: 'title', label: 'Title', control: 'text' },
  {
    path: 'url', label: 'Address', control: 'text',
    hint: 'May use variables, ${__value.raw} and ${__url_time_range}.',
  },
  { path: 'targetBlank', label: 'Open in a new tab', control: 'switch', default: false },
];

/**
 * @param {import('./controls.js').Access} access to the list of links
 * @returns {HTMLElement[]}
 */
export function linksGroup({ get, set }) {
  const list = () => objectsOf(get());
  const write = (/** @type {import('../../model/limits.js').Json[]} */ next, rebuild = false) =>
    set(next.length > 0 ? next : undefined, { rebuild });
  return [
    h('ol', { class: 'entries' }, list().map((link, at) =>
      h('li', { class: 'entry' },
        h('div', { class: 'entry-head' }, h('strong', { text: `Link ${at + 1}` }),
          listButtons(`link ${at + 1}`, at, list().length, {
            move: (to) => write(moved(list(), at, to), true),
            remove: () => write(list().toSpliced(at, 1), true),
          })),
        FIELDS.map((option) => control(option, {
          get: () => list()[at]?.[option.path],
          set: (value) => write(setAt(list(), [at, option.path], value)),
        }))))),
    h('div', { class: 'row' }, h('button', {
      type: 'button', text: 'Add link', 'data-focus': 'add link',
      on: { click: () => write([...list(), { title: '', url: '' }], true) },
    })),
  ];
}
