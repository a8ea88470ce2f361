// Mints an embed token of an API key, and shows the element that uses it.

import { h } from '../chart/dom.js';
import { mintToken } from '../client/embed.js';
import { ROOT } from '../client/server.js';
import { chartHtml } from '../model/share_html.js';
import { lifetimeOf } from '../model/share_policy.js';
import { copyable } from './copy.js';
import { field, form } from './form.js';
import { time } from './parts.js';

/**
 * The form that mints a token; the token is shown below it.
 * @param {{slug: string, key: import('../client/types.js').ApiKey}} options
 */
export function embedTokenForm({ slug, key }) {
  const place = h('div', { class: 'stack' });
  const entry = form(
    {
      submit: 'Mint token',
      action: async (values) => {
        const given = values.lifetime.trim();
        const minted = await mintToken(slug, {
          api_key_id: key.id,
          ...(given ? { ttl_s: lifetimeOf(given, key.embed.max_token_ttl_s) } : {}),
        });
        const server = { server: `${location.origin}${ROOT}`, org: slug };
        const html = chartHtml(server, { expr: 'up', range: '1h', token: minted.token });
        place.replaceChildren(
          h(
            'p',
            { class: 'hint' },
            'Expires ',
            time(minted.expires_at),
            '. A page that stays open needs the attribute token-endpoint, a URL that returns fresh tokens.',
          ),
          copyable('Token:', minted.token, 'Embed token'),
          copyable('A page that uses it:', html, 'HTML snippet'),
        );
      },
    },
    field(
      'Lifetime',
      'lifetime',
      { required: false, placeholder: '1h', autocomplete: 'off' },
      'Such as 15m or 1h; the key limits it.',
    ),
  );
  return h('details', {}, h('summary', { text: 'Mint an embed token' }), h('div', { class: 'stack' }, entry, place));
}
