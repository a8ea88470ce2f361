// The cost of an answered query in words.

import { metricsOf } from './promql.js';

/**
 * @param {import('../client/types.js').QueryAnswer} answer
 * @param {string} expr
 */
export function statsText({ data, stats: spent = {} }, expr) {
  const words = [];
  if (spent.series !== undefined) words.push(`${spent.series.toLocaleString('en')} series`);
  // Cached results read no samples.
  const cached =
    spent.samples === 0 && Array.isArray(data?.result) && data.result.length > 0 && metricsOf(expr).length > 0;
  if (cached) words.push('cached');
  else if (spent.samples !== undefined)
    words.push(`${spent.samples.toLocaleString('en')} ${spent.samples === 1 ? 'sample' : 'samples'}`);
  if (spent.elapsed_ms !== undefined) words.push(`${Number(spent.elapsed_ms.toPrecision(3))} ms`);
  return words.join(' · ');
}
