// The form of thresholds: a base and steps, absolute or as parts of the range.

import { h } from '../../chart/dom.js';
import { listAt, sortedSteps } from '../../model/edit_panel.js';
import { colour, iconButton, select } from './controls.js';
import { DEFAULTS } from './options/index.js';

const PATH = `${DEFAULTS}thresholds`;
/** The steps of a panel without steps of its own. @type {import('../../model/limits.js').Json[]} */
const USUAL = [{ color: 'green', value: null }, { color: 'red', value: 80 }];
/** Colours of the next steps. */
const NEXT = ['yellow', 'orange', 'red', 'purple', 'blue'];

/**
 * @param {import('./draft.js').Draft} draft
 * @returns {HTMLElement[]}
 */
export function thresholdsGroup(draft) {
  return thresholdsForm(draft.access(PATH));
}

/**
 * @param {import('./controls.js').Access} access to `{mode, steps}`
 * @returns {HTMLElement[]}
 */
export function thresholdsForm({ get, set }) {
  const stored = () => sortedSteps(listAt(get(), 'steps'));
  const steps = () => (stored().length > 0 ? stored() : USUAL);
  const mode = () => (get()?.mode === 'percentage' ? 'percentage' : 'absolute');
  const write = (/** @type {import('../../model/limits.js').Json[]} */ next, rebuild = true) =>
    set({ ...get(), mode: mode(), steps: next }, { rebuild });
  const rows = steps().map((step, at) => {
    const what = at === 0 ? 'Base' : `Threshold ${at}`;
    const value = at === 0
      ? h('span', { class: 'base', text: 'Base' })
      : h('input', { type: 'number', step: 'any', 'aria-label': `Value of ${what}`, 'data-focus': `threshold ${at}` });
    if (value instanceof HTMLInputElement) {
      value.value = String(step.value);
      // Steps are in order again when the field is left.
      value.addEventListener('change', () => {
        if (value.value === '') return;
        const next = steps().with(at, { ...steps()[at], value: Number(value.value) });
        const sorted = sortedSteps(next);
        write(sorted, sorted.some((one, place) => one.value !== next[place].value));
      });
    }
    return h('li', {},
      colour({
        get: () => steps()[at]?.color,
        set: (next) => write(steps().with(at, { ...steps()[at], color: next }), false),
      }, { 'aria-label': `Colour of ${what}` }, what),
      value,
      at > 0 && iconButton('×', `Remove ${what}`, () => write(steps().toSpliced(at, 1))));
  });
  const add = () => {
    const all = steps();
    const last = all.at(-1);
    const next = typeof last?.value === 'number' ? last.value + 10 : 80;
    write([...all, { color: NEXT[(all.length - 1) % NEXT.length], value: next }]);
  };
  return [
    h('ol', { class: 'fields thresholds' }, rows),
    h('div', { class: 'row spread' },
      h('button', { type: 'button', text: 'Add threshold', 'data-focus': 'add threshold', on: { click: add } }),
      select([['absolute', 'Values'], ['percentage', 'Percent of the range']], mode(),
        { 'aria-label': 'Thresholds are', 'data-focus': 'threshold mode' },
        (next) => set({ ...get(), mode: next, steps: steps() }, { rebuild: true }))),
  ];
}
