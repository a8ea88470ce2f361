// Mints an embed token of an API key, and shows the element that uses it.

import { h } from '../chart/dom.js';
import { ROOT, send } from '../client/server.js';
import { parseDuration } from '../chart/scale.js';
import { copyable } from './copy.js';
import { field, form } from './form.js';
import { time } from './parts.js';

/**
 * The form that mints a token; the token is shown below it.
 * @param {{slug: string, base: string, key: import('../client/types.js').ApiKey}} options `base` is
 *   the organisation's path
 */
export function embedTokenForm({ slug, base, key }) {
  const place = h('div', { class: 'stack' });
  const entry = form(
    {
      submit: 'Mint token',
      action: async (values) => {
        const seconds = values.lifetime.trim() ? parseDuration(values.lifetime) : null;
        if (values.lifetime.trim() && !Number.isInteger(seconds))
          throw new Error('Lifetime: enter a duration such as 15m or 1h.');
        const minted = await send('POST', `${base}/embed/tokens`, {
          api_key_id: key.id,
          ...(seconds ? { ttl_s: seconds } : {}),
        });
        const origin = `${location.origin}${ROOT}`;
        const html = [
          `<script type="module" src="${origin}/embed.js"></script>`,
          `<metric-chart org="${slug}" expr="up" range="1h" token="${minted.token}"></metric-chart>`,
        ].join('\n');
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
