// Targets of scraping: pools, filters, and the changes of a step of relabelling.

import { grouped, hasWords } from './metrics.js';

/**
 * @typedef {Record<string, string>} Labels
 * @typedef {'up'|'down'|'unknown'} Health
 * @typedef {{scrapePool: string, scrapeUrl: string, labels: Labels, discoveredLabels: Labels, lastError: string,
 *   lastScrape: string, lastScrapeDuration: number, health: Health, scrapeInterval?: string,
 *   scrapeTimeout?: string}} Target
 * @typedef {{scrapePool?: string, discoveredLabels: Labels}} Dropped
 * @typedef {{name: string, targets: Target[], up: number, total: number, dropped: Dropped[],
 *   droppedCount: number}} Pool
 *   `up` and `total` count all targets, `targets` has those that pass the filter
 * @typedef {{name: string, before: string|undefined, after: string|undefined}} Change
 * @typedef {{rule: Record<string, any>, output: Labels, keep: boolean}} Step
 */

/**
 * Whether every word of the filter is in the address, a label or the error of a target.
 * @param {Target} target
 * @param {string} filter
 */
export function targetMatches({ scrapeUrl, scrapePool, labels, lastError }, filter) {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}=${value}`);
  return hasWords([scrapeUrl, scrapePool, lastError, ...pairs].join('\n'), filter);
}

/**
 * The pools in order of their names; targets that are down come first.
 * @param {{activeTargets?: Target[], droppedTargets?: Dropped[], droppedTargetCounts?: Record<string, number>}} data
 * @param {string[]} names of all pools: a pool may have no target
 * @param {{text: string, health: string}} filter an empty text and an empty state let everything pass
 * @returns {Pool[]}
 */
export function poolsOf({ activeTargets, droppedTargets, droppedTargetCounts: counts }, names, { text, health }) {
  // Prometheus writes null for an empty list.
  const active = grouped(activeTargets ?? [], ({ scrapePool }) => scrapePool);
  const dropped = grouped(
    droppedTargets ?? [],
    ({ scrapePool, discoveredLabels }) => scrapePool ?? discoveredLabels.job ?? '',
  );
  const rank = (/** @type {Target} */ { health: state }) => ['down', 'unknown', 'up'].indexOf(state);
  const all = new Set([...names, ...active.keys(), ...dropped.keys(), ...Object.keys(counts ?? {})]);
  return [...all].sort().map((name) => {
    const own = active.get(name) ?? [];
    const passed = own.filter((one) => (!health || one.health === health) && targetMatches(one, text));
    const gone = dropped.get(name) ?? [];
    return {
      name,
      targets: passed.sort((left, right) => rank(left) - rank(right) || (left.scrapeUrl < right.scrapeUrl ? -1 : 1)),
      up: own.filter((one) => one.health === 'up').length,
      total: own.length,
      dropped: gone,
      droppedCount: counts?.[name] ?? gone.length,
    };
  });
}

/**
 * The labels that differ, in order of their names.
 * @param {Labels} before
 * @param {Labels} after
 * @returns {Change[]}
 */
export const labelChanges = (before, after) =>
  [...new Set([...Object.keys(before), ...Object.keys(after)])]
    .sort()
    .filter((name) => before[name] !== after[name])
    .map((name) => ({ name, before: before[name], after: after[name] }));

/**
 * A rule of relabelling as YAML writes it, one member a line.
 * @param {Record<string, any>} rule as the API has it
 */
export const ruleLines = (rule) =>
  Object.entries(rule)
    .filter(([, value]) => value !== '' && value !== null && value !== undefined && value !== 0)
    .map(([name, value]) => {
      const key = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
      return `${key}: ${Array.isArray(value) ? `[${value.join(', ')}]` : value}`;
    })
    .join('\n');
