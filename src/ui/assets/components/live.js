// Parts of pages that refresh themselves: the refresh, lists that keep their rows, badges, labels and filters.

import { h } from '../chart/dom.js';
import { isSignedOut } from '../client/server.js';
import { errorText } from '../model/error_text.js';
import { ageText } from '../model/limit_units.js';
import { counted } from '../model/metrics.js';
import { refreshTimer } from './refresh_timer.js';

/**
 * Loads again and again while the page is seen. A newer load aborts an older one, whose answer is ignored.
 * @template Loaded
 * @param {{every: string, load: (signal: AbortSignal) => Promise<Loaded>, show: (loaded: Loaded) => void,
 *   signedOut: () => void}} options `every` is such as `10s`
 */
export function live({ every, load, show, signedOut }) {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const loading = h('p', { class: 'hint', role: 'status', text: 'Loading…' });
  /** @type {AbortController|null} */
  let request = null;
  let stopped = false;
  const refresh = async () => {
    request?.abort();
    const own = new AbortController();
    request = own;
    try {
      const loaded = await load(own.signal);
      if (own.signal.aborted || stopped) return;
      show(loaded);
      alert.textContent = '';
      loading.hidden = true;
    } catch (error) {
      if (own.signal.aborted || stopped) return;
      if (isSignedOut(error)) return signedOut();
      const old = loading.hidden ? ' The page shows older data.' : '';
      alert.textContent = `${errorText(error)}${old} The page tries again.`;
      loading.textContent = '';
    }
    if (request === own) request = null;
    timer.plan();
  };
  const timer = refreshTimer({ interval: () => every, busy: () => request !== null, refresh: () => void refresh() });
  return {
    nodes: [alert, loading],
    refresh,
    stop() {
      stopped = true;
      request?.abort();
      timer.destroy();
    },
  };
}

/**
 * A list whose rows stay in the document while their items change, so that focus, scroll position
 * and unfolded rows stay.
 * @template Item
 * @param {HTMLElement} place
 * @param {(item: Item) => string} keyOf
 * @param {(item: Item) => {node: HTMLElement, update: (item: Item) => void}} make
 */
export function liveList(place, keyOf, make) {
  /** @type {Map<string, {node: HTMLElement, update: (item: Item) => void}>} */
  const rows = new Map();
  return (/** @type {Item[]} */ items) => {
    const wanted = new Map(items.map((item) => [keyOf(item), item]));
    for (const [key, row] of rows) {
      if (wanted.has(key)) continue;
      row.node.remove();
      rows.delete(key);
    }
    let next = place.firstChild;
    for (const [key, item] of wanted) {
      const row = rows.get(key) ?? make(item);
      rows.set(key, row);
      row.update(item);
      if (row.node === next) next = next.nextSibling;
      else place.insertBefore(row.node, next);
    }
  };
}

let ids = 0;

/** An id for a heading with any text. */
export const nextId = () => `live-${(ids += 1)}`;

/** Sets a text only if it changes. @param {Node} node @param {string} text */
export const setText = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

/**
 * Fills a node again only if its content changes.
 * @param {HTMLElement} node
 * @param {unknown} shown JSON
 * @param {() => Node[]} make
 */
export function refill(node, shown, make) {
  const key = JSON.stringify(shown);
  if (node.dataset.shown === key) return;
  node.dataset.shown = key;
  node.replaceChildren(...make());
}

/**
 * Says that a list has only its first items; '' if it has all.
 * @param {number} max
 * @param {number} count
 * @param {string} noun of one item
 */
export const cutText = (max, count, noun) =>
  count > max ? `The first ${max} of ${counted(count, noun)} are shown.` : '';

/** The age of a time in words; '' if there is none. @param {string|null|undefined} at RFC 3339 */
export const ago = (at) => {
  const ms = Date.parse(at ?? '');
  return ms > 0 ? ageText(Math.max(0, (Date.now() - ms) / 1000)) : '';
};

/** A badge with the colour of a state. */
export function stateBadge() {
  const node = h('span', { class: 'badge' });
  return {
    node,
    /** @param {string} state one of the style sheet @param {string} [text] */
    set(state, text = state) {
      node.dataset.state = state;
      setText(node, text);
    },
  };
}

/** Labels as chips. @param {Record<string, string>} labels @param {string[]} [without] names that are left out */
export const chips = (labels, without = []) =>
  h(
    'span',
    { class: 'chips' },
    Object.entries(labels)
      .filter(([name]) => !without.includes(name))
      .map(([name, value]) => h('span', { class: 'chip' }, h('span', { text: name }), h('b', { text: value }))),
  );

/**
 * Details whose content is made when they are first opened.
 * @param {HTMLElement} summary
 * @param {() => (Node|false|null)[]} fill
 * @param {string} [name] a class
 */
export function unfolding(summary, fill, name = 'key') {
  const body = h('div', { class: 'stack' });
  const node = h('details', { class: name }, summary, body);
  node.addEventListener('toggle', () => {
    if (node.open && body.childElementCount === 0) body.append(...fill().filter((one) => one instanceof Node));
  });
  return node;
}

/**
 * A field that filters by text, and radio buttons with counts.
 * @param {{label: string, states: {id: string, text: string}[], change: () => void}} options the first state lets
 *   everything pass
 */
export function filterBar({ label, states, change }) {
  const input = h('input', {
    type: 'search',
    'aria-label': label,
    placeholder: label,
    autocomplete: 'off',
    spellcheck: 'false',
  });
  input.addEventListener('input', change);
  const radios = states.map(({ id, text }, at) => {
    const radio = h('input', { type: 'radio', name: 'state', value: id, checked: at === 0, on: { change } });
    const shown = h('span', { text });
    return { id, text, radio, shown, node: h('label', {}, radio, shown) };
  });
  const group = h(
    'fieldset',
    { class: 'segments' },
    h('legend', { class: 'unseen', text: 'State' }),
    radios.map(({ node }) => node),
  );
  return {
    node: h('div', { class: 'row' }, h('div', { class: 'filter' }, input), states.length > 0 && group),
    text: () => input.value.trim(),
    state: () => radios.find(({ radio }) => radio.checked)?.id ?? '',
    /** @param {Record<string, number>} all by the id of a state */
    count(all) {
      for (const { id, text, shown } of radios) setText(shown, `${text} ${(all[id] ?? 0).toLocaleString('en')}`);
    },
  };
}
