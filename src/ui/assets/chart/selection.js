// The reader's selection in a chart.

import { valuedAt } from './legend.js';

/**
 * @typedef {import('./columns.js').Columns} Columns
 * @typedef {import('./columns.js').Series} Series
 */

/**
 * The detail of the event `select`: the values of one step, the highest first.
 * @param {Columns} data
 * @param {Series[]} shown
 * @param {number} index of the step
 * @param {number|null} height the value at the pointer's height; null for the keyboard
 */
export function selection(data, shown, index, height) {
  const series = valuedAt(shown, index).map(({ name, labels, values }) => ({ name, labels, value: values[index] }));
  const distance = (/** @type {{value: number}} */ one) => Math.abs(one.value - Number(height));
  const nearest =
    height === null || series.length === 0
      ? null
      : series.reduce((best, one) => (distance(one) < distance(best) ? one : best));
  return { time: data.times[index], series, nearest };
}
