// Rows of the cardinality view, from listings of metrics and from status/tsdb.

import { isPlainLabel, isPlainName } from './promql.js';

/**
 * @typedef {import('../client/types.js').Metric} Metric
 *
 * A metric with the number of its series. `change` compares the series of the last hour with those
 * of the hour before; null where that is not known. `seen` is the unix time of its newest sample,
 * `queried` that of the last query that names it.
 * @typedef {{name: string, series: number, share: number, change: number|null,
 *   seen: number|null, queried: number|null}} MetricRow
 */

/** @param {Metric[]} metrics */
const byName = (metrics) => new Map(metrics.map((metric) => [metric.name, metric]));

/**
 * The metrics with the most series, the greatest first.
 * @param {Metric[]} all metrics with samples in the last 24 hours
 * @param {Metric[]|null} hour those with samples in the last hour; null if they are not complete
 * @param {Metric[]|null} before those with samples in the hour before
 * @param {number} total the series of all metrics, for the shares
 * @param {number} limit
 * @returns {MetricRow[]}
 */
export function topMetrics(all, hour, before, total, limit) {
  const [now, then] = [hour && byName(hour), before && byName(before)];
  return [...all]
    .sort((left, right) => right.series - left.series || (left.name < right.name ? -1 : 1))
    .slice(0, limit)
    .map(({ name, series, last_seen: seen, last_queried: queried }) => ({
      name,
      series,
      share: total > 0 ? Math.min(1, series / total) : 0,
      change: now && then ? (now.get(name)?.series ?? 0) - (then.get(name)?.series ?? 0) : null,
      seen: seen ?? null,
      queried: queried ?? null,
    }));
}

/** The series of a listing. @param {Metric[]} metrics */
export const seriesOf = (metrics) => metrics.reduce((sum, { series }) => sum + series, 0);

/**
 * A change with its sign: "+1,200", "−3", "0".
 * @param {number|null} change
 */
export const signed = (change) =>
  change === null ? '' : `${change > 0 ? '+' : change < 0 ? '−' : ''}${Math.abs(change).toLocaleString('en')}`;

/**
 * A label pair of status/tsdb, `name=value`; the value may contain `=`.
 * @param {string} text
 * @returns {[string, string]}
 */
export function pairOf(text) {
  const at = text.indexOf('=');
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

/**
 * The selector of a label pair, quoted for PromQL; a name that is not plain is quoted as well.
 * @param {string} name
 * @param {string} value
 */
export function selectorOf(name, value) {
  if (name === '__name__' && isPlainName(value)) return value;
  return `{${isPlainLabel(name) ? name : JSON.stringify(name)}=${JSON.stringify(value)}}`;
}
