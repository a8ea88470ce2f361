// Suggestions for a PromQL input: functions, keywords, metrics, labels, values and durations.

import { readOrg } from '../../client/server.js';
import { counted } from '../../model/metrics.js';
import { isPlainName } from '../../model/promql.js';
import { FUNCTIONS, KEYWORD_HELP, SNIPPETS } from '../../model/promql_functions.js';

const OPTIONS_MAX = 12;
/** The most functions and keywords in a list that has metrics, too. */
const FUNCTIONS_MAX = 7;
const DURATIONS = ['1m', '5m', '15m', '30m', '1h', '6h', '1d', '7d', '30d'];

/**
 * @typedef {import('./options_list.js').Option} Option
 * @typedef {{name: string, values_count?: number, values?: string[]}} Label
 */

/**
 * A function that returns the suggestions for a place in the text.
 * @param {string} org
 */
export function completer(org) {
  /** Labels by metric; '' holds those of any metric. @type {Map<string, Promise<Label[]>>} */
  const labels = new Map();

  /** @param {string | undefined} metric */
  function labelsOf(metric) {
    const known = labels.get(metric ?? '');
    if (known) return known;
    /** @type {Promise<Label[]>} */
    const loading = (
      metric
        ? readOrg(org, `/metrics/${encodeURIComponent(metric)}/labels`, { values: 100 }).then(({ data }) => data)
        : readOrg(org, '/prometheus/api/v1/labels').then(({ data }) =>
            data
              .filter((/** @type {string} */ name) => name !== '__name__')
              .map((/** @type {string} */ name) => ({ name })),
          )
    ).catch(() => []);
    labels.set(metric ?? '', loading);
    return loading;
  }

  /**
   * @param {import('../../model/promql.js').Completion} completion
   * @param {AbortSignal} signal
   * @returns {Promise<Option[]>} at most `OPTIONS_MAX`
   */
  return async function suggestions({ kind, word, metric, label, list, operator }, signal) {
    const lower = word.toLowerCase();
    const fits = (/** @type {string} */ text) => text.toLowerCase().includes(lower) && text !== word;
    const first = (/** @type {{text: string}} */ a, /** @type {{text: string}} */ b) =>
      Number(b.text.startsWith(word)) - Number(a.text.startsWith(word));
    const cut = (/** @type {Option[]} */ options) => options.sort(first).slice(0, OPTIONS_MAX);
    if (kind === 'duration') {
      const begins = (/** @type {string} */ text) => text.startsWith(word) && text !== word;
      return DURATIONS.filter(begins).map((text) => ({ text, insert: `${text}]`, note: 'duration' }));
    }
    if (kind === 'name') {
      const begins = (/** @type {{name: string}} */ { name }) => name.startsWith(lower);
      const keywords = KEYWORD_HELP.filter(([name]) => begins({ name }) && name !== word).map(([name, help]) => ({
        text: name,
        insert: `${name} `,
        note: help,
      }));
      if (operator) return keywords;
      const possible = FUNCTIONS.filter((row) => begins(row) && row.name !== word);
      // Functions that need a switch of the server come last.
      const functions = possible.sort((a, b) => Number(a.experimental) - Number(b.experimental)).map(
        ({ name, args, help, experimental }) => ({
          text: name,
          args,
          insert: args === '()' ? `${name}()` : `${name}(`,
          note: experimental ? `${help} (experimental)` : help,
        }),
      );
      const words = [...functions, ...keywords];
      const snippets = SNIPPETS.filter(begins).map(({ name, insert, help }) => ({ text: name, insert, note: help }));
      const { data } = /** @type {{data: import('../../client/types.js').Metric[]}} */ (
        await readOrg(org, '/metrics', { search: word, limit: 50 }, signal).catch(() => ({ data: [] }))
      );
      const metrics = data
        .filter(({ name }) => fits(name) && isPlainName(name))
        .map(({ name, type, help }) => ({
          text: name,
          insert: name,
          note: [type === 'unknown' ? '' : type, help].filter(Boolean).join(' · ') || 'metric',
        }))
        .sort(first);
      const room = Math.max(FUNCTIONS_MAX, OPTIONS_MAX - metrics.length - snippets.length);
      return [...words.slice(0, room), ...snippets.slice(0, 2), ...metrics].slice(0, OPTIONS_MAX);
    }
    const known = await labelsOf(metric);
    if (kind === 'label') {
      const ending = list ? '' : '="';
      return cut(
        known
          .filter(({ name }) => fits(name))
          .map(({ name, values_count: count }) => ({
            text: name,
            insert: `${name}${ending}`,
            note: count === undefined ? 'label' : counted(count, 'value'),
          })),
      );
    }
    const values = metric
      ? (known.find(({ name }) => name === label)?.values ?? [])
      : await readOrg(
          org,
          `/prometheus/api/v1/label/${encodeURIComponent(label ?? '')}/values`,
          { limit: 100 },
          signal,
        ).then(({ data }) => data);
    return cut(
      values.filter(fits).map((/** @type {string} */ value) => ({
        text: value,
        insert: `${JSON.stringify(value).slice(1, -1)}"`,
        note: label ?? '',
      })),
    );
  };
}
