// The hint that the newest sample of a query's metrics is outside the range that is shown.

import { h } from '../chart/dom.js';
import { formatMoment } from '../chart/scale.js';
import { readOrg } from '../client/server.js';
import { metricsOf } from '../model/promql.js';

/** The most metrics of an expression that are looked up. */
const METRICS_MAX = 5;

/**
 * The hint for an expression without data; null if none of its metrics ever had a sample.
 * @param {{org: string, expr: string, seconds: number, show: (range: {start: number,
 *   end: number}) => void}} options `seconds` is the length of the range to show
 */
export async function newestHint({ org, expr, seconds, show }) {
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
  // The sample is three quarters into the range, which ends now at the latest.
  const start = Math.floor(newest - seconds * 0.75);
  const end = Math.ceil(Math.min(newest + seconds * 0.25, Math.max(Date.now() / 1000, newest + 1)));
  return [
    h('p', { text: `The newest sample of ${name} is from ${formatMoment(newest)}.` }),
    h('button', { type: 'button', text: 'Go to the newest sample', on: { click: () => show({ start, end }) } }),
  ];
}
