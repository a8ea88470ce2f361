// "Try it": mints a token for a few minutes, shows the element with it, and the permissions of the
// token.

import { h } from '../../chart/dom.js';
import { introspect, mintToken } from '../../client/embed.js';
import { ROOT } from '../../client/server.js';
import { errorText } from '../../model/error_text.js';
import { time } from '../parts.js';

/** The lifetime of the token of a preview in seconds, unless the key allows less. */
const LIFETIME_S = 300;
/** The most bytes of a token that the server reads, inclusive. */
const TOKEN_MAX = 4096;

/**
 * @typedef {Object} Tried
 * @property {string} org
 * @property {string} kid
 * @property {number} longest the lifetime in seconds that the key allows
 * @property {Object<string, any>} ms
 * @property {'metric-chart' | 'metric-dashboard'} tag of the element
 * @property {Object<string, string>} attributes of the element but the token
 */

/**
 * The URL of a file of the version of this module: browsers may keep `/embed.js` of an earlier one.
 * @param {string} name
 */
export const fileUrl = (name) => new URL(`../../${name}`, import.meta.url).href;

/** Loads the script that defines an element. @param {'metric-chart' | 'metric-dashboard'} tag */
export async function define(tag) {
  if (customElements.get(tag)) return;
  const file = tag === 'metric-chart' ? 'embed.js' : 'embed-dashboard.js';
  await import(`${fileUrl(file)}`).catch(() => {
    throw new Error(`This server has no element ${tag} (${file}): update it to share dashboards.`);
  });
}

/** The restrictions that also permit this page. @param {Object<string, any>} ms */
const forThisPage = (ms) => (ms.origins ? { ...ms, origins: [...new Set([...ms.origins, location.origin])] } : ms);

/**
 * The permissions of a token, or the reason why it is refused.
 * @param {import('../../client/embed.js').Introspection} seen
 * @param {import('../../client/embed.js').Minted} minted
 */
function verdict(seen, minted) {
  const { effective, detail, valid } = seen;
  const large = minted.token.length > TOKEN_MAX;
  return [
    h(
      'p',
      { class: valid ? 'success' : 'alert' },
      ...(valid ? ['The token is valid until ', time(minted.expires_at), '.'] : [`Refused: ${detail ?? seen.reason}.`]),
    ),
    large &&
      h('p', {
        class: 'alert',
        text: `The token has ${minted.token.length} bytes, and at most ${TOKEN_MAX} are accepted.`,
      }),
    effective &&
      h(
        'details',
        {},
        h('summary', { text: 'What it grants, together with the key' }),
        h('pre', {
          class: 'snippet',
          tabindex: '0',
          role: 'group',
          'aria-label': 'What the token grants',
          text: JSON.stringify(effective, null, 2),
        }),
      ),
  ];
}

/**
 * @param {() => Tried | null} wanted what the form describes; null while it is not complete
 * @returns {{node: HTMLElement, update: () => void}} `update` is called when the form has changed
 */
export function preview(wanted) {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const status = h('div', { class: 'stack', role: 'status' });
  const place = h('div', { class: 'share-preview' });
  const run = h('button', { type: 'button', text: 'Try it' });
  run.addEventListener('click', async () => {
    const tried = wanted();
    if (!tried) return;
    alert.textContent = '';
    status.replaceChildren();
    place.replaceChildren();
    run.disabled = true;
    try {
      const ms = forThisPage(tried.ms);
      const minted = await mintToken(tried.org, {
        api_key_id: tried.kid,
        ttl_s: Math.min(LIFETIME_S, tried.longest),
        ms,
      });
      status.replaceChildren(
        ...verdict(await introspect(tried.org, minted.token), minted).filter((one) => one instanceof Node),
      );
      await define(tried.tag);
      place.replaceChildren(
        h(tried.tag, { ...tried.attributes, src: `${location.origin}${ROOT}`, token: minted.token }),
      );
      // A dashboard asks only the panels in sight.
      place.scrollIntoView({ block: 'start' });
    } catch (error) {
      alert.textContent = errorText(error, {
        key_is_asymmetric: 'The server holds no secret of this key: sign a token with your private key.',
      });
    }
    run.disabled = false;
    if (document.activeElement === document.body) run.focus();
  });
  const node = h(
    'section',
    { class: 'stack', 'aria-label': 'Preview' },
    h('div', { class: 'row' }, run, h('span', { class: 'hint', text: 'Mints a token for five minutes at most.' })),
    alert,
    status,
    place,
  );
  return {
    node,
    update: () => {
      run.disabled = wanted() === null;
      // The preview shows older restrictions.
      status.replaceChildren();
      place.replaceChildren();
      alert.textContent = '';
    },
  };
}
