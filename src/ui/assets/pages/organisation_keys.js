// The API keys of an organisation.

import { h } from '../chart/dom.js';
import { send } from '../client/server.js';
import { copyable } from '../components/copy.js';
import { sendConfirmed } from '../components/dialog.js';
import { embedTokenForm } from '../components/embed_token.js';
import { form } from '../components/form.js';
import { SCOPES, keyFields } from '../components/key_form.js';
import { paged, saved, time } from '../components/parts.js';
import { toast } from '../components/toast.js';

/**
 * @typedef {import('../client/types.js').Me} Me
 * @typedef {import('../client/types.js').ApiKey} ApiKey
 * @typedef {import('../components/parts.js').Part} Part
 * @typedef {{me: Me, slug: string, base: string}} Context `base` is the organisation's path
 */

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
    row.hint,
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
      h(
        'span',
        { class: 'chips' },
        row.scopes.map((scope) => h('span', { class: 'badge', text: SCOPES[scope] ?? scope })),
      ),
      h(
        'small',
        { class: 'hint' },
        ...about,
        row.last_used_at ? ' · last used ' : ' · ',
        time(row.last_used_at, 'Never used'),
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
              toast(`The tokens of ${row.name} were revoked.`);
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
            toast(`The key ${row.name} was deleted.`);
            await part.reload();
          },
          {
            heading: `Delete ${row.name}`,
            loss: `The key ${row.name} and all its embed tokens stop working at once. The key cannot be restored.`,
            action: 'Delete key',
          },
        ),
      ),
      row.scopes.includes('embed') && row.embed.alg === 'HS256' && embedTokenForm({ slug, key: row }),
      change,
    ),
  );
}

/**
 * The list of keys. With `?new=` in the address, the dialog for another key opens.
 * @param {Context} context
 * @param {Part} part
 */
export async function apiKeys(context, part) {
  const make = async () => {
    const { newKey } = await import('../components/key_dialog.js');
    if (await newKey(context)) await part.reload();
  };
  const create = h('button', { type: 'button', class: 'primary', text: 'New API key', on: { click: make } });
  const listed = await paged(part, `${context.base}/api-keys`, (rows) =>
    rows.length ? rows.map((row) => keyRow(context, part, row)) : h('p', { class: 'hint', text: 'No keys.' }),
  );
  const url = new URL(location.href);
  if (url.searchParams.has('new')) {
    url.searchParams.delete('new');
    history.replaceState(history.state, '', url);
    void make();
  }
  return [h('div', { class: 'row' }, create), ...listed];
}
