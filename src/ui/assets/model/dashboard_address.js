// The state of a dashboard page as the query string of its address, in Grafana's words.

/**
 * @typedef {{org: string, uid: string, from: string, to: string, refresh: string | null, tab: string,
 *   panel: string, edit: boolean, editPanel: string, values: Map<string, string[]>}} DashboardAddress
 * `from` and `to` are empty for the dashboard's own range. `refresh` is null for the dashboard's
 * own interval and empty for none. `values`: the wanted values of variables, by name. `panel`: the
 * id of the only panel that is shown. `edit`: the dashboard is edited; `editPanel`: the id of the
 * panel whose editor is open.
 */

/** The most values of variables, and most characters of one. */
const VALUES_MAX = 1000;
const VALUE_LENGTH_MAX = 4096;

/**
 * Reads `?uid=&from=&to=&refresh=&var-NAME=`; a name may occur several times.
 * @param {string} search
 * @returns {DashboardAddress}
 */
export function readDashboardAddress(search) {
  const parameters = new URLSearchParams(search);
  /** @type {Map<string, string[]>} */
  const values = new Map();
  let count = 0;
  for (const [key, value] of parameters) {
    if (!key.startsWith('var-') || key.length < 5 || (count += 1) > VALUES_MAX) continue;
    const name = key.slice(4);
    const list = values.get(name) ?? [];
    values.set(name, list);
    // Grafana writes All as `All` or `$__all`.
    list.push(value.slice(0, VALUE_LENGTH_MAX));
  }
  const text = (/** @type {string} */ name) => (parameters.get(name) ?? '').slice(0, 128);
  const edit = parameters.has('edit') || text('editPanel') !== '';
  // Versions are of the stored dashboard, and variables of the edited one.
  const tabs = ['json', edit ? 'variables' : 'versions'];
  return {
    org: text('org'),
    uid: text('uid'),
    from: text('from'),
    to: text('to'),
    refresh: parameters.get('refresh'),
    tab: tabs.includes(text('tab')) ? text('tab') : '',
    panel: text('viewPanel'),
    edit,
    editPanel: text('editPanel'),
    values,
  };
}

/**
 * The query string of a state.
 * @param {DashboardAddress} address
 */
export function writeDashboardAddress({ org, uid, from, to, refresh, tab, panel, edit, editPanel, values }) {
  const parameters = new URLSearchParams({ org, uid });
  for (const [name, list] of values) {
    // A multi-value variable with nothing selected differs from one that the address leaves out.
    for (const value of list.length > 0 ? list : ['']) parameters.append(`var-${name}`, value);
  }
  if (from && to) {
    parameters.set('from', from);
    parameters.set('to', to);
  }
  if (refresh !== null) parameters.set('refresh', refresh);
  if (panel) parameters.set('viewPanel', panel);
  if (tab) parameters.set('tab', tab);
  if (editPanel) parameters.set('editPanel', editPanel);
  else if (edit) parameters.set('edit', '');
  return `?${parameters}`;
}
