// The ingest key of the page Add data: created or pasted, and kept in the page only.

import { h } from '../../chart/dom.js';
import { administrators } from '../../client/embed.js';
import { currentUser, orgPath } from '../../client/server.js';
import { errorText } from '../../model/error_text.js';
import { isKey } from '../../model/snippets.js';
import { copyButton } from '../copy.js';
import { sendConfirmed } from '../dialog.js';

/** The most administrators that are named. */
const NAMED_MAX = 3;

/**
 * The card that gets a key. `changed` is called with each new secret.
 * @param {{org: string, role: import('../../client/types.js').Role,
 *   changed: (key: string) => void}} options
 */
export function keyCard({ org, role, changed }) {
  const creates = role === 'owner' || role === 'admin';
  const alert = h('p', { class: 'alert', role: 'alert' });
  const content = h('div', { class: 'stack' });
  const made = (/** @type {string} */ name, /** @type {string} */ secret) => {
    changed(secret);
    const shown = h('code', { class: 'secret', text: secret });
    content.replaceChildren(
      h('p', { class: 'success', role: 'status', text: `Key ${name} created. All snippets below contain it.` }),
      h(
        'div',
        { class: 'row' },
        shown,
        copyButton(() => secret, { what: 'key', source: shown }),
      ),
      h('p', {
        class: 'hint',
        text: 'The key is shown only now. It writes samples to this organisation and cannot read anything.',
      }),
    );
  };
  const create = h('button', { type: 'button', class: 'primary', text: 'Create ingest key' });
  create.addEventListener('click', async () => {
    alert.textContent = '';
    create.disabled = true;
    const name = `ingest ${new Date().toISOString().slice(0, 16).replace('T', ' ')}`;
    try {
      const me = await currentUser();
      if (!me) throw new Error('The session has ended. Sign in again.');
      const body = { name, scopes: ['ingest'] };
      const answer = await sendConfirmed(me, 'POST', `${orgPath(org)}/api-keys`, body);
      made(name, answer.secret);
    } catch (error) {
      alert.textContent = errorText(error);
      create.disabled = false;
    }
  });
  const given = h('input', {
    id: 'own-key',
    type: 'text',
    placeholder: 'msk_…',
    autocomplete: 'off',
    spellcheck: 'false',
    autocapitalize: 'none',
    maxlength: '200',
    'aria-describedby': 'own-key-hint',
  });
  const hint = h('p', { id: 'own-key-hint', class: 'hint', text: 'It stays in this page and is not sent.' });
  given.addEventListener('input', () => {
    const text = given.value.trim();
    const fits = text === '' || isKey(text);
    given.toggleAttribute('aria-invalid', false);
    if (!fits) given.setAttribute('aria-invalid', 'true');
    hint.textContent = fits ? 'It stays in this page and is not sent.' : 'A key has letters, digits, - and _ only.';
    changed(fits ? text : '');
  });
  const ask = h('p', {
    class: 'hint',
    text: 'Administrators of the organisation create keys. Ask one of them, and paste the key here.',
  });
  const nameThem = async () => {
    const names = (await administrators(org)).slice(0, NAMED_MAX);
    if (names.length > 0) ask.textContent = `An administrator creates keys. Ask ${names.join(' or ')}, and paste the key here.`;
  };
  // Without names, the sentence is right all the same.
  if (!creates) nameThem().catch(() => {});
  const paste = h('div', { class: 'field' }, h('label', { for: 'own-key', text: 'Ingest key' }), given, hint);
  content.append(
    ...(creates
      ? [
          h('p', {
            class: 'hint',
            text: 'A program that sends samples needs a key. All snippets below will contain it.',
          }),
          h('div', { class: 'row' }, create),
          h('details', {}, h('summary', { text: 'Use a key that you have' }), paste),
        ]
      : [ask, paste]),
  );
  return h(
    'section',
    { class: 'card part', 'aria-labelledby': 'key-title' },
    h('h2', { id: 'key-title', text: 'Ingest key' }),
    alert,
    content,
  );
}
