// The filters of an ad hoc variable: chips to change or remove, and a form with completion.

import { h } from '../chart/dom.js';
import { OPERATORS, filterText } from '../model/filter_text.js';
import { openMenu } from './popup.js';

/**
 * @typedef {import('../model/filter_text.js').Filter} Filter
 * @typedef {(query: import('../model/variable_query.js').VariableQuery) => Promise<unknown[]>} Ask
 */

/** The most suggestions of a field. */
const SUGGESTED_MAX = 500;
/** Operators in words, for screen readers and as a help. */
const WORDS = ['is', 'is not', 'matches', 'does not match'];

/**
 * @param {string} id
 * @param {import('../model/variables.js').Variable} variable
 * @param {(texts: string[]) => void} change gets all filters as an address has them
 * @param {Ask} ask
 */
export function filterEditor(id, { name, label: title, filters }, change, ask) {
  const save = (/** @type {Filter[]} */ all) => change(all.map(filterText));
  const chips = filters.map((filter, index) => {
    const text = `${filter.label} ${filter.op} ${filter.value || '""'}`;
    const edit = h(
      'button',
      { type: 'button', class: 'filter-edit', 'aria-haspopup': 'dialog', 'aria-expanded': 'false', title: 'Change' },
      text,
    );
    edit.addEventListener('click', () =>
      openForm(edit, id, filter, (changed) => save(filters.with(index, changed)), ask),
    );
    const remove = h('button', { type: 'button', class: 'filter-remove', 'aria-label': `Remove ${text}`, text: '×' });
    remove.addEventListener('click', () => save(filters.toSpliced(index, 1)));
    return h('span', { class: 'anchor adhoc' }, edit, remove);
  });
  const add = h('button', {
    type: 'button',
    id,
    class: 'filter-add',
    'data-focus': id,
    'aria-haspopup': 'dialog',
    'aria-expanded': 'false',
    'aria-label': `Add a filter to ${title || name}`,
    text: '+ Filter',
  });
  add.addEventListener('click', () =>
    openForm(add, id, { label: '', op: '=', value: '' }, (made) => save([...filters, made]), ask),
  );
  return h('span', { class: 'adhocs' }, chips, h('span', { class: 'anchor' }, add));
}

/**
 * @param {HTMLElement} button
 * @param {string} id
 * @param {Filter} filter
 * @param {(filter: Filter) => void} done
 * @param {Ask} ask
 */
function openForm(button, id, filter, done, ask) {
  const field = (/** @type {string} */ key, /** @type {string} */ value) => {
    const list = h('datalist', { id: `${id}-${key}s` });
    const plain = { autocomplete: 'off', spellcheck: 'false', maxlength: '1024' };
    const input = h('input', { id: `${id}-${key}`, list: list.id, ...plain });
    input.value = value;
    return { list, input };
  };
  const [label, value] = [field('label', filter.label), field('value', filter.value)];
  const op = h(
    'select',
    { id: `${id}-op` },
    OPERATORS.map((sign, at) =>
      h('option', { value: sign, text: `${sign}  ${WORDS[at]}`, selected: sign === filter.op }),
    ),
  );
  const suggest = (/** @type {HTMLElement} */ list, /** @type {Promise<unknown[]>} */ asked) =>
    // If there are no suggestions, the field can still be filled in.
    asked
      .catch(() => [])
      .then((texts) =>
        list.replaceChildren(...texts.slice(0, SUGGESTED_MAX).map((text) => h('option', { value: String(text) }))),
      );
  const values = () => {
    const name = label.input.value.trim();
    if (name) suggest(value.list, ask({ kind: 'label_values', label: name, match: '' }));
  };
  suggest(label.list, ask({ kind: 'label_names', match: '' }));
  values();
  label.input.addEventListener('change', values);
  const alert = h('p', { class: 'alert', role: 'alert' });
  const form = h(
    'form',
    { class: 'stack' },
    h('div', { class: 'field' }, h('label', { for: label.input.id, text: 'Label' }), label.input, label.list),
    h('div', { class: 'field' }, h('label', { for: op.id, text: 'Operator' }), op),
    h('div', { class: 'field' }, h('label', { for: value.input.id, text: 'Value' }), value.input, value.list),
    alert,
    h('button', { class: 'primary', text: 'Apply' }),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const name = label.input.value.trim();
    if (name === '') {
      alert.textContent = 'Name the label that the series are filtered by.';
      label.input.focus();
      return;
    }
    close();
    button.focus();
    done({ label: name, op: op.value, value: value.input.value });
  });
  const close = openMenu(button, [form], { class: 'variable-popup', label: 'Filter' });
}
