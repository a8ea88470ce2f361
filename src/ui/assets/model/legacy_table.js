// The old table panel (column styles, one transform) as today's table.

import { calculationOf, oldMappingsOf, overrideOf, thresholdsOf } from './legacy_common.js';
import { defined, listOf, numberOf, objectOf, objectsOf, textOf } from './limits.js';

/** @typedef {import('./legacy_common.js').Json} Json */
/** @typedef {import('./legacy_common.js').Note} Note */
/** @typedef {import('./legacy_common.js').Converted} Converted */

/** Whether a table has the options of Grafana before version 7. @param {Json} panel */
export function isOldTable(panel) {
  return panel.fieldConfig === undefined && (Array.isArray(panel.styles) || panel.transform !== undefined
    || Array.isArray(panel.columns));
}

/** `$__cell` and `$__cell_2` of old links in today's words. @param {string} url */
function linkUrl(url) {
  return url.replace(/\$__cell_(\d+)|\$\{__cell_(\d+)(?::[^}]{1,64})?\}/g, (match, one, two) => (
    `\${__data.fields[${one ?? two}]}`)).replace(/\$__cell\b|\$\{__cell(?::[^}]{1,64})?\}/g, '${__value.text}');
}

/** @param {Json} style @param {Note} note @returns {Record<string, unknown>} */
function styleProperties(style, note) {
  const type = textOf(style.type, 'number');
  if (type === 'hidden') return { 'custom.hidden': true };
  const isNumber = type === 'number';
  const mapped = oldMappingsOf(style);
  /** @type {Record<string, unknown>} */
  const properties = defined({
    displayName: textOf(style.alias) || undefined,
    unit: isNumber ? textOf(style.unit) || undefined : undefined,
    decimals: isNumber ? numberOf(style.decimals) ?? undefined : undefined,
    'custom.align': ['left', 'center', 'right'].includes(style.align) ? style.align : undefined,
    mappings: mapped.length > 0 ? mapped : undefined,
  });
  if (type === 'date') properties.unit = `time: ${textOf(style.dateFormat) || 'YYYY-MM-DD HH:mm:ss'}`;
  const colorMode = textOf(style.colorMode);
  if (colorMode !== '') {
    properties['custom.cellOptions'] = { type: colorMode === 'value' ? 'color-text' : 'color-background' };
    properties.thresholds = thresholdsOf(style.thresholds, style.colors);
    properties.color = { mode: 'thresholds' };
    if (colorMode === 'row') note(`the column ${textOf(style.pattern)} colours its cells, not the row`, 'info');
  }
  if (style.link === true && textOf(style.linkUrl) !== '') {
    properties.links = [{ title: textOf(style.linkTooltip), url: linkUrl(textOf(style.linkUrl)),
      targetBlank: style.linkTargetBlank === true }];
  }
  return properties;
}

/** @param {Json} panel @param {Note} note @returns {Json[]} */
function transformationsOf(panel, note) {
  const transform = textOf(panel.transform);
  if (transform === 'timeseries_to_columns') return [{ id: 'seriesToColumns', options: { byField: 'Time' } }];
  if (transform === 'timeseries_to_rows') return [{ id: 'seriesToRows', options: {} }];
  if (transform === 'timeseries_aggregations') {
    const columns = objectsOf(panel.columns).map((column) => calculationOf(column.value));
    return [{ id: 'reduce', options: { reducers: columns.length > 0 ? columns : ['mean'], includeTimeField: false } }];
  }
  if (transform === 'table') return [{ id: 'merge', options: {} }];
  if (transform !== '') note(`the table transform ${transform} is not supported`, 'warning');
  return [];
}

/**
 * An old table names the sorted column by its index: `options.sortBy[0].column` instead of
 * `displayName`.
 * @param {Json} panel
 * @param {Note} note
 * @returns {Converted}
 */
export function convertTable(panel, note) {
  const styles = objectsOf(panel.styles);
  // The first style that matches a column counts there, and the last override does here.
  const overrides = styles.map((style) => overrideOf(textOf(style.pattern) || '/.*/', styleProperties(style, note)))
    .reverse();
  const sort = objectOf(panel.sort);
  const column = numberOf(sort.col);
  const size = Math.max(0, Math.min(400, numberOf(String(panel.fontSize ?? '100%').replace('%', '')) ?? 100));
  return {
    type: 'table',
    fieldConfig: { defaults: { custom: {}, ...(listOf(panel.mappings).length > 0 ? { mappings: panel.mappings } : {}) },
      overrides },
    options: defined({
      showHeader: panel.showHeader !== false,
      cellHeight: size > 110 ? 'md' : 'sm',
      sortBy: column === null ? [] : [{ column, desc: sort.desc === true }],
      footer: { show: false, enablePagination: (numberOf(panel.pageSize) ?? 0) > 0 },
    }),
    transformations: transformationsOf(panel, note),
  };
}
