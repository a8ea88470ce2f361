// The type, the field configuration and the options of a panel of today.

import { mappingsOf, stepsOf } from './legacy_common.js';
import { isObject, objectOf, objectsOf, textOf } from './limits.js';

/** @typedef {import('./legacy_common.js').Json} Json */
/** @typedef {import('./legacy_common.js').FieldConfig} FieldConfig */

/** Plugins and old names that today's panels replaced. */
const ALIASES = new Map(Object.entries({
  graphite: 'graph', 'grafana-singlestat-panel': 'singlestat', 'grafana-piechart-panel': 'piechart-old',
  'natel-discrete-panel': 'state-timeline', 'flant-statusmap-panel': 'status-history', 'heatmap-new': 'heatmap',
  'piechart-v2': 'piechart', table2: 'table', state: 'state-timeline', dashboardlist: 'dashlist',
}));

/** @param {Json} panel @returns {FieldConfig} */
function currentFieldConfig(panel) {
  const config = objectOf(panel.fieldConfig);
  const defaults = { ...objectOf(config.defaults) };
  if (defaults.mappings !== undefined) defaults.mappings = mappingsOf(defaults.mappings);
  if (defaults.thresholds !== undefined) defaults.thresholds = stepsOf(defaults.thresholds);
  if (defaults.custom !== undefined) defaults.custom = objectOf(defaults.custom);
  const overrides = objectsOf(config.overrides).filter((override) => isObject(override.matcher)).map((override) => ({
    ...override,
    matcher: override.matcher,
    properties: objectsOf(override.properties).filter((property) => typeof property.id === 'string')
      .map((property) => ({ ...property, id: property.id, value: currentProperty(property.id, property.value) })),
  }));
  return { defaults, overrides };
}

/** @param {string} id @param {unknown} value */
function currentProperty(id, value) {
  if (id === 'mappings') return mappingsOf(value);
  return id === 'thresholds' ? stepsOf(value) : value;
}

/** Today's name of the type of a panel, before its conversion. @param {Json} panel */
export function typeOf(panel) {
  const type = textOf(panel.type);
  return ALIASES.get(type) ?? type;
}

/**
 * Returns a panel of today with its value mappings and thresholds in order.
 * @param {Json} panel
 */
export const currentPanel = (panel) => (
  { type: typeOf(panel), fieldConfig: currentFieldConfig(panel), options: objectOf(panel.options), legacy: false });

/** Types that only old versions wrote. */
const OLD_TYPES = new Set(['graph', 'singlestat', 'piechart-old', 'table-old']);

/**
 * Whether `convertPanel` may have to convert the panel. A panel of any type without a field
 * configuration counts as old; so does one with the options of an old gauge.
 * @param {Json} panel
 */
function mayBeOld(panel) {
  const type = typeOf(panel);
  const options = objectOf(panel.options);
  if (type === 'row') return false;
  if (OLD_TYPES.has(type) || type !== textOf(panel.type) || panel.type === undefined) return true;
  if (type === 'text') return options.content === undefined;
  return !isObject(panel.fieldConfig) || !isObject(panel.options) || isObject(options.fieldOptions)
    || isObject(options.valueOptions) || options.thresholds !== undefined || isObject(panel['options-gauge']);
}

/**
 * Whether a dashboard needs the conversion of old panels.
 * @param {Json} root
 */
export const needsConversion = (root) => Array.isArray(root.rows)
  || objectsOf(root.panels).some((panel) => mayBeOld(panel) || objectsOf(panel.panels).some(mayBeOld));
