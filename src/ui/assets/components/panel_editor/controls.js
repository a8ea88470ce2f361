// The controls of options: one for each kind of value, made from a declarative line.

import { h } from '../../chart/dom.js';
import { sameJson, textOf } from '../../model/limits.js';
import { palette, resolveColor } from '../../model/palette.js';
import { reducerOf, REDUCER_IDS } from '../../model/reduce.js';
import { unitControl } from './unit.js';

/**
 * @typedef {[unknown, string]} Choice a value and its text
 *
 * @typedef {Object} Option
 * @property {string} path in the panel, such as `options.legend.placement`
 * @property {string} label
 * @property {'text' | 'lines' | 'number' | 'switch' | 'select' | 'many' | 'colour' | 'unit' | 'calcs' | 'name'}
 *   control
 * @property {Choice[]} [choices] of a `select` or of `many`
 * @property {unknown} [default] what the panel does without a value
 * @property {string} [hint]
 * @property {number} [min]
 * @property {number} [max]
 * @property {number} [step]
 * @property {string} [placeholder]
 * @property {(get: (path: string) => any) => boolean} [when] whether the option has an effect
 *
 * @typedef {Object} Access to one value
 * @property {() => any} get undefined where there is none
 * @property {(value: unknown, how?: {rebuild?: boolean}) => void} set
 * @property {() => string[]} [fields] names that the data has, for suggestions
 */

let count = 0;

/** Colours of a dashboard's palette with their names. @type {Choice[]} */
export const COLOURS = ['green', 'yellow', 'orange', 'red', 'blue', 'purple'].flatMap((hue) =>
  ['', 'super-light-', 'light-', 'semi-dark-', 'dark-'].map((shade) => /** @type {Choice} */ ([
    `${shade}${hue}`,
    `${shade.replaceAll('-', ' ')}${hue}`.replace(/^./, (letter) => letter.toUpperCase()),
  ])),
);
COLOURS.push(['text', 'Text'], ['transparent', 'Transparent']);

/** Calculations with their names. @type {Choice[]} */
export const CALCULATIONS = [...REDUCER_IDS, 'p50', 'p90', 'p95', 'p99'].map((id) => [id, reducerOf(id)?.name ?? id]);

/**
 * A labelled control.
 * @param {Option} option
 * @param {Access} access
 * @returns {HTMLElement}
 */
export function control(option, access) {
  count += 1;
  const id = `option-control-${count}`;
  const { label, hint = '', path } = option;
  const focus = { id, 'data-focus': path, 'aria-describedby': hint ? `${id}-hint` : null };
  if (option.control === 'switch') {
    const box = h('input', { type: 'checkbox', ...focus });
    box.checked = (access.get() ?? option.default) === true;
    box.addEventListener('change', () => access.set(box.checked, { rebuild: true }));
    const line = h('label', { for: id }, box, h('span', { text: label }));
    return h('div', { class: 'field switch' }, line, hinted(id, hint));
  }
  return h(
    'div',
    { class: 'field' },
    h('label', { for: id, text: label }),
    inner(option, access, focus),
    hinted(id, hint),
  );
}

/** @param {string} id @param {string} hint */
const hinted = (id, hint) => hint !== '' && h('p', { class: 'hint', id: `${id}-hint`, text: hint });

/** @param {Option} option @param {Access} access @param {Record<string, any>} focus @returns {HTMLElement} */
function inner(option, access, focus) {
  switch (option.control) {
    case 'select':
      return select(option.choices ?? [], access.get() ?? option.default, focus, (value) =>
        access.set(value, { rebuild: true }),
      );
    case 'calcs':
    case 'many':
      return many(option.choices ?? CALCULATIONS, access, focus);
    case 'colour':
      return colour(access, focus, option.label);
    case 'unit':
      return unitControl(access, focus);
    case 'number':
      return number(option, access, focus);
    case 'name':
      return nameInput(access, focus, option.placeholder);
    default:
      return text(option, access, focus);
  }
}

/**
 * A select whose values may be of any type.
 * @param {Choice[]} choices
 * @param {unknown} current
 * @param {Record<string, any>} attributes
 * @param {(value: unknown) => void} change
 */
export function select(choices, current, attributes, change) {
  const at = choices.findIndex(([value]) => sameJson(value, current));
  // A value of a dashboard that the list lacks stays selectable.
  const all = at < 0 && current !== undefined && current !== null
    ? [...choices, /** @type {Choice} */ ([current, textOf(current, 'Custom')])]
    : choices;
  const chosen = at < 0 ? all.length - 1 : at;
  const node = h(
    'select',
    attributes,
    all.map(([, label], index) => h('option', { value: String(index), text: label, selected: index === chosen })),
  );
  if (at < 0 && all === choices) node.selectedIndex = -1;
  node.addEventListener('change', () => change(all[Number(node.value)][0]));
  return node;
}

/** @param {Option} option @param {Access} access @param {Record<string, any>} focus */
function text({ control: kind, placeholder, default: none }, access, focus) {
  const shown = placeholder ?? textOf(none);
  const attributes = { ...focus, placeholder: shown || null, autocomplete: 'off', maxlength: '100000' };
  const input = kind === 'lines' ? h('textarea', { ...attributes, rows: '3' }) : h('input', attributes);
  input.value = textOf(access.get());
  input.addEventListener('input', () => access.set(input.value === '' ? undefined : input.value));
  return input;
}

/** @param {Option} option @param {Access} access @param {Record<string, any>} focus */
function number({ min, max, step, placeholder, default: none }, access, focus) {
  const input = h('input', {
    ...focus,
    type: 'number',
    min: min ?? null,
    max: max ?? null,
    step: step ?? 'any',
    placeholder: placeholder ?? (none === undefined ? 'Auto' : textOf(none)),
  });
  input.value = textOf(access.get());
  input.addEventListener('input', () => {
    if (!input.validity.valid) {
      input.setAttribute('aria-invalid', 'true');
      return;
    }
    input.removeAttribute('aria-invalid');
    access.set(input.value === '' ? undefined : Number(input.value));
  });
  return input;
}

/** A text field that suggests the names of fields. @param {Access} access @param {Record<string, any>} focus
 *  @param {string} [placeholder] */
export function nameInput(access, focus, placeholder = '') {
  const list = `${focus.id}-names`;
  const input = h('input', { ...focus, list, autocomplete: 'off', placeholder: placeholder || null });
  input.value = textOf(access.get());
  input.addEventListener('input', () => access.set(input.value === '' ? undefined : input.value));
  const names = h('datalist', { id: list });
  // The data may arrive after the form.
  input.addEventListener('focus', () =>
    names.replaceChildren(...(access.fields?.() ?? []).map((name) => h('option', { value: name }))),
  );
  return h('div', {}, input, names);
}

/** Chosen values as a list, and a select for one more. @param {Choice[]} choices @param {Access} access
 *  @param {Record<string, any>} focus */
function many(choices, access, focus) {
  const current = access.get();
  const chosen = Array.isArray(current) ? current : [];
  const labelOf = (/** @type {unknown} */ value) => choices.find(([one]) => one === value)?.[1] ?? textOf(value);
  const add = select(
    [['', 'Add…'], ...choices.filter(([value]) => !chosen.includes(value))],
    '',
    focus,
    (value) => value !== '' && access.set([...chosen, value], { rebuild: true }),
  );
  return h(
    'div',
    { class: 'many' },
    chosen.map((value, at) =>
      h(
        'span',
        { class: 'picked' },
        labelOf(value),
        iconButton('×', `Remove ${labelOf(value)}`, () => access.set(chosen.toSpliced(at, 1), { rebuild: true })),
      ),
    ),
    add,
  );
}

const scheme = matchMedia('(prefers-color-scheme: dark)');

/** A named colour, or any. @param {Access} access @param {Record<string, any>} focus @param {string} label */
export function colour(access, focus, label) {
  const theme = scheme.matches ? 'dark' : 'light';
  const any = h('input', { type: 'color', 'aria-label': `${label}: any colour` });
  const show = () => {
    const hex = resolveColor(access.get(), theme);
    any.value = /^#[\da-f]{6}/i.test(hex) ? hex.slice(0, 7) : palette(theme).gray;
  };
  show();
  const named = select(COLOURS, access.get(), focus, (value) => {
    access.set(value);
    show();
  });
  any.addEventListener('input', () => {
    access.set(any.value);
    const again = select(COLOURS, any.value, focus, (value) => {
      access.set(value);
      show();
    });
    pair.querySelector('select')?.replaceWith(again);
  });
  const pair = h('div', { class: 'colour-pair' }, any, named);
  return pair;
}

/**
 * A small button with a sign and a name.
 * @param {string} sign
 * @param {string} name
 * @param {() => void} click
 * @param {Record<string, any>} [attributes]
 */
export function iconButton(sign, name, click, attributes = {}) {
  return h(
    'button',
    { type: 'button', class: 'icon-button', title: name, 'aria-label': name, ...attributes, on: { click } },
    h('span', { 'aria-hidden': 'true', text: sign }),
  );
}

/**
 * Buttons that move an entry of a list up or down, copy or remove it.
 * @param {string} what the name of the entry
 * @param {number} at
 * @param {number} length of the list
 * @param {{move: (to: number) => void, remove: () => void, copy?: () => void}} act
 */
export function listButtons(what, at, length, { move, remove, copy }) {
  return h(
    'span',
    { class: 'list-buttons' },
    iconButton('↑', `Move ${what} up`, () => move(at - 1), { disabled: at === 0, 'data-focus': `up ${what}` }),
    iconButton('↓', `Move ${what} down`, () => move(at + 1), {
      disabled: at === length - 1,
      'data-focus': `down ${what}`,
    }),
    copy && iconButton('❐', `Duplicate ${what}`, copy),
    iconButton('×', `Remove ${what}`, remove),
  );
}
