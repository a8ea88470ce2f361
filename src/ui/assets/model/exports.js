// A result as CSV, and a query as a curl command and as a panel of a dashboard.

import { fullName } from '../chart/scale.js';
import { readDashboard } from './dashboard.js';
import { PANEL_KINDS } from './new_panel.js';
import { unitOf } from './promql.js';
import { shellWord } from './shell.js';
import { writeDashboard } from './write_dashboard.js';

/**
 * @typedef {{resultType: string, result: any}} Data
 * @typedef {{kind: string, title: string, expr: string}} PanelWish
 */

/** Grafana's units for those that names of metrics determine. @type {Map<string, string>} */
const UNITS = new Map([
  ['bytes', 'bytes'],
  ['bytes/s', 'binBps'],
  ['seconds', 's'],
  ['percent', 'percentunit'],
]);
/** The kinds of panel that a query can become. */
const FROM_QUERY = new Set(['timeseries', 'stat', 'gauge', 'bargauge', 'table', 'barchart', 'piechart']);
export const QUERY_PANEL_KINDS = PANEL_KINDS.filter(([type]) => FROM_QUERY.has(type));
/** Kinds that show one value a series. */
const INSTANT = new Set(['bargauge', 'table', 'barchart', 'piechart']);
const TITLE_MAX = 200;

/**
 * A cell of CSV by RFC 4180. Text that a spreadsheet would take for a formula gets an apostrophe;
 * numbers stay numbers.
 * @param {string} text
 */
export function csvCell(text) {
  const number = /^[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|Inf)$/i.test(text);
  const guarded = !number && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded;
}

/**
 * A result as CSV: one row a time, ascending, in UTC; one column a series. A series without a value
 * at a time has an empty cell; a native histogram is its JSON.
 * @param {Data} data
 * @returns {string} rows end with CRLF
 */
export function csvOf({ resultType, result }) {
  /** @type {{metric: Record<string, string>, points: [number, string][]}[]} */
  const series =
    resultType === 'matrix' || resultType === 'vector'
      ? result.map((/** @type {any} */ row) => ({ metric: row.metric ?? {}, points: pointsOf(row) }))
      : [{ metric: { __name__: 'value' }, points: result ? [result] : [] }];
  /** @type {Map<number, Map<number, string>>} */
  const rows = new Map();
  series.forEach(({ points }, column) => {
    for (const [at, text] of points) {
      const time = Math.round(Number(at) * 1000);
      const row = rows.get(time) ?? new Map();
      rows.set(time, row.set(column, String(text)));
    }
  });
  const lines = [['time', ...series.map(({ metric }) => fullName(metric))]];
  for (const [time, row] of [...rows].sort(([a], [b]) => a - b))
    lines.push([new Date(time).toISOString(), ...series.map((_, column) => row.get(column) ?? '')]);
  return `${lines.map((line) => line.map(csvCell).join(',')).join('\r\n')}\r\n`;
}

/** The points of a row of a vector or a matrix. @param {any} row @returns {[number, string][]} */
function pointsOf({ value, values, histogram, histograms }) {
  const native = histograms ?? (histogram ? [histogram] : []);
  return [
    ...(values ?? (value ? [value] : [])),
    ...native.map((/** @type {[number, any]} */ [at, one]) => [at, JSON.stringify(one)]),
  ];
}

/**
 * The curl command of a query. The secret is a variable of the shell, so that it is neither on the
 * clipboard nor in the history of the shell.
 * @param {{base: string, org: string, expr: string, params: Record<string, string | number>}} query
 *   `base` is the public URL of the server; `params` has `start`, `end` and `step` for a range
 */
export function curlOf({ base, org, expr, params }) {
  const path = 'step' in params ? 'query_range' : 'query';
  return [
    '# PROMLET_API_KEY holds an API key of this organisation with the scope "read".',
    `curl -sG ${shellWord(`${base}/api/v1/orgs/${encodeURIComponent(org)}/prometheus/api/v1/${path}`)} \\`,
    '  -H "Authorization: Bearer $PROMLET_API_KEY" \\',
    ...Object.entries(params).map(([name, value]) => `  -d ${shellWord(`${name}=${value}`)} \\`),
    `  --data-urlencode ${shellWord(`query=${expr}`)}`,
    '',
  ].join('\n');
}

/**
 * The query as a panel in Grafana's JSON, without an id and a place.
 * @param {PanelWish} wish
 */
export function panelOf({ kind, title, expr }) {
  const unit = UNITS.get(unitOf(expr));
  const instant = INSTANT.has(kind);
  return {
    type: kind,
    title: (title.trim() || expr).slice(0, TITLE_MAX),
    targets: [{ refId: 'A', expr, instant, range: !instant, ...(kind === 'table' ? { format: 'table' } : {}) }],
    fieldConfig: { defaults: unit ? { unit } : {}, overrides: [] },
    options: kind === 'timeseries' ? { legend: { displayMode: 'list', placement: 'bottom', showLegend: true } } : {},
  };
}

/**
 * The document of a dashboard with one more panel below all others.
 * @param {unknown} document
 * @param {PanelWish} wish
 * @throws {import('./dashboard.js').DashboardError}
 */
export function withPanel(document, wish) {
  const { dashboard } = readDashboard(document);
  const bottom = Math.max(0, ...dashboard.panels.map(({ gridPos: { y, h } }) => y + h));
  const gridPos = { x: 0, y: bottom, w: wish.kind === 'timeseries' || wish.kind === 'table' ? 24 : 12, h: 8 };
  const made = readDashboard({ title: '', panels: [{ ...panelOf(wish), gridPos }] }).dashboard.panels[0];
  return writeDashboard(dashboard, { panels: [...dashboard.panels, { ...made, key: 'new', id: null, gridPos }] });
}

/**
 * A name for a file of a query: letters, digits and dashes.
 * @param {string} expr
 * @param {string} ending without the dot
 */
export function fileName(expr, ending) {
  const words = expr.replaceAll(/[^\w]+/g, '-').replaceAll(/^-+|-+$/g, '').slice(0, 60);
  return `${words || 'query'}.${ending}`;
}
