// The single values of stat, gauge, bar gauge and pie panels, and text that fits its box.

import { displayValue, safeRegex } from '../model/fields.js';
import { channels, mix, palette } from '../model/palette.js';
import { reduceValues, reducerOf } from '../model/reduce.js';
import { formatUnit } from '../model/units.js';
import { objectOf } from '../model/limits.js';

/**
 * @typedef {import('../panels/kinds.js').View} View
 * @typedef {import('../model/frame.js').Field} Field
 * @typedef {{key: string, name: string, value: any, text: string, prefix: string, suffix: string, color: string,
 *   field: Field, times: ArrayLike<any> | null}} Shown
 */

/** The most values of a panel. */
const VALUES_MAX = 200;


/** The fields that a panel reduces: numbers, or those whose name matches. @param {unknown} wanted
 *  @returns {(field: Field) => boolean} */
function fieldFilter(wanted) {
  if (typeof wanted !== 'string' || wanted === '') return (field) => field.type === 'number';
  const pattern = /^\/([^]*)\/[a-z]*$/.exec(wanted);
  const regex = pattern ? safeRegex(pattern[1]) : null;
  return (field) => {
    const name = field.config.displayName ?? field.name;
    return regex ? regex.test(name) || regex.test(field.name) : name === wanted || field.name === wanted;
  };
}

/**
 * Formats values in their units, and dates in a time zone.
 * @param {string} timeZone as a dashboard names it
 * @returns {import('../model/fields.js').Formatter}
 */
export const formatIn = (timeZone) => (value, unit, decimals) => formatUnit(value, unit, decimals, { timeZone });

/**
 * @param {View} view
 * @returns {Shown[]} without hidden fields
 */
export function shownValues({ panel, frames, theme, timeZone }) {
  const options = objectOf(panel.options.reduceOptions);
  const wanted = fieldFilter(options.fields);
  const calcs =
    Array.isArray(options.calcs) && options.calcs.some((id) => reducerOf(id)) ? options.calcs : ['lastNotNull'];
  const affix = { prefix: String(panel.options.prefix ?? ''), suffix: String(panel.options.postfix ?? '') };
  /** @type {Shown[]} */
  const all = [];
  let series = 0;
  for (const frame of frames) {
    const times = frame.fields.find(({ type }) => type === 'time')?.values ?? null;
    const texts = frame.fields.find(({ type }) => type === 'string');
    for (const field of frame.fields) {
      if (!wanted(field) || objectOf(objectOf(field.config.custom).hideFrom).viz === true) continue;
      const seriesIndex = series;
      series += 1;
      const add = (/** @type {any} */ value, /** @type {string} */ name, /** @type {string} */ key) => {
        if (all.length >= VALUES_MAX) return;
        const shown = displayValue(field, value, formatIn(timeZone), { theme, seriesIndex });
        all.push({
          ...shown,
          key,
          name,
          value,
          field,
          times,
          prefix: affix.prefix + shown.prefix,
          suffix: shown.suffix + affix.suffix,
        });
      };
      const name = field.config.displayName || field.name;
      if (options.values === true) {
        const limit = Math.min(VALUES_MAX, Number(options.limit) || 25);
        for (let row = 0; row < Math.min(frame.length, limit); row += 1) {
          add(field.values[row], texts ? String(texts.values[row]) : name, `${name} ${row}`);
        }
        continue;
      }
      const results = reduceValues(field.values, calcs, field.config.nullValueMode);
      for (const id of calcs) {
        if (!results.has(id)) continue;
        add(results.get(id) ?? null, calcs.length > 1 ? `${name} ${reducerOf(id)?.name ?? ''}` : name, `${name} ${id}`);
      }
    }
  }
  return all;
}

/** The value's part of its scale, from 0 to 1. @param {Shown} shown */
export function partOf({ field, value }) {
  const { min, max } = field.range ?? { min: 0, max: 100 };
  return typeof value === 'number' && max > min ? Math.min(1, Math.max(0, (value - min) / (max - min))) : 0;
}

/** @type {CanvasRenderingContext2D | null} */
let measure = null;

/**
 * The largest font size at which a text fits into a box.
 * @param {string} text
 * @param {number} width
 * @param {number} height
 * @param {{least?: number, most?: number, weight?: number}} [options]
 * @returns {number} px
 */
export function fittingSize(text, width, height, { least = 10, most = 90, weight = 600 } = {}) {
  measure ??= document.createElement('canvas').getContext('2d');
  if (!measure) return least;
  measure.font = `${weight} 100px system-ui, sans-serif`;
  const wide = Math.max(1, measure.measureText(text || '0').width) / 100;
  return Math.floor(Math.max(least, Math.min(most, width / wide, height / 1.2)));
}

/**
 * Calls `fit` now and whenever the size of a box changes.
 * @param {HTMLElement} box
 * @param {() => void} fit
 */
export function fitted(box, fit) {
  fit();
  const observer = new ResizeObserver(() => requestAnimationFrame(fit));
  observer.observe(box);
  return { destroy: () => observer.disconnect(), resize: fit };
}

/** The relative luminance of WCAG, from 0 to 1. @param {string} color hex with six digits */
function luminance(color) {
  const [r, g, b] = channels(color).map((channel) => {
    const value = channel / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Black or white, whichever is easier to read on a colour. @param {string} color hex */
export function inkOn(color) {
  return /^#[\da-f]{6}/i.test(color) && luminance(color) > 0.179 ? '#000000' : '#ffffff';
}

/** The least contrast of text: 4.5 (WCAG AA) on the striped rows of a table as well. */
const CONTRAST_MIN = 4.8;

/**
 * The colour of a value as text on a panel: nearer to that of other text if it is hard to read.
 * @param {string} color
 * @param {import('../model/palette.js').Theme} theme
 */
export function textColor(color, theme) {
  if (!/^#[\da-f]{6}$/i.test(color)) return color;
  const { text, background } = palette(theme);
  const behind = luminance(background);
  for (let part = 0; part < 1; part += 0.1) {
    const shown = mix(color, text, part);
    const [low, high] = [luminance(shown), behind].sort((left, right) => left - right);
    if ((high + 0.05) / (low + 0.05) >= CONTRAST_MIN) return shown;
  }
  return text;
}

/**
 * Columns of a grid of values: side by side in a wide box.
 * @param {number} count
 * @param {number} width
 * @param {number} height
 * @param {unknown} orientation vertical is side by side, horizontal one below the other
 * @param {number} ratio of a value's width to its height that looks best
 */
export function gridColumns(count, width, height, orientation, ratio) {
  if (orientation === 'vertical') return count;
  if (orientation === 'horizontal') return 1;
  let [best, waste] = [1, Infinity];
  for (let columns = 1; columns <= count; columns += 1) {
    const rows = Math.ceil(count / columns);
    const [w, t] = [width / columns, height / rows];
    const off = Math.abs(Math.log(Math.max(1, w) / Math.max(1, t) / ratio)) + (columns * rows - count) * 0.2;
    if (off < waste) [best, waste] = [columns, off];
  }
  return best;
}
