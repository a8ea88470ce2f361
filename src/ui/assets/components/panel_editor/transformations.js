// The tab of transformations: a list with forms, and JSON for those without one.

import { h } from '../../chart/dom.js';
import { getAt, jsonError, moved, setAt } from '../../model/edit_panel.js';
import { isObject, objectOf, objectsOf, textOf } from '../../model/limits.js';
import { TRANSFORMATION_IDS } from '../../model/transformations/index.js';
import { CALCULATIONS, control, iconButton, listButtons, nameInput, select } from './controls.js';
import { CONDITIONS, FORMS } from './transformation_forms.js';

/** @typedef {import('../../model/limits.js').Json} Json */
/** @typedef {import('./draft.js').Draft} Draft */
/** @typedef {import('./draft.js').How} How */

let count = 0;

/** Older names of the same transformations are not offered. */
const OLD = new Set(['seriesToColumns', 'noop', 'order', 'rename', 'filterFields']);

/**
 * @param {Draft} draft
 * @returns {HTMLElement[]}
 */
export function transformationsTab(draft) {
  const list = objectsOf(draft.raw.transformations);
  const write = (/** @type {Json[]} */ next) => draft.setAt('transformations', next, { rebuild: true });
  /** @type {(() => void)[]} */
  const refreshes = [];
  draft.arrived = () => refreshes.forEach((refresh) => refresh());

  /** @param {Json} one @param {number} at */
  const entry = (one, at) => {
    const id = textOf(one.id);
    const known = FORMS.get(id);
    const name = known?.name ?? id;
    const off = one.disabled === true;
    const what = `${name} (${at + 1})`;
    return h(
      'li',
      { class: off ? 'entry off' : 'entry', 'aria-label': what },
      h(
        'div',
        { class: 'entry-head' },
        h('strong', { text: `${at + 1}. ${name}` }),
        off && h('span', { class: 'hint', text: 'Disabled' }),
        iconButton(off ? '○' : '●', off ? `Enable ${what}` : `Disable ${what}`,
          () => draft.setAt(['transformations', at, 'disabled'], off ? undefined : true, { rebuild: true }),
          { 'data-focus': `disable ${at}` }),
        listButtons(what, at, list.length, {
          move: (to) => write(moved(list, at, to)),
          remove: () => write(list.toSpliced(at, 1)),
        }),
      ),
      known ? h('p', { class: 'hint', text: known.about }) : null,
      ...(known ? formOf(draft, at, known, refreshes) : [jsonOf(draft, at)]),
    );
  };
  const add = select(
    [
      ['', 'Add transformation…'],
      ...[...FORMS].map(([id, { name }]) => /** @type {import('./controls.js').Choice} */ ([id, name])),
      ...TRANSFORMATION_IDS.filter((id) => !FORMS.has(id) && !OLD.has(id)).map((id) =>
        /** @type {import('./controls.js').Choice} */ ([id, `${id} (JSON)`])),
    ],
    '',
    { 'aria-label': 'Add transformation', 'data-focus': 'add transformation' },
    (id) => id !== '' && write([...list, { id, options: {} }]),
  );
  return [
    h('p', { class: 'hint', text: 'Transformations change the answers of the queries, from the first to the last.' }),
    h('ol', { class: 'entries' }, list.map(entry)),
    h('div', { class: 'row' }, add),
  ];
}

/**
 * @param {Draft} draft
 * @param {number} at
 * @param {import('./transformation_forms.js').TransformationForm} form
 * @param {(() => void)[]} refreshes
 * @returns {HTMLElement[]}
 */
function formOf(draft, at, form, refreshes) {
  const base = ['transformations', at, 'options'];
  const read = (/** @type {string} */ path) => draft.get([...base, ...path.split('.')]);
  const fields = () => draft.fieldsBefore(at);
  const options = (form.options ?? []).filter(({ when }) => when?.(read) ?? true);
  const line = h(
    'div',
    { class: 'option-line' },
    options.map((option) =>
      control({ ...option, path: `${base.join('.')}.${option.path}` }, {
        get: () => read(option.path),
        set: (value, how) => draft.set(
          // A list on the way, such as the first rule of `sort`, is made as a list.
          setAt(withList(draft.raw, base, option.path), [...base, ...option.path.split('.')], value),
          { merge: `${at} ${option.path}`, ...how }),
        fields,
      })),
  );
  const rows = form.rows === 'organize' ? organize(draft, at, refreshes)
    : form.rows === 'groupBy' ? groups(draft, at, refreshes)
      : form.rows === 'filters' ? filters(draft, at) : null;
  return [...(options.length > 0 ? [line] : []), ...(rows ? [rows] : [])];
}

/** @param {Json} raw @param {(string | number)[]} base @param {string} path */
function withList(raw, base, path) {
  const [first, second] = path.split('.');
  return second === '0' && !Array.isArray(getAt(raw, [...base, first])) ? setAt(raw, [...base, first], []) : raw;
}

/** The options of a transformation, and how they are set. @param {Draft} draft @param {number} at */
function optionsAt(draft, at) {
  return {
    get: () => objectOf(draft.get(['transformations', at, 'options'])),
    set: (/** @type {Json} */ next, /** @type {How} */ how = {}) =>
      draft.setAt(['transformations', at, 'options'], next, how),
  };
}

/**
 * Returns an object with another value of one member; `undefined` removes the member.
 * @param {Json} object
 * @param {string} name
 * @param {unknown} value
 */
const member = (object, name, value) => {
  const rest = Object.entries(object).filter(([key]) => key !== name);
  return Object.fromEntries(value === undefined ? rest : [...rest, [name, value]]);
};

/** Fields with their order, new name, and whether they are hidden. @param {Draft} draft @param {number} at
 *  @param {(() => void)[]} refreshes */
function organize(draft, at, refreshes) {
  const { get, set } = optionsAt(draft, at);
  const place = h('ol', { class: 'fields' });
  let shown = '';
  const names = () => {
    const { indexByName, excludeByName, renameByName } = get();
    const order = objectOf(indexByName);
    const all = [...new Set([...draft.fieldsBefore(at), ...Object.keys(objectOf(excludeByName)),
      ...Object.keys(objectOf(renameByName))])];
    const rank = (/** @type {string} */ name) => (Object.hasOwn(order, name) ? Number(order[name]) : Infinity);
    return all.sort((left, right) => rank(left) - rank(right) || 0);
  };
  const fill = () => {
    const all = names();
    if (JSON.stringify(all) === shown) return;
    shown = JSON.stringify(all);
    const move = (/** @type {number} */ from, /** @type {number} */ to) => {
      const next = moved(all, from, to);
      set({ ...get(), indexByName: Object.fromEntries(next.map((name, index) => [name, index])) }, { rebuild: true });
    };
    place.replaceChildren(...all.map((name, index) => {
      const hidden = objectOf(get().excludeByName)[name] === true;
      const input = h('input', { 'aria-label': `New name of ${name}`, placeholder: name, autocomplete: 'off' });
      input.value = textOf(objectOf(get().renameByName)[name]);
      input.addEventListener('input', () =>
        set({ ...get(), renameByName: member(objectOf(get().renameByName), name, input.value || undefined) },
          { merge: `rename ${name}` }));
      const box = h('input', { type: 'checkbox', 'aria-label': `Show ${name}` });
      box.checked = !hidden;
      box.addEventListener('change', () =>
        set({ ...get(), excludeByName: member(objectOf(get().excludeByName), name, box.checked ? undefined : true) }));
      return h('li', {}, box, h('span', { class: 'field-name', text: name, title: name }), input,
        iconButton('↑', `Move ${name} up`, () => move(index, index - 1),
          { disabled: index === 0, 'data-focus': `up ${at} ${name}` }),
        iconButton('↓', `Move ${name} down`, () => move(index, index + 1),
          { disabled: index === all.length - 1, 'data-focus': `down ${at} ${name}` }));
    }));
    if (all.length === 0) place.replaceChildren(h('li', { class: 'hint', text: 'The queries have no fields yet.' }));
  };
  fill();
  refreshes.push(fill);
  return place;
}

/** Fields with their use in a group. @param {Draft} draft @param {number} at
 *  @param {(() => void)[]} refreshes */
function groups(draft, at, refreshes) {
  const { get, set } = optionsAt(draft, at);
  const place = h('ol', { class: 'fields' });
  let shown = '';
  const fill = () => {
    const rules = objectOf(get().fields);
    const all = [...new Set([...draft.fieldsBefore(at), ...Object.keys(rules)])];
    if (JSON.stringify(all) === shown) return;
    shown = JSON.stringify(all);
    place.replaceChildren(...all.map((name) => {
      const rule = objectOf(rules[name]);
      const write = (/** @type {Json | undefined} */ next) =>
        set({ ...get(), fields: member(objectOf(get().fields), name, next) }, { rebuild: true });
      return h('li', {}, h('span', { class: 'field-name', text: name, title: name }),
        select([[undefined, 'Not used'], ['groupby', 'Groups'], ['aggregate', 'Calculated']],
          rule.operation, { 'aria-label': `What ${name} does`, 'data-focus': `group ${at} ${name}` },
          (operation) => write(operation === undefined ? undefined : { aggregations: [], ...rule, operation })),
        rule.operation === 'aggregate' && select(CALCULATIONS, objectOf(rule).aggregations?.[0] ?? '',
          { 'aria-label': `Calculation of ${name}`, 'data-focus': `calc ${at} ${name}` },
          (id) => write({ ...rule, aggregations: [id, ...(rule.aggregations ?? []).slice(1)] })));
    }));
    if (all.length === 0) place.replaceChildren(h('li', { class: 'hint', text: 'The queries have no fields yet.' }));
  };
  fill();
  refreshes.push(fill);
  return place;
}

/** Conditions on fields. @param {Draft} draft @param {number} at */
function filters(draft, at) {
  const { get, set } = optionsAt(draft, at);
  const list = objectsOf(get().filters);
  /** @param {number} index @param {string[]} path @param {unknown} value */
  const write = (index, path, value, rebuild = false) =>
    set({ ...get(), filters: setAt(objectsOf(get().filters), [index, ...path], value) },
      { rebuild, merge: `filter ${index} ${path}` });
  return h('div', { class: 'stack tight' },
    h('ol', { class: 'fields' }, list.map((filter, index) => {
      const condition = textOf(getAt(filter, 'config.id')) || 'greater';
      const needs = CONDITIONS.find(([id]) => id === condition)?.[2] ?? ['value'];
      count += 1;
      return h('li', {},
        nameInput({
          get: () => filter.fieldName,
          set: (value) => write(index, ['fieldName'], value),
          fields: () => draft.fieldsBefore(at),
        }, { id: `filter-${count}`, 'aria-label': `Field of condition ${index + 1}` }, 'Field'),
        select(CONDITIONS.map(([id, label]) => [id, label]), condition,
          { 'aria-label': `Condition ${index + 1}`, 'data-focus': `condition ${at} ${index}` },
          (id) => write(index, ['config', 'id'], id, true)),
        needs.map((name) => {
          const label = `${{ from: 'From', to: 'To' }[name] ?? 'Value'} of condition ${index + 1}`;
          const input = h('input', { 'aria-label': label, autocomplete: 'off' });
          input.value = textOf(getAt(filter, ['config', 'options', name]));
          input.addEventListener('input', () => write(index, ['config', 'options', name], valueOf(input.value)));
          return input;
        }),
        iconButton('×', `Remove condition ${index + 1}`, () =>
          set({ ...get(), filters: list.toSpliced(index, 1) }, { rebuild: true })));
    })),
    h('div', { class: 'row' }, h('button', {
      type: 'button', text: 'Add condition',
      on: {
        click: () => set({ ...get(), filters: [...list, {
          fieldName: draft.fieldsBefore(at).at(-1) ?? '', config: { id: 'greater', options: { value: 0 } } }] },
        { rebuild: true }),
      },
    })));
}

/** @param {string} text @returns {string | number} */
const valueOf = (text) => (text.trim() !== '' && Number.isFinite(Number(text)) ? Number(text) : text);

/** The options of a transformation without a form. @param {Draft} draft @param {number} at */
function jsonOf(draft, at) {
  count += 1;
  const id = `transformation-json-${count}`;
  const { get, set } = optionsAt(draft, at);
  const hint = h('p', { class: 'hint', id: `${id}-hint`, text: 'The options as JSON.' });
  const input = h('textarea', { id, rows: '6', spellcheck: 'false', 'aria-describedby': `${id}-hint` });
  input.value = JSON.stringify(get(), null, 2);
  input.addEventListener('change', () => {
    const error = jsonError(input.value);
    const wrong = error ? `Line ${error.line}, column ${error.column}: ${error.message}.`
      : isObject(JSON.parse(input.value)) ? '' : 'The options are a JSON object.';
    if (wrong) input.setAttribute('aria-invalid', 'true');
    else input.removeAttribute('aria-invalid');
    hint.textContent = wrong || 'The options as JSON.';
    if (!wrong) set(JSON.parse(input.value));
  });
  return h('div', { class: 'field' }, h('label', { for: id, text: 'Options' }), input, hint);
}
