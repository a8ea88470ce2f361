// The selections of a dashboard's variables without a server: the page asks for options instead.

import { valuesOf } from '../../src/ui/assets/model/formats.js';
import { isAll } from '../../src/ui/assets/model/interpolate.js';
import { optionsOf, selectionOf } from '../../src/ui/assets/model/variables.js';

/**
 * The selections that a dashboard was saved with.
 * @param {import('../../src/ui/assets/model/variables.js').Variable[]} variables
 * @returns {import('../../src/ui/assets/model/interpolate.js').Selections}
 */
export function savedSelections(variables) {
  return new Map(variables.map((variable) => {
    const known = ['custom', 'interval'].includes(variable.type) ? optionsOf(variable) : variable.options;
    const extra = valuesOf(variable.current.value).filter((value) => value !== '' && !isAll(value))
      .map((value, at) => ({ text: valuesOf(variable.current.text)[at] ?? value, value }));
    return [variable.name, selectionOf(variable, [...known, ...extra])];
  }));
}
