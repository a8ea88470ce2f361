// The estimated cost of a query in words, and the limits that it would exceed.

import { formatValue } from '../chart/scale.js';

/** The server's default limits of a query (docs/specification.md C5). */
export const SAMPLES_MAX = 10_000_000;
export const MEMORY_MAX = 256 * 2 ** 20;

/**
 * @typedef {{series: number, samples: number, memory_bytes: number}} Estimate
 * @param {Estimate} estimate
 * @param {number | null} msPerSample of the last query, for a guess of the time; null without one
 * @param {number | null} [samplesMax] the organisation's limit of samples; null for the default
 * @returns {{text: string, over: boolean}}
 */
export function costText({ series, samples, memory_bytes: bytes }, msPerSample, samplesMax) {
  const count = (/** @type {number} */ value) => (value < 10_000 ? value.toLocaleString('en') : formatValue(value));
  const limit = samplesMax ?? SAMPLES_MAX;
  const words = [
    `${count(series)} series`,
    `${count(samples)} ${samples === 1 ? 'sample' : 'samples'}`,
    formatValue(bytes, 'bytes'),
  ];
  const exceeded = [
    samples > limit && `A query may hold ${limit.toLocaleString('en')} samples`,
    bytes > MEMORY_MAX && `A query may use ${formatValue(MEMORY_MAX, 'bytes')} of memory`,
  ].filter(Boolean);
  // A query that the server may refuse takes no time that could be guessed.
  if (msPerSample !== null && samples > 0 && exceeded.length === 0)
    words.push(formatValue(Math.max(1, Math.round(samples * msPerSample)) / 1000, 'seconds'));
  const text = `About ${words.join(', ')}`;
  return exceeded.length
    ? { text: `${text}. ${exceeded.join('. ')}: the server may refuse this one.`, over: true }
    : { text, over: false };
}
