// A query's matrix as columns over one grid of times, and short names for its series.

/**
 * @typedef {{labels: Object<string, string>, name: string, full: string, values: Float64Array,
 *   low: number, high: number, mean: number, last: number, present: number}} Series
 * @typedef {{start: number, step: number, count: number, series: Series[], total: number}} Columns
 */

/** Lines beyond these are not drawn: they would be unreadable and exhaust a phone. */
export const SERIES_MAX = 300;
/** The server answers at most 11,000 steps; one more for a grid that includes both ends. */
const STEPS_MAX = 11001;

const number = (text) => (text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text));

/**
 * Columns of a matrix answer. A step without a point holds NaN, which is drawn as a gap.
 * @param {{metric: Object<string, string>, values: [number, string][]}[]} matrix
 * @param {{start: number, end: number, step: number}} steps
 * @param {string} [template] legend text with {{label}} in it
 * @returns {Columns}
 */
export function columns(matrix, { start, end, step }, template) {
  const count = Math.min(STEPS_MAX, Math.floor((end - start) / step + 1e-6) + 1);
  const series = matrix.slice(0, SERIES_MAX).map((row) => {
    const values = new Float64Array(count).fill(NaN);
    for (const [at, text] of row.values ?? []) {
      const index = Math.round((at - start) / step);
      if (index >= 0 && index < count) values[index] = number(text);
    }
    return { labels: row.metric ?? {}, values, ...summary(values) };
  });
  name(series, template);
  return { start, step, count, series, total: matrix.length };
}

function summary(values) {
  let [low, high, sum, present, last] = [Infinity, -Infinity, 0, 0, NaN];
  for (const value of values) {
    if (Number.isNaN(value)) continue;
    last = value;
    present += 1;
    if (!Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
    sum += value;
  }
  return { low, high, mean: sum / present, last, present };
}

/** `up{job="api"}`, as PromQL writes it. */
export function fullName(labels) {
  const pairs = Object.entries(labels).filter(([label]) => label !== '__name__')
    .map(([label, value]) => `${label}=${JSON.stringify(value)}`);
  const metric = labels.__name__ ?? '';
  return pairs.length || !metric ? `${metric}{${pairs.join(', ')}}` : metric;
}

/** Names with only what tells the series apart: a label that all share says nothing in a legend. */
function name(series, template) {
  const labels = new Set(series.flatMap((one) => Object.keys(one.labels)));
  const telling = [...labels].filter((label) => series.some((one) => one.labels[label] !== series[0].labels[label]));
  const metric = telling.includes('__name__');
  const rest = telling.filter((label) => label !== '__name__').sort();
  for (const one of series) {
    one.full = fullName(one.labels);
    const values = rest.filter((label) => one.labels[label] !== undefined)
      .map((label) => (rest.length === 1 ? one.labels[label] || '""' : `${label}=${one.labels[label]}`));
    const short = [metric ? one.labels.__name__ : '', ...values].filter(Boolean).join(' ');
    one.name = template ? template.replaceAll(/\{\{\s*([\w.]+)\s*\}\}/g, (_, label) => one.labels[label] ?? '')
      : short || (series.length === 1 ? one.full.replace(/^\{\}$/, 'value') : one.full);
  }
}

/** Lowest and highest finite value of the series that are shown; null when there is none. */
export function bounds(series) {
  let [low, high] = [Infinity, -Infinity];
  for (const one of series) {
    low = Math.min(low, one.low);
    high = Math.max(high, one.high);
  }
  return low <= high ? { low, high } : null;
}
