// The first page of a new server: its administrator, and the first organisation.

import { ROOT, send } from '../client/server.js';
import { field, form, newPassword, shortName } from '../components/form.js';
import { gate } from './sign_in.js';

/** The longest short name, in characters. */
const SLUG_MAX = 63;

/**
 * The short name that a name suggests: "Ada's Works" is "adas-works".
 * @param {string} name
 */
export const suggestedSlug = (name) =>
  name
    .toLowerCase()
    .normalize('NFKD')
    .replace(/['’\u0300-\u036f]/g, '')
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, SLUG_MAX)
    .replace(/^-+|-+$/g, '');

/**
 * @param {HTMLElement} view
 * @param {import('../client/types.js').AuthConfig} config
 * @param {() => void} done
 */
export function setUp(view, config, done) {
  const token = new URLSearchParams(location.hash.slice(1)).get('token') ?? '';
  // The token must not stay in the history of this browser.
  if (token) history.replaceState(null, '', `${ROOT}/setup`);
  const org = field(
    'Organisation',
    'org',
    { autocomplete: 'organization', maxlength: '100' },
    'For example your team or this machine.',
  );
  const slug = shortName();
  const orgInput = /** @type {HTMLInputElement} */ (org.querySelector('input'));
  const slugInput = /** @type {HTMLInputElement} */ (slug.querySelector('input'));
  let edited = false;
  orgInput.addEventListener('input', () => {
    if (!edited) slugInput.value = suggestedSlug(orgInput.value);
  });
  slugInput.addEventListener('input', () => {
    edited = slugInput.value !== '';
  });
  const needsToken = config.setup_token_required && !token;
  const entry = form(
    {
      submit: 'Create account',
      action: async (values) => {
        await send('POST', '/auth/signup', {
          setup_token: token || values.setup_token || undefined,
          email: values.email,
          password: values.password,
          name: values.name || undefined,
          org: { slug: values.slug, name: values.org },
        });
        done();
      },
    },
    needsToken &&
      field(
        'Setup token',
        'setup_token',
        { autocomplete: 'off', spellcheck: 'false' },
        'The server printed it when it started.',
      ),
    field('Your name (optional)', 'name', { autocomplete: 'name', required: false, maxlength: '100' }),
    field('E-mail', 'email', { type: 'email', autocomplete: 'username', maxlength: '254' }),
    newPassword(config),
    org,
    slug,
  );
  document.title = 'Set up · promlet';
  view.replaceChildren(
    gate('Welcome', 'This server is new. Create the first account; it administers the server.', entry),
  );
  entry.querySelector('input')?.focus();
}
