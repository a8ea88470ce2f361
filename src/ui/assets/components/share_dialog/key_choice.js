// The API key that signs the tokens: administrators choose one or create it, editors enter its id.

import { h } from '../../chart/dom.js';
import { administrators, embedKeys } from '../../client/embed.js';
import { currentUser, orgPath } from '../../client/server.js';
import { timeText } from '../../model/limit_units.js';
import { errorText } from '../../model/error_text.js';
import { permits } from '../../model/routes.js';
import { textButton } from '../buttons.js';
import { selectField, textField } from './fields.js';

/** The longest lifetime that a key allows at all, in seconds. */
const LIFETIME_MAX_S = 86_400;
const KEY_ID = /^ak_[a-z0-9]{16}$/;

/**
 * @typedef {{id: string, longest: number}} SigningKey `longest`: the lifetime in seconds that it allows
 */

/** @param {string[]} names */
const askWhom = (names) =>
  names.length > 0 ? `Ask an administrator: ${names.slice(0, 5).join(', ')}.` : 'Ask an administrator.';

/**
 * @param {{org: string, role: import('../../client/types.js').Role, changed: () => void}} options `changed` is
 *   called when another key is chosen
 * @returns {{node: HTMLElement, key: () => SigningKey | null}}
 */
export function keyChoice({ org, role, changed }) {
  const place = h('div', { class: 'stack' });
  const alert = h('p', { class: 'alert', role: 'alert' });
  /** @type {() => SigningKey | null} */
  let key = () => null;

  /** For administrators. @param {string[]} [before] ids that were listed when another key was made */
  async function list(before) {
    const { keys, own } = await embedKeys(org);
    const create = textButton(keys.length > 0 ? 'Create another key' : 'Create a key', () => make(keys).catch(fail));
    const others =
      own === 0
        ? ''
        : `${own === 1 ? 'One key is' : `${own} keys are`} not listed: you sign with your own private key there.`;
    if (keys.length === 0) {
      key = () => null;
      place.replaceChildren(
        h('p', { text: 'No API key of this organisation signs embed tokens.' }),
        others && h('p', { class: 'hint', text: others }),
        h('div', { class: 'row' }, create),
      );
      return changed();
    }
    const chosen = (before && keys.find(({ id }) => !before.includes(id))) ?? keys[0];
    const options = keys.map(({ id, name }) => ({ value: id, text: `${name} (${id})` }));
    const { node, select, about } = selectField('API key that signs', options, chosen.id);
    const current = () => keys.find(({ id }) => id === select.value) ?? chosen;
    key = () => ({ id: current().id, longest: current().embed.max_token_ttl_s });
    const describe = () => {
      const { origins, max_token_ttl_s: longest } = current().embed;
      const pages = origins.includes('*') ? 'pages of every origin' : origins.join(', ') || 'no page';
      about.textContent = `Its tokens last at most ${timeText(longest)} and work on ${pages}. ${others}`;
      changed();
    };
    select.addEventListener('change', describe);
    place.replaceChildren(node, h('div', { class: 'row' }, create));
    describe();
  }

  /** Opens the dialog for a key. @param {{id: string}[]} before */
  async function make(before) {
    const [{ newKey }, me] = await Promise.all([import('../key_dialog.js'), currentUser()]);
    if (me && (await newKey({ me, slug: org, base: orgPath(org), purpose: 'embed' })))
      await list(before.map(({ id }) => id));
  }

  /** For editors. */
  async function enter() {
    const names = await administrators(org);
    const id = textField(
      'Id of the API key that signs',
      'key',
      { placeholder: 'ak_…' },
      `Only administrators see the keys. ${askWhom(names)}`,
    );
    id.input.addEventListener('input', changed);
    key = () => (KEY_ID.test(id.value().trim()) ? { id: id.value().trim(), longest: LIFETIME_MAX_S } : null);
    place.replaceChildren(id.node);
  }

  async function refuse() {
    const names = await administrators(org);
    place.replaceChildren(h('p', { text: `Viewers cannot sign tokens. ${askWhom(names)}` }));
  }

  const fail = (/** @type {unknown} */ error) => {
    alert.textContent = errorText(error);
  };
  (permits(role, 'admin') ? list() : permits(role, 'editor') ? enter() : refuse()).catch(fail);
  return { node: h('div', { class: 'stack' }, alert, place), key: () => key() };
}
