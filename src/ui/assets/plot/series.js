// The series that a plot draws: columns over one grid of times, colours, axes and stacks.

import { colorOf, safeRegex } from '../model/fields.js';
import { align } from '../model/frame.js';
import { objectOf } from '../model/limits.js';

/**
 * @typedef {import('../model/frame.js').Frame} Frame
 * @typedef {import('../model/frame.js').Field} Field
 *
 * @typedef {Object} PlotSeries
 * @property {string} key the same after a refresh
 * @property {string} name
 * @property {string} color
 * @property {Field} field
 * @property {Record<string, any>} custom `fieldConfig.defaults.custom` and overrides
 * @property {Float64Array} values as they are shown in legend and tooltip
 * @property {Float64Array} drawn after stacking
 * @property {Float64Array | null} base the lower edge of a stacked area
 * @property {number} gap longest time between two points that are connected, in milliseconds
 * @property {boolean} whole whether every time has a value, without a gap
 * @property {string} unit
 * @property {0 | 1} axis left or right
 * @property {boolean} inLegend
 * @property {boolean} inTooltip
 *
 * @typedef {{times: Float64Array, series: PlotSeries[], total: number}} PlotData
 */

/** More lines are not drawn: they would be unreadable. */
export const SERIES_MAX = 500;
/** A sum of parts this near to one is one. */
const WHOLE_ERROR = 1e-9;

/**
 * @param {Frame[]} frames
 * @param {'light' | 'dark'} theme
 * @returns {PlotData}
 */
export function plotData(frames, theme) {
  const { times, columns, fields } = align(frames);
  /** @type {Map<string, number>} */
  const seen = new Map();
  const series = fields
    .slice(0, SERIES_MAX)
    .map(({ field }, index) => {
      const custom = objectOf(field.config.custom);
      const name = String(field.config.displayName || field.name).trim() || `Series ${index + 1}`;
      const count = seen.get(name) ?? 0;
      seen.set(name, count + 1);
      const sign = custom.transform === 'negative-Y' ? -1 : 1;
      const zero = field.config.nullValueMode === 'null as zero';
      const column = columns[index];
      const values =
        zero || sign < 0 ? column.map((value) => (Number.isNaN(value) ? (zero ? 0 : value) : sign * value)) : column;
      const hidden = objectOf(custom.hideFrom);
      const found = scan(times, values);
      const gap = gapOf(found, custom.spanNulls);
      return {
        key: count === 0 ? name : `${name} ${count}`,
        name,
        color: colorOf(field, undefined, index, { theme, name }),
        field,
        custom,
        values,
        drawn: values,
        base: null,
        gap,
        whole: found.finite && found.widest <= gap,
        unit: field.config.unit ?? '',
        axis: /** @type {0 | 1} */ (0),
        inLegend: hidden.legend !== true,
        inTooltip: hidden.tooltip !== true,
        hidden: hidden.viz === true,
      };
    })
    .filter(({ hidden }) => !hidden);
  setAxes(series);
  return { times, series, total: fields.length };
}

/**
 * The result of one pass over a column.
 * @typedef {{low: number, high: number, step: number, widest: number, finite: boolean}} Scan
 * `step` and `widest` are the shortest and the longest time between two values, in milliseconds.
 */

/** @type {WeakMap<Float64Array, Scan>} */
const SCANS = new WeakMap();

/** @param {Float64Array} times @param {Float64Array} values @returns {Scan} */
function scan(times, values) {
  let low = Infinity;
  let high = -Infinity;
  let step = Infinity;
  let widest = -Infinity;
  let last = -Infinity;
  let finite = true;
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index];
    if (value - value !== 0) {
      finite = false;
      if (Number.isNaN(value)) continue;
    } else {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    const distance = times[index] - last;
    if (distance < step) step = distance;
    if (last > -Infinity && distance > widest) widest = distance;
    last = times[index];
  }
  const made = { low, high, step, widest, finite };
  SCANS.set(values, made);
  return made;
}

/**
 * Two points further apart than one and a half steps of their series have a gap between them.
 * @param {Scan} found
 * @param {unknown} spanNulls true, or the longest gap in milliseconds that is bridged
 */
function gapOf({ step }, spanNulls) {
  if (spanNulls === true) return Infinity;
  const gap = step * 1.5;
  return typeof spanNulls === 'number' && spanNulls > 0 ? Math.max(gap, spanNulls) : gap;
}

/** The second unit has the right axis, unless an axis is named. @param {PlotSeries[]} series */
function setAxes(series) {
  const left = series.find(({ custom }) => custom.axisPlacement !== 'right');
  for (const one of series) {
    const placement = one.custom.axisPlacement;
    const other = left !== undefined && one.unit !== left.unit && placement !== 'left';
    one.axis = placement === 'right' || (other && placement !== 'hidden') ? 1 : 0;
  }
  if (series.length > 0 && series.every(({ axis }) => axis === 1)) {
    // Series on the right only leave the left axis empty.
    for (const one of series) one.axis = 1;
  }
}

/**
 * Stacks the shown series, positive and negative values apart.
 * @param {PlotSeries[]} shown in drawing order; `drawn` and `base` are set
 * @param {number} count of times
 */
export function stack(shown, count) {
  /** @type {Map<string, {positive: Float64Array, negative: Float64Array, members: PlotSeries[], percent: boolean}>} */
  const groups = new Map();
  for (const one of shown) {
    const { mode, group } = objectOf(one.custom.stacking);
    [one.drawn, one.base] = [one.values, null];
    if (mode !== 'normal' && mode !== 'percent') continue;
    const key = `${one.axis} ${String(group)} ${mode} ${one.custom.drawStyle === 'bars'}`;
    const found = groups.get(key) ?? {
      positive: new Float64Array(count),
      negative: new Float64Array(count),
      members: [],
      percent: mode === 'percent',
    };
    groups.set(key, found);
    found.members.push(one);
  }
  for (const { positive, negative, members, percent } of groups.values()) {
    const total = new Float64Array(count).fill(1);
    if (percent) {
      total.fill(0);
      for (const { values } of members) values.forEach((value, index) => (total[index] += Math.abs(value) || 0));
    }
    for (const one of members) {
      const below = one.values.some((value) => value < 0) && !one.values.some((value) => value > 0);
      const sum = below ? negative : positive;
      one.base = sum.slice();
      one.drawn = one.values.map((value, index) => {
        if (!Number.isFinite(value)) return NaN;
        sum[index] += percent ? (total[index] === 0 ? 0 : value / total[index]) : value;
        // Parts of a whole add up to exactly one, despite rounding.
        if (percent && Math.abs(Math.abs(sum[index]) - 1) < WHOLE_ERROR) sum[index] = Math.sign(sum[index]);
        return sum[index];
      });
    }
  }
}

/**
 * The ends that an axis has at least, from the configuration of its series: `softMin` and `softMax` as in
 * `valueScale`. Stacks in percent have 0 and 1 by default.
 * @param {PlotSeries[]} series
 */
export function softLimits(series) {
  const soft = (/** @type {string} */ name) =>
    series.flatMap(({ custom }) => (Number.isFinite(custom[name]) ? [Number(custom[name])] : []));
  const [bottoms, tops] = [soft('axisSoftMin'), soft('axisSoftMax')];
  const parts = isPercent(series);
  return {
    softMin: bottoms.length > 0 ? Math.min(...bottoms) : parts ? 0 : undefined,
    softMax: tops.length > 0 ? Math.max(...tops) : parts ? 1 : undefined,
  };
}

/** Whether all series are stacked in percent. @param {PlotSeries[]} series */
export const isPercent = (series) =>
  series.length > 0 && series.every(({ custom }) => objectOf(custom.stacking).mode === 'percent');

/**
 * The series down to which another one is filled (`fillBelowTo`): a name or `/expression/`.
 * @param {PlotSeries} one
 * @param {PlotSeries[]} all
 */
export function fillTarget(one, all) {
  const wanted = one.custom.fillBelowTo;
  if (typeof wanted !== 'string' || wanted === '') return null;
  const pattern = /^\/(.*)\/$/.exec(wanted);
  const regex = pattern ? safeRegex(pattern[1]) : null;
  return all.find((other) => other !== one && (regex ? regex.test(other.name) : other.name === wanted)) ?? null;
}

/**
 * Lowest and highest finite value of series; low is greater than high without one.
 * @param {PlotSeries[]} series
 * @param {boolean} [positive] leaves out zero and below, for a logarithmic scale
 * @returns {[number, number]}
 */
export function extent(series, positive = false) {
  let [low, high] = [Infinity, -Infinity];
  for (const one of series) {
    const known = one.base || positive ? undefined : SCANS.get(one.drawn);
    const [least, most] = known ? [known.low, known.high] : extentOf(one, positive);
    if (least < low) low = least;
    if (most > high) high = most;
  }
  return [low, high];
}

/** @param {PlotSeries} series @param {boolean} positive @returns {[number, number]} */
function extentOf({ drawn, base }, positive) {
  let [low, high] = [Infinity, -Infinity];
  for (let index = 0; index < drawn.length; index += 1) {
    const value = drawn[index];
    if (value - value !== 0 || (positive && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
    if (base && !positive && base[index] < low) low = base[index];
  }
  return [low, high];
}
