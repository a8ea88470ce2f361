// Field configuration: defaults and overrides of a panel applied to frames, and values as they are shown.

import { colorOf, thresholdOf } from './color.js';
import { currentMappings, mapValue } from './mappings.js';
import { fieldTest } from './matchers.js';
import { fieldName, namingOf } from './names.js';
import { palette, resolveColor } from './palette.js';
import { safeRegex } from './pattern.js';

export { colorOf, currentMappings, mapValue, palette, resolveColor, safeRegex, thresholdOf };

/** @typedef {import('./frame.js').Frame} Frame */
/** @typedef {import('./frame.js').Field} Field */
/** @typedef {import('./frame.js').FieldConfig} FieldConfig */
/** @typedef {import('./palette.js').Theme} Theme */
/** @typedef {import('./matchers.js').Replace} Replace */
/** @typedef {{id: string, value?: any}} Property */
/** @typedef {{matcher?: import('./matchers.js').Matcher, properties?: Property[]}} Override */
/** @typedef {{defaults?: FieldConfig, overrides?: Override[]}} FieldConfigSource */

/** The most overrides of a panel, and parts of the path of a property. */
const OVERRIDES_MAX = 1000;
const PATH_MAX = 6;
const FORBIDDEN = new Set(['__proto__', 'constructor', 'prototype']);

/** @param {any} value */
const isRecord = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

/** @param {any} value @returns {any} a copy of its objects along the first levels, without inherited keys */
function copied(value, depth = PATH_MAX) {
  if (!isRecord(value) || depth === 0) return value;
  return Object.fromEntries(Object.entries(value).filter(([key]) => !FORBIDDEN.has(key))
    .map(([key, inner]) => [key, copied(inner, depth - 1)]));
}

/** @param {FieldConfig} config @param {string} id such as `unit` or `custom.lineWidth` @param {any} value */
function setProperty(config, id, value) {
  const path = id.split('.');
  if (path.length > PATH_MAX || path.some((key) => FORBIDDEN.has(key))) return;
  let place = config;
  for (const key of path.slice(0, -1)) {
    if (!isRecord(place[key])) place[key] = {};
    place = place[key];
  }
  place[path[path.length - 1]] = copied(value);
}

/** @param {FieldConfig} config @param {FieldConfig} defaults fills in what `config` does not say */
function fillIn(config, defaults) {
  for (const [key, value] of Object.entries(defaults)) {
    if (value === null || value === undefined || FORBIDDEN.has(key)) continue;
    if (config[key] === undefined) config[key] = copied(value);
    else if (key === 'custom' && isRecord(value)) config.custom = { ...copied(value), ...config.custom };
  }
}

/** @param {any} value @returns {number | undefined} a finite number, also from text */
function finite(value) {
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  return typeof number === 'number' && Number.isFinite(number) ? number : undefined;
}

/** @param {FieldConfig} config corrects types that old dashboards and people get wrong */
function tidy(config) {
  for (const key of ['min', 'max', 'decimals']) {
    const number = finite(config[key]);
    if (number === undefined) delete config[key];
    else config[key] = number;
  }
  if (config.decimals !== undefined) config.decimals = Math.min(20, Math.max(0, Math.round(config.decimals)));
  if (config.mappings !== undefined) config.mappings = currentMappings(config.mappings);
  if (Array.isArray(config.thresholds?.steps)) {
    const steps = config.thresholds.steps.filter(isRecord).map((/** @type {any} */ step) =>
      ({ ...step, value: step.value === null || step.value === undefined ? -Infinity : Number(step.value) }));
    // The first step is the colour below all other steps; its value is ignored.
    if (steps.length) steps[0].value = -Infinity;
    config.thresholds = { ...config.thresholds,
      steps: steps.sort((/** @type {any} */ a, /** @type {any} */ b) => a.value - b.value) };
  }
}

/**
 * Fills a template of a display name: `${__field.name}`, `${__field.labels.job}`, `${__series.name}`;
 * then the variables of the dashboard.
 * @param {string} template
 * @param {Field} field
 * @param {Frame} frame
 * @param {string} shown its name without a template
 * @param {Replace} replace
 */
function displayName(template, field, frame, shown, replace) {
  const labels = field.labels ?? {};
  const own = template.replaceAll(/\$\{__(field|series)\.([^{}]{1,200})\}/g, (all, kind, path) => {
    if (kind === 'series') return path === 'name' ? frame.name || shown : all;
    if (path === 'name') return field.name;
    if (path === 'displayName') return shown;
    if (path === 'labels') return Object.entries(labels).map(([label, value]) => `${label}="${value}"`).join(', ');
    const label = /^labels(?:\.(.+)|\["?(.+?)"?\])$/.exec(path);
    const key = label ? label[1] ?? label[2] : '';
    return label ? (Object.hasOwn(labels, key) ? labels[key] : '') : all;
  });
  return replace(own);
}

/** @param {Field[]} fields @returns {{min: number, max: number} | null} of the finite numbers of all fields */
function rangeOf(fields) {
  let [min, max] = [Infinity, -Infinity];
  for (const field of fields) {
    for (const value of field.values) {
      if (typeof value !== 'number' || !Number.isFinite(value)) continue;
      if (value < min) min = value;
      if (value > max) max = value;
    }
  }
  return min <= max ? { min, max } : null;
}

/**
 * Applies the defaults and overrides of a panel. Later overrides win over earlier ones, overrides
 * over the properties of the query, and these over the defaults. Each number field gets its
 * `range`: its configured minimum and maximum, or else those of all number fields (of the field
 * alone with `fieldMinMax`). Each field gets the name that is shown as `config.displayName`.
 * @param {Frame[]} frames not changed
 * @param {FieldConfigSource | undefined} fieldConfig
 * @param {{replace?: Replace}} [context] `replace` fills in variables
 * @returns {Frame[]}
 */
export function applyFieldConfig(frames, fieldConfig, { replace = (text) => text } = {}) {
  /** @type {Map<Field, string>} */
  const asked = new Map();
  const naming = { ...namingOf(frames), asked };
  const { defaults = {}, overrides: given } = fieldConfig ?? {};
  const overrides = (Array.isArray(given) ? given.slice(0, OVERRIDES_MAX) : [])
    .filter(isRecord).map(({ matcher, properties }) => ({
      test: fieldTest(matcher, replace),
      properties: Array.isArray(properties) ? properties.filter((one) => typeof one?.id === 'string') : [],
    }));
  /** @type {{min: number, max: number} | null | undefined} */
  let shared;
  const all = () => (shared === undefined ? (shared = rangeOf(frames.flatMap((frame) => frame.fields
    .filter((field) => field.type === 'number')))) : shared);
  return frames.map((frame) => {
    const made = { ...frame, fields: frame.fields.map((field) => ({ ...field, config: copied(field.config) })) };
    made.fields.forEach((field, index) => {
      const { config } = field;
      const original = frame.fields[index];
      const shown = fieldName({ ...original, config: { ...original.config, displayName: undefined } }, frame, naming);
      // Matchers see the name of the defaults.
      const fillName = () => {
        if (typeof config.displayName !== 'string' || !config.displayName) delete config.displayName;
        else config.displayName = displayName(config.displayName, original, frame, shown, replace);
      };
      if (isRecord(defaults)) fillIn(config, defaults);
      fillName();
      for (const { test, properties } of overrides) {
        if (!test?.(field, made, naming)) continue;
        for (const { id, value } of properties) setProperty(config, id, value);
        if (properties.some(({ id }) => id === 'displayName')) fillName();
      }
      tidy(config);
      config.displayName ??= shown;
      if (field.type === 'number') {
        const set = config.min !== undefined && config.max !== undefined;
        const own = set ? null : config.fieldMinMax ? rangeOf([field]) : all();
        field.range = { min: config.min ?? own?.min ?? 0, max: config.max ?? own?.max ?? 100 };
      }
    });
    return made;
  });
}

/**
 * @typedef {(value: number, unit: string | undefined, decimals: number | undefined) =>
 *   {prefix?: string, text: string, suffix?: string}} Formatter
 * @typedef {{text: string, prefix: string, suffix: string, color: string, icon?: string}} Display
 */

/** @param {any} value @returns {string} */
function plainText(value) {
  if (value === null || value === undefined) return '';
  if (Array.isArray(value)) return value.slice(0, 1000).map(plainText).join(', ');
  return typeof value === 'object' ? JSON.stringify(value).slice(0, 10000) : String(value);
}

/**
 * Returns the unit of the values of a field. Times are dates: a panel's unit is that of its numbers,
 * and counts for a time field only if it is a date unit, too.
 * @param {Field} field
 * @returns {string | undefined}
 */
const unitOf = ({ type, config: { unit } }) =>
  (type === 'time' && !/^(?:dateTime|time:)/.test(unit ?? '') ? 'dateTimeAsIso' : unit);

/**
 * Returns how a value is shown: its mapping, or the number in its unit, or `noValue` for none.
 * @param {Field} field as `applyFieldConfig` leaves it
 * @param {any} value
 * @param {Formatter} format such as `formatUnit`
 * @param {{theme?: Theme, seriesIndex?: number}} [options]
 * @returns {Display}
 */
export function displayValue(field, value, format, { theme = 'light', seriesIndex = 0 } = {}) {
  const { decimals, mappings, noValue } = field.config;
  const unit = unitOf(field);
  const mapped = mapValue(value, mappings);
  const spelled = typeof value === 'string' && value.trim() !== '' && !Number.isNaN(Number(value)) && Boolean(unit);
  const number = typeof value === 'number' ? value : spelled ? Number(value) : null;
  const name = field.config.displayName || field.name;
  const graded = typeof value === 'boolean' ? value : number;
  const color = mapped?.color ? resolveColor(mapped.color, theme)
    : colorOf(field, /** @type {any} */ (graded), seriesIndex, { theme, name });
  /** @type {Display} */
  const shown = { text: '', prefix: '', suffix: '', color };
  if (typeof mapped?.icon === 'string') shown.icon = mapped.icon;
  if (typeof mapped?.text === 'string') return { ...shown, text: mapped.text };
  if (number !== null) {
    const { prefix = '', text, suffix = '' } = format(number, unit, decimals);
    return { ...shown, text, prefix, suffix };
  }
  const text = plainText(value);
  return { ...shown, text: text === '' && noValue !== undefined && noValue !== null ? String(noValue) : text };
}
