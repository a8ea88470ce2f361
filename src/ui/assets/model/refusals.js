// Refused samples in words: the reason behind each code of docs/specification.md C7.

/**
 * @typedef {{at: string, first_at: string, count: number, code: string, reason: string,
 *   series: string | null, sender: {type: string, id: string, name?: string}}} Refusal
 */

/** @type {Map<string, string>} */
const REASONS = new Map(
  Object.entries({
    too_far_in_future: 'Time in the future',
    clock_unconfirmed: 'Time ahead of the clock after a start',
    too_old: 'Older than the retention',
    too_late: 'Later than the window for late samples',
    out_of_bounds: 'Time out of range',
    duplicate_sample: 'Another value at the same time',
    series_limit: 'Limit of series reached',
    new_series_rate: 'Too many new series a second',
    memory_limit: 'Limit of memory reached',
    memory_share: 'Share of memory reached',
    disk_limit: 'Limit of disk space reached',
    at_capacity: 'Organisation at capacity',
    missing_metric_name: 'No metric name',
    metric_name_too_long: 'Metric name too long',
    label_name_too_long: 'Label name too long',
    label_value_too_long: 'Label value too long',
    labels_too_long: 'Labels too long',
    too_many_labels: 'Too many labels',
    duplicate_label: 'Label given twice',
    invalid_label: 'Invalid label',
    invalid_utf8: 'Invalid UTF-8',
    invalid_encoding: 'Invalid encoding',
    delta_temporality: 'Delta temporality',
    ingest_throttled: 'Rate limit of the key',
    bad_request: 'Body could not be read',
  }),
);

/**
 * The reason in words; the code itself, spaced, where none is known.
 * @param {string} code
 */
export function reasonOf(code) {
  const known = REASONS.get(code);
  if (known) return known;
  const text = code.replaceAll('_', ' ');
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}

/**
 * Entries of a list of refusals that are newer than a time.
 * @param {Refusal[]} rows
 * @param {number} since milliseconds
 */
export const refusedSince = (rows, since) => rows.filter(({ at }) => Date.parse(at) >= since);
