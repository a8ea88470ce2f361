// Ad hoc filters as texts of an address.

/** @typedef {{label: string, op: string, value: string}} Filter `op` is =, !=, =~ or !~ */

export const OPERATORS = ['=', '!=', '=~', '!~'];
/** The most filters of a variable; more are dropped. */
const FILTERS_MAX = 50;

/** @param {string} text */
const escaped = (text) => text.replaceAll('|', '__gfp__').replaceAll(',', '__gfc__');
/** @param {string} text */
const unescaped = (text) => text.replaceAll('__gfp__', '|').replaceAll('__gfc__', ',');

/** A filter as Grafana writes it into addresses: `job|=|api`. @param {Filter} filter */
export const filterText = ({ label, op, value }) => [label, op, value].map(escaped).join('|');

/**
 * Filters of an address; texts that are none are left out.
 * @param {string[]} texts
 * @returns {Filter[]}
 */
export function readFilterTexts(texts) {
  return texts
    .map((text) => text.split('|').map(unescaped))
    .filter((parts) => parts.length >= 3 && parts[0] !== '' && OPERATORS.includes(parts[1]))
    .slice(0, FILTERS_MAX)
    .map(([label, op, value]) => ({ label, op, value }));
}
