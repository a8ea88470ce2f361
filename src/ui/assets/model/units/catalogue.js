// Finds the format of a unit, given its identifier: one of the table, or one with a parameter.

import { OWN, TABLE } from './table.js';

/**
 * How values of a unit are written. `kind` is a sign of the table, `^` (symbol in front), `@` (date
 * pattern), or the identifier of a unit with a function of its own. `offset` is the power of 1000
 * or 1024 in which the values are measured.
 * @typedef {{kind: string, symbol: string, offset: number}} Format
 */

/** The prefixes of powers of 1000, from femto; no prefix is at `SI_NONE`. */
export const SI = ['f', 'p', 'n', 'µ', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E', 'Z', 'Y'];
export const SI_NONE = 5;

/** @type {Map<string, Format>} */
const formats = new Map();

for (const pair of TABLE.trim().split(/,\s/)) {
  const [, id, kind, symbol, offset] = /^(\S+) (.)(.*?)([+-]\d)?$/.exec(pair) ?? [];
  formats.set(id, made(kind, symbol, Number(offset ?? 0)));
}
for (const id of OWN.trim().split(/\s/)) formats.set(id, made(id, ''));
// Grafana reads this spelling of old dashboards, too.
formats.set('farenheit', formatOf('fahrenheit'));

/** @param {string} kind @param {string} symbol @param {number} [offset] @returns {Format} */
function made(kind, symbol, offset = 0) {
  return { kind, symbol, offset };
}

/**
 * Returns the format of a unit. Numbers without a unit are written plainly; an unknown unit is a
 * suffix.
 * @param {string|null|undefined} unit
 * @returns {Format}
 */
export function formatOf(unit) {
  if (!unit || typeof unit !== 'string') return made('=', '');
  const known = formats.get(unit);
  if (known) return known;
  const colon = unit.indexOf(':');
  const parameter = unit.slice(colon + 1);
  switch (colon > 0 ? unit.slice(0, colon) : '') {
    case 'prefix': return made('^', parameter);
    case 'suffix': return made('=', parameter);
    case 'time': return made('@', parameter);
    case 'count': return made('/', parameter);
    case 'currency': return made('$', parameter);
    case 'bool': return made('?', parameter);
    case 'si': {
      // The micro sign and the Greek letter mu are one prefix.
      const letter = parameter.charAt(0).replace('μ', 'µ');
      const offset = letter ? SI.indexOf(letter) - SI_NONE : 0;
      return offset >= -SI_NONE && offset !== 0 ? made('~', parameter.slice(1), offset) : made('~', parameter);
    }
    default: return made('=', unit);
  }
}
