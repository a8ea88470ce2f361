// The shadow tree of <metric-alerts>: a list for each state, and a text without alerts.

import { h } from '../chart/dom.js';
import { sheet } from './style.js';
import { countText, durationText } from './times.js';

/**
 * @typedef {Object} Alert
 * @property {'firing'|'pending'} state
 * @property {Record<string, string>} labels
 * @property {number} active_since unix seconds
 * @property {number|null} firing_since unix seconds; null of a pending alert
 * @property {Record<string, string>} annotations those that the token grants
 * @property {string} [value] absent unless the token grants it
 *
 * @typedef {Object} AlertPage
 * @property {Alert[]} data firing before pending alerts, the newest first
 * @property {{firing: number, pending: number}} counts of all pages
 * @property {string|null} next_cursor null on the last page
 *
 * @typedef {'idle'|'loading'|'drawn'|'empty'|'error'} State
 */

/** The longest text of a label or annotation that is shown, in characters. */
const TEXT_MAX = 1000;
/** The annotations that are shown first. */
const FIRST = ['summary', 'description'];
const STATES = /** @type {const} */ ([
  ['firing', 'Firing'],
  ['pending', 'Pending'],
]);

/** @param {string} text */
const shortened = (text) => (text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}…` : text);

/** @param {Record<string, string>} annotations */
function ordered(annotations) {
  const rank = (/** @type {string} */ name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return Object.entries(annotations).sort(([a], [b]) => rank(a) - rank(b));
}

/** @param {Alert} alert */
function alertNode({ state, labels, active_since: since, annotations, value }) {
  const { alertname = 'Alert', ...rest } = labels;
  const date = new Date(since * 1000);
  const when = Number.isNaN(date.getTime()) ? '' : date.toISOString();
  return h(
    'li',
    { class: 'alert', part: 'alert' },
    h(
      'div',
      { class: 'head' },
      h('span', { class: 'badge', part: 'alert-state', text: state === 'firing' ? 'Firing' : 'Pending' }),
      h('span', { class: 'name', part: 'alert-name', text: shortened(alertname) }),
      value !== undefined && h('span', { class: 'value', text: `value ${value}` }),
      h('time', { datetime: when, title: date.toLocaleString() }),
    ),
    ordered(annotations).map(([name, text]) =>
      h('p', {
        class: 'annotation',
        part: 'annotation',
        text: shortened(FIRST.includes(name) ? text : `${name}: ${text}`),
      }),
    ),
    Object.keys(rest).length > 0 &&
      h(
        'ul',
        { class: 'labels', part: 'labels', 'aria-label': 'Labels' },
        Object.entries(rest).map(([name, text]) => h('li', { text: shortened(`${name}: ${text}`) })),
      ),
  );
}

export class AlertListView {
  #parts;
  #retry;
  /** The page that is shown. @type {AlertPage|null} */
  #page = null;
  #only = '';

  /**
   * @param {HTMLElement} host
   * @param {{retry: () => void, more: () => void}} actions
   */
  constructor(host, { retry, more }) {
    this.#retry = retry;
    const root = host.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [sheet];
    const title = h('div', { class: 'title', part: 'title', id: 'title' });
    const summary = h('p', { class: 'summary', part: 'summary', role: 'status' });
    const groups = h('div', { class: 'groups' });
    const note = h('p', { class: 'note', part: 'note' });
    const next = h('button', { type: 'button', part: 'more', hidden: true, text: 'Show more', on: { click: more } });
    const state = h('div', { class: 'state', part: 'state', role: 'status' });
    const frame = h('section', { class: 'frame', part: 'frame' }, title, summary, state, groups, note, next);
    root.append(frame);
    this.#parts = { frame, title, summary, groups, note, next, state };
    this.heading = '';
  }

  /** @param {string} text */
  set heading(text) {
    this.#parts.title.textContent = text;
    this.#parts.frame.setAttribute('aria-label', text || 'Alerts');
  }

  /** Whether a page is shown. */
  get hasData() {
    return this.#page !== null;
  }

  /**
   * Shows a page.
   * @param {AlertPage} page
   * @param {{only: string, hasMore: boolean}} how the only state that is listed, or '', and whether
   *   the list may become longer
   */
  show(page, { only, hasMore }) {
    const { groups, note, next, summary } = this.#parts;
    this.#page = page;
    this.#only = only;
    const groupsOf = STATES.map(([state, name]) => {
      const alerts = page.data.filter((alert) => alert.state === state);
      if (alerts.length === 0) return null;
      const heading = `heading-${state}`;
      return h(
        'section',
        { class: `group ${state}`, part: `group ${state}`, 'aria-labelledby': heading },
        h('p', { class: 'heading', id: heading, part: 'group-title', text: `${name} (${page.counts[state]})` }),
        h('ul', { class: 'alerts', part: 'alerts' }, alerts.map(alertNode)),
      );
    });
    groups.replaceChildren(...groupsOf.filter((group) => group !== null));
    const all = only ? page.counts[only === 'firing' ? 'firing' : 'pending'] : page.counts.firing + page.counts.pending;
    const isCut = page.data.length < all;
    note.textContent = isCut ? `Showing ${page.data.length} of ${all} alerts.` : '';
    next.hidden = !(isCut && hasMore);
    const text = page.data.length > 0 ? countText(page.counts, only) : '';
    // A screen reader reads each change.
    if (summary.textContent !== text) summary.textContent = text;
    this.tick();
    this.settle(page.data.length > 0 ? 'drawn' : 'empty');
  }

  /** Removes the shown lists. */
  forget() {
    const { groups, note, next, summary } = this.#parts;
    this.#page = null;
    groups.replaceChildren();
    summary.textContent = note.textContent = '';
    next.hidden = true;
  }

  /** Writes how long the alerts have been active. */
  tick() {
    const now = Date.now();
    for (const node of this.#parts.groups.querySelectorAll('time')) {
      const text = `for ${durationText((now - Date.parse(node.dateTime)) / 1000)}`;
      if (node.textContent !== text) node.textContent = text;
    }
  }

  /**
   * Shows a text in place of a list.
   * @param {State} state
   * @param {import('../chart/api_error.js').ApiError} [problem] in state `error`
   * @param {import('../chart/problems.js').Words|null} [words] for visitors of an embedding page;
   *   null on pages of the server itself, which show the error
   */
  settle(state, problem, words = null) {
    const box = this.#parts.state;
    const host = /** @type {ShadowRoot} */ (box.getRootNode()).host;
    if (host instanceof HTMLElement) host.dataset.state = state;
    const again = () => h('button', { type: 'button', text: 'Try again', on: { click: this.#retry } });
    box.className = `state ${state}`;
    if (state === 'loading' && !this.hasData) box.replaceChildren(h('p', { text: 'Loading…' }));
    else if (state === 'empty') {
      box.replaceChildren(h('strong', { text: this.#only ? `No ${this.#only} alerts` : 'No alerts' }));
    } else if (state === 'error' && this.hasData) {
      box.classList.add('late');
      box.replaceChildren(h('span', { text: words?.visitor ?? `Not updated: ${problem?.detail}` }));
    } else if (state === 'error' && words) {
      box.replaceChildren(h('p', { text: words.visitor }), words.retry === 'ask' ? again() : '');
    } else if (state === 'error') {
      const trace = [problem?.code, problem?.requestId].filter(Boolean).join(' · ');
      box.replaceChildren(
        h('strong', { text: 'No alerts to show' }),
        h('p', { text: problem?.detail }),
        ...(trace ? [h('p', { class: 'code', text: trace })] : []),
        again(),
      );
    } else box.replaceChildren();
  }
}
