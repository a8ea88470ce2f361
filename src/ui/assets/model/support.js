// The panels and queries that the page supports; all others are listed in the report.

import { isObject, listOf, objectOf, objectsOf, own, textOf } from './limits.js';

/** @typedef {import('./limits.js').Json} Json */

/** Types of panels that are drawn as their kind, in today's names. */
export const PANEL_TYPES = new Set(['timeseries', 'stat', 'gauge', 'bargauge', 'table', 'text', 'row', 'heatmap',
  'state-timeline', 'status-history', 'barchart', 'piechart', 'histogram', 'alertlist', 'dashlist']);

/** Panels that ask no query. */
export const PANELS_WITHOUT_QUERIES = new Set(['text', 'row', 'alertlist', 'dashlist']);

/** Transformations that the page applies. */
export const TRANSFORMATIONS = new Set(['organize', 'merge', 'joinByField', 'seriesToColumns', 'seriesToRows',
  'filterFieldsByName', 'filterByValue', 'groupBy', 'calculateField', 'labelsToFields', 'reduce', 'sortBy',
  'renameByRegex', 'limit']);

/** Data source plugins that speak PromQL. */
const PROMETHEUS = new Set(['prometheus', 'grafana-amazonprometheus-datasource', 'grafana-azureprometheus-datasource',
  'victoriametrics-metrics-datasource', 'victoriametrics-datasource']);

/** Names of Grafana's built-in data sources. */
const BUILT_IN = new Map([['-- Grafana --', 'grafana'], ['grafana', 'grafana'], ['-- Dashboard --', 'dashboard'],
  ['__expr__', '__expr__'], ['-100', '__expr__']]);

/** @param {string} plugin */
export function isPrometheus(plugin) {
  return PROMETHEUS.has(plugin);
}

/**
 * Finds the plugin of a data source. A reference without a known plugin counts as Prometheus.
 * @param {Json} root with `__inputs`
 * @param {{name: string, type: string, query: unknown}[]} variables
 * @returns {(source: unknown) => string} the plugin, `mixed`, or an empty text for the default data
 *   source
 */
export function dataSourceFinder(root, variables) {
  /** @type {Map<string, string>} */
  const plugins = new Map();
  for (const input of objectsOf(own(root, '__inputs'))) {
    if (input.type === 'datasource') plugins.set(textOf(input.name), textOf(input.pluginId));
  }
  for (const variable of variables) {
    if (variable.type === 'datasource') plugins.set(variable.name, textOf(variable.query));
  }
  /** @param {string} text */
  const named = (text) => {
    const reference = /^(?:\$\{(\w{1,128})(?:[.:][^}]{0,256})?\}|\$(\w{1,128})|\[\[(\w{1,128})\]\])$/.exec(text);
    if (reference) return plugins.get(reference[1] ?? reference[2] ?? reference[3]) ?? '';
    return text === '-- Mixed --' ? 'mixed' : BUILT_IN.get(text) ?? '';
  };
  return (source) => {
    if (!isObject(source)) return named(textOf(source));
    const uid = named(textOf(source.uid));
    const type = textOf(source.type);
    if (uid !== '' || type === '') return uid;
    return type === 'datasource' ? 'grafana' : named(type) || (type.includes('$') ? '' : type);
  };
}

/**
 * @typedef {{panel: number | null, title: string, what: string,
 *   severity: 'info' | 'warning' | 'error'}} ReportLine `error`: it is not drawn as intended;
 *   `warning`: a part is missing; `info`: a difference without loss.
 */

/** Collects lines of the report, each one once. */
export class Report {
  constructor() {
    /** @type {ReportLine[]} */
    this.lines = [];
    /** @type {Set<string>} */
    this.seen = new Set();
  }

  /**
   * @param {{id?: unknown, title?: unknown} | null} panel null for the dashboard itself
   * @param {string} what
   * @param {ReportLine['severity']} [severity]
   */
  add(panel, what, severity = 'warning') {
    const id = typeof panel?.id === 'number' ? panel.id : null;
    const line = { panel: id, title: textOf(panel?.title).slice(0, 200), what: what.slice(0, 500), severity };
    const key = JSON.stringify(line);
    if (!this.seen.has(key)) this.lines.push(line);
    this.seen.add(key);
  }
}

/**
 * Transformations of a panel, unknown ones included.
 * @param {Json} panel
 * @param {Json[]} extra
 * @param {(what: string, severity?: 'info' | 'warning' | 'error') => void} note
 * @returns {Json[]}
 */
export function transformationsOf(panel, extra, note) {
  const list = [...objectsOf(panel.transformations), ...extra];
  if (list.length < listOf(panel.transformations).length) note('a transformation is not an object', 'warning');
  for (const transformation of list) {
    const id = textOf(transformation.id);
    if (transformation.disabled !== true && !TRANSFORMATIONS.has(id)) {
      note(`the transformation ${id || 'without an id'} is not supported`, 'warning');
    }
  }
  return list.map((transformation) => ({ ...transformation, options: objectOf(transformation.options) }));
}
