// The state of arriving samples on the page Add data, as a sentence.

import { ageText } from './limit_units.js';
import { counted } from './metrics.js';

/**
 * Figures of an organisation at one moment. `samples` counts the samples stored today (UTC).
 * @typedef {{series: number, samples: number}} Figures
 *
 * @typedef {Object} Arrival
 * @property {boolean} empty whether the organisation had no series when the page was opened
 * @property {Figures} last
 * @property {number} stored samples stored since the page was opened
 * @property {number|null} firstAt the time at which samples were first seen, in milliseconds
 */

/** @param {Figures} figures @returns {Arrival} */
export const waiting = (figures) => ({ empty: figures.series === 0, last: figures, stored: 0, firstAt: null });

/**
 * The state after the next figures. The count of a day starts again at midnight UTC; a smaller
 * count than before is a new day.
 * @param {Arrival} before
 * @param {Figures} figures
 * @param {number} now milliseconds
 * @returns {Arrival}
 */
export function after(before, figures, now) {
  const more = figures.samples >= before.last.samples ? figures.samples - before.last.samples : figures.samples;
  const stored = before.stored + more;
  return { ...before, last: figures, stored, firstAt: before.firstAt ?? (stored > 0 ? now : null) };
}

/**
 * @param {Arrival} arrival
 * @param {number} now milliseconds
 */
export function arrivalText({ empty, last, stored, firstAt }, now) {
  if (firstAt === null) return empty ? 'Waiting for the first sample…' : 'Waiting for new samples…';
  const since = ageText(Math.max(0, now - firstAt) / 1000);
  const series = counted(last.series, 'series', 'series');
  if (empty) return `First sample ${since}, ${series}`;
  const begin = since === 'just now' ? since : `since ${since}`;
  return `New samples ${begin}: ${stored.toLocaleString('en')} stored, ${series}`;
}
