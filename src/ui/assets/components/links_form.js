// The form of a dashboard's links: addresses, and menus of dashboards by tag.

import { h } from '../chart/dom.js';
import { moved, setAt } from '../model/edit_panel.js';
import { listOf, objectsOf, textOf } from '../model/limits.js';
import { control, listButtons } from './panel_editor/controls.js';

/** @typedef {import('../model/limits.js').Json} Json */
/** @typedef {import('./panel_editor/controls.js').Option} Option */

/** @type {Option[]} */
const HEAD = [
  {
    path: 'type',
    label: 'Kind',
    control: 'select',
    default: 'link',
    choices: [
      ['link', 'Address'],
      ['dashboards', 'Dashboards with tags'],
    ],
  },
  { path: 'title', label: 'Title', control: 'text' },
];
/** @type {Option} */
const ADDRESS = { path: 'url', label: 'Address', control: 'text', hint: 'May use variables and ${__url_time_range}.' };
/** @type {Option} */
const TAGS = { path: 'tags', label: 'Tags', control: 'text', hint: 'Separated by commas. A dashboard has all of them.' };
/** @type {Option[]} */
const TAIL = [
  { path: 'keepTime', label: 'Pass the time range on', control: 'switch', default: false },
  { path: 'includeVars', label: 'Pass the variables on', control: 'switch', default: false },
  { path: 'targetBlank', label: 'Open in a new tab', control: 'switch', default: false },
];

/** Whether a link is a menu of dashboards. @param {Json} link */
const isMenu = (link) => link.type === 'dashboards' || (!link.url && listOf(link.tags).length > 0);

/** @param {string} text */
const tagsOf = (text) => [...new Set(text.split(',').map((tag) => tag.trim()).filter(Boolean))];

/**
 * @param {unknown} links as the dashboard has them
 * @returns {{node: HTMLElement, links: () => unknown}} `links` returns the same value until something is changed
 */
export function linksForm(links) {
  let list = /** @type {Json[] | null} */ (null);
  const now = () => list ?? objectsOf(links);
  const node = h('details', { class: 'group' });
  /** @param {Json[]} next @param {boolean} [again] whether the form is made again */
  const write = (next, again = false) => {
    list = next;
    if (again) show();
  };
  /** @param {Option} option @param {number} at */
  const access = (option, at) => ({
    get: () => (option === TAGS ? listOf(now()[at]?.tags).map((tag) => textOf(tag)).join(', ') : now()[at]?.[option.path]),
    set: (/** @type {unknown} */ value) => {
      const stored = option === TAGS ? tagsOf(textOf(value)) : value;
      write(setAt(now(), [at, option.path], stored), option.path === 'type');
    },
  });
  /** @param {Json} link @param {number} at */
  const entry = (link, at) =>
    h(
      'li',
      { class: 'entry' },
      h(
        'div',
        { class: 'entry-head' },
        h('strong', { text: `Link ${at + 1}` }),
        listButtons(`link ${at + 1}`, at, now().length, {
          move: (to) => write(moved(now(), at, to), true),
          remove: () => write(now().toSpliced(at, 1), true),
        }),
      ),
      [...HEAD, isMenu(link) ? TAGS : ADDRESS, ...TAIL].map((option) => control(option, access(option, at))),
    );
  function show() {
    const active = document.activeElement;
    const focus = active instanceof HTMLElement && node.contains(active) ? active.dataset.focus : undefined;
    const add = h('button', {
      type: 'button',
      text: 'Add link',
      'data-focus': 'add link',
      on: { click: () => write([...now(), { type: 'link', title: '', url: '', targetBlank: false }], true) },
    });
    node.replaceChildren(
      h('summary', { text: `Links (${now().length})` }),
      h('ol', { class: 'entries stack' }, now().map(entry)),
      h('div', { class: 'row' }, add),
    );
    const again = focus && node.querySelector(`[data-focus="${CSS.escape(focus)}"]:not(:disabled)`);
    if (again instanceof HTMLElement) again.focus();
    else if (focus) add.focus();
  }
  show();
  return { node, links: () => list ?? links };
}
