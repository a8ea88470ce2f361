// Axis ticks that are round in the unit of their values.

import { formatOf } from './catalogue.js';
import { LADDERS } from './duration.js';
import { wallClock } from './zone.js';

/** The most intervals of an axis, for any requested number. */
const INTERVALS_MAX = 200;
/** An axis may have a quarter more intervals than wished, if that makes them rounder. */
const TOLERANCE = 0.8;
const DECIMAL = [1, 2, 5, 10, 20, 50, 100, 200, 500];

/**
 * Round multiples of units of time; those of other units are decimal.
 * @type {Map<string, number[]>}
 */
const MULTIPLES = new Map([
  [' s', [1, 2, 5, 10, 15, 30]],
  [' min', [1, 2, 5, 10, 15, 30]],
  [' hour', [1, 2, 3, 6, 12]],
]);

/**
 * Fractions that are round both in a unit of time and in the one below it.
 * @type {Map<string, number[]>}
 */
const FRACTIONS = new Map([
  [' min', [0.25, 0.5]],
  [' hour', [0.25, 0.5]],
  [' day', [0.25, 0.5]],
  [' week', [0.5]],
  [' year', [0.5]],
]);

/** Units whose texts are clocks or words: the milliseconds of 1. */
const CLOCKS = new Map([
  ['dtdurationms', 1], ['clockms', 1], ['dtdurations', 1000], ['dthms', 1000], ['dtdhms', 1000], ['clocks', 1000],
]);

/**
 * Returns the smallest of 1, 2 and 5 times powers of 10 that is not below `least`.
 * @param {number} least above 0
 */
function decimalStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  const factor = [1, 2, 5].find((candidate) => candidate * power >= least) ?? 10;
  return Number((factor * power).toPrecision(1));
}

/**
 * Returns a step of a unit of time. Texts such as "1.17 mins" are avoided: where the ends of the
 * axis are minutes, a step is 15 or 30 s and not 10 or 20 s, unless that makes too few ticks.
 * @param {number} least the smallest step, above 0
 * @param {number} end the largest absolute value of the axis; 0 if each text suits each step
 * @param {string} unit a key of `LADDERS`
 */
function timeStep(least, end, unit) {
  const rows = (LADDERS.get(unit) ?? []).map(([limit, suffix, divisor, factor = 1]) => (
    { limit, name: suffix.replace('+', ''), size: divisor / factor }));
  const steps = rows.flatMap(({ name, size }, index) => (MULTIPLES.get(name) ?? DECIMAL).map((times) => times * size)
    .filter((step) => index + 1 === rows.length || step < rows[index + 1].size));
  const { name, size } = rows.find(({ limit }) => end <= limit) ?? rows[rows.length - 1];
  const coarse = [...(FRACTIONS.get(name) ?? []).map((part) => part * size), ...steps.filter((step) => step >= size)];
  const found = (end > 0 && least * 2.5 >= coarse[0] ? coarse : steps).find((step) => step >= least);
  const outer = least < steps[0] ? rows[0].size : rows[rows.length - 1].size;
  return found !== undefined && least >= steps[0] ? found : decimalStep(least / outer) * outer;
}

/**
 * Returns the distance of ticks, at least `least`.
 * @param {number} least above 0
 * @param {number} end the largest absolute value of the axis
 * @param {string|null|undefined} unit
 */
function tickStep(least, end, unit) {
  const { kind, offset } = formatOf(unit);
  if (kind === '?') return Math.max(1, decimalStep(least));
  if (isDate(kind)) return timeStep(Math.max(1, least), 0, 'ms');
  // A byte is not divided in two, but a KiB is.
  if (kind === '#' || kind.startsWith('hex')) {
    const step = 2 ** Math.ceil(Math.log2(least));
    return step >= 1024 ** -offset ? step : decimalStep(least);
  }
  if (kind === 'timeticks') return timeStep(least / 100, end / 100, 's') * 100;
  const milliseconds = CLOCKS.get(kind);
  if (milliseconds) return timeStep(least * milliseconds, 0, 'ms') / milliseconds;
  return LADDERS.has(kind) ? timeStep(least, end, kind) : decimalStep(least);
}

/** @param {string} kind */
const isDate = (kind) => kind === '@' || kind.startsWith('dateTime');

/**
 * Returns round values of an axis: multiples of powers of two for binary units, of 1, 2 or 5 times
 * powers of ten for decimal ones, and of seconds, minutes, hours, ... for durations and dates.
 * @param {number} low
 * @param {number} high
 * @param {number} count wished number of intervals; there are from a half to 1.25 of it
 * @param {string|null} [unit]
 * @param {{timeZone?: string}} [options] the zone in which dates are round
 * @returns {number[]} ascending, within low..high inclusive; empty unless low <= high are finite
 */
export function unitTicks(low, high, count, unit, options = {}) {
  if (!(low <= high) || !Number.isFinite(low) || !Number.isFinite(high)) return [];
  if (low === high) return [low];
  const intervals = Math.min(INTERVALS_MAX, Math.max(1, Math.floor(count) || 1));
  const least = (high / intervals - low / intervals) * TOLERANCE;
  const step = least > 0 ? tickStep(least, Math.max(-low, high), unit) : 0;
  if (!(step > 0 && step < Infinity)) return [low, high];
  const shift = zoneShift(low, unit, options.timeZone);
  const first = Math.ceil((low + shift) / step - 1e-9);
  /** @type {number[]} */
  const ticks = [];
  for (let index = 0; index <= intervals / TOLERANCE + 2; index += 1) {
    const product = (first + index) * step;
    // Multiples of 0.1 end in digits that a person would not write.
    const tick = (Number.isInteger(step) || Math.abs(first) > 1e12 ? product : Number(product.toPrecision(15))) - shift;
    if (tick >= low && tick <= high && !(tick <= ticks[ticks.length - 1])) ticks.push(tick + 0);
  }
  return ticks;
}

/**
 * Returns the milliseconds that a zone is ahead of UTC, for units of dates; 0 for others.
 * @param {number} at
 * @param {string|null|undefined} unit
 * @param {string} [timeZone]
 */
function zoneShift(at, unit, timeZone) {
  const time = new Date(at);
  if (!isDate(formatOf(unit).kind) || Number.isNaN(time.getTime())) return 0;
  return Math.round(wallClock(time, timeZone).offset * 6e4);
}
