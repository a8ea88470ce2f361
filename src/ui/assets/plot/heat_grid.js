// The cells of a heatmap: one row a bucket, one column a time.

/**
 * @typedef {import('../model/frame.js').Frame} Frame
 * @typedef {import('../model/frame.js').Field} Field
 * @typedef {{name: string, bottom: number, top: number, counts: Float64Array}} HeatRow from the lowest bucket
 * @typedef {{times: Float64Array, step: number, rows: HeatRow[], field: Field, high: number, least: number}} HeatGrid
 * A column covers the time from `times[i] - step` (exclusive) to `times[i]`. `high` is the highest
 * count.
 * `least`: cells at or below it stay empty.
 */

/** The most rows of a heatmap. */
const ROWS_MAX = 200;
/** Columns and rows of a heatmap that is calculated from series. */
const COLUMNS = 60;
const BUCKETS = 30;

/**
 * @param {Frame[]} frames
 * @param {{from: number, to: number}} range milliseconds
 * @param {Record<string, any>} options of the panel
 * @returns {HeatGrid | null} null without values
 */
export function heatGrid(frames, range, options) {
  const least = Number.isFinite(options.filterValues?.le) ? options.filterValues.le : 1e-9;
  const made =
    options.calculate === true || frames.every(({ fields }) => fields.length < 3)
      ? frames.length > 1 && options.calculate !== true
        ? seriesRows(frames)
        : calculated(frames, range)
      : bucketRows(frames);
  if (!made || made.rows.length === 0 || made.times.length === 0) return null;
  let high = 0;
  for (const { counts } of made.rows)
    for (const count of counts) if (count > high && Number.isFinite(count)) high = count;
  return { ...made, rows: made.rows.slice(0, ROWS_MAX), high: high || 1, least };
}

/** @param {ArrayLike<any>} values @returns {Float64Array} */
const floats = (values) =>
  values instanceof Float64Array
    ? values
    : Float64Array.from(values, (value) => (typeof value === 'number' ? value : NaN));

/** @param {Float64Array} times */
function stepOf(times) {
  let step = Infinity;
  for (let index = 1; index < times.length; index += 1) step = Math.min(step, times[index] - times[index - 1]);
  return Number.isFinite(step) ? step : 60_000;
}

/** One frame has all buckets. @param {Frame[]} frames */
function bucketRows(frames) {
  const frame = frames.find(({ fields }) => fields.length >= 3);
  const time = frame?.fields.find(({ type }) => type === 'time');
  const numbers = frame?.fields.filter(({ type }) => type === 'number') ?? [];
  if (!frame || !time || numbers.length === 0) return null;
  const times = floats(time.values);
  return {
    times,
    step: stepOf(times),
    field: numbers[0],
    rows: numbers.map((field) => ({
      name: field.bucket ? field.name : field.config.displayName || field.name,
      bottom: field.bucket?.low ?? NaN,
      top: field.bucket?.high ?? NaN,
      counts: floats(field.values),
    })),
  };
}

/** One frame a row: series without bounds, such as counts by status. @param {Frame[]} frames */
function seriesRows(frames) {
  const all = frames.flatMap((frame) => {
    const time = frame.fields.find(({ type }) => type === 'time');
    const field = frame.fields.find(({ type }) => type === 'number');
    return time && field ? [{ times: floats(time.values), field, values: floats(field.values) }] : [];
  });
  if (all.length === 0) return null;
  const times = Float64Array.from(new Set(all.flatMap((one) => [...one.times]))).sort();
  const places = new Map([...times].map((time, index) => [time, index]));
  return {
    times,
    step: stepOf(times),
    field: all[0].field,
    rows: all.map(({ times: own, field, values }) => {
      const counts = new Float64Array(times.length).fill(NaN);
      own.forEach((time, index) => (counts[places.get(time) ?? 0] = values[index]));
      return { name: field.config.displayName || field.name, bottom: NaN, top: NaN, counts };
    }),
  };
}

/** Counts values by time and size. @param {Frame[]} frames @param {{from: number, to: number}} range */
function calculated(frames, { from, to }) {
  /** @type {[number, number][]} */
  const points = [];
  /** @type {Field | null} */
  let field = null;
  let [low, high] = [Infinity, -Infinity];
  for (const frame of frames) {
    const time = frame.fields.find(({ type }) => type === 'time');
    for (const one of frame.fields) {
      if (!time || one.type !== 'number') continue;
      field ??= one;
      for (let index = 0; index < one.values.length; index += 1) {
        const value = one.values[index];
        if (typeof value !== 'number' || !Number.isFinite(value)) continue;
        points.push([time.values[index], value]);
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
  }
  if (!field || points.length === 0) return null;
  const step = Math.max(1, (to - from) / COLUMNS);
  const size = (high - low) / BUCKETS || 1;
  const times = Float64Array.from({ length: COLUMNS }, (_, index) => from + (index + 1) * step);
  const rows = Array.from({ length: BUCKETS }, (_, index) => ({
    name: '',
    bottom: low + index * size,
    top: low + (index + 1) * size,
    counts: new Float64Array(COLUMNS),
  }));
  for (const [time, value] of points) {
    const column = Math.min(COLUMNS - 1, Math.max(0, Math.floor((time - from) / step)));
    rows[Math.min(BUCKETS - 1, Math.floor((value - low) / size))].counts[column] += 1;
  }
  return { times, step, field, rows };
}
