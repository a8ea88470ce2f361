// Opens the Share dialog for a dashboard, one of its panels, or the query of a chart.

import { h } from '../../chart/dom.js';
import { ROOT } from '../../client/server.js';
import { spanOf, writeAddress } from '../../model/explore_state.js';
import { unitOf } from '../../model/promql.js';
import { openDialog } from '../dialog.js';
import { tabsWithContent } from '../tabs.js';
import { embedTab } from './embed_tab.js';
import { imageTab } from './image_tab.js';
import { linkTab } from './link_tab.js';
import { publicTab } from './public_tab.js';
import { snapshotTab } from './snapshot_tab.js';
import { sharedPanels, sharedVariables } from './subject.js';

/** @typedef {import('./subject.js').Subject} Subject */

/**
 * Shows the dialog until it is closed.
 * @param {Subject} subject
 * @param {string} heading
 * @param {string} first the tab that is shown
 */
async function open(subject, heading, first) {
  const { dashboard } = subject;
  /** @type {{id: string, text: string, make: () => Node}[]} */
  const all = [
    { id: 'share-link', text: 'Link', make: () => linkTab(subject) },
    { id: 'share-embed', text: 'Embed', make: () => embedTab(subject) },
    ...(dashboard
      ? [{ id: 'share-public', text: 'Public link', make: () => publicTab({ ...subject, dashboard }) }]
      : []),
    { id: 'share-image', text: 'Image', make: () => imageTab(subject) },
    ...(dashboard
      ? [{ id: 'share-snapshot', text: 'Snapshot', make: () => snapshotTab({ ...subject, dashboard }) }]
      : []),
  ];
  /** Tabs keep the entered values. @type {Map<string, Node>} */
  const made = new Map();
  await openDialog(
    heading,
    undefined,
    (close) => {
      const tabs = tabsWithContent({
        label: 'Ways to share',
        chosen: first,
        tabs: all.map(({ id, text, make }) => ({
          id,
          text,
          content: () => {
            const node = made.get(id) ?? make();
            made.set(id, node);
            return node;
          },
        })),
      });
      const done = h('button', { type: 'button', text: 'Close', on: { click: () => close(undefined) } });
      return [tabs.node, h('div', { class: 'row end' }, done)];
    },
    { class: 'wide share' },
  );
}

/**
 * @param {Object} view what the page shows
 * @param {string} view.org
 * @param {import('../../client/types.js').Role} view.role
 * @param {string} view.uid
 * @param {{title: string, variables: import('../../model/variables.js').Variable[],
 *   panels: import('../../model/panel.js').Panel[]}} view.dashboard
 * @param {import('../../model/interpolate.js').Selections} view.selections
 * @param {Subject['range']} view.range
 * @param {string} view.refresh '' for none
 * @param {string} view.panel the id of the panel that is shared; '' for the dashboard
 * @param {(change: {from?: string, to?: string, values?: Map<string, string[]>, panel?: string}) => string}
 *   view.addressOf the path of the page after a change
 */
export async function shareDashboard({ org, role, uid, dashboard, selections, range, refresh, panel, addressOf }) {
  const { title, variables } = dashboard;
  const panels = sharedPanels(dashboard.panels, selections);
  const one = panels.find(({ id }) => id === panel);
  const linkOf = (/** @type {{absolute: boolean, values: boolean, panel: string}} */ options) => {
    const { from, to } = options.absolute ? range : range.raw;
    const path = addressOf({
      from: String(from),
      to: String(to),
      panel: options.panel,
      ...(options.values ? {} : { values: new Map() }),
    });
    return new URL(path, location.origin).href;
  };
  await open(
    {
      org,
      role,
      title: one?.title ?? title,
      range,
      dashboard: {
        uid,
        title,
        refresh,
        variables: sharedVariables(variables, selections),
        panels,
        panel: one?.id ?? '',
      },
      chart: null,
      linkOf,
    },
    `Share ${one?.title ?? title}`,
    'share-link',
  );
}

/**
 * @param {{org: string, role: import('../../client/types.js').Role,
 *   state: import('../../model/explore_state.js').State}} view
 */
export async function shareChart({ org, role, state }) {
  const span = spanOf(state, Date.now() / 1000);
  const raw = state.zoom ? { from: span.start * 1000, to: span.end * 1000 } : { from: `now-${state.range}`, to: 'now' };
  const linkOf = (/** @type {{absolute: boolean}} */ { absolute }) =>
    `${location.origin}${ROOT}/explore${writeAddress(absolute ? { ...state, zoom: span } : state)}`;
  await open(
    {
      org,
      role,
      title: state.expr,
      range: { from: span.start * 1000, to: span.end * 1000, raw },
      dashboard: null,
      chart: { expr: state.expr, unit: unitOf(state.expr) },
      linkOf,
    },
    'Embed this chart',
    'share-embed',
  );
}
