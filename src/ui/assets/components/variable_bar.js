// The variables of a dashboard: selects, searchable lists with several values, and text fields.

import { h } from '../chart/dom.js';
import { ALL, isAll } from '../model/interpolate.js';
import { errorText } from '../model/error_text.js';
import { openMenu } from './popup.js';

/**
 * @typedef {import('../model/resolve_variables.js').Resolved} Resolved
 * @typedef {import('../model/interpolate.js').Selection} Selection
 * @typedef {import('../model/interpolate.js').Option} Option
 * @typedef {(name: string, values: string[]) => void} Change
 * @typedef {(id: string, variable: import('../model/variables.js').Variable,
 *   change: (texts: string[]) => void) => HTMLElement} FilterEditor
 */

/** Longer lists have a search field. */
const SEARCH_FROM = 15;
/** The most options that are shown at once. */
const SHOWN_MAX = 200;

/** @param {Selection} selection */
const textOf = ({ text, value }) => (isAll(value) ? 'All' : [text].flat().join(' + ') || 'None');

/**
 * Replaces the controls of a bar. The focus stays on its control; a control with a text that was not confirmed, or with
 * an open list, is not replaced.
 * @param {HTMLElement} bar
 * @param {Map<string, Resolved>} resolved by name
 * @param {import('../model/interpolate.js').Selections} selections
 * @param {Change} change
 * @param {FilterEditor | null} filters edits ad hoc filters; without it they have no control
 */
export function replaceControls(bar, resolved, selections, change, filters) {
  const { activeElement } = /** @type {Document | ShadowRoot} */ (bar.getRootNode());
  const active = activeElement instanceof HTMLElement && bar.contains(activeElement) ? activeElement : null;
  const old = active?.closest('.variable');
  const controls = variableControls(resolved, selections, change, filters);
  const at = controls.findIndex(({ dataset }) => old instanceof HTMLElement && dataset.variable === old.dataset.variable);
  if (old && at >= 0 && isEdited(old, controls[at])) {
    for (const other of [...bar.children]) if (other !== old) other.remove();
    old.before(...controls.slice(0, at));
    old.after(...controls.slice(at + 1));
    return;
  }
  bar.replaceChildren(...controls);
  const focus = active?.dataset.focus;
  const again = focus && bar.querySelector(`[data-focus="${CSS.escape(focus)}"]`);
  if (again instanceof HTMLElement) again.focus({ preventScroll: true });
}

/** @param {Element} control @param {Element} fresh the one in its place */
function isEdited(control, fresh) {
  if (control.querySelector('.popup')) return true;
  const input = control.querySelector('input');
  return input !== null && input.value !== input.defaultValue && input.value !== fresh.querySelector('input')?.value;
}

/**
 * @param {Map<string, Resolved>} resolved
 * @param {import('../model/interpolate.js').Selections} selections
 * @param {Change} change
 * @param {FilterEditor | null} filters
 * @returns {HTMLElement[]}
 */
function variableControls(resolved, selections, change, filters) {
  return [...selections.values()].flatMap((selection) => {
    const found = resolved.get(selection.name);
    if (!found) return [];
    const { variable } = found;
    if (variable.hide >= 2 || variable.type === 'constant' || variable.type === 'datasource') return [];
    if (variable.type === 'adhoc' && !filters) return [];
    const id = `variable-${variable.name}`;
    const label = h('label', {
      for: id,
      class: variable.hide === 1 ? 'unseen' : '',
      text: variable.label || variable.name,
      title: variable.description || null,
    });
    return [
      h(
        'div',
        { class: 'variable', 'data-variable': variable.name },
        label,
        controlOf(id, found, selection, change, filters),
        found.problem ? h('span', { class: 'variable-problem', role: 'status', text: errorText(found.problem) }) : null,
      ),
    ];
  });
}

/**
 * @param {string} id
 * @param {Resolved} resolved
 * @param {Selection} selection
 * @param {Change} change
 * @param {FilterEditor | null} filters
 */
function controlOf(id, { variable, options }, selection, change, filters) {
  const { name } = variable;
  if (variable.type === 'textbox') {
    const input = h('input', { id, autocomplete: 'off', spellcheck: 'false', 'data-focus': id });
    input.defaultValue = String(selection.value);
    input.addEventListener('change', () => {
      input.defaultValue = input.value;
      change(name, [input.value]);
    });
    return input;
  }
  if (variable.type === 'adhoc' && filters) return filters(id, variable, (texts) => change(name, texts));
  const known = selection.options ?? options;
  if (!variable.multi && known.length <= SEARCH_FROM) {
    const select = h(
      'select',
      { id, 'data-focus': id },
      known.map(({ text, value }) => h('option', { value, text, selected: value === selection.value })),
    );
    if (known.length === 0) select.append(h('option', { value: '', text: 'None' }));
    select.addEventListener('change', () => change(name, [select.value]));
    return select;
  }
  const shown = textOf(selection);
  const button = h(
    'button',
    {
      type: 'button',
      id,
      class: 'variable-button',
      'aria-haspopup': 'dialog',
      'aria-expanded': 'false',
      'aria-label': `${variable.label || name}: ${shown}`,
      title: shown,
      'data-focus': id,
    },
    h('span', { text: shown }),
  );
  button.addEventListener('click', () => openList(button, variable, known, selection, change));
  return h('div', { class: 'anchor' }, button);
}

/**
 * @param {HTMLElement} button
 * @param {import('../model/variables.js').Variable} variable
 * @param {Option[]} options
 * @param {Selection} selection
 * @param {Change} change
 */
function openList(button, variable, options, selection, change) {
  const { multi, name } = variable;
  const before = [selection.value].flat();
  const chosen = new Set(before);
  const type = multi ? 'checkbox' : 'radio';
  const search = h('input', {
    type: 'search',
    'aria-label': `Search values of ${variable.label || name}`,
    placeholder: 'Search',
    autocomplete: 'off',
    spellcheck: 'false',
  });
  const list = h('div', { class: 'variable-options', role: 'group', 'aria-label': 'Values' });
  const more = h('p', { class: 'hint', role: 'status' });
  const finish = () => {
    const values = [...chosen];
    if (values.join('\n') !== before.join('\n')) change(name, values);
  };
  const pick = (/** @type {string} */ value, /** @type {boolean} */ on) => {
    if (!multi) {
      chosen.clear();
      chosen.add(value);
      close();
      button.focus();
      return;
    }
    if (on && value === ALL) chosen.clear();
    if (on && value !== ALL) chosen.delete(ALL);
    if (on) chosen.add(value);
    else chosen.delete(value);
    for (const box of list.querySelectorAll('input')) box.checked = chosen.has(box.value);
  };
  const fill = () => {
    const words = search.value.trim().toLowerCase();
    const found = options.filter(
      ({ text, value }) => words === '' || text.toLowerCase().includes(words) || value.toLowerCase().includes(words),
    );
    // Selected values come first, so that they can be seen in a long list.
    const ordered =
      words === '' && options.length > SHOWN_MAX
        ? [...found].sort((left, right) => Number(chosen.has(right.value)) - Number(chosen.has(left.value)))
        : found;
    list.replaceChildren(
      ...ordered.slice(0, SHOWN_MAX).map(({ text, value }) => {
        const box = h('input', { type, name: 'variable-value', value });
        box.checked = chosen.has(value);
        box.addEventListener('change', () => pick(value, box.checked));
        return h('label', {}, box, h('span', { text }));
      }),
    );
    const own = search.value.trim();
    if (own !== '' && !options.some(({ value }) => value === own)) {
      list.append(
        h('button', { type: 'button', class: 'plain', text: `Use “${own}”`, on: { click: () => pick(own, true) } }),
      );
    }
    more.textContent =
      found.length > SHOWN_MAX
        ? `The first ${SHOWN_MAX} of ${found.length} values.`
        : found.length === 0
          ? 'No value matches.'
          : '';
  };
  search.addEventListener('input', fill);
  search.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    const first = list.querySelector('input, button');
    if (first instanceof HTMLElement) first.click();
  });
  fill();
  const close = openMenu(
    button,
    [
      search,
      list,
      more,
      multi &&
        h('button', {
          type: 'button',
          class: 'primary',
          text: 'Apply',
          'data-closes': true,
          on: { click: () => button.focus() },
        }),
    ],
    { class: 'variable-popup', label: `Values of ${variable.label || name}`, closed: finish },
  );
}
