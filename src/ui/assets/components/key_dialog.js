// The guided dialog that makes an API key: purpose, permissions, expiry, and a snippet that uses it.

import { h } from '../chart/dom.js';
import { ROOT } from '../client/server.js';
import { copyable } from './copy.js';
import { openDialog, sendConfirmed } from './dialog.js';
import { choice, field, form, lines } from './form.js';
import { SCOPES, policyFields, policyOf, rateFields, ratesOf, restricts, scopeFields, scopesOf } from './key_form.js';
import { PURPOSES, keySnippets } from '../model/snippets.js';
import { snippetChoice } from './snippet_choice.js';

const DAY_MS = 86_400_000;
/** Ends of the key that are offered, in days from now. @type {[string, string][]} */
const EXPIRIES = [
  ['', 'Never'],
  ['30', 'In 30 days'],
  ['90', 'In 90 days'],
  ['365', 'In a year'],
];

/**
 * A choice of cards.
 * @param {string} legend
 * @param {string} name
 * @param {{value: string, text: string, about?: string}[]} options
 * @param {string} chosen the value of one of them
 */
const cards = (legend, name, options, chosen) =>
  h(
    'fieldset',
    { class: 'choices' },
    h('legend', { text: legend }),
    options.map(({ value, text, about }) =>
      h(
        'label',
        {},
        h('input', { type: 'radio', name, value, checked: value === chosen }),
        h('span', {}, h('strong', { text }), about && h('small', { class: 'hint', text: about })),
      ),
    ),
  );

/** @param {import('./form.js').Values} values */
function keyBody(values) {
  const scopes = scopesOf(values);
  const publicKey = values.public_key.trim();
  const policy = policyOf(values);
  const rates = ratesOf(values, scopes);
  const days = Number(values.days.trim() || values.expiry);
  const signature = values.alg !== 'HS256' || publicKey ? { alg: values.alg, public_key: publicKey || undefined } : {};
  return {
    name: values.name.trim(),
    scopes,
    ingest: rates.ingest,
    read: rates.read,
    embed:
      scopes.includes('embed') || publicKey || restricts(policy)
        ? { ...signature, origins: values.origins.split(/\s+/).filter(Boolean), policy, ...rates.embed }
        : undefined,
    expires_at: days > 0 ? new Date(Date.now() + days * DAY_MS).toISOString() : undefined,
  };
}

/** The second step: name, scopes, and rarely used settings. */
const permissions = () => [
  field('Name', 'name', { maxlength: '200', autocomplete: 'off' }, 'Shown in the list of keys and in the audit log.'),
  h('fieldset', {}, h('legend', { text: 'The key may' }), scopeFields()),
  h('details', {}, h('summary', { text: 'Rate limits' }), rateFields()),
  h(
    'details',
    { class: 'embed-settings' },
    h('summary', { text: 'Embed tokens: signature and permissions' }),
    h(
      'div',
      { class: 'stack' },
      choice('Signature', 'alg', ['HS256', 'EdDSA', 'ES256', 'RS256'], 'HS256'),
      lines(
        'Public key',
        'public_key',
        '',
        3,
        'SPKI PEM or a JWK, for EdDSA, ES256 and RS256. HS256 signs with the secret.',
      ),
      lines(
        'Origins',
        'origins',
        '*',
        2,
        'Pages that may use a token: one origin (scheme and host) per line; * permits every page.',
      ),
      policyFields(),
    ),
  ),
];

/**
 * The secret and snippets that use it.
 * @param {{slug: string, made: any, purpose: string}} key `made` is the API's answer
 */
function result({ slug, made, purpose }) {
  const base = `${location.origin}${ROOT}/api/v1/orgs/${encodeURIComponent(slug)}`;
  const snippets = snippetChoice('Snippet');
  snippets.show(keySnippets({ base, key: made.secret, scopes: made.scopes, purpose }));
  return [copyable(`Secret of ${made.name}, shown only now:`, made.secret, 'secret'), snippets.node];
}

/**
 * Opens the dialog. Resolves when it is closed, with whether a key was made.
 * @param {{me: import('../client/types.js').Me, slug: string, base: string, purpose?: string}} context `base` is
 *   the organisation's path, `purpose` the one that is chosen at first
 * @returns {Promise<boolean>}
 */
export async function newKey({ me, slug, base, purpose = PURPOSES[0].id }) {
  let created = false;
  const made = await openDialog(
    'New API key',
    false,
    (close, title) => {
      const steps = [
        h(
          'div',
          { class: 'stack' },
          cards(
            'What is the key for?',
            'purpose',
            PURPOSES.map(({ id, text, about }) => ({ value: id, text, about })),
            purpose,
          ),
        ),
        h('div', { class: 'stack' }, permissions()),
        h(
          'div',
          { class: 'stack' },
          cards(
            'When does the key expire?',
            'expiry',
            EXPIRIES.map(([value, text]) => ({ value, text })),
            '',
          ),
          field(
            'Expires after (days)',
            'days',
            { inputmode: 'numeric', pattern: '[0-9]{1,5}', required: false, autocomplete: 'off' },
            'Only for another time than those above.',
          ),
        ),
      ];
      const titles = ['purpose', 'permissions', 'expiry'];
      let step = 0;
      /** The purpose that filled in the permissions. */
      let filled = '';
      const back = h('button', { type: 'button', text: 'Back', on: { click: () => go(step - 1) } });
      const cancel = h('button', { type: 'button', text: 'Cancel', on: { click: () => close(false) } });

      const entry = form(
        {
          submit: 'Next',
          action: async (values) => {
            if (step === 1 && scopesOf(values).length === 0) throw new Error('Choose at least one permission.');
            if (step === 1) policyOf(values);
            if (step < steps.length - 1) return go(step + 1);
            const answer = await sendConfirmed(me, 'POST', `${base}/api-keys`, keyBody(values));
            created = true;
            title.textContent = 'API key created';
            const done = h('button', { type: 'button', class: 'primary', text: 'Done' });
            done.addEventListener('click', () => close(true));
            entry.replaceWith(
              ...result({ slug, made: answer, purpose: values.purpose }),
              h('div', { class: 'row end' }, done),
            );
            title.tabIndex = -1;
            title.focus();
          },
        },
        ...steps,
      );
      const next = /** @type {HTMLButtonElement} */ (entry.querySelector('button.primary'));
      entry.append(h('div', { class: 'row end' }, cancel, back, next));

      /** Fills in the settings of the purpose, unless the person changed them since. */
      function fill() {
        const purpose = PURPOSES.find(({ id }) => id === new FormData(entry).get('purpose'));
        if (!purpose || purpose.id === filled) return;
        filled = purpose.id;
        const input = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (entry.elements.namedItem(name));
        input('name').value = purpose.name;
        for (const scope of Object.keys(SCOPES)) input(scope).checked = purpose.scopes.includes(scope);
      }
      /** @param {number} to */
      function go(to) {
        step = to;
        if (to === 1) fill();
        steps.forEach((node, index) => {
          node.hidden = index !== to;
        });
        title.textContent = `New API key, step ${to + 1} of ${steps.length}: ${titles[to]}`;
        back.hidden = to === 0;
        next.textContent = to === steps.length - 1 ? 'Create key' : 'Next';
        const first = steps[to].querySelector('input:checked, input');
        if (entry.isConnected && first instanceof HTMLElement) first.focus();
      }
      go(0);
      return [entry];
    },
    { class: 'wide' },
  );
  return made || created;
}
