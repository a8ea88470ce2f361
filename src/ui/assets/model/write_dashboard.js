// Writes edits of a dashboard into a copy of its source; other parts stay unchanged.

import { readDashboard } from './dashboard.js';
import { isObject, objectOf, objectsOf, sameJson } from './limits.js';
import { variableFields } from './read_variable.js';

/** @typedef {import('./limits.js').Json} Json */
/** @typedef {import('./dashboard.js').Dashboard} Dashboard */
/** @typedef {import('./dashboard.js').Annotation} Annotation */
/** @typedef {import('./panel.js').Panel} Panel */
/** @typedef {import('./panel.js').Target} Target */

/** First schema version with places in a grid instead of rows. */
const GRID_VERSION = 16;
/** @type {(keyof Dashboard)[]} */
const FIELDS = ['uid', 'title', 'description', 'tags', 'refresh', 'timezone', 'weekStart', 'graphTooltip', 'editable',
  'links'];
/** @type {(keyof Panel)[]} */
const PANEL_FIELDS = ['title', 'description', 'gridPos', 'datasource', 'links', 'repeat', 'repeatDirection',
  'maxPerRow', 'timeFrom', 'timeShift', 'hideTimeOverride', 'interval', 'maxDataPoints', 'transparent'];
/** Fields that the conversion of an old panel makes: all are written as soon as one is edited.
 *  @type {(keyof Panel)[]} */
const CONVERTED = ['type', 'fieldConfig', 'options', 'transformations'];
/** @type {(keyof Target)[]} */
const TARGET_FIELDS = ['refId', 'expr', 'legendFormat', 'instant', 'range', 'format', 'interval', 'intervalFactor',
  'hide', 'exemplar', 'datasource'];
/** @type {[keyof Annotation, string][]} */
const ANNOTATION_FIELDS = [['name', 'name'], ['enable', 'enable'], ['hide', 'hide'], ['color', 'iconColor'],
  ['expr', 'expr'], ['step', 'step'], ['titleFormat', 'titleFormat'], ['textFormat', 'textFormat'],
  ['tagKeys', 'tagKeys'], ['useValueForTime', 'useValueForTime']];

/**
 * The JSON of an edited dashboard. `edits` are fields of the model: a list such as `panels`
 * replaces the whole list, and its entries are matched with the source by `key`. An entry with an
 * unknown key is new; with `copyOf`, the key of another panel, it starts as a copy of that one. If
 * `edits` is empty, the result equals the source.
 * @param {Dashboard} dashboard as `readDashboard` returned it, or edited
 * @param {Partial<Dashboard>} [edits]
 * @returns {any}
 */
export function writeDashboard(dashboard, edits = {}) {
  const next = { ...dashboard, ...edits };
  const before = readDashboard(dashboard.source).dashboard;
  const result = structuredClone(dashboard.source);
  const root = dashboard.path.reduce((at, name) => at[name], result);
  for (const name of FIELDS) assign(root, name, next[name], before[name]);
  if (!sameJson(next.time, before.time)) root.time = { ...objectOf(root.time), ...next.time };
  if (!sameJson(next.variables, before.variables)) {
    root.templating = { ...objectOf(root.templating), list: patched(root, 'templating.list', next.variables,
      before.variables, (variable, old) => variableFields(variable, old, sameJson)) };
  }
  if (!sameJson(next.annotations, before.annotations)) {
    root.annotations = { ...objectOf(root.annotations), list: patched(root, 'annotations.list', next.annotations,
      before.annotations, annotationFields) };
  }
  if (!sameJson(next.panels, before.panels)) writePanels(root, next.panels, before.panels);
  return result;
}

/**
 * Sets a field that was edited, and deletes it when it was edited to null or undefined.
 * @param {Json} raw
 * @param {string} name
 * @param {unknown} value
 * @param {unknown} before
 */
function assign(raw, name, value, before) {
  if (sameJson(value, before)) return;
  if (value === undefined || value === null) delete raw[name];
  else raw[name] = structuredClone(value);
}

/** The source's object for a key such as `panels.3.panels.0`; undefined for an unknown key.
 *  @param {Json} root @param {string} key @returns {Json | undefined} */
function rawAt(root, key) {
  if (!/^(?:panels|rows|templating|annotations)(?:\.(?:\d+|panels|list))+$/.test(key)) return undefined;
  /** @type {any} */
  let at = root;
  for (const name of key.split('.')) {
    at = typeof at === 'object' && at !== null && Object.hasOwn(at, name) ? at[name] : null;
  }
  return isObject(at) ? at : undefined;
}

/**
 * @template {{key: string}} Item
 * @param {Json} root @param {string} list @param {Item[]} items @param {Item[]} before
 * @param {(item: Item, old: Item | undefined) => Json} fieldsOf
 * @returns {unknown[]}
 */
function patched(root, list, items, before, fieldsOf) {
  const byKey = new Map(before.map((item) => [item.key, item]));
  const entries = items.map((item) => (
    { ...structuredClone(rawAt(root, item.key) ?? {}), ...fieldsOf(item, byKey.get(item.key)) }));
  // Entries that the model does not show, such as a variable without a name.
  const [parent, name] = list.split('.');
  const given = objectOf(root[parent])[name];
  const unseen = (Array.isArray(given) ? given : []).filter((entry, at) => !byKey.has(`${list}.${at}`));
  return [...entries, ...unseen];
}

/** @param {Annotation} annotation @param {Annotation | undefined} old @returns {Json} */
function annotationFields(annotation, old) {
  /** @type {Json} */
  const fields = {};
  for (const [name, raw] of ANNOTATION_FIELDS) {
    if (!sameJson(annotation[name], old?.[name])) fields[raw] = annotation[name];
  }
  if (!sameJson(annotation.panelIds, old?.panelIds ?? []) || annotation.exclude !== (old?.exclude ?? false)) {
    fields.filter = { exclude: annotation.exclude, ids: annotation.panelIds };
  }
  return fields;
}

/**
 * The keys, nesting and places of panels, which decide whether panels are written in place.
 * @param {Panel[]} panels
 * @returns {unknown[]}
 */
function layoutOf(panels) {
  return panels.map((panel) => [panel.key, panel.gridPos, panel.collapsed, layoutOf(panel.panels)]);
}

/** @param {Panel[]} panels @returns {Panel[]} */
function flat(panels) {
  return panels.flatMap((panel) => [panel, ...flat(panel.panels)]);
}

/** @param {Json} root @param {Panel[]} panels @param {Panel[]} before */
function writePanels(root, panels, before) {
  const byKey = new Map(flat(before).map((panel) => [panel.key, panel]));
  if (sameJson(layoutOf(panels), layoutOf(before))) {
    for (const panel of flat(panels)) {
      const raw = rawAt(root, panel.key);
      if (raw) patchPanel(raw, panel, byKey.get(panel.key));
    }
    return;
  }
  let lastId = Math.max(0, ...flat(panels).map((panel) => panel.id ?? 0));
  const fromRows = Array.isArray(root.rows);
  const ids = new Set();
  /** @param {Panel & {copyOf?: string}} panel @returns {Json} */
  const write = (panel) => {
    const origin = panel.copyOf ?? panel.key;
    const old = byKey.get(origin);
    const raw = structuredClone(rawAt(root, origin) ?? {});
    patchPanel(raw, panel, old);
    if (fromRows || raw.gridPos === undefined) raw.gridPos = { ...panel.gridPos };
    if (old === undefined || panel.id === null || panel.id === undefined || ids.has(panel.id)) raw.id = lastId += 1;
    ids.add(raw.id);
    if (panel.type === 'row') {
      for (const name of ['collapse', 'showTitle', 'height', 'titleSize']) delete raw[name];
      Object.assign(raw, { type: 'row', collapsed: panel.collapsed, panels: panel.panels.map(write) });
    }
    return raw;
  };
  const unseen = (Array.isArray(root.panels) ? root.panels : []).filter((entry, at) => !byKey.has(`panels.${at}`));
  root.panels = [...panels.map(write), ...unseen];
  if (fromRows) {
    delete root.rows;
    root.schemaVersion = Math.max(GRID_VERSION, Number(root.schemaVersion) || 0);
  }
}

/** Writes the edited fields of a panel into its JSON. @param {Json} raw @param {Panel} panel
 *  @param {Panel | undefined} old */
function patchPanel(raw, panel, old) {
  for (const name of PANEL_FIELDS) {
    if (old || !(panel[name] === '' || panel[name] === null || panel[name] === undefined)) {
      assign(raw, name, panel[name], old?.[name]);
    }
  }
  const edited = CONVERTED.filter((name) => !sameJson(panel[name], old?.[name]));
  for (const name of old?.legacy && edited.length > 0 ? CONVERTED : edited) {
    if (panel[name] !== undefined) raw[name] = structuredClone(panel[name]);
  }
  if (!sameJson(panel.targets, old?.targets)) raw.targets = targetsOf(raw, panel.targets ?? [], old?.targets ?? []);
}

/** @param {Json} raw @param {Target[]} targets @param {Target[]} before @returns {Json[]} */
function targetsOf(raw, targets, before) {
  const sources = objectsOf(raw.targets);
  return targets.map((target) => {
    const at = before.findIndex((old) => old.refId === target.refId);
    const result = at < 0 ? {} : structuredClone(sources[at] ?? {});
    for (const name of TARGET_FIELDS) assign(result, name, target[name], before[at]?.[name]);
    // The meaning of a missing `range` depends on `instant`, so both are written.
    if (target.instant !== before[at]?.instant) result.range = target.range;
    return result;
  });
}
