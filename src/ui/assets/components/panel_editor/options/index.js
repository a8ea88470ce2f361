// The kinds of panels by name, and the options that each kind draws.

import { GRIDS } from './grids.js';
import { SERIES } from './series.js';
import { VALUES } from './values.js';

/** @typedef {import('../controls.js').Option} Option */
/** @typedef {{title: string, options: Option[]}} Group */
/**
 * @typedef {Object} KindOptions
 * @property {string} name
 * @property {Group[]} groups
 * @property {boolean} [plain] whether the kind draws no fields: it has no queries either
 */

/** Kinds in the order of the chooser. @type {Map<string, KindOptions>} */
export const KIND_OPTIONS = new Map(Object.entries({ ...SERIES, ...VALUES, ...GRIDS }));

/**
 * The kind of a panel; a kind that is drawn as a table has the options of a table.
 * @param {string} type
 * @returns {KindOptions}
 */
export function kindOptions(type) {
  return KIND_OPTIONS.get(type) ?? /** @type {KindOptions} */ (KIND_OPTIONS.get('table'));
}

/** Paths of the options of a kind that belong to a field, for overrides. @param {string} type
 *  @returns {Option[]} */
export const fieldOptionsOf = (type) =>
  kindOptions(type).groups.flatMap(({ options }) => options).filter(({ path }) => path.startsWith(CUSTOM));

/** The place of the options of fields. */
export const DEFAULTS = 'fieldConfig.defaults.';
const CUSTOM = `${DEFAULTS}custom.`;
