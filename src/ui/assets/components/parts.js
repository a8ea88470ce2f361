// Cards, tables and paged lists of the account and organisation pages.

import { h } from '../chart/dom.js';
import { changes, isSignedOut, send } from '../client/server.js';
import { confirmed } from './dialog.js';
import { errorText } from '../model/error_text.js';

/**
 * @typedef {import('../chart/dom.js').Child} Child
 * @typedef {import('../chart/request.js').ApiError} ApiError
 * @typedef {Child|Child[]} Content
 * @typedef {{heading: string, loss: string, action: string}} Confirmation
 *
 * @typedef {Object} Part
 * @property {HTMLElement} node
 * @property {(...first: Node[]) => Promise<void>} reload loads the content again; `first` is shown
 *   above it
 * @property {(text: string, action: () => any, confirmation?: Confirmation) => HTMLButtonElement}
 *   button a button that asks for the confirmation first and shows errors in the card
 */

/**
 * A time in the reader's format.
 * @param {string|null|undefined} text RFC 3339
 * @param {string} [none] the text without a time
 */
export const time = (text, none = 'Never') =>
  text
    ? h('time', {
        datetime: text,
        title: text,
        text: new Date(text).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' }),
      })
    : none;

/**
 * A table; an empty heading is a column of buttons.
 * @param {string[]} heads
 * @param {Content[][]} rows
 * @param {string} label for screen readers
 * @param {string} [empty] the text without rows
 */
export function table(heads, rows, label, empty = 'None.') {
  if (rows.length === 0) return h('p', { class: 'hint', text: empty });
  return h(
    'div',
    { class: 'scroll result', tabindex: '0', role: 'region', 'aria-label': label },
    h(
      'table',
      {},
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          heads.map((text) => h('th', { scope: 'col' }, text || h('span', { class: 'unseen', text: 'Actions' }))),
        ),
      ),
      h(
        'tbody',
        {},
        rows.map((row) =>
          h(
            'tr',
            {},
            row.map((cell) => h('td', {}, ...[cell].flat())),
          ),
        ),
      ),
    ),
  );
}

export const saved = () => h('p', { class: 'notice', role: 'status', text: 'Saved.' });

/**
 * A listing below `path`, page by page: `show` makes the content of all rows loaded so far.
 * @param {Part} part
 * @param {string} path
 * @param {(rows: any[]) => Content} show
 * @param {{limit?: string, more?: string, query?: Object<string, string>}} [options]
 * @returns {Promise<Node[]>}
 */
export async function paged(part, path, show, { limit = '200', more: text = 'Load more', query = {} } = {}) {
  const place = h('div', { class: 'stack' });
  /** @type {any[]} */
  const all = [];
  /** @type {string|null} */
  let cursor = null;
  const next = async () => {
    const page = /** @type {{data: any[], next_cursor: string|null}} */ (
      await send('GET', `${path}?${new URLSearchParams({ limit, ...query, ...(cursor ? { cursor } : {}) })}`)
    );
    all.push(...page.data);
    cursor = page.next_cursor;
    more.hidden = !cursor;
    place.replaceChildren(...nodes(show(all)));
  };
  const more = part.button(text, next);
  await next();
  return [place, more];
}

/**
 * @param {Content} content
 * @returns {(Node|string)[]}
 */
const nodes = (content) => /** @type {(Node|string)[]} */ ([content].flat().filter(Boolean));

/**
 * Shows errors in a node. A session that has ended is no error.
 * @param {HTMLElement} alert
 * @param {() => void} signedOut
 * @returns {(error: unknown) => void}
 */
const failsIn = (alert, signedOut) => (error) => {
  if (isSignedOut(error) && ['session_invalid', 'unauthenticated'].includes(/** @type {ApiError} */ (error).code))
    signedOut();
  else alert.textContent = errorText(error);
};

/**
 * A button that is disabled while its action runs.
 * @param {string} text
 * @param {() => any} action
 * @param {{alert: HTMLElement, signedOut: () => void, confirmation?: Confirmation, home?: HTMLElement}} options `alert`
 *   shows errors of the action; `home` gets the focus if the action removes the button
 */
export function actionButton(text, action, { alert, signedOut, confirmation, home }) {
  const button = h('button', { type: 'button', class: confirmation ? 'danger' : undefined, text });
  button.addEventListener('click', async () => {
    if (confirmation && !(await confirmed(confirmation))) return;
    alert.textContent = '';
    button.disabled = true;
    await Promise.resolve().then(action).catch(failsIn(alert, signedOut));
    button.disabled = false;
    // The button may be gone with its row; a disabled one has lost the focus.
    const next = button.isConnected ? button : home;
    if (document.activeElement === document.body && next?.isConnected) next.focus();
  });
  return button;
}

/**
 * A card of a page.
 * @param {{heading: string, intro?: string, fill: (part: Part) => Content|Promise<Content>,
 *   signedOut: () => void, live?: boolean, danger?: boolean}} options `signedOut` is called when
 *   the session has ended; a `live` card reloads after each change on the page
 */
export function card({ heading, intro = '', fill, signedOut, live = false, danger = false }) {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const body = h('div', { class: 'stack' });
  const title = h('h2', { tabindex: '-1', text: heading });
  const node = h(
    'section',
    { class: danger ? 'card part danger-zone' : 'card part' },
    title,
    intro && h('p', { class: 'hint', text: intro }),
    alert,
    body,
  );
  const fail = failsIn(alert, signedOut);
  /** @type {Part} */
  const part = {
    node,
    async reload(...first) {
      try {
        const content = nodes(await fill(part));
        body.replaceChildren(...first, ...content);
      } catch (error) {
        fail(error);
      }
    },
    button: (text, action, confirmation) => actionButton(text, action, { alert, signedOut, confirmation, home: title }),
  };
  if (live) {
    const follow = () => (node.isConnected ? void part.reload() : changes.removeEventListener('change', follow));
    changes.addEventListener('change', follow);
  }
  part.reload();
  return node;
}
