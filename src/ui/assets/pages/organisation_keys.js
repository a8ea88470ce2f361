// The API keys of an organisation.

import { h } from '../chart/dom.js';
import { send } from '../client/server.js';
import { copyable } from '../components/copy.js';
import { sendConfirmed } from '../components/dialog.js';
import { embedTokenForm } from '../components/embed_token.js';
import { choice, field, form, lines } from '../components/form.js';
import {
  keyFields,
  policyFields,
  policyOf,
  rateFields,
  ratesOf,
  restricts,
  scopeFields,
  scopesOf,
} from '../components/key_form.js';
import { paged, saved, time } from '../components/parts.js';

/**
 * @typedef {import('../client/types.js').Me} Me
 * @typedef {import('../client/types.js').ApiKey} ApiKey
 * @typedef {import('../components/parts.js').Part} Part
 * @typedef {{me: Me, slug: string, base: string}} Context `base` is the organisation's path
 */

const DAY_MS = 86_400_000;

/**
 * @param {Context} context
 * @param {Part} part
 * @param {ApiKey} row
 */
function keyRow({ me, slug, base }, part, row) {
  const path = `${base}/api-keys/${row.id}`;
  const { fields, changes } = keyFields(row);
  const change = form(
    {
      submit: 'Save',
      action: async (values) => {
        await sendConfirmed(me, 'PATCH', path, changes(values));
        await part.reload(saved());
      },
    },
    ...fields,
  );
  const overlap = h(
    'select',
    { 'aria-label': 'When the old secret stops working' },
    [
      ['0', 'at once'],
      ['3600', 'in an hour'],
      ['86400', 'in a day'],
      ['604800', 'in a week'],
    ].map(([value, text]) => h('option', { value, text: `the old secret ends ${text}` })),
  );
  const about = [
    `${row.hint} · ${row.embed.alg}`,
    row.disabled && ' · disabled',
    row.expires_at && ' · expires ',
    row.expires_at && time(row.expires_at),
  ];
  return h(
    'details',
    { class: 'key' },
    h(
      'summary',
      {},
      h('strong', { text: row.name }),
      ` ${row.scopes.join(', ')} `,
      h(
        'small',
        { class: 'hint' },
        row.id,
        ' · ',
        ...about,
        row.last_used_at ? ' · used ' : ' · ',
        time(row.last_used_at, 'never used'),
      ),
    ),
    h(
      'div',
      { class: 'stack' },
      h(
        'div',
        { class: 'row' },
        part.button('Rotate', async () => {
          const made = await sendConfirmed(me, 'POST', `${path}/rotate`, { overlap_s: Number(overlap.value) });
          await part.reload(copyable(`New secret of ${row.name}, shown only now:`, made.secret, 'secret'));
        }),
        overlap,
        row.scopes.includes('embed') &&
          part.button(
            'Revoke its tokens',
            async () => {
              await send('POST', `${path}/revoke-tokens`);
              await part.reload();
            },
            {
              heading: `Revoke the tokens of ${row.name}`,
              loss: 'Every embed token that was signed until now stops working. Pages need new tokens.',
              action: 'Revoke tokens',
            },
          ),
        row.disabled
          ? part.button('Enable', async () => {
              await sendConfirmed(me, 'PATCH', path, { disabled: false });
              await part.reload();
            })
          : part.button('Disable', async () => {
              await sendConfirmed(me, 'PATCH', path, { disabled: true });
              await part.reload();
            }),
        part.button(
          'Delete',
          async () => {
            await send('DELETE', path);
            await part.reload();
          },
          {
            heading: `Delete ${row.name}`,
            loss: `The key ${row.name} and all its embed tokens stop working at once. The key cannot be restored.`,
            action: 'Delete key',
          },
        ),
      ),
      row.scopes.includes('embed') && row.embed.alg === 'HS256' && embedTokenForm({ slug, base, key: row }),
      change,
    ),
  );
}

/**
 * @param {Context} context
 * @param {Part} part
 */
export async function apiKeys(context, part) {
  const { me, base } = context;
  const create = form(
    {
      submit: 'Create key',
      action: async (values) => {
        const held = scopesOf(values);
        const publicKey = values.public_key.trim();
        const policy = policyOf(values);
        const signature =
          values.alg !== 'HS256' || publicKey ? { alg: values.alg, public_key: publicKey || undefined } : {};
        const rates = ratesOf(values, held);
        const days = Number(values.days);
        const made = await sendConfirmed(me, 'POST', `${base}/api-keys`, {
          name: values.name,
          scopes: held,
          ingest: rates.ingest,
          read: rates.read,
          embed:
            held.includes('embed') || publicKey || restricts(policy)
              ? { ...signature, origins: values.origins.split(/\s+/).filter(Boolean), policy, ...rates.embed }
              : undefined,
          expires_at: days > 0 ? new Date(Date.now() + days * DAY_MS).toISOString() : undefined,
        });
        await part.reload(copyable(`Secret of ${made.name}, shown only now:`, made.secret, 'secret'));
      },
    },
    field('Name', 'name', { maxlength: '200', autocomplete: 'off' }, 'The purpose of the key.'),
    scopeFields(),
    field(
      'Expires after (days)',
      'days',
      { inputmode: 'numeric', pattern: '[0-9]{1,5}', required: false, placeholder: 'never' },
      '',
    ),
    h('details', {}, h('summary', { text: 'Limits' }), rateFields()),
    h(
      'details',
      {},
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
          'Pages that may use a token: one origin (scheme and host) a line; * permits every page.',
        ),
        policyFields(),
      ),
    ),
  );
  const listed = await paged(part, `${base}/api-keys`, (rows) =>
    rows.length ? rows.map((row) => keyRow(context, part, row)) : h('p', { class: 'hint', text: 'No keys.' }),
  );
  return [...listed, h('h3', { text: 'New key' }), create];
}
