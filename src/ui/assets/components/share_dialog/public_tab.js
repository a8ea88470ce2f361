// The tab Public link: addresses that show the dashboard without an account, where the organisation permits them.

import { h } from '../../chart/dom.js';
import { administrators, changeLink, createLink, deleteLink, listLinks } from '../../client/embed.js';
import { isMissing, orgPath, send } from '../../client/server.js';
import { errorText } from '../../model/error_text.js';
import { permits } from '../../model/routes.js';
import { linkFrameHtml } from '../../model/share_html.js';
import { limitRules, originsOf, variableRules } from '../../model/share_policy.js';
import { textButton } from '../buttons.js';
import { copyButton } from '../copy.js';
import { confirmed } from '../dialog.js';
import { form } from '../form.js';
import { time } from '../parts.js';
import { limitFields, linesField, selectField, textField, variableFields } from './fields.js';

/** @typedef {import('../../client/embed.js').PublicLink} PublicLink */

const DAY_MS = 86_400_000;
const EXPIRIES = [
  { value: '', text: 'Never' },
  { value: '1', text: 'In a day' },
  { value: '7', text: 'In a week' },
  { value: '30', text: 'In 30 days' },
  { value: '365', text: 'In a year' },
];

/** The restrictions of a link, in words. @param {PublicLink} link */
function rulesText({ locked, open }) {
  const lockedText = Object.entries(locked ?? {}).map(([name, value]) => {
    const values = [value?.values ?? value].flat();
    return `${name} is ${values.join(' or ')}`;
  });
  const names = Array.isArray(open) ? open : Object.keys(open ?? {});
  return [...lockedText, names.length > 0 && `viewers choose ${names.join(', ')}`].filter(Boolean).join('; ');
}

/** @param {import('./subject.js').Subject & {dashboard: import('./subject.js').SharedDashboard}} subject */
export function publicTab({ org, role, dashboard }) {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const place = h('div', { class: 'stack' });
  const heading = h('h3', { tabindex: '-1', text: 'Public links of this dashboard' });
  const fail = (/** @type {unknown} */ error) => {
    alert.textContent = errorText(error);
  };
  /** A button whose errors are shown above. @param {string} text @param {() => Promise<unknown>} act */
  const acting = (text, act) => {
    const button = textButton(text, async () => {
      alert.textContent = '';
      button.disabled = true;
      await act().catch(fail);
      button.disabled = false;
      if (document.activeElement === document.body) (button.isConnected ? button : heading).focus();
    });
    return button;
  };

  async function load() {
    const { settings } = await send('GET', orgPath(org));
    let links = [];
    try {
      links = permits(role, 'editor') ? await listLinks(org, dashboard.uid) : [];
    } catch (error) {
      if (!isMissing(error)) throw error;
      place.replaceChildren(
        h('p', { text: 'This server has no public links: update it to share dashboards publicly.' }),
      );
      return;
    }
    place.replaceChildren(...(settings.public_links ? whereOn(links) : await whereOff(links)));
  }

  /** Turns public links of the organisation on or off, after a confirmation. @param {boolean} on */
  async function turn(on) {
    const agreed = await confirmed(
      on
        ? {
            heading: 'Permit public links?',
            loss:
              `Editors of ${org} can then share a dashboard with anybody who reaches the server, without an account. ` +
              'Each link shows one dashboard, can be limited, disabled and deleted, and is in the audit log. ' +
              'You can turn this off at any time.',
            action: 'Permit public links',
          }
        : {
            heading: 'Turn public links off?',
            loss:
              `All public links of all dashboards of ${org} stop working at once. ` +
              'They work again if you turn this on later.',
            action: 'Turn off',
          },
    );
    if (!agreed) return;
    await send('PATCH', orgPath(org), { settings: { public_links: on } });
    await load();
  }

  /** @param {PublicLink[]} links */
  async function whereOff(links) {
    const admin = permits(role, 'admin');
    const names = admin ? [] : (await administrators(org)).slice(0, 5).join(', ');
    return [
      h('p', {
        text: 'Public links are off in this organisation: nobody without an account sees its dashboards.',
      }),
      admin
        ? h(
            'div',
            { class: 'row' },
            acting('Permit public links…', () => turn(true)),
          )
        : h('p', { class: 'hint', text: `An administrator can permit them${names ? `: ${names}` : ''}.` }),
      links.length > 0 &&
        h('p', { class: 'hint', text: `${links.length} of this dashboard would work again after that.` }),
    ].filter((one) => one instanceof Node);
  }

  /** @param {PublicLink[]} links */
  function whereOn(links) {
    if (!permits(role, 'editor')) return [h('p', { text: 'Editors create public links. Your role is viewer.' })];
    return [
      heading,
      links.length > 0
        ? h('ul', { class: 'share-links' }, links.map(row))
        : h('p', { class: 'hint', text: 'None yet.' }),
      h('details', { open: links.length === 0 }, h('summary', { text: 'New public link' }), creation()),
      permits(role, 'admin')
        ? h(
            'div',
            { class: 'row' },
            acting('Turn public links off…', () => turn(false)),
          )
        : h('span'),
    ];
  }

  /** @param {PublicLink} link */
  function row(link) {
    const { url } = link;
    const shown =
      url && h('pre', { class: 'snippet', tabindex: '0', role: 'group', 'aria-label': 'Public link', text: url });
    const ended = link.expires_at !== null && Date.parse(link.expires_at) <= Date.now();
    const rules = rulesText(link);
    return h(
      'li',
      { class: 'stack' },
      h(
        'div',
        { class: 'row' },
        h('strong', { text: link.name || 'Link' }),
        link.disabled && h('span', { class: 'badge', text: 'disabled' }),
        ended && h('span', { class: 'badge', text: 'expired' }),
        h(
          'small',
          { class: 'hint' },
          link.expires_at ? 'expires ' : 'never expires',
          link.expires_at ? time(link.expires_at) : '',
          ' · ',
          link.last_used_at ? 'last used ' : '',
          time(link.last_used_at, 'never used'),
          rules && ` · ${rules}`,
        ),
      ),
      shown || h('p', { class: 'hint', text: 'Its address was lost with the master key of the server: delete it.' }),
      h(
        'div',
        { class: 'row' },
        url && shown && copyButton(() => url, { what: `link ${link.name}`, source: shown }),
        url &&
          copyButton(() => linkFrameHtml({ title: dashboard.title, url }), { label: 'Copy as frame', what: link.name }),
        url && h('a', { class: 'button', href: url, target: '_blank', rel: 'noopener noreferrer', text: 'Open' }),
        acting(link.disabled ? 'Enable' : 'Disable', async () => {
          await changeLink(org, dashboard.uid, link.id, { disabled: !link.disabled });
          await load();
        }),
        acting('Delete', async () => {
          const agreed = await confirmed({
            heading: `Delete ${link.name || 'this link'}?`,
            loss: 'The link stops working at once, and it cannot be restored: a new link has another address.',
            action: 'Delete link',
          });
          if (!agreed) return;
          await deleteLink(org, dashboard.uid, link.id);
          await load();
        }),
      ),
    );
  }

  function creation() {
    const name = textField(
      'Name',
      'name',
      { maxlength: '200', value: dashboard.title },
      'Shown in this list and in the audit log.',
    );
    const variables = variableFields(dashboard.variables);
    const limits = limitFields();
    const expiry = selectField('Expires', EXPIRIES, '30');
    const origins = linesField(
      'Pages that may show it in a frame',
      'origins',
      '',
      'One origin (scheme and host) per line. Without any, every page may.',
    );
    const budget = textField(
      'Evaluation time per minute (seconds)',
      'budget',
      { type: 'number', min: '1', max: '3600', placeholder: '60' },
      'Of all viewers of the link together. Beyond it their queries are refused.',
    );
    return form(
      {
        submit: 'Create link',
        action: async () => {
          const days = Number(expiry.select.value);
          const permitted = originsOf(origins.value());
          await createLink(org, dashboard.uid, {
            name: name.value().trim() || undefined,
            ...variableRules(variables.choices()),
            ...limitRules(limits.limits()),
            origins: permitted.length > 0 ? permitted : undefined,
            query_seconds_per_minute: Number(budget.value()) || undefined,
            expires_at: days > 0 ? new Date(Date.now() + days * DAY_MS).toISOString() : undefined,
          });
          await load();
          heading.focus();
        },
      },
      name.node,
      variables.node,
      limits.node,
      budget.node,
      expiry.node,
      origins.node,
    );
  }

  load().catch(fail);
  return h(
    'div',
    { class: 'stack' },
    h('p', {
      class: 'hint',
      text: `Whoever has a public link sees the dashboard ${dashboard.title} without an account.`,
    }),
    alert,
    place,
  );
}
