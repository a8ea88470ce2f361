// One panel of a dashboard as the page draws it, from any version of its JSON.

import { linksOf } from './legacy_common.js';
import { isObject, numberOf, objectsOf, own, textOf, wholeOf } from './limits.js';
import { isPrometheus, PANEL_TYPES, PANELS_WITHOUT_QUERIES, transformationsOf } from './support.js';

/** @typedef {import('./limits.js').Json} Json */
/** @typedef {import('./grid.js').GridPos} GridPos */
/** @typedef {import('./support.js').Report} Report */

/**
 * @typedef {{refId: string, expr: string, legendFormat: string, instant: boolean, range: boolean,
 *   format: string, interval: string, intervalFactor: number, hide: boolean, exemplar: boolean,
 *   datasource: unknown, unsupported: string | null}} Target
 * `format`: `time_series`, `table` or `heatmap`. `unsupported`: why the query is not asked.
 *
 * @typedef {{key: string, id: number | null, type: string, sourceType: string, legacy: boolean,
 *   supported: boolean, title: string, description: string, gridPos: GridPos, targets: Target[],
 *   datasource: unknown, fieldConfig: {defaults: Json, overrides: {matcher: Json,
 *   properties: {id: string, value: unknown}[]}[]}, options: Json, transformations: Json[],
 *   links: Json[], repeat: string, repeatDirection: 'h' | 'v', maxPerRow: number, timeFrom: string,
 *   timeShift: string, hideTimeOverride: boolean, interval: string, maxDataPoints: number | null,
 *   transparent: boolean, collapsed: boolean, panels: Panel[]}} Panel
 * `key` names the place in the source; it is unique. `type` is today's type, `sourceType` that of
 * the source. `panels` are those inside a collapsed row.
 */

/**
 * Reads the type and the options of a panel: `currentPanel` or `convertPanel`.
 * @typedef {(panel: Json, note: import('./legacy_common.js').Note) =>
 *   import('./legacy_common.js').Converted & {legacy: boolean}} Convert
 */

/** @param {string[]} taken @returns {string} the first free one of A, B, ... Z, AA, AB, ... */
function freeRefId(taken) {
  for (let count = 0; ; count += 1) {
    const letter = String.fromCharCode(65 + (count % 26));
    const refId = count < 26 ? letter : `${String.fromCharCode(64 + Math.floor(count / 26))}${letter}`;
    if (!taken.includes(refId)) return refId;
  }
}

/**
 * @param {Json} raw
 * @param {(source: unknown) => string} pluginOf
 * @param {(what: string, severity?: 'info' | 'warning' | 'error') => void} note
 * @returns {Target[]}
 */
function targetsOf(raw, pluginOf, note) {
  const taken = objectsOf(raw.targets).map((target) => textOf(target.refId)).filter(Boolean);
  return objectsOf(raw.targets).map((target) => {
    const refId = textOf(target.refId) || freeRefId(taken);
    if (!taken.includes(refId)) taken.push(refId);
    const ownPlugin = target.datasource === undefined || target.datasource === null ? '' : pluginOf(target.datasource);
    const plugin = ownPlugin || pluginOf(raw.datasource);
    const expr = textOf(target.expr);
    const hide = target.hide === true;
    let unsupported = null;
    if (plugin !== '' && plugin !== 'mixed' && !isPrometheus(plugin)) {
      unsupported = plugin === '__expr__' ? 'server-side expressions are not supported'
        : `the data source ${plugin} is not supported`;
    } else if (expr.trim() === '' && target.queried !== true) unsupported = 'it has no PromQL expression';
    if (unsupported && !hide) {
      note(`query ${refId}: ${unsupported}`, expr === '' && plugin === '' ? 'warning' : 'error');
    }
    const instant = target.instant === true;
    return {
      refId, expr, legendFormat: textOf(target.legendFormat), instant,
      range: typeof target.range === 'boolean' ? target.range || !instant : !instant,
      format: ['table', 'heatmap'].includes(target.format) ? target.format : 'time_series',
      interval: textOf(target.interval), intervalFactor: wholeOf(target.intervalFactor, 1, 10, 1), hide,
      exemplar: target.exemplar === true, datasource: target.datasource ?? raw.datasource ?? null, unsupported,
    };
  });
}

/**
 * @param {Json} raw
 * @param {{key: string, gridPos: GridPos, pluginOf: (source: unknown) => string, report: Report,
 *   convert: Convert}} context
 * @returns {Panel}
 */
export function readPanel(raw, { key, gridPos, pluginOf, report, convert }) {
  const id = numberOf(raw.id);
  const title = textOf(raw.title);
  /** @param {string} what @param {'info' | 'warning' | 'error'} [severity] */
  const note = (what, severity) => report.add({ id, title }, what, severity);
  const { type, fieldConfig, options, transformations, legacy } = convert(raw, note);
  const supported = PANEL_TYPES.has(type);
  if (isObject(raw.libraryPanel) && raw.type === undefined) {
    note(`the library panel ${textOf(raw.libraryPanel.name)} is not part of the file`, 'error');
  } else if (!supported) {
    note(`the panel type ${type || 'without a name'} is not supported; its data is shown as a table`, 'error');
  }
  if (isObject(raw.alert)) note('its alert rule is not imported', 'warning');
  const targets = PANELS_WITHOUT_QUERIES.has(type) ? [] : targetsOf(raw, pluginOf, note);
  const minSpan = numberOf(raw.minSpan) ?? 0;
  const maxPerRow = numberOf(raw.maxPerRow) ?? (minSpan > 0 ? (isObject(raw.gridPos) ? 24 : 12) / minSpan : 4);
  return {
    key, id, type, sourceType: textOf(raw.type), legacy, supported, title,
    description: textOf(raw.description), gridPos, targets, datasource: raw.datasource ?? null, fieldConfig, options,
    transformations: transformationsOf(raw, transformations ?? [], note),
    links: linksOf(raw.links), repeat: textOf(raw.repeat), repeatDirection: raw.repeatDirection === 'v' ? 'v' : 'h',
    // Before `maxPerRow` there was a least width, in twelfths before the grid.
    maxPerRow: wholeOf(maxPerRow, 1, 24, 4), timeFrom: textOf(raw.timeFrom), timeShift: textOf(raw.timeShift),
    hideTimeOverride: raw.hideTimeOverride === true, interval: textOf(raw.interval),
    maxDataPoints: numberOf(raw.maxDataPoints), transparent: raw.transparent === true,
    collapsed: raw.collapsed === true || raw.collapse === true, panels: [],
  };
}

/** Whether the panel is a saved copy of a repeated one. @param {Json} raw */
export function isRepeatedCopy(raw) {
  return numberOf(own(raw, 'repeatPanelId')) !== null && textOf(raw.repeat) === '';
}
