// Cards and buttons of the account and organisation pages, and the prompt to sign in again.

import { h } from '../chart/dom.js';
import { field, form, words } from './sign_in.js';
import { send } from './server.js';

export const when = (text, none = 'never') => (text
  ? h('time', { datetime: text, title: text, text: new Date(text).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' }) })
  : none);

/** Rows below a line of headings; a cell is text or a node. */
export function table(heads, rows, empty = 'None.') {
  if (rows.length === 0) return h('p', { class: 'hint', text: empty });
  const cells = (row) => row.map((cell) => h('td', {}, ...[cell].flat()));
  return h('div', { class: 'scroll result' }, h('table', {},
    h('thead', {}, h('tr', {}, heads.map((text) => h('th', { scope: 'col', text })))),
    h('tbody', {}, rows.map((row) => h('tr', {}, cells(row))))));
}

export const saved = () => h('p', { class: 'notice', role: 'status', text: 'Saved.' });

let count = 0;

/** A labelled choice. */
export function choice(label, name, options, value) {
  count += 1;
  const select = h('select', { name, id: `choice-${count}` }, options.map((text) => h('option', { value: text, text, selected: text === value })));
  return h('div', { class: 'field' }, h('label', { for: select.id, text: label }), select);
}

/** A labelled text of several lines. */
export function lines(label, name, value, rows, hint) {
  count += 1;
  const id = `lines-${count}`;
  const input = h('textarea', { id, name, rows: String(rows), spellcheck: 'false', 'aria-describedby': `${id}-hint` });
  input.value = value;
  return h('div', { class: 'field' }, h('label', { for: id, text: label }), input, h('p', { class: 'hint', id: `${id}-hint`, text: hint }));
}

/** What is shown once. */
export function secret(intro, text) {
  return h('div', { class: 'notice stack', role: 'status' }, h('strong', { text: intro }), h('pre', { class: 'snippet', text }));
}

/** A listing below `path`, a page at a time: `show` makes what stands there of all rows that are here. */
export async function pages(part, path, show, { limit = '200', words: text = 'More' } = {}) {
  const place = h('div', { class: 'stack' });
  const all = [];
  let cursor = null;
  const next = async () => {
    const page = await send('GET', `${path}?${new URLSearchParams({ limit, ...(cursor ? { cursor } : {}) })}`);
    all.push(...page.data);
    cursor = page.next_cursor;
    more.hidden = !cursor;
    place.replaceChildren(...[show(all)].flat().filter(Boolean));
  };
  const more = part.button(text, next);
  await next();
  return [place, more];
}

/** Fills a card with the log of events below `path`, newest first. */
export const audit = (path) => (part) => pages(part, path, (rows) => table(['When', 'Who', 'What', 'To what', '', 'From'], rows.map((row) => [
  when(row.at), row.actor.email ?? row.actor.id ?? row.actor.type, row.action, row.target, row.meta.detail ?? '', row.ip ?? ''])), { limit: '50', words: 'Older' });

/** Asks who sits there, where a login is older than what they want to do allows. True once it is proven. */
function prove(me) {
  const dialog = h('dialog', { class: 'card' });
  return new Promise((answer) => {
    const close = (proven) => { dialog.remove(); answer(proven); };
    const given = me.user.has_password
      ? field('Password', 'password', { type: 'password', autocomplete: 'current-password', maxlength: '1024' })
      : field('Code of your app', 'code', { inputmode: 'numeric', autocomplete: 'one-time-code' });
    const possible = me.user.has_password || me.twofa.enabled;
    const entry = possible && form({
      submit: 'Go on',
      action: async (values) => { await send('POST', '/auth/reauth', values); close(true); },
    }, given);
    dialog.append(h('h2', { text: 'Is it you?' }),
      h('p', { class: 'hint', text: possible ? 'Your last login is older than fifteen minutes.' : 'Sign out and in again: your login is older than fifteen minutes.' }),
      ...[entry].filter(Boolean), h('button', { type: 'button', class: 'plain', text: 'Cancel', on: { click: () => close(false) } }));
    dialog.addEventListener('cancel', () => close(false));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A call that asks for a fresh login where the server wants one. */
export async function insist(me, method, path, body) {
  try {
    return await send(method, path, body);
  } catch (error) {
    if (error.code !== 'reauth_required' || !(await prove(me))) throw error;
    return send(method, path, body);
  }
}

/**
 * A card of a page. `fill(part)` loads its content; `part.again()` reloads it, `part.button(text, work, sure)` makes a
 * button that asks `sure` first and shows errors in the card.
 */
export function card(heading, intro, fill, lost) {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const body = h('div', { class: 'stack' });
  const node = h('section', { class: 'card part' }, h('h2', { text: heading }), intro && h('p', { class: 'hint', text: intro }), alert, body);
  const said = (error) => {
    if (error.status === 401 && ['session_invalid', 'unauthenticated'].includes(error.code)) lost();
    else alert.textContent = words(error);
  };
  const part = {
    async again(...first) {
      try {
        body.replaceChildren(...first, ...[await fill(part)].flat().filter(Boolean));
      } catch (error) {
        said(error);
      }
    },
    button(text, work, sure = '') {
      const button = h('button', { type: 'button', text });
      button.addEventListener('click', async () => {
        if (sure && !confirm(sure)) return;
        alert.textContent = '';
        button.disabled = true;
        await Promise.resolve().then(work).catch(said);
        button.disabled = false;
      });
      return button;
    },
  };
  part.again();
  return node;
}
