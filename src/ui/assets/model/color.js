// Thresholds, and the colour of a field or of one of its values.

import { mix, palette, resolveColor } from './palette.js';
import { reduceField } from './reduce.js';

/** @typedef {import('./frame.js').Field} Field */
/** @typedef {import('./palette.js').Theme} Theme */
/** @typedef {{value: number | null, color: string}} Step null is the start of the scale */
/** @typedef {{mode?: string, steps?: Step[]}} Thresholds */

/** @param {number} value @param {number} min @param {number} max @returns {number} from 0 to 1 */
export function part(value, min, max) {
  if (Number.isNaN(value)) return 0;
  if (max === min) return value > max ? 1 : 0;
  return Math.min(1, Math.max(0, (value - min) / (max - min)));
}

/**
 * Returns the step that a value has reached: the last one at or below it, the first one for no value.
 * Steps with mode `percentage` are percents of the way from `min` to `max`; NaN is at its start.
 * @param {number | null | undefined} value
 * @param {Thresholds | undefined} thresholds
 * @param {number} min
 * @param {number} max
 * @returns {Step | null} null without steps
 */
export function thresholdOf(value, thresholds, min, max) {
  const steps = Array.isArray(thresholds?.steps) ? thresholds.steps : [];
  if (!steps.length) return null;
  const percent = thresholds?.mode === 'percentage';
  const number = value ?? NaN;
  const far = percent ? (number > -Infinity ? ((number - min) / (max - min)) * 100 : 0) : number;
  const at = value === null || value === undefined ? NaN : far;
  let active = steps[0];
  for (const step of steps) {
    if (at < (step.value ?? -Infinity) || Number.isNaN(at)) break;
    active = step;
  }
  return active;
}

/** Colours of the continuous scales, from low to high. @type {Map<string, string[]>} */
const SCALES = new Map(Object.entries({
  'continuous-GrYlRd': ['green', 'yellow', 'red'],
  'continuous-RdYlGr': ['red', 'yellow', 'green'],
  'continuous-BlYlRd': ['blue', 'yellow', 'red'],
  'continuous-YlRd': ['light-yellow', 'red'],
  'continuous-BlPu': ['blue', 'purple'],
  'continuous-YlBl': ['light-yellow', 'blue'],
  'continuous-blues': ['super-light-blue', 'dark-blue'],
  'continuous-reds': ['super-light-red', 'dark-red'],
  'continuous-greens': ['super-light-green', 'dark-green'],
  'continuous-purples': ['super-light-purple', 'dark-purple'],
}));

/** Ids of all colour modes. */
export const COLOR_MODES =
  ['fixed', 'shades', 'thresholds', 'palette-classic', 'palette-classic-by-name', ...SCALES.keys()];

/**
 * @param {string[]} names colours of a scale
 * @param {number} at from 0 to 1
 * @param {Theme} theme
 * @returns {string} hex
 */
export function scaleColor(names, at, theme) {
  const { named, gray } = palette(theme);
  const colours = names.map((name) => named.get(name) ?? gray);
  const place = at * (colours.length - 1);
  const low = Math.min(Math.floor(place), colours.length - 2);
  return mix(colours[low], colours[low + 1], place - low);
}

/** @param {string} mode @returns {string[] | null} colour names of a continuous mode */
export const scaleOf = (mode) => SCALES.get(mode) ?? null;

/** @param {string} name @param {number} count @returns {number} the same for the same name; below `count` */
function hashed(name, count) {
  let hash = 2166136261;
  for (let index = 0; index < name.length; index += 1) hash = Math.imul(hash ^ name.charCodeAt(index), 16777619);
  return (hash >>> 0) % count;
}

/** @param {string} colour @param {number} series @param {Theme} theme @returns {string} shades around a colour */
function shade(colour, series, theme) {
  const { text, background } = palette(theme);
  if (!colour.startsWith('#') || series === 0) return colour;
  const strength = Math.min(0.45, 0.15 * Math.ceil(series / 2));
  return mix(colour, series % 2 ? text : background, strength);
}

/**
 * Returns the colour of a value of a field, or of the whole field without one: of its last, lowest or
 * highest value (`color.seriesBy`) if colours follow values.
 * @param {Field} field with `range`, as `applyFieldConfig` leaves it
 * @param {number | null | undefined} value
 * @param {number} [seriesIndex] place of the field among those drawn
 * @param {{theme?: Theme, name?: string}} [options] `name`: what the field is called
 * @returns {string} a colour for CSS
 */
export function colorOf(field, value, seriesIndex = 0, { theme = 'light', name = field.name } = {}) {
  const { mode = 'thresholds', fixedColor, seriesBy } = field.config.color ?? {};
  const { series, gray } = palette(theme);
  if (mode === 'fixed') return resolveColor(fixedColor, theme);
  if (mode === 'shades') return shade(resolveColor(fixedColor, theme), seriesIndex, theme);
  if (mode === 'palette-classic-by-name') return series[hashed(name, series.length)];
  const scale = scaleOf(mode);
  if (mode !== 'thresholds' && !scale) return series[seriesIndex % series.length];
  const by = seriesBy === 'min' || seriesBy === 'max' ? seriesBy : 'lastNotNull';
  const shown = value === undefined ? reduceField(field, by) : value;
  const number = typeof shown === 'number' ? shown : typeof shown === 'boolean' ? Number(shown) : NaN;
  const { min, max } = field.range ?? { min: 0, max: 100 };
  if (scale) return scaleColor(scale, part(number, min, max), theme);
  if (field.type === 'boolean' && !field.config.thresholds && typeof shown === 'boolean') {
    return resolveColor(shown ? 'green' : 'red', theme);
  }
  const step = thresholdOf(number, field.config.thresholds, min, max);
  return step ? resolveColor(step.color, theme) : gray;
}
