// Reads a Grafana dashboard into the model that pages draw, with a given reader of its panels.

import { COLUMNS, gridPosOf, placeRows } from './grid.js';
import { linksOf } from './legacy_common.js';
import {
  checkSize, DashboardError, isObject, JSON_MAX, listOf, numberOf, objectOf, objectsOf, own, PANELS_MAX, QUERIES_MAX,
  textOf, tooLarge, VARIABLES_MAX, wholeOf,
} from './limits.js';
import { isRepeatedCopy, readPanel } from './panel.js';
import { constantInputs, readVariable } from './read_variable.js';
import { dataSourceFinder, isPrometheus, Report } from './support.js';
import { order } from './variables.js';

/** @typedef {import('./limits.js').Json} Json */
/** @typedef {import('./panel.js').Panel} Panel */
/** @typedef {import('./variables.js').Variable} Variable */
/** @typedef {import('./grid.js').GridPos} GridPos */
/** @typedef {import('./support.js').ReportLine} ReportLine */

/**
 * @typedef {{key: string, name: string, enable: boolean, hide: boolean, color: string, expr:
 * string, step: string, titleFormat: string, textFormat: string, tagKeys: string, useValueForTime:
 * boolean, builtIn: boolean, supported: boolean, panelIds: number[], exclude: boolean, place:
 * number | null}} Annotation `panelIds`: the panels that show it, or with `exclude` those that do
 * not; empty means all. `place`: its name for the server, if the server does not reveal the
 * expression.
 *
 * @typedef {{source: any, path: string[], uid: string, title: string, description: string,
 *   tags: string[], time: {from: string | number, to: string | number}, refresh: string,
 *   timezone: string, weekStart: string, graphTooltip: number, editable: boolean,
 *   schemaVersion: number, variables: Variable[], annotations: Annotation[], links: Json[],
 *   panels: Panel[]}} Dashboard
 * `source` is the JSON as it came, `path` where the dashboard is in it. `panels` are in the order
 * of their places; a row that is not collapsed owns the panels after it. `graphTooltip`: 1 shares
 * the crosshair, 2 the tooltip too.
 */

/**
 * Reads a dashboard. Whatever its shape, it throws nothing but a DashboardError.
 * @param {unknown} json text, or the parsed document; it is never changed
 * @param {import('./panel.js').Convert} convert reads the type and the options of panels
 * @returns {{dashboard: Dashboard, report: ReportLine[]}}
 */
export function readWith(json, convert) {
  const source = typeof json === 'string' ? parsed(json) : json;
  checkSize(source);
  const path = pathOf(source);
  const copy = structuredClone(source);
  /** @type {Json} */
  const root = path.reduce((at, name) => at[name], /** @type {any} */ (copy));
  const report = new Report();
  checkCounts(root);
  const variables = readVariables(root, report);
  order(variables);
  const pluginOf = dataSourceFinder(root, variables);
  const time = objectOf(root.time);
  const dashboard = {
    source, path, uid: textOf(root.uid), title: textOf(root.title, 'Untitled'), description: textOf(root.description),
    tags: listOf(root.tags).filter((tag) => typeof tag === 'string'),
    time: { from: timeOf(time.from, 'now-6h'), to: timeOf(time.to, 'now') },
    refresh: typeof root.refresh === 'string' ? root.refresh : '', timezone: textOf(root.timezone) || 'browser',
    weekStart: textOf(root.weekStart),
    graphTooltip: wholeOf(root.graphTooltip, 0, 2, root.sharedCrosshair === true ? 1 : 0),
    editable: root.editable !== false, schemaVersion: wholeOf(root.schemaVersion, 0, 1000, 0),
    variables, annotations: readAnnotations(root, pluginOf, report), links: linksOf(root.links),
    panels: readPanels(root, pluginOf, report, convert),
  };
  return { dashboard, report: report.lines };
}

/** @param {string} text @returns {unknown} */
function parsed(text) {
  const bytes = text.length > JSON_MAX ? text.length : new TextEncoder().encode(text).length;
  if (bytes > JSON_MAX) throw tooLarge(bytes);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new DashboardError('not_json', `The file is not JSON: ${error instanceof Error ? error.message : error}`);
  }
}

/**
 * Names on the way to the dashboard: `{dashboard, meta}` of the API, or `{apiVersion, kind, spec}`.
 * @param {any} source
 * @returns {string[]}
 */
function pathOf(source) {
  /** @param {unknown} value */
  const isDashboard = (value) => isObject(value) && ['panels', 'rows', 'templating', 'schemaVersion', 'title']
    .some((name) => Object.hasOwn(value, name));
  if (isObject(own(own(source, 'spec'), 'elements'))) {
    throw new DashboardError('unsupported_schema', 'Dashboards of schema version 2 (elements and layouts) are not '
      + 'supported; export it in the classic schema.');
  }
  for (const name of ['dashboard', 'spec']) if (isDashboard(own(source, name))) return [name];
  if (isDashboard(source)) return [];
  throw new DashboardError('not_a_dashboard', 'The JSON is not a Grafana dashboard: it has no panels.');
}

/** @param {unknown} value @param {string} fallback @returns {string | number} */
function timeOf(value, fallback) {
  return typeof value === 'number' ? value : textOf(value) || fallback;
}

/** @param {Json} root */
function checkCounts(root) {
  let panels = 0;
  let queries = 0;
  /** @param {unknown} list */
  const count = (list) => {
    for (const panel of objectsOf(list)) {
      panels += 1;
      queries += listOf(panel.targets).length;
      // The depth of the document bounds this recursion.
      count(panel.panels);
    }
  };
  count(root.panels);
  count(root.rows);
  const variables = listOf(objectOf(root.templating).list).length;
  for (const [code, what, limit, found] of /** @type {[string, string, number, number][]} */ ([
    ['too_many_panels', 'panels', PANELS_MAX, panels], ['too_many_queries', 'queries', QUERIES_MAX, queries],
    ['too_many_variables', 'variables', VARIABLES_MAX, variables]])) {
    if (found > limit) {
      throw new DashboardError(code, `The dashboard has ${found} ${what}; the limit is ${limit}.`, { limit, found });
    }
  }
}

/**
 * The entries of a list that are objects, with their index.
 * @param {unknown} list
 * @param {string} name
 * @param {Report} report
 * @returns {{raw: Json, at: number}[]}
 */
function entriesOf(list, name, report) {
  if (list !== undefined && list !== null && !Array.isArray(list)) report.add(null, `${name} is not a list`, 'error');
  const entries = listOf(list).map((raw, at) => ({ raw, at }));
  for (const { at } of entries.filter(({ raw }) => !isObject(raw))) {
    report.add(null, `entry ${at + 1} of ${name} is not an object`, 'error');
  }
  return entries.filter(({ raw }) => isObject(raw));
}

/** @param {Json} root @param {Report} report @returns {Variable[]} */
function readVariables(root, report) {
  const inputs = constantInputs(root);
  const names = new Set();
  /** @type {Variable[]} */
  const variables = [];
  for (const { raw, at } of entriesOf(objectOf(root.templating).list, 'templating.list', report)) {
    const name = textOf(raw.name);
    if (!/^\w{1,128}$/.test(name) || names.has(name)) {
      report.add(null, `the variable ${name || at + 1} has no usable name of its own`, 'error');
      continue;
    }
    names.add(name);
    variables.push(readVariable(raw, `templating.list.${at}`, inputs,
      (what, severity) => report.add(null, what, severity)));
  }
  return variables;
}

/**
 * @param {Json} root
 * @param {(source: unknown) => string} pluginOf
 * @param {Report} report
 * @returns {Annotation[]}
 */
function readAnnotations(root, pluginOf, report) {
  return entriesOf(objectOf(root.annotations).list, 'annotations.list', report).map(({ raw, at }) => {
    const plugin = pluginOf(raw.datasource);
    const target = objectOf(raw.target);
    const expr = textOf(raw.expr) || textOf(target.expr);
    const name = textOf(raw.name);
    const builtIn = raw.builtIn === 1 || raw.builtIn === true;
    const place = raw.queried === true ? numberOf(raw.place) : null;
    const supported = place !== null || (expr !== '' && (plugin === '' || isPrometheus(plugin)));
    if (!supported && !builtIn) {
      report.add(null, `the annotation ${name} does not come from a PromQL query and is not drawn`, 'warning');
    }
    const filter = objectOf(raw.filter);
    return {
      key: `annotations.list.${at}`, name, enable: raw.enable !== false, hide: raw.hide === true,
      color: textOf(raw.iconColor), expr, step: textOf(raw.step), titleFormat: textOf(raw.titleFormat),
      textFormat: textOf(raw.textFormat), tagKeys: textOf(raw.tagKeys),
      useValueForTime: raw.useValueForTime === true || raw.useValueForTime === 'on', builtIn, supported,
      panelIds: listOf(filter.ids).filter((id) => numberOf(id) !== null).map(Number), exclude: filter.exclude === true,
      place,
    };
  });
}

/**
 * A library panel of an exported file is in `__elements`.
 * @param {Json} raw
 * @param {Json} root
 * @returns {Json}
 */
function withLibrary(raw, root) {
  const uid = textOf(objectOf(raw.libraryPanel).uid);
  const model = own(own(own(root, '__elements'), uid), 'model');
  return uid !== '' && isObject(model) ? { ...model, ...raw } : raw;
}

/**
 * @param {Json} root
 * @param {(source: unknown) => string} pluginOf
 * @param {Report} report
 * @param {import('./panel.js').Convert} convert
 * @returns {Panel[]}
 */
function readPanels(root, pluginOf, report, convert) {
  /** @type {{panel: Panel, placed: boolean}[]} */
  const found = [];
  /** @param {Json} given @param {string} key @param {GridPos | null} place @returns {Panel} */
  const read = (given, key, place) => {
    const raw = withLibrary(given, root);
    return readPanel(raw, { key, gridPos: place ?? { x: 0, y: 0, w: 12, h: 8 }, pluginOf, report, convert });
  };
  for (const { raw, at } of entriesOf(root.panels, 'panels', report)) {
    if (isRepeatedCopy(raw)) {
      report.add(raw, 'a saved copy of a repeated panel is made again from its original', 'info');
      continue;
    }
    const place = gridPosOf(raw.gridPos);
    const panel = read(raw, `panels.${at}`, place);
    found.push({ panel, placed: place !== null });
    if (panel.type !== 'row') {
      if (objectsOf(raw.panels).length > 0) {
        report.add(raw, 'the panels inside it are not drawn: it is no row', 'error');
      }
      continue;
    }
    for (const { raw: inner, at: index } of entriesOf(raw.panels, `panels of the row ${panel.title}`, report)) {
      const innerPlace = gridPosOf(inner.gridPos);
      const child = read(inner, `panels.${at}.panels.${index}`, innerPlace);
      if (panel.collapsed) panel.panels.push(child);
      else found.push({ panel: child, placed: innerPlace !== null });
    }
    sortByPlace(panel.panels);
  }
  const panels = placed(found);
  return Array.isArray(root.rows) ? [...panels, ...readRows(root, bottomOf(panels), read)] : panels;
}

/** @param {Panel[]} panels */
function bottomOf(panels) {
  return panels.reduce((bottom, { gridPos }) => Math.max(bottom, gridPos.y + gridPos.h), 0);
}

/** @param {Panel[]} panels */
function sortByPlace(panels) {
  return panels.sort((left, right) => left.gridPos.y - right.gridPos.y || left.gridPos.x - right.gridPos.x);
}

/**
 * Puts the panels without a place below the others, two in a line.
 * @param {{panel: Panel, placed: boolean}[]} found
 */
function placed(found) {
  const bottom = bottomOf(found.filter((one) => one.placed).map((one) => one.panel));
  found.filter((one) => !one.placed).forEach(({ panel }, at) => {
    panel.gridPos = { x: (at % 2) * (COLUMNS / 2), y: bottom + Math.floor(at / 2) * 8, w: COLUMNS / 2, h: 8 };
  });
  return sortByPlace(found.map((one) => one.panel));
}

/** Panels of a dashboard before schema version 16. @param {Json} root @param {number} top
 *  @param {(raw: Json, key: string, place: GridPos) => Panel} read @returns {Panel[]} */
function readRows(root, top, read) {
  /** @type {Panel[]} */
  const panels = [];
  /** @type {Map<Json, Panel>} */
  const rows = new Map();
  for (const { raw, gridPos, row, path } of placeRows(root)) {
    const place = { ...gridPos, y: gridPos.y + top };
    const isRow = path.length === 2;
    const panel = read(isRow ? { title: raw.title, repeat: raw.repeat, collapse: raw.collapse, type: 'row' } : raw,
      path.join('.'), place);
    if (isRow) rows.set(raw, panel);
    const parent = row ? rows.get(row) : undefined;
    (parent?.panels ?? panels).push(panel);
  }
  return panels;
}
