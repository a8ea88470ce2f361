// The kinds of panels with their names, and the initial content of a new panel.

/** @typedef {import('./limits.js').Json} Json */

/** Kinds in the order of the menu. @type {[type: string, name: string][]} */
export const PANEL_KINDS = [
  ['timeseries', 'Time series'],
  ['stat', 'Stat'],
  ['gauge', 'Gauge'],
  ['bargauge', 'Bar gauge'],
  ['table', 'Table'],
  ['barchart', 'Bar chart'],
  ['piechart', 'Pie chart'],
  ['histogram', 'Histogram'],
  ['heatmap', 'Heatmap'],
  ['state-timeline', 'State timeline'],
  ['status-history', 'Status history'],
  ['text', 'Text'],
];

/** Kinds that show one number, and are smaller at first. */
const SMALL = new Set(['stat', 'gauge']);

/**
 * A new panel without a query, as Grafana stores it; id and place come later.
 * @param {string} type
 * @returns {Json}
 */
export function newPanel(type) {
  const [w, h] = SMALL.has(type) ? [6, 6] : [12, 8];
  const common = { type, title: 'New panel', gridPos: { x: 0, y: 0, w, h } };
  if (type === 'text') return { ...common, title: '', options: { mode: 'markdown', content: '' } };
  return { ...common, targets: [{ refId: 'A', expr: '' }], fieldConfig: { defaults: {}, overrides: [] }, options: {} };
}

/**
 * A new dashboard without panels.
 * @param {string} title
 * @returns {Json}
 */
export const newDashboard = (title) => ({
  title,
  tags: [],
  schemaVersion: 39,
  time: { from: 'now-6h', to: 'now' },
  timezone: 'browser',
  refresh: '',
  templating: { list: [] },
  annotations: { list: [] },
  panels: [],
});
