// The organisation page: members, API keys, limits, audit log, and deletion, as tabs.

import { h } from '../chart/dom.js';
import { listDashboards } from '../client/dashboards.js';
import { ROOT, orgPath, send } from '../client/server.js';
import { auditLog } from '../components/audit_log.js';
import { confirmLoss } from '../components/confirm.js';
import { sendConfirmed } from '../components/dialog.js';
import { field, form } from '../components/form.js';
import { card, saved } from '../components/parts.js';
import { addressTabs } from '../components/tabs.js';
import { toast } from '../components/toast.js';
import { ORG_ACTIONS } from '../model/audit.js';
import { sizeText } from '../model/limit_units.js';
import { counted } from '../model/metrics.js';
import { permits } from '../model/routes.js';
import { embeds } from './organisation_embeds.js';
import { engine, facts } from './organisation_engine.js';
import { forwarding } from './organisation_forward.js';
import { apiKeys } from './organisation_keys.js';
import { limits } from './organisation_limits.js';
import { invitations, members } from './organisation_members.js';
import { notifications } from './organisation_notifications.js';

/**
 * @typedef {import('../client/types.js').Me} Me
 * @typedef {import('../client/types.js').Role} Role
 * @typedef {import('../client/types.js').OrgOfUser} OrgOfUser
 * @typedef {import('../components/parts.js').Part} Part
 */

/** The most rows of a list that are counted before a deletion. */
const COUNTED_MAX = 1000;

/**
 * The objects that are deleted with an organisation, in numbers.
 * @param {string} base the organisation's path
 * @param {string} slug
 * @returns {Promise<string[]>}
 */
async function contents(base, slug) {
  const rows = async (/** @type {string} */ list) => {
    const { data, next_cursor: more } = await send('GET', `${base}/${list}?limit=${COUNTED_MAX}`);
    return { count: data.length, over: more ? 'over ' : '' };
  };
  const [{ usage }, dashboards, keys, people] = await Promise.all([
    send('GET', base),
    listDashboards(slug, {}),
    rows('api-keys'),
    rows('members'),
  ]);
  return [
    counted(dashboards.length, 'dashboard'),
    `${counted(usage.series, 'series', 'series')} with ${sizeText(usage.bytes)} on disk`,
    keys.over + counted(keys.count, 'API key'),
    people.over + counted(people.count, 'membership'),
  ];
}

/**
 * @param {{me: Me, membership: OrgOfUser, signedOut: () => void}} context `signedOut` is called when
 *   the session has ended, and when the list of organisations has changed
 */
export function organisationPage({ me, membership: org, signedOut }) {
  const base = orgPath(org.slug);
  const may = (/** @type {Role} */ role) => permits(org.role, role);
  const home = () => {
    history.replaceState(null, '', `${ROOT}/`);
    signedOut();
  };
  const context = { me, org, base, signedOut, left: home };

  const general = async (/** @type {Part} */ part) => {
    const now = await send('GET', base);
    const about = facts([
      ['Short name', `${org.slug} (part of URLs; it never changes)`],
      ['Created', new Date(now.created_at).toLocaleDateString([], { dateStyle: 'long' })],
      ['Your role', org.role],
    ]);
    if (!may('admin')) return [about];
    const rename = form(
      {
        submit: 'Save',
        action: async ({ name }) => {
          await send('PATCH', base, { name });
          org.name = name;
          await part.reload(saved());
        },
      },
      field('Name', 'name', { required: false, maxlength: '100', value: now.name, placeholder: org.slug }),
    );
    return [about, rename];
  };

  const remove = (/** @type {Part} */ part) => {
    const button = part.button('Delete organisation…', async () => {
      const deleted = await confirmLoss({
        heading: `Delete ${org.name || org.slug}`,
        loss: 'All samples, dashboards, members and API keys are deleted at once. They cannot be restored.',
        action: 'Delete organisation',
        name: org.slug,
        count: () => contents(base, org.slug),
        run: () => sendConfirmed(me, 'DELETE', base, { confirm: org.slug }),
      });
      if (!deleted) return;
      toast(`${org.name || org.slug} was deleted.`);
      home();
    });
    button.classList.add('danger');
    return [
      h('p', { text: 'Everything that belongs to this organisation is deleted with it, and access ends at once.' }),
      button,
    ];
  };

  const tabs = addressTabs('Organisation', [
    {
      id: 'members',
      text: 'Members',
      panel: () => [
        card({ heading: 'Members', fill: (part) => members(context, part), signedOut }),
        may('admin') && card({ heading: 'Invitations', fill: (part) => invitations(context, part), signedOut }),
      ],
    },
    ...(may('admin')
      ? [
          {
            id: 'keys',
            text: 'API keys',
            panel: () => [
              card({
                heading: 'API keys',
                intro: 'Keys let programs write samples, query them, and sign tokens for embedded charts.',
                fill: (part) => apiKeys({ me, slug: org.slug, base }, part),
                signedOut,
              }),
            ],
          },
          { id: 'embeds', text: 'Embeds', panel: () => [embeds({ me, slug: org.slug, base, signedOut })] },
          {
            id: 'forwarding',
            text: 'Forwarding',
            panel: () => [
              card({
                heading: 'Forwarding',
                intro: 'Servers that get every accepted sample by remote write, from the position in the log.',
                fill: (part) => forwarding({ base }, part),
                signedOut,
              }),
            ],
          },
          { id: 'limits', text: 'Limits', panel: () => [limits({ base, signedOut })] },
          { id: 'engine', text: 'Engine', panel: () => [engine({ base, signedOut })] },
          {
            id: 'notifications',
            text: 'Notifications',
            panel: () => [
              card({
                heading: 'Notifications',
                intro: 'Who is notified of alerts, and how.',
                fill: (part) => notifications({ base }, part),
                signedOut,
              }),
            ],
          },
          {
            id: 'audit',
            text: 'Audit log',
            panel: () => [
              card({
                heading: 'Audit log, last 90 days',
                intro: 'Changes of members, keys, limits and dashboards.',
                fill: auditLog(`${base}/audit`, ORG_ACTIONS),
                signedOut,
                live: true,
              }),
            ],
          },
        ]
      : []),
    {
      id: 'general',
      text: 'General',
      panel: () => [
        card({ heading: 'General', fill: general, signedOut }),
        may('owner') && card({ heading: 'Danger zone', fill: remove, signedOut, danger: true }),
      ],
    },
  ]);
  const node = h(
    'main',
    { class: 'explore cabinet' },
    h(
      'div',
      { class: 'page-head' },
      h('h1', { text: org.name || org.slug }),
      h('p', { class: 'hint', text: `Your role is ${org.role}.` }),
    ),
    tabs.node,
  );
  return { node, stop: tabs.stop };
}
