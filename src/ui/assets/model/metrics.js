// Groups the metrics of a listing into families, filters them, and counts in words.

/**
 * @typedef {import('../client/types.js').Metric} Metric
 *
 * @typedef {Object} Family
 * @property {string} name of the metric, or of the histogram or summary without its suffix
 * @property {string} type
 * @property {string} help
 * @property {number} series of all members
 * @property {Metric[]} members
 * @property {Metric} first the member that a click queries: the buckets of a histogram
 */

/**
 * Suffixes of the series of a classic histogram or summary; a query starts best with the first one
 * that exists.
 */
const SUFFIXES = ['_bucket', '_count', '_sum'];

/**
 * Families in the order of the listing. `x_bucket`, `x_sum` and `x_count` are one family if the
 * buckets exist, or if the listing calls them a summary; otherwise each metric is one of its own.
 * @param {Metric[]} metrics
 * @returns {Family[]}
 */
export function families(metrics) {
  const byName = new Map(metrics.map((metric) => [metric.name, metric]));
  /** @type {Map<string, Family>} */
  const found = new Map();
  for (const metric of metrics) {
    const suffix = SUFFIXES.find((end) => metric.name.endsWith(end)) ?? '';
    const base = metric.name.slice(0, metric.name.length - suffix.length);
    const bucket = byName.get(`${base}_bucket`);
    const grouped =
      suffix !== '' && base !== '' && (bucket || metric.type === 'summary' || metric.type === 'histogram');
    const name = grouped || (metric.type === 'summary' && byName.has(`${metric.name}_count`)) ? base : metric.name;
    const known = found.get(name);
    if (!known) {
      found.set(name, {
        name,
        type: grouped && bucket ? 'histogram' : metric.type,
        help: metric.help ?? '',
        series: metric.series ?? 0,
        members: [metric],
        first: metric,
      });
      continue;
    }
    known.members.push(metric);
    known.series += metric.series ?? 0;
    known.help ||= metric.help ?? '';
    if (rank(metric) < rank(known.first)) known.first = metric;
  }
  return [...found.values()];
}

/** @param {Metric} metric */
function rank({ name }) {
  const at = SUFFIXES.findIndex((end) => name.endsWith(end));
  return name.endsWith('_bucket') ? 0 : at < 0 ? 1 : at + 1;
}

/**
 * Whether every word of the filter occurs in the names, the type or the help of a family.
 * @param {Family} family
 * @param {string} filter
 */
export const matchesFilter = ({ members, type, help }, filter) =>
  hasWords(`${members.map(({ name }) => name).join(' ')} ${type} ${help}`, filter);

/**
 * Whether every word occurs in the text, in any case of letters.
 * @param {string} text
 * @param {string} words separated by blanks; without words, every text passes
 */
export function hasWords(text, words) {
  const lower = text.toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => lower.includes(word));
}

/**
 * Whether a listing has metrics of a promlet. A server that stores its own metrics does not count
 * their samples in those of the day.
 * @param {Metric[]} metrics
 */
export const hasOwnMetrics = (metrics) => metrics.some(({ name }) => name.startsWith('promlet_'));

/**
 * A count with its noun: "1 metric", "1,200 metrics".
 * @param {number} count
 * @param {string} one
 * @param {string} [many]
 */
export const counted = (count, one, many = `${one}s`) => `${count.toLocaleString('en')} ${count === 1 ? one : many}`;

/**
 * The items by their keys, in the order of their first items.
 * @template Item
 * @param {Item[]} items
 * @param {(item: Item) => string} keyOf
 */
export function grouped(items, keyOf) {
  /** @type {Map<string, Item[]>} */
  const all = new Map();
  for (const item of items) {
    const own = all.get(keyOf(item));
    if (own) own.push(item);
    else all.set(keyOf(item), [item]);
  }
  return all;
}
