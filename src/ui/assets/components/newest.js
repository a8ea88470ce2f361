// The hint that the newest sample of a query's metrics is outside the range that is shown.

import { h } from '../chart/dom.js';
import { formatMoment } from '../chart/scale.js';
import { readOrg } from '../client/server.js';
import { newestSpan } from '../model/explore_state.js';
import { metricsOf } from '../model/promql.js';

/** The most metrics of an expression that are looked up. */
const METRICS_MAX = 5;

/**
 * The hint for an expression without data; null if none of its metrics ever had a sample.
 * @param {{org: string, state: Pick<import('../model/explore_state.js').State, 'expr' | 'range' | 'zoom'>,
 *   show: (range: import('../model/explore_state.js').Span) => void}} options
 */
export async function newestHint({ org, state, show }) {
  const { expr } = state;
  // With a start the listing has metrics of any age; without one, only those of the last day.
  const names = metricsOf(expr).slice(0, METRICS_MAX);
  const found = await Promise.all(
    names.map(async (name) => {
      const { data } = await readOrg(org, '/metrics', { search: name, start: 1, limit: 1000 }).catch(() => ({
        data: [],
      }));
      return /** @type {import('../client/types.js').Metric[]} */ (data).find((metric) => metric.name === name) ?? null;
    }),
  );
  const newest = Math.max(0, ...found.map((metric) => metric?.last_seen ?? 0));
  const name = found.find((metric) => metric?.last_seen === newest)?.name;
  if (newest === 0 || !name) return null;
  const span = newestSpan(newest, state, Date.now() / 1000);
  // The query returned nothing because of an offset or a condition, although samples exist.
  if (!span) return [h('p', { text: `${name} has samples in this range, but the expression has no result in it.` })];
  return [
    h('p', { text: `The newest sample of ${name} is from ${formatMoment(newest)}.` }),
    h('button', { type: 'button', text: 'Go to the newest sample', on: { click: () => show(span) } }),
  ];
}
