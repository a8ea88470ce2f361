// Fields of the Share dialog: the permissions of viewers for each variable, and limits.

import { h } from '../../chart/dom.js';
import { linesOf } from '../../model/share_policy.js';
import { field, lines } from '../form.js';

/** @typedef {import('../../model/share_policy.js').VariableChoice} VariableChoice */

let count = 0;

/**
 * A labelled select.
 * @param {string} label
 * @param {{value: string, text: string}[]} options
 * @param {string} value the chosen one
 * @param {string} [hint]
 */
export function selectField(label, options, value, hint = '') {
  count += 1;
  const id = `share-select-${count}`;
  const select = h(
    'select',
    { id, 'aria-describedby': `${id}-hint` },
    options.map((option) => h('option', { value: option.value, text: option.text, selected: option.value === value })),
  );
  const about = h('p', { class: 'hint', id: `${id}-hint`, text: hint });
  return { node: h('div', { class: 'field' }, h('label', { for: id, text: label }), select, about), select, about };
}

/**
 * A text field. `value` reads it.
 * @param {string} label
 * @param {string} name
 * @param {Object<string, any>} attributes
 * @param {string} hint
 */
export function textField(label, name, attributes, hint) {
  const node = field(label, name, { required: false, autocomplete: 'off', spellcheck: 'false', ...attributes }, hint);
  const input = /** @type {HTMLInputElement} */ (node.querySelector('input'));
  return { node, input, value: () => input.value };
}

/**
 * A field with one text a line. `value` reads it.
 * @param {string} label
 * @param {string} name
 * @param {string} text
 * @param {string} hint
 */
export function linesField(label, name, text, hint) {
  const node = lines(label, name, text, 2, hint);
  const input = /** @type {HTMLTextAreaElement} */ (node.querySelector('textarea'));
  return { node, input, value: () => input.value };
}

const ACCESS = [
  { value: 'fixed', text: 'As saved in the dashboard' },
  { value: 'locked', text: 'Locked to a value' },
  { value: 'open', text: 'Viewers choose' },
];

/** The fields of one variable. @param {import('./subject.js').SharedVariable} variable */
function variableField({ name, title, label, values, locks }) {
  const access = selectField('Viewers see', ACCESS.filter(({ value }) => locks || value !== 'locked'), 'fixed');
  const locked = linesField(
    'Values',
    'locked',
    values.join('\n'),
    'One per line. No query reads series with another value.',
  );
  const labelled = textField('Label of the series', 'label', { value: label }, 'The label that has these values.');
  const listed = linesField(
    locks ? 'Only these values' : 'Only these filters',
    'open',
    '',
    locks
      ? 'One per line. Without any, viewers choose every value.'
      : 'One per line, such as job|=|api. Without any, viewers add every filter.',
  );
  const show = () => {
    for (const part of [locked.node, labelled.node]) part.hidden = access.select.value !== 'locked';
    listed.node.hidden = access.select.value !== 'open';
  };
  access.select.addEventListener('change', show);
  show();
  const node = h(
    'fieldset',
    { class: 'stack share-variable' },
    h('legend', { text: title.toLowerCase() === name.toLowerCase() ? title : `${title} (${name})` }),
    access.node,
    locked.node,
    labelled.node,
    listed.node,
  );
  /** @returns {VariableChoice} */
  const choice = () => {
    const how = /** @type {VariableChoice['access']} */ (access.select.value);
    const text = how === 'open' ? listed.value() : how === 'locked' ? locked.value() : '';
    return { name, access: how, values: linesOf(text), label: labelled.value().trim() };
  };
  return { node, choice };
}

/**
 * The fields of all variables.
 * @param {import('./subject.js').SharedVariable[]} variables
 * @returns {{node: HTMLElement, choices: () => VariableChoice[]}}
 */
export function variableFields(variables) {
  const all = variables.map(variableField);
  const none = h('p', { class: 'hint', text: 'The dashboard has no variables.' });
  return {
    node: h('div', { class: 'stack' }, all.length > 0 ? all.map(({ node }) => node) : none),
    choices: () => all.map(({ choice }) => choice()),
  };
}

/**
 * The limits of queries.
 * @returns {{node: HTMLElement, limits: () => import('../../model/share_policy.js').Limits}}
 */
export function limitFields() {
  const empty = { placeholder: 'No limit' };
  const range = textField('Longest range', 'max_range', empty, 'Of one query, such as 1d.');
  const lookback = textField('Oldest data', 'max_lookback', empty, 'Such as 7d.');
  const step = textField('Smallest step', 'min_step', empty, 'Such as 15s.');
  return {
    node: h('div', { class: 'settings' }, range.node, lookback.node, step.node),
    limits: () => ({ maxRange: range.value(), maxLookback: lookback.value(), minStep: step.value() }),
  };
}
