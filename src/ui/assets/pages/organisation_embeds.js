// The embeds of an organisation: the pages that use its tokens, their cost, and revocations.

import { h } from '../chart/dom.js';
import { pageUrl, send } from '../client/server.js';
import { openDialog, sendConfirmed } from '../components/dialog.js';
import { form } from '../components/form.js';
import { card, time } from '../components/parts.js';
import { toast } from '../components/toast.js';
import {
  EMBED_COLUMNS, budgetText, canBlock, credentialId, credentialText, dashboardText, endingPages, endingText,
  evaluationText, hasCredential, originText, shortCount, sortPages,
} from '../model/embeds.js';
import { ageText } from '../model/limit_units.js';

/**
 * @typedef {import('../client/types.js').Me} Me
 * @typedef {import('../components/parts.js').Part} Part
 * @typedef {import('../model/embeds.js').Embeds} Embeds
 * @typedef {import('../model/embeds.js').EmbedKey} EmbedKey
 * @typedef {import('../model/embeds.js').EmbedOrder} EmbedOrder
 * @typedef {import('../model/embeds.js').EmbedPage} EmbedPage
 * @typedef {import('../model/embeds.js').Revocation} Revocation
 * @typedef {{me: Me, slug: string, base: string, signedOut: () => void}} Context `base` is the
 *   organisation's path
 */

/** The time between two requests for the list, in milliseconds. */
const REFRESH_MS = 5000;

/** Identifies a row over refreshes. @param {EmbedPage} page */
const rowId = (page) => JSON.stringify([credentialId(page), page.origin, page.dashboard?.uid ?? null]);

/**
 * Revokes after a dialog that offers a choice and states the effect in numbers. Returns whether the
 * person confirmed.
 * @param {Context} context
 * @param {readonly EmbedPage[]} pages
 * @param {EmbedPage} page
 */
function revoke({ base }, pages, page) {
  const name = credentialText(page);
  const origin = originText(page);
  const dashboard = `${base}/dashboards/${encodeURIComponent(page.dashboard?.uid ?? '')}`;
  const { public_link: link } = page;
  const key = `${base}/api-keys/${page.api_key?.id}`;
  /** @type {{what: Revocation, possible: boolean, text: string, about: string, done: string,
   *   run: () => Promise<any>}[]} */
  const all = [
    {
      what: 'origin',
      possible: canBlock(page),
      text: `Block ${origin}`,
      about: `Browsers on this origin are refused with tokens of ${name}. A program that sends no origin is not.`,
      done: `${origin} is blocked.`,
      run: () => send('POST', `${key}/block-origin`, { origin: page.origin }),
    },
    {
      what: 'credential',
      possible: link !== null && hasCredential(page),
      text: `Delete the public link ${name}`,
      about: 'The link stops working at once. It cannot be restored.',
      done: `The public link ${name} was deleted.`,
      run: () => send('DELETE', `${dashboard}/links/${link?.id}`),
    },
    {
      what: 'dashboard',
      possible: page.dashboard !== null && page.dashboard.title !== null,
      text: `Revoke all access to ${dashboardText(page)}`,
      about: 'Tokens that name this dashboard end, whatever key signed them, and its public links are deleted.',
      done: `The tokens and public links of ${dashboardText(page)} were revoked.`,
      run: () => send('POST', `${dashboard}/revoke-embeds`),
    },
    {
      what: 'credential',
      possible: page.api_key !== null && hasCredential(page),
      text: `Revoke all tokens of ${name}`,
      about: 'Every token that this key has signed until now ends. The key stays valid; pages need new tokens.',
      done: `The tokens of ${name} were revoked.`,
      run: () => send('POST', `${key}/revoke-tokens`),
    },
  ];
  const choices = all.filter(({ possible }) => possible);
  return openDialog('Revoke access', false, (close) => {
    const fields = h(
      'fieldset',
      { class: 'choices' },
      h('legend', { text: 'What ends at once' }),
      choices.map(({ what, text, about }, index) =>
        h(
          'label',
          {},
          h('input', { type: 'radio', name: 'what', value: what, checked: index === 0 }),
          h(
            'span',
            {},
            h('strong', { text }),
            h('small', { text: `Ends ${endingText(endingPages(pages, page, what))}.` }),
            h('small', { class: 'hint', text: about }),
          ),
        ),
      ),
    );
    const cancel = h('button', { type: 'button', text: 'Cancel', autofocus: true, on: { click: () => close(false) } });
    const entry = form(
      {
        submit: 'Revoke',
        danger: true,
        action: async () => {
          const chosen = fields.querySelector('input:checked');
          const choice = choices.find(({ what }) => what === /** @type {HTMLInputElement} */ (chosen).value);
          await choice?.run();
          if (choice) toast(choice.done);
          close(true);
        },
      },
      fields,
    );
    const button = entry.querySelector('button');
    if (button) entry.append(h('div', { class: 'row' }, button, cancel));
    return [entry];
  });
}

/**
 * The evaluation time of each key, and its blocked origins.
 * @param {Context} context
 * @param {Part} part
 * @param {readonly EmbedKey[]} keys
 */
function keyList({ me, base }, part, keys) {
  const unblock = (/** @type {EmbedKey} */ key, /** @type {string} */ origin) => {
    const button = part.button('Unblock', async () => {
      const blocked = key.blocked_origins.filter((other) => other !== origin);
      await sendConfirmed(me, 'PATCH', `${base}/api-keys/${key.id}`, { embed: { blocked_origins: blocked } });
      toast(`${origin} is no longer blocked.`);
      await part.reload();
    });
    button.append(h('span', { class: 'unseen', text: ` ${origin}` }));
    button.dataset.focus = JSON.stringify([key.id, origin]);
    return h('li', {}, h('span', { text: origin }), button);
  };
  return keys.map((key) => {
    const { name, query_seconds_last_minute: used, query_seconds_per_minute: budget } = key;
    const bar = budget !== null && h('meter', {
      min: '0', max: String(budget), value: String(Math.min(used, budget)), high: String(budget * 0.9), optimum: '0',
      'aria-label': `Evaluation time of ${name} in the last minute`,
    });
    return h(
      'li',
      { class: 'embed-key' },
      h('strong', { text: name }),
      h('div', { class: 'used' }, h('span', { text: budgetText(key) }), bar),
      budget !== null && used >= budget && h('p', {
        class: 'notice', text: 'The budget is used up: its tokens are refused until a minute has passed.',
      }),
      key.blocked_origins.length > 0 && h('p', { class: 'hint', text: 'Blocked origins' }),
      key.blocked_origins.length > 0 &&
        h('ul', { class: 'blocked-origins' }, key.blocked_origins.map((origin) => unblock(key, origin))),
    );
  });
}

/**
 * The table of pages.
 * @param {Context} context
 * @param {Part} part
 * @param {Embeds} embeds
 * @param {EmbedOrder} order of the page, so that a refresh keeps it
 */
function pageTable(context, part, { data }, order) {
  const cells = (/** @type {EmbedPage} */ page) => {
    const { dashboard } = page;
    const href = dashboard && pageUrl('/dashboard', { org: context.slug, uid: dashboard.uid });
    const number = (/** @type {string} */ text) => h('span', { class: 'number', text });
    const count = (/** @type {number} */ value) => number(value.toLocaleString('en'));
    const small = (/** @type {number} */ value, /** @type {string} */ noun) =>
      value > 0 && h('small', { class: 'hint', text: `${value.toLocaleString('en')} ${noun}` });
    const revokes = hasCredential(page) || (dashboard !== null && dashboard.title !== null);
    const button = h('button', { type: 'button', class: 'danger', 'data-focus': rowId(page) }, 'Revoke…');
    button.append(h('span', { class: 'unseen', text: ` ${originText(page)} ${dashboardText(page)}` }));
    button.addEventListener('click', async () => {
      if (await revoke(context, data, page)) await part.reload();
    });
    return [
      [
        h('span', { class: 'origin', text: originText(page) }),
        page.blocked && h('span', { class: 'badge', text: 'Blocked' }),
      ],
      [dashboard?.title && href ? h('a', { href, text: dashboard.title }) : dashboardText(page) || '–'],
      [credentialText(page), page.public_link && h('span', { class: 'badge', text: 'Link' })],
      [count(page.viewers), small(page.streams, 'live')],
      [count(page.requests), small(page.refused, 'refused')],
      [
        number(evaluationText(page.query_seconds)),
        page.samples > 0 && h('small', {
          class: 'hint', title: page.samples.toLocaleString('en'), text: `${shortCount(page.samples)} samples`,
        }),
      ],
      [
        h('time', {
          datetime: page.last_seen_at,
          title: new Date(page.last_seen_at).toLocaleString(),
          text: ageText(Math.max(0, (Date.now() - Date.parse(page.last_seen_at)) / 1000)),
        }),
      ],
      [revokes && button],
    ];
  };
  const body = h('tbody');
  const heads = EMBED_COLUMNS.map(({ id, text, number }) => {
    const choose = () => {
      order.descending = order.by === id ? !order.descending : number || id === 'last_seen_at';
      order.by = id;
      show();
    };
    const attributes = { type: 'button', class: 'plain', 'data-focus': `sort ${id}`, on: { click: choose } };
    return h('th', { scope: 'col', class: number ? 'number-head' : undefined }, h('button', { ...attributes, text }));
  });
  const show = () => {
    EMBED_COLUMNS.forEach(({ id }, at) => {
      if (id === order.by) heads[at].setAttribute('aria-sort', order.descending ? 'descending' : 'ascending');
      else heads[at].removeAttribute('aria-sort');
    });
    body.replaceChildren(
      ...sortPages(data, order).map((page) => h('tr', {}, cells(page).map((cell) => h('td', {}, ...cell)))),
    );
  };
  show();
  const actions = h('th', { scope: 'col' }, h('span', { class: 'unseen', text: 'Actions' }));
  const head = h('thead', {}, h('tr', {}, heads, actions));
  return h(
    'div',
    { class: 'scroll result embeds', tabindex: '0', role: 'region', 'aria-label': 'Table of embeds' },
    h('table', {}, head, body),
  );
}

/**
 * The card, which refreshes itself while it is shown.
 * @param {Context} context
 */
export function embeds(context) {
  /** @type {EmbedOrder} */
  const order = { by: 'last_seen_at', descending: true };
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  let timer;
  const fill = async (/** @type {Part} */ part) => {
    clearTimeout(timer);
    const refresh = async () => {
      const { node } = part;
      if (!node.isConnected) return;
      // A hidden tab, a dialog and a selected text wait for the next time.
      const selects = node.contains(getSelection()?.anchorNode ?? null) && !getSelection()?.isCollapsed;
      if (document.hidden || node.offsetParent === null || document.querySelector('dialog[open]') || selects) {
        timer = setTimeout(refresh, REFRESH_MS);
        return;
      }
      const scrolled = node.querySelector('.embeds')?.scrollLeft ?? 0;
      const focused = node.contains(document.activeElement) && document.activeElement;
      const focus = focused instanceof HTMLElement ? focused.dataset.focus : undefined;
      const onTable = focused instanceof HTMLElement && focused.classList.contains('embeds');
      await part.reload();
      const table = node.querySelector('.embeds');
      if (table) table.scrollLeft = scrolled;
      const again = [...node.querySelectorAll('[data-focus]')].find(
        (other) => focus !== undefined && other instanceof HTMLElement && other.dataset.focus === focus,
      );
      const target = again ?? (onTable ? table : null);
      if (target instanceof HTMLElement && !target.matches(':focus')) target.focus({ preventScroll: true });
    };
    // The next refresh is planned first, so that one without an answer does not end them.
    timer = setTimeout(refresh, REFRESH_MS);
    const now = /** @type {Embeds} */ (await send('GET', `${context.base}/embeds`));
    const since = h('p', { class: 'hint' }, 'Counted in memory since the server started: ', time(now.since), '.');
    if (now.data.length === 0 && now.keys.length === 0) {
      return [
        h('p', { text: 'No page has used an embed token or a public link of this organisation yet.' }),
        h('p', { class: 'hint', text: 'To show a dashboard on a page of yours, open it and choose Share.' }),
        h('div', { class: 'row' }, h('a', {
          class: 'button primary', href: pageUrl('/dashboards', { org: context.slug }), text: 'Open dashboards',
        })),
        since,
      ];
    }
    const full = now.data.length >= now.rows_max && h('p', {
      class: 'notice', text: `Only the ${now.rows_max} pages that were seen last are listed.`,
    });
    return [
      now.data.length > 0 ? pageTable(context, part, now, order) : h('p', { class: 'hint', text: 'No page was seen.' }),
      full,
      h('h3', { text: 'Evaluation time in the last minute' }),
      h('ul', { class: 'embed-keys' }, keyList(context, part, now.keys)),
      since,
    ];
  };
  return card({
    heading: 'Embeds',
    intro: 'Pages that use embed tokens and public links. The number of viewers of the last five minutes is an estimate.',
    fill,
    signedOut: context.signedOut,
  });
}
