// Signing in: password, code, magic link, and the first account of a new server.

import { h } from '../chart/dom.js';
import { ROOT, send } from './server.js';

/** Reasons an OAuth round trip comes back with in /login?error=. */
const REASONS = {
  invalid_state: 'That sign-in attempt expired. Please start again.',
  oauth_error: 'The provider refused the sign-in.',
  signup_closed: 'There is no account for you here, and this server does not take sign-ups.',
  domain_not_allowed: 'Addresses of that domain may not sign in here.',
  link_required: 'An account with that address exists. Sign in with its password first.',
  link_invalid: 'That link was used already, or it expired.',
  email_confirmation_required: 'Open the link in the browser in which you asked for it.',
};

let fields = 0;

/** A labelled input; `hint` stands below it, and the refusal's words for this field replace it. */
export function field(label, name, attributes = {}, hint = '') {
  fields += 1;
  const id = `field-${fields}`;
  const below = h('p', { class: 'hint', id: `${id}-hint`, text: hint });
  const input = h('input', { id, name, 'aria-describedby': `${id}-hint`, required: true, ...attributes });
  return h('div', { class: 'field' }, h('label', { for: id, text: label }), input, below);
}

/** A form that sends once, shows refusals where they belong, and focuses what has to be corrected. */
export function form({ action, submit }, ...children) {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const button = h('button', { class: 'primary', text: submit });
  const node = h('form', { class: 'stack', novalidate: true }, alert, ...children, button);
  const say = (text) => { alert.textContent = text; };
  node.addEventListener('submit', async (event) => {
    event.preventDefault();
    say('');
    node.querySelectorAll('[aria-invalid]').forEach((input) => input.removeAttribute('aria-invalid'));
    const wrong = [...node.elements].find((input) => input.willValidate && !input.validity.valid);
    if (wrong) {
      wrong.setAttribute('aria-invalid', 'true');
      say(`${node.querySelector(`label[for="${wrong.id}"]`)?.textContent ?? 'Input'}: ${wrong.validationMessage}`);
      wrong.focus();
      return;
    }
    button.disabled = true;
    try {
      await action(Object.fromEntries(new FormData(node)), say);
    } catch (error) {
      say(words(error));
      for (const { field: name, message } of error.fields ?? []) {
        const input = node.elements.namedItem(name.split('.').pop());
        input?.setAttribute('aria-invalid', 'true');
        const hint = input && node.querySelector(`#${input.id}-hint`);
        if (hint && message) hint.textContent = message;
      }
      (node.querySelector('[aria-invalid]') ?? node.querySelector('[type="password"]') ?? node.querySelector('input'))?.focus();
    } finally {
      button.disabled = false;
      if (document.activeElement === document.body) button.focus();
    }
  });
  return Object.assign(node, { say });
}

/** A refusal in words for people. */
export function words(error) {
  if (error.code === 'invalid_code' && error.body?.attempts_left !== undefined) {
    return `That code is not right. ${error.body.attempts_left} tries left.`;
  }
  const told = SAID[error.code] ?? sentence(error.detail ?? error.message);
  return error.retryAfter > 0 && !/try again/i.test(told) ? `${told} Try again in ${lasting(error.retryAfter)}.` : told;
}

/** What the server says to programs, said to people. */
const SAID = {
  invalid_credentials: 'E-mail or password is not right.',
  login_throttled: 'Too many wrong passwords.',
  twofa_throttled: 'Too many wrong codes.',
  mail_throttled: 'Too many mails were asked for.',
  rate_limited: 'Too many requests.',
  code_already_used: 'That code was used already; the app shows a new one every thirty seconds.',
  pending_login_invalid: 'That took too long. Please start again.',
  link_invalid: 'That link was used already, or it expired. Ask for a new one.',
};

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;

function lasting(seconds) {
  const minutes = Math.ceil(seconds / 60);
  if (seconds < 120) return seconds === 1 ? 'a second' : `${seconds} seconds`;
  return minutes < 120 ? `${minutes} minutes` : `${Math.ceil(minutes / 60)} hours`;
}

export function card(heading, intro, ...children) {
  return h('main', { class: 'gate' },
    h('img', { class: 'mark', src: `${ROOT}/favicon.svg`, alt: '', width: '44', height: '44' }),
    h('section', { class: 'card' }, h('h1', { text: heading }), intro && h('p', { class: 'intro', text: intro }), ...children),
    h('p', { class: 'foot', text: 'promlet: metrics in one place' }));
}

/** The sign-in page; calls `done` once a session exists. `why` explains why it is shown. */
export function signIn(view, config, done, why = '') {
  const parameters = new URLSearchParams(location.search);
  const email = field('E-mail', 'email', { type: 'email', autocomplete: 'username', maxlength: '254' });
  const password = field('Password', 'password', { type: 'password', autocomplete: 'current-password', maxlength: '1024' });
  const said = h('p', { class: 'notice', role: 'status' });
  const entry = form({
    submit: 'Sign in',
    action: async (values) => {
      said.textContent = '';
      const result = await send('POST', '/auth/login', values);
      if (result.requires_2fa) secondFactor(view, result.twofa_pending_login, () => signIn(view, config, done, why), done);
      else done();
    },
  }, email, password);
  /** A button that has `path` mail to the address in the field above. */
  const mailTo = (text, path, sent, more = {}) => {
    const button = h('button', { type: 'button', class: 'plain', text });
    button.addEventListener('click', async () => {
      const input = email.querySelector('input');
      entry.say('');
      said.textContent = '';
      if (!input.value || !input.validity.valid) {
        entry.say('Enter your e-mail address first.');
        input.focus();
        return;
      }
      button.disabled = true;
      try {
        await send('POST', path, { email: input.value, ...more });
        said.textContent = config.mailer === 'console' ? `${sent} Mail goes to the server's output here.` : sent;
      } catch (error) {
        entry.say(words(error));
      } finally {
        button.disabled = false;
        // A button that is disabled loses the focus, and who has no mouse their place.
        if (document.activeElement === document.body) button.focus();
      }
    });
    return button;
  };
  const here = `${location.pathname}${location.search}`;
  const back = here.startsWith(`${ROOT}/login`) ? '/' : here;
  const link = mailTo('E-mail me a sign-in link', '/auth/magic-link/request',
    'If that account exists, its link is on the way. Open it in this browser within ten minutes.',
    { redirect: back });
  const forgot = mailTo('Forgot your password?', '/auth/password/reset/request',
    'If that account exists, a link that sets a new password is on the way. It is good for ten minutes.');
  const join = config.signup === 'open' && mailTo('Sign up', '/auth/signup', 'A link is on the way. It is good for ten minutes.');
  const providers = (config.providers ?? []).filter((provider) => provider.start_url?.startsWith('/'))
    .map((provider) => h('a', { class: 'button', href: `${ROOT}${provider.start_url}?${new URLSearchParams({ redirect: back })}`, text: `Continue with ${provider.name}` }));
  document.title = 'Sign in · promlet';
  view.replaceChildren(card('Sign in', why, entry,
    (config.magic_link !== false || providers.length > 0) && h('p', { class: 'or', text: 'or' }),
    config.magic_link !== false && link, ...providers, forgot, join, said));
  const reason = parameters.get('error');
  if (reason) entry.say(REASONS[reason] ?? 'Signing in did not work. Please try again.');
  email.querySelector('input').focus();
}

/** The code step, after any kind of login that needs one. */
export function secondFactor(view, pending, back, done) {
  const show = (recovery) => {
    const code = recovery
      ? field('Recovery code', 'recovery_code', { autocomplete: 'off', spellcheck: 'false' }, 'One of the codes you saved; each works once.')
      : field('Code', 'code', { inputmode: 'numeric', autocomplete: 'one-time-code', pattern: '[0-9 ]{6,7}', maxlength: '7', class: 'code' },
        'Six digits from your authenticator app.');
    const entry = form({
      submit: 'Continue',
      action: async (values) => {
        try {
          await send('POST', '/auth/2fa/verify', { twofa_pending_login: pending, ...values });
          done();
        } catch (error) {
          if (error.code === 'pending_login_invalid') back();
          throw error;
        }
      },
    }, code);
    const other = h('button', { type: 'button', class: 'plain', text: recovery ? 'Use the app instead' : 'Use a recovery code', on: { click: () => show(!recovery) } });
    const cancel = h('button', { type: 'button', class: 'plain', text: 'Back to sign-in', on: { click: back } });
    document.title = 'Confirm it is you · promlet';
    view.replaceChildren(card('Confirm it is you', '', entry, h('div', { class: 'row' }, other, cancel)));
    code.querySelector('input').focus();
  };
  show(false);
}

/** The first account of a new server: its administrator, and the owner of its first organisation. */
export function setUp(view, config, done) {
  const token = new URLSearchParams(location.hash.slice(1)).get('token') ?? '';
  // The token must not stay in the history of this browser.
  if (token) history.replaceState(null, '', `${ROOT}/setup`);
  const least = config.password?.min_length ?? 8;
  const org = field('Organisation', 'org', { autocomplete: 'organization', maxlength: '100' }, 'For example your team or this machine.');
  const slug = field('Short name', 'slug', { pattern: '[a-z0-9]([a-z0-9\\-]{0,61}[a-z0-9])?', spellcheck: 'false', autocapitalize: 'none' },
    'Stands in addresses and never changes: a to z, digits and dashes.');
  const [orgInput, slugInput] = [org.querySelector('input'), slug.querySelector('input')];
  orgInput.addEventListener('input', () => {
    if (slugInput.dataset.own) return;
    slugInput.value = orgInput.value.toLowerCase().normalize('NFKD').replace(/['’\u0300-\u036f]/g, '').replace(/[^a-z0-9]+/g, '-').slice(0, 63).replace(/^-+|-+$/g, '');
  });
  slugInput.addEventListener('input', () => { slugInput.dataset.own = slugInput.value; });
  const needsToken = config.setup_token_required && !token;
  const entry = form({
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
  needsToken && field('Setup token', 'setup_token', { autocomplete: 'off', spellcheck: 'false' }, 'The server printed it when it started.'),
  field('Your name (optional)', 'name', { autocomplete: 'name', required: false, maxlength: '100' }),
  field('E-mail', 'email', { type: 'email', autocomplete: 'username', maxlength: '254' }),
  field('Password', 'password', { type: 'password', autocomplete: 'new-password', minlength: String(least), maxlength: '1024' }, `At least ${least} characters; a sentence is good.`),
  org, slug);
  document.title = 'Set up · promlet';
  view.replaceChildren(card('Welcome', 'This server is new. Create the first account; it administers the server.', entry));
  entry.querySelector('input').focus();
}

/** The page of an invitation: makes an account, or adds an organisation to the account of `me`. */
export async function invited(view, config, me, done) {
  const token = new URLSearchParams(location.hash.slice(1)).get('token') ?? '';
  document.title = 'Invitation · promlet';
  const leave = () => { history.replaceState(null, '', `${ROOT}/`); done(); };
  let invitation;
  try {
    invitation = await send('POST', '/auth/invites/lookup', { token });
  } catch (error) {
    view.replaceChildren(card('Invitation', words(error), h('button', { type: 'button', class: 'primary', text: 'Go on', on: { click: leave } })));
    view.querySelector('.primary').focus();
    return;
  }
  const org = invitation.org.name || invitation.org.slug;
  const intro = `You are invited to ${org} as ${invitation.role}, with the address ${invitation.email}.`;
  if (invitation.account_exists && me?.user?.email !== invitation.email) {
    // The link stays in the address: after signing in, this page is shown again.
    const said = me ? `You are signed in as ${me.user.email}. Sign out, and open the link again.` : 'That address has an account: sign in with it.';
    if (!me) {
      signIn(view, config, done, `${intro} ${said}`);
      return;
    }
    view.replaceChildren(card('Invitation', `${intro} ${said}`, h('button', { type: 'button', class: 'primary', text: 'Go on without it', on: { click: leave } })));
    view.querySelector('.primary').focus();
    return;
  }
  const least = config.password?.min_length ?? 8;
  const fresh = !invitation.account_exists;
  const entry = form({
    submit: fresh ? 'Create account' : 'Join',
    action: async (values) => {
      await send('POST', '/auth/invites/accept', { token, name: values.name || undefined, password: values.password || undefined });
      leave();
    },
  },
  fresh && field('Your name (optional)', 'name', { autocomplete: 'name', required: false, maxlength: '100' }),
  fresh && field('Password', 'password', { type: 'password', autocomplete: 'new-password', minlength: String(least), maxlength: '1024' }, `At least ${least} characters; a sentence is good.`));
  const here = me && fresh ? ` You are signed in as ${me.user.email}; this makes another account and signs in to it.` : '';
  view.replaceChildren(card('Invitation', `${intro}${here}`, entry));
  (entry.querySelector('input') ?? entry.querySelector('button')).focus();
}
