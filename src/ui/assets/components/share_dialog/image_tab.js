// The tab Image: a picture that the server draws, for mails, chats and wikis.

import { h } from '../../chart/dom.js';
import { mintToken } from '../../client/embed.js';
import { ROOT } from '../../client/server.js';
import { readError } from '../../chart/request.js';
import { errorText } from '../../model/error_text.js';
import { imageSnippets, imageUrl } from '../../model/share_html.js';
import { lifetimeOf, restrictionsOf } from '../../model/share_policy.js';
import { time } from '../parts.js';
import { snippetChoice } from '../snippet_choice.js';
import { selectField, textField } from './fields.js';
import { keyChoice } from './key_choice.js';

/** Least and greatest width and height, as the server allows. */
const SIZES = { width: [100, 2000], height: [60, 2000] };
const NO_LIMITS = { maxRange: '', maxLookback: '', minStep: '', origins: '' };

/**
 * A number of pixels.
 * @param {string} text
 * @param {'width' | 'height'} name
 */
function pixels(text, name) {
  const [least, most] = SIZES[name];
  const value = Number(text.trim());
  if (!Number.isInteger(value) || value < least || value > most)
    throw new Error(`${name === 'width' ? 'Width' : 'Height'}: enter ${least} to ${most} pixels.`);
  return value;
}

/** @param {import('./subject.js').Subject} subject */
export function imageTab({ org, role, title, range, dashboard, chart }) {
  const make = h('button', { type: 'button', class: 'primary', text: 'Make the image', disabled: true });
  const key = keyChoice({
    org,
    role,
    changed: () => {
      make.disabled = key.key() === null;
    },
  });
  const panels = dashboard?.panels.map(({ id, title: text }) => ({ value: id, text })) ?? [];
  const panel = dashboard && selectField('Panel', panels, dashboard.panel || (panels[0]?.value ?? ''));
  const format = selectField(
    'Format',
    [
      { value: 'png', text: 'PNG' },
      { value: 'svg', text: 'SVG' },
    ],
    'png',
  );
  const theme = selectField(
    'Colours',
    [
      { value: 'light', text: 'Light' },
      { value: 'dark', text: 'Dark' },
    ],
    'light',
  );
  const width = textField('Width', 'width', { value: '800', inputmode: 'numeric' }, 'Pixels.');
  const height = textField('Height', 'height', { value: '300', inputmode: 'numeric' }, 'Pixels.');
  const lifetime = textField('The address works for', 'lifetime', { value: '1h' }, 'Such as 1h; the key limits it.');
  const alert = h('p', { class: 'alert', role: 'alert' });
  const result = h('div', { class: 'stack' });

  /** Parameters of the picture, and the restrictions of its token. */
  function wanted() {
    const size = { width: pixels(width.value(), 'width'), height: pixels(height.value(), 'height') };
    /** @type {[string, string | number][]} */
    const common = [
      ['start', Math.floor(range.from / 1000)],
      ['end', Math.ceil(range.to / 1000)],
      ['width', size.width],
      ['height', size.height],
      ['theme', theme.select.value],
    ];
    if (!dashboard) {
      const expr = chart?.expr ?? '';
      const ms = restrictionsOf({ expr, matchers: [] }, NO_LIMITS);
      return { ms, name: title, size, parameters: [['expr', expr], ['unit', chart?.unit ?? ''], ...common] };
    }
    // The token permits the values of this picture and no others.
    const used = dashboard.variables.filter(({ values }) => values.length > 0);
    const choices = used.map(({ name, label, values }) => ({
      name,
      label,
      values,
      access: /** @type {const} */ ('open'),
    }));
    const shown = panels.find(({ value }) => value === panel?.select.value);
    return {
      ms: restrictionsOf({ uid: dashboard.uid, choices }, NO_LIMITS),
      name: shown?.text ?? title,
      size,
      parameters: [
        ['dashboard', dashboard.uid],
        ['panel', shown?.value ?? ''],
        ...used.flatMap(({ name, values }) => values.map((value) => [`var-${name}`, value])),
        ...common,
      ],
    };
  }

  make.addEventListener('click', async () => {
    const signing = key.key();
    if (!signing) return;
    alert.textContent = '';
    result.replaceChildren();
    make.disabled = true;
    try {
      const { ms, name, size, parameters } = wanted();
      const ttl = lifetimeOf(lifetime.value(), signing.longest);
      const minted = await mintToken(org, { api_key_id: signing.id, ttl_s: ttl, ms });
      const kind = format.select.value === 'svg' ? 'svg' : 'png';
      const server = { server: `${location.origin}${ROOT}`, org };
      const url = imageUrl(server, kind, [.../** @type {any} */ (parameters), ['token', minted.token]]);
      await draw(url, name, size, minted.expires_at);
    } catch (error) {
      alert.textContent = errorText(error, { not_found: 'This server does not draw images: update it.' });
    }
    make.disabled = false;
    if (document.activeElement === document.body) make.focus();
  });

  /**
   * Shows the picture and its lines.
   * @param {string} url
   * @param {string} name
   * @param {{width: number, height: number}} size
   * @param {string} end of the token
   */
  async function draw(url, name, size, end) {
    const image = h('img', { class: 'share-image', alt: name, ...size });
    await new Promise((resolve, reject) => {
      image.addEventListener('load', resolve);
      // An image says nothing about its failure, the same request does.
      image.addEventListener('error', () =>
        fetch(url, { cache: 'no-store' })
          .then(async (response) =>
            reject(response.ok ? new Error('The image cannot be shown.') : await readError(response)),
          )
          .catch(reject),
      );
      image.src = url;
    });
    const snippets = snippetChoice('Where the image is shown');
    snippets.show(imageSnippets(url, name));
    result.replaceChildren(
      image,
      h('p', { class: 'hint' }, 'Whoever has this address sees the image until ', time(end), '.'),
      snippets.node,
    );
  }

  if (dashboard && panels.length === 0) return h('p', { text: 'The dashboard has no panels.' });
  return h(
    'div',
    { class: 'stack' },
    h('p', { class: 'hint', text: 'The server draws the range that you see now. The address contains a token.' }),
    key.node,
    panel?.node,
    h('div', { class: 'settings' }, format.node, theme.node, width.node, height.node, lifetime.node),
    h('div', { class: 'row' }, make),
    alert,
    result,
  );
}
