// Dashboards and helpers that the tests of the dashboard model share.

import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { expandRepeats } from '../../src/ui/assets/model/repeat.js';
import { applyPanelTime, resolveRange } from '../../src/ui/assets/model/time.js';
import { interpolate, optionsOf, selectionOf } from '../../src/ui/assets/model/variables.js';
import { parseVariableQuery } from '../../src/ui/assets/model/variable_query.js';
import { savedSelections } from './saved_selections.mjs';

/** The only panel of a dashboard. @param {object} panel @param {object} [root] */
export function panelOf(panel, root = {}) {
  return readDashboard({ title: 't', panels: [{ id: 1, ...panel }], ...root }).dashboard.panels[0];
}

/** Properties of an override by its matcher. @param {any} panel @param {string} name */
export function overrideOf(panel, name) {
  const found = panel.fieldConfig.overrides.find((/** @type {any} */ one) => one.matcher.options === name);
  return found && Object.fromEntries(found.properties.map((/** @type {any} */ one) => [one.id, one.value]));
}

/** A dashboard of the current schema with each field that is read. */
export const CURRENT = {
  id: 7, uid: 'abc', title: 'Shop', description: 'd', tags: ['a', 3, 'b'], schemaVersion: 41, timezone: 'utc',
  weekStart: 'monday', refresh: '30s', time: { from: 'now-1h', to: 'now' }, graphTooltip: 1, version: 12,
  links: [{ type: 'link', title: 'Docs', url: 'https://example.org', targetBlank: true, keepTime: true }],
  templating: { list: [{ name: 'job', type: 'query', query: { query: 'label_values(up, job)', refId: 'x' }, sort: 1,
    multi: true, includeAll: true, allValue: '.+', hide: 2, current: { text: ['All'], value: ['$__all'] } }] },
  annotations: { list: [{ builtIn: 1, name: 'Annotations & Alerts', datasource: { type: 'grafana',
    uid: '-- Grafana --' } },
    { name: 'deploys', enable: true, iconColor: 'red', expr: 'changes(x[1m]) > 0', titleFormat: '{{app}}',
      filter: { exclude: true, ids: [2] } }] },
  panels: [
    { id: 1, type: 'row', title: 'Open', collapsed: false, gridPos: { x: 0, y: 0, w: 24, h: 1 }, panels: [] },
    { id: 2, type: 'timeseries', title: 'CPU', description: 'of all', gridPos: { x: 0, y: 1, w: 12, h: 8 },
      datasource: { type: 'prometheus', uid: '${ds}' }, transparent: true, interval: '1m', maxDataPoints: 100,
      timeFrom: '2h', timeShift: '1d', hideTimeOverride: true, repeat: 'job', repeatDirection: 'v', maxPerRow: 3,
      fieldConfig: { defaults: { unit: 'percent', custom: { lineWidth: 2 } }, overrides: [] },
      options: { legend: { showLegend: true } }, links: [{ title: 'L', url: '/x' }],
      transformations: [{ id: 'organize', options: {} }, { id: 'nope' }],
      targets: [{ refId: 'A', expr: 'up', legendFormat: '{{job}}', interval: '30s', exemplar: true, unknown: 1 },
        { expr: 'up', instant: true, format: 'table', hide: true }] },
    { id: 3, type: 'row', title: 'Closed', collapsed: true, gridPos: { x: 0, y: 9, w: 24, h: 1 }, panels: [
      { id: 4, type: 'stat', title: 'In', gridPos: { x: 0, y: 10, w: 4, h: 4 }, targets: [{ refId: 'A',
        expr: 'x' }] }] },
  ],
};

/** @typedef {import('../../src/ui/assets/model/dashboard.js').Dashboard} Dashboard */

/** Uses a dashboard the way the page does. @param {Dashboard} dashboard */
export function useAll(dashboard) {
  const selections = savedSelections(dashboard.variables);
  for (const panel of dashboard.panels.flatMap((one) => [one, ...one.panels])) {
    for (const target of panel.targets) interpolate(target.expr, selections, { format: 'promql' });
    applyPanelTime(resolveRange(dashboard.time), panel);
    interpolate(panel.title, selections, { format: 'text' });
  }
  for (const variable of dashboard.variables) {
    parseVariableQuery(variable.query);
    selectionOf(variable, optionsOf(variable, ['a', 'b']));
  }
  expandRepeats(dashboard.panels, selections);
}

/**
 * Each place inside a JSON value.
 * @param {any} value
 * @param {string[]} path
 * @returns {string[][]}
 */
export function placesOf(value, path = []) {
  if (typeof value !== 'object' || value === null) return [path];
  return [path, ...Object.keys(value).flatMap((name) => placesOf(value[name], [...path, name]))];
}

/** A generator of random JSON. @param {number} start */
export function generator(start) {
  let seed = start;
  const random = (/** @type {number} */ below) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor(seed / 2 ** 32 * below);
  };
  const names = ['title', 'panels', 'rows', 'type', 'targets', 'expr', 'gridPos', 'x', 'y', 'w', 'h', 'options',
    'fieldConfig',
    'defaults', 'overrides', 'matcher', 'properties', 'id', 'value', 'mappings', 'thresholds', 'steps', 'custom',
      'templating',
    'list', 'name', 'query', 'regex', 'current', 'text', 'annotations', 'links', 'time', 'from', 'to', 'repeat',
      'datasource',
    'uid', 'styles', 'pattern', 'columns', 'sort', 'legend', 'tooltip', 'yaxes', 'grid', 'seriesOverrides', 'alias',
    'aliasColors', 'xaxis', 'mode', 'gauge', 'show', 'valueMaps', 'rangeMaps', 'mappingType', 'fieldOptions',
      'valueOptions',
    'collapsed', 'collapse', 'span', 'height', 'transformations', 'libraryPanel', '__inputs', '__elements', 'filters',
    '__proto__', 'constructor', 'hasOwnProperty', 'toString', 'yAxis', 'color', 'cards', 'combine', 'stateFilter',
      'unknown'];
  const kinds = ['graph', 'singlestat', 'table', 'table-old', 'heatmap', 'gauge', 'stat', 'bargauge', 'text', 'row',
    'dashlist',
    'alertlist', 'timeseries', 'grafana-piechart-panel', 'natel-discrete-panel', 'query', 'custom', 'datasource',
      'series',
    'histogram', 'prometheus', '-- Mixed --', '$ds', '/a/', '$__all', 'now', '1', '250px', '', 'null', '__proto__'];
  /** @param {number} depth @returns {any} */
  const value = (depth) => {
    const kind = random(depth > 5 ? 6 : 10);
    if (kind < 2) return kinds[random(kinds.length)];
    if (kind === 2) return [0, -1, 1.5, 1e308, 24, 7][random(6)];
    if (kind === 3) return null;
    if (kind === 4) return random(2) === 0;
    if (kind === 5) return names[random(names.length)];
    if (kind === 6) return Array.from({ length: random(4) }, () => value(depth + 1));
    const entries = Array.from({ length: random(8) }, () => [names[random(names.length)], value(depth + 1)]);
    return Object.fromEntries(entries);
  };
  return { random, value, names, kinds };
}
