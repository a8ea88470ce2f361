// The dialog that adds a query as a panel to a dashboard, or to a new one.

import { h } from '../chart/dom.js';
import { createDashboard, isConflict, listDashboards, readStored, saveDashboard } from '../client/dashboards.js';
import { pageUrl } from '../client/server.js';
import { QUERY_PANEL_KINDS, withPanel } from '../model/exports.js';
import { newDashboard } from '../model/new_panel.js';
import { openDialog } from './dialog.js';
import { field, form } from './form.js';

/** The number of further attempts to save after another person saved the dashboard. */
const TRIES_MAX = 3;
/** The value of the choice of a new dashboard. */
const NEW = '';
/** The message of the version. */
const MESSAGE = 'Panel added from Explore';

/**
 * @param {{org: string, expr: string, kind: string}} options `kind` is chosen at first
 */
export async function addToDashboard({ org, expr, kind }) {
  const stored = await listDashboards(org, {}).catch(() => []);
  const possible = stored.filter(({ provisioned }) => !provisioned);
  /** @type {[value: string, text: string][]} */
  const places = possible.map(({ uid, title, folder }) => [uid, folder ? `${folder} / ${title}` : title]);
  const where = select('Dashboard', 'uid', [[NEW, 'New dashboard'], ...places], possible[0]?.uid ?? NEW);
  const name = field('Name of the new dashboard', 'dashboard', { maxlength: '200' });
  const nameInput = /** @type {HTMLInputElement} */ (name.querySelector('input'));
  const title = field('Panel title', 'title', { maxlength: '200', value: expr.replaceAll(/\s+/g, ' ').slice(0, 80) });
  const kinds = select('Shown as', 'kind', QUERY_PANEL_KINDS, kind);
  const follow = () => {
    name.hidden = where.node.value !== NEW;
    nameInput.required = !name.hidden;
  };
  where.node.addEventListener('change', follow);
  follow();
  /** @param {(result: undefined) => void} close @param {HTMLElement} heading */
  const content = (close, heading) => {
    const closing = (/** @type {string} */ text, /** @type {string} */ kindOf) =>
      h('button', { type: 'button', class: kindOf || undefined, text, on: { click: () => close(undefined) } });
    const body = h(
      'div',
      { class: 'stack' },
      form(
        {
          submit: 'Add panel',
          messages: { provisioned: 'This dashboard comes from a file of the server: it cannot be changed here.' },
          action: async (values) => {
            const wish = { expr, title: values.title, kind: values.kind };
            const saved =
              values.uid === NEW
                ? await createDashboard(org, { dashboard: withPanel(newDashboard(values.dashboard.trim()), wish), message: MESSAGE })
                : await append(org, values.uid, wish);
            heading.textContent = 'Panel added';
            const open = h('a', {
              class: 'button primary',
              href: pageUrl('/dashboard', { org, uid: saved.uid }),
              text: `Open ${saved.title}`,
            });
            body.replaceChildren(
              h('p', { role: 'status', text: `The panel is at the end of the dashboard ${saved.title}.` }),
              h('div', { class: 'row' }, open, closing('Close', '')),
            );
            open.focus();
          },
        },
        where.field,
        name,
        title,
        kinds.field,
      ),
      closing('Cancel', 'plain'),
    );
    return [body];
  };
  return openDialog('Add to dashboard', undefined, content, { class: 'add-panel' });
}

/**
 * A labelled select.
 * @param {string} label
 * @param {string} name
 * @param {[value: string, text: string][]} options
 * @param {string} value
 */
function select(label, name, options, value) {
  const node = h(
    'select',
    { id: `panel-${name}`, name },
    options.map(([one, text]) => h('option', { value: one, text, selected: one === value })),
  );
  return { node, field: h('div', { class: 'field' }, h('label', { for: node.id, text: label }), node) };
}

/**
 * Saves the dashboard with the panel; where another save came between, it is read again.
 * @param {string} org
 * @param {string} uid
 * @param {import('../model/exports.js').PanelWish} wish
 */
async function append(org, uid, wish) {
  for (let attempt = 1; ; attempt += 1) {
    const { dashboard, version } = await readStored(org, uid);
    try {
      return await saveDashboard(org, uid, version, { dashboard: withPanel(dashboard, wish), message: MESSAGE });
    } catch (error) {
      if (!isConflict(error) || attempt >= TRIES_MAX) throw error;
    }
  }
}
