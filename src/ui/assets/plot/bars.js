// Bars beside each other or stacked, one group a category, as an SVG with an axis of values.

import { svg } from './svg.js';
import { valueScale } from './scale.js';
import { INKS } from './paint.js';

/**
 * @typedef {{name: string, color: string, values: number[], texts: string[]}} BarSeries one value a category
 */

/** A sum of parts this near to one is one. */
const WHOLE_ERROR = 1e-9;

/**
 * The series with each value as its part of the category: of the sum of the absolute values there.
 * @param {BarSeries[]} series
 * @param {number} count of categories
 * @returns {BarSeries[]}
 */
function partsOf(series, count) {
  const size = (/** @type {number} */ value) => (Number.isFinite(value) ? Math.abs(value) : 0);
  const totals = Array.from({ length: count }, (_, at) =>
    series.reduce((sum, { values }) => sum + size(values[at]), 0));
  return series.map((one) => ({
    ...one,
    values: one.values.map((value, at) => (totals[at] === 0 && Number.isFinite(value) ? 0 : value / totals[at])),
  }));
}

/**
 * @param {{width: number, height: number, categories: string[], series: BarSeries[], stacked: boolean, percent?: boolean,
 *   theme: 'light' | 'dark', unit?: string, decimals?: number, min?: number, max?: number, gap?: number,
 *   opacity?: number, label: string, ticks?: string[]}} options sizes in CSS pixels; `gap`: the part of a category
 *   without bars; `percent`: stacked bars are parts of 100 %, and unit and limits are those of percent; `ticks`: texts of the axis in place of the categories, left out where they would overlap
 * @returns {SVGElement}
 */
export function barChart({
  width,
  height,
  categories,
  series: given,
  stacked,
  percent = false,
  theme,
  unit,
  decimals,
  min,
  max,
  gap = 0.2,
  opacity = 0.8,
  label,
  ticks,
}) {
  const inks = INKS[theme];
  const series = percent ? partsOf(given, categories.length) : given;
  let [low, high] = [0, 0];
  categories.forEach((_, at) => {
    let [up, down] = [0, 0];
    for (const { values } of series) {
      const value = Number.isFinite(values[at]) ? values[at] : 0;
      if (stacked) value >= 0 ? (up += value) : (down += value);
      else [up, down] = [Math.max(up, value), Math.min(down, value)];
    }
    [low, high] = [Math.min(low, down), Math.max(high, up)];
  });
  // Parts add up to one, whatever rounding left of it.
  const whole = (/** @type {number} */ end) => (Math.abs(Math.abs(end) - 1) < WHOLE_ERROR ? Math.sign(end) : end);
  if (percent) [low, high] = [whole(low), whole(high)];
  const limits = percent ? { unit: 'percentunit', softMin: 0, softMax: 1 } : { unit, decimals, min, max };
  const scale = valueScale(low, high, Math.max(2, Math.round(height / 44)), { ...limits, zero: true });
  const left = Math.min(width * 0.35, Math.max(...scale.texts.map((text) => text.length * 6.2), 10) + 10);
  const [right, top] = [width - 6, 8];
  const wide = (right - left) / Math.max(1, categories.length);
  const names = ticks ?? categories;
  const longest = Math.max(...names.map((text) => Math.min(text.length, 24) * 6), 1);
  const turned = !ticks && wide < longest;
  const bottom = height - (turned ? Math.min(80, height * 0.35) : 22);
  const y = (/** @type {number} */ value) => bottom - Math.min(1, Math.max(0, scale.at(value))) * (bottom - top);
  /** @type {SVGElement[]} */
  const shapes = [];
  scale.ticks.forEach((tick, index) => {
    const at = Math.round(y(tick)) + 0.5;
    shapes.push(
      svg('line', { x1: left, x2: right, y1: at, y2: at, stroke: tick === 0 ? inks.axis : inks.grid }),
      svg(
        'text',
        { x: left - 6, y: at + 4, 'text-anchor': 'end', fill: inks.muted, 'font-size': 11 },
        scale.texts[index],
      ),
    );
  });
  const every = Math.max(1, Math.ceil((ticks ? longest + 14 : 14) / Math.max(1, wide)));
  categories.forEach((name, at) => {
    const from = left + at * wide + (wide * gap) / 2;
    const each = (wide * (1 - gap)) / (stacked ? 1 : Math.max(1, series.length));
    let [up, down] = [0, 0];
    series.forEach((one, index) => {
      const value = one.values[at];
      if (!Number.isFinite(value)) return;
      const start = stacked ? (value >= 0 ? up : down) : 0;
      const end = start + value;
      if (stacked) value >= 0 ? (up = end) : (down = end);
      shapes.push(
        svg(
          'rect',
          {
            x: from + (stacked ? 0 : index * each),
            width: Math.max(1, each - (each > 4 ? 1 : 0)),
            y: Math.min(y(start), y(end)),
            height: Math.max(0.5, Math.abs(y(start) - y(end))),
            fill: one.color,
            'fill-opacity': opacity,
          },
          svg('title', {}, `${name}: ${one.name} ${one.texts[at]}`),
        ),
      );
    });
    if (at % every > 0) return;
    const x = left + (at + 0.5) * wide;
    // A text at the edge of the drawing would be cut.
    if (ticks && (x - longest / 2 < 0 || x + longest / 2 > width)) return;
    const text = names[at].length > 24 ? `${names[at].slice(0, 23)}…` : names[at];
    shapes.push(
      svg(
        'text',
        {
          x,
          y: bottom + 14,
          fill: inks.muted,
          'font-size': 11,
          'text-anchor': turned ? 'end' : 'middle',
          ...(turned ? { transform: `rotate(-40 ${x} ${bottom + 14})` } : {}),
        },
        text,
      ),
    );
  });
  return svg('svg', { width, height, role: 'img', 'aria-label': label }, ...shapes);
}
