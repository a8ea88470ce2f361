// The subject of the Share dialog: a dashboard with its variables and panels, or the query of a
// chart. No code but its making.

import { interpolate } from '../../model/interpolate.js';
import { attempt } from '../../model/attempt.js';
import { parseVariableQuery } from '../../model/variable_query.js';

/**
 * @typedef {import('../../model/interpolate.js').Selections} Selections
 *
 * @typedef {{name: string, title: string, label: string, values: string[], locks: boolean}} SharedVariable `label` is
 *   that of the series whose values it has; `values` are the selected ones, empty for All; `locks`: it can be locked
 *
 * @typedef {{id: string, title: string, asks: boolean}} SharedPanel `asks`: it has a query
 *
 * @typedef {Object} Subject
 * @property {string} org
 * @property {import('../../client/types.js').Role} role
 * @property {string} title of the dashboard, of its shared panel, or of the chart
 * @property {{from: number, to: number, raw: {from: string | number, to: string | number}}} range `from` and
 *   `to` in milliseconds, `raw` as they were written
 * @property {SharedDashboard | null} dashboard null for a chart
 * @property {{expr: string, unit: string} | null} chart null for a dashboard
 * @property {(options: {absolute: boolean, values: boolean, panel: string}) => string} linkOf the URL of the
 *   cabinet's page
 *
 * @typedef {Object} SharedDashboard
 * @property {string} uid
 * @property {string} title
 * @property {string} refresh such as 30s; '' for none
 * @property {SharedVariable[]} variables those that have a value to restrict
 * @property {SharedPanel[]} panels
 * @property {string} panel the id of the panel that is shared; '' for the whole dashboard
 */

/** Kinds of variables whose values are not a choice of viewers. */
const FIXED_TYPES = new Set(['constant', 'datasource']);

/**
 * The variables of a dashboard that a viewer could choose.
 * @param {import('../../model/variables.js').Variable[]} variables
 * @param {Selections} selections
 * @returns {SharedVariable[]}
 */
export function sharedVariables(variables, selections) {
  return variables
    .filter(({ type }) => !FIXED_TYPES.has(type))
    .map(({ name, label, type, query }) => {
      const asked = type === 'query' ? parseVariableQuery(query) : null;
      const values = [selections.get(name)?.value ?? ''].flat();
      return {
        name,
        title: label || name,
        label: asked?.kind === 'label_values' && !asked.label.includes('$') ? asked.label : name,
        values: values.filter((value) => value !== '' && !value.startsWith('$__')),
        // A filter has a label of its own, so it is no value to lock.
        locks: type !== 'adhoc',
      };
    });
}

/**
 * The panels of a dashboard, those of closed rows included.
 * @param {import('../../model/panel.js').Panel[]} panels
 * @param {Selections} selections
 * @returns {SharedPanel[]}
 */
export function sharedPanels(panels, selections) {
  return panels
    .flatMap((panel) => (panel.type === 'row' ? panel.panels : [panel]))
    .filter(({ id }) => id !== null)
    .map(({ id, title, targets }) => ({
      id: String(id),
      title: attempt(() => interpolate(title, selections, { format: 'text', limit: 200 })) || `Panel ${id}`,
      asks: targets.some(({ expr, hide }) => expr !== '' && !hide),
    }));
}
