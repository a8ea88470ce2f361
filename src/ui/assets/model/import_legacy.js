// Panels of old Grafana versions and of replaced plugins, in the shape of today's panels.

import { currentPanel, typeOf } from './current_panel.js';
import { mappingsOf } from './legacy_common.js';
import { convertGraph } from './legacy_graph.js';
import { convertOldGauge, convertPie, convertSinglestat, isOldGauge } from './legacy_stat.js';
import { convertTable, isOldTable } from './legacy_table.js';
import { defined, isObject, numberOf, objectOf, objectsOf, textOf, wholeOf } from './limits.js';

/** @typedef {import('./legacy_common.js').Json} Json */
/** @typedef {import('./legacy_common.js').Note} Note */
/** @typedef {import('./legacy_common.js').Converted} Converted */

/** @param {Json} panel @param {Note} note @returns {Converted} */
function convertHeatmap(panel, note) {
  const axis = objectOf(panel.yAxis);
  const color = objectOf(panel.color);
  const buckets = panel.dataFormat === 'tsbuckets';
  const logBase = numberOf(axis.logBase) ?? 1;
  /** @param {unknown} count @param {unknown} size */
  const bucketsOf = (count, size) => (textOf(size) !== '' ? { mode: 'size', value: textOf(size) }
    : { mode: 'count', value: textOf(count) });
  const scheme = textOf(color.colorScheme, 'interpolateOranges').replace(/^interpolate/, '');
  const tooltip = objectOf(panel.tooltip);
  if (textOf(panel.yBucketBound, 'auto') !== 'auto') note('the bound of y buckets is chosen automatically', 'info');
  return {
    type: 'heatmap',
    fieldConfig: { defaults: { custom: {} }, overrides: [] },
    options: defined({
      calculate: !buckets,
      calculation: buckets ? undefined : {
        xBuckets: bucketsOf(panel.xBucketNumber, panel.xBucketSize),
        yBuckets: { ...bucketsOf(panel.yBucketNumber, panel.yBucketSize),
          scale: logBase > 1 ? { type: 'log', log: logBase } : { type: 'linear' } } },
      color: defined({ mode: color.mode === 'opacity' ? 'opacity' : 'scheme', scheme,
        fill: textOf(color.cardColor, 'dark-orange'), exponent: numberOf(color.exponent) ?? 0.5, steps: 128,
        scale: color.colorScale === 'linear' ? 'linear' : 'exponential', reverse: false,
        min: numberOf(color.min) ?? undefined, max: numberOf(color.max) ?? undefined }),
      yAxis: defined({ unit: textOf(axis.format) || undefined, decimals: numberOf(axis.decimals) ?? undefined,
        min: numberOf(axis.min) ?? undefined, max: numberOf(axis.max) ?? undefined,
        axisPlacement: axis.show === false ? 'hidden' : 'left', reverse: panel.reverseYBuckets === true }),
      cellGap: wholeOf(objectOf(panel.cards).cardPadding, 0, 25, 1),
      cellRadius: wholeOf(objectOf(panel.cards).cardRound, 0, 100, 0),
      filterValues: panel.hideZeroBuckets === true ? { le: 1e-9 } : undefined,
      legend: { show: objectOf(panel.legend).show === true },
      tooltip: { mode: tooltip.show === false ? 'none' : 'single', yHistogram: tooltip.showHistogram === true },
      rowsFrame: { layout: 'auto' },
    }),
  };
}

/** @param {Json} panel @returns {Converted} */
function convertText(panel) {
  const options = objectOf(panel.options);
  const mode = textOf(options.mode, textOf(panel.mode, 'markdown'));
  return { type: 'text', fieldConfig: { defaults: {}, overrides: [] },
    options: { ...options, mode: mode === 'text' ? 'markdown' : mode,
      content: textOf(options.content, textOf(panel.content)) } };
}

/** @param {Json} panel @returns {Converted} */
function convertDashboardList(panel) {
  return { type: 'dashlist', fieldConfig: { defaults: {}, overrides: [] }, options: {
    showStarred: panel.starred === true, showRecentlyViewed: panel.recent === true,
    showSearch: panel.search === true, showHeadings: panel.headings !== false,
    maxItems: wholeOf(panel.limit, 1, 1000, 10), query: textOf(panel.query),
    tags: Array.isArray(panel.tags) ? panel.tags : [], folderId: numberOf(panel.folderId) } };
}

/** @param {Json} panel @returns {Converted} */
function convertAlertList(panel) {
  return { type: 'alertlist', fieldConfig: { defaults: {}, overrides: [] }, options: {
    maxItems: wholeOf(panel.limit, 1, 1000, 10), sortOrder: wholeOf(panel.sortOrder, 1, 5, 1),
    dashboardAlerts: panel.onlyAlertsOnDashboard === true, alertName: textOf(panel.nameFilter),
    stateFilter: Object.fromEntries((Array.isArray(panel.stateFilter) ? panel.stateFilter : [])
      .map((state) => [textOf(state), true])) } };
}

/**
 * Options that the new state panels share with the plugins before them.
 * @param {Json} panel
 * @param {string} type
 * @returns {Converted}
 */
function convertStates(panel, type) {
  return { type, fieldConfig: {
    defaults: { custom: { fillOpacity: 80 }, color: { mode: 'thresholds' },
      mappings: mappingsOf([...objectsOf(panel.valueMaps).map((map) => ({ ...map, type: 1 })),
        ...objectsOf(panel.rangeMaps).map((map) => ({ ...map, type: 2 }))]) },
    overrides: [] },
  options: { showValue: 'auto', legend: { showLegend: true, displayMode: 'list', placement: 'bottom' } } };
}

/**
 * A panel's type, field configuration and options in today's shape. Panels of today only have their
 * value mappings and thresholds put in order; unknown types stay as they are.
 * @param {Json} panel
 * @param {Note} note
 * @returns {Converted & {legacy: boolean}}
 */
export function convertPanel(panel, note) {
  const type = typeOf(panel);
  const converted = legacyPanel(panel, type, note);
  if (converted) return { ...converted, legacy: true };
  return currentPanel(panel);
}

/** @param {Json} panel @param {string} type @param {Note} note @returns {Converted | null} */
function legacyPanel(panel, type, note) {
  const bare = !isObject(panel.options);
  if (type === 'graph') return convertGraph(panel, note);
  if (type === 'singlestat') return convertSinglestat(panel, note);
  if (type === 'piechart-old') return convertPie(panel, note);
  if (type === 'table-old' || (type === 'table' && isOldTable(panel))) return convertTable(panel, note);
  if (type === 'heatmap' && bare) return convertHeatmap(panel, note);
  if ((type === 'gauge' || type === 'stat' || type === 'bargauge') && isOldGauge(panel)) {
    return convertOldGauge({ ...panel, type });
  }
  if (type === 'text' && (bare || panel.options.content === undefined)) return convertText(panel);
  if (type === 'dashlist' && bare) return convertDashboardList(panel);
  if (type === 'alertlist' && bare) return convertAlertList(panel);
  const plugin = type !== textOf(panel.type);
  if (plugin && (type === 'state-timeline' || type === 'status-history')) return convertStates(panel, type);
  return null;
}
