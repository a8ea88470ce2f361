// Labelled fields, and forms that show errors where they belong.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { errorText } from '../model/error_text.js';

/** @typedef {Object<string, string>} Values */
/** @typedef {import('../chart/dom.js').Child} Child */

let count = 0;

/**
 * A labelled input; `hint` is below it, and is replaced by the server's message for this field.
 * @param {string} label
 * @param {string} name
 * @param {Object<string, any>} [attributes] of the input; it is required unless they say otherwise
 * @param {string} [hint]
 */
export function field(label, name, attributes = {}, hint = '') {
  count += 1;
  const id = `field-${count}`;
  const below = h('p', { class: 'hint', id: `${id}-hint`, text: hint });
  const input = h('input', { id, name, 'aria-describedby': `${id}-hint`, required: true, ...attributes });
  return h('div', { class: 'field' }, h('label', { for: id, text: label }), input, below);
}

/**
 * A new password with the server's rule.
 * @param {import('../client/types.js').AuthConfig} config
 * @param {{label?: string, name?: string, required?: boolean, hint?: string}} [options]
 */
export function newPassword(config, { label = 'Password', name = 'password', required = true, hint } = {}) {
  const least = config.password?.min_length ?? 8;
  const attributes = {
    type: 'password',
    autocomplete: 'new-password',
    minlength: String(least),
    maxlength: '1024',
    required,
  };
  return field(label, name, attributes, hint ?? `At least ${least} characters. Several words are easy to remember.`);
}

/** @param {{required?: boolean}} [options] */
export const shortName = ({ required = true } = {}) =>
  field(
    'Short name',
    'slug',
    { pattern: '[a-z0-9]([a-z0-9\\-]{0,61}[a-z0-9])?', spellcheck: 'false', autocapitalize: 'none', required },
    'Part of URLs; it never changes. Use a to z, digits and dashes.',
  );

/**
 * A labelled select.
 * @param {string} label
 * @param {string} name
 * @param {string[]} options
 * @param {string} value
 */
export function choice(label, name, options, value) {
  count += 1;
  const select = h(
    'select',
    { name, id: `choice-${count}` },
    options.map((text) => h('option', { value: text, text, selected: text === value })),
  );
  return h('div', { class: 'field' }, h('label', { for: select.id, text: label }), select);
}

/**
 * A labelled text of several lines.
 * @param {string} label
 * @param {string} name
 * @param {string} value
 * @param {number} rows
 * @param {string} hint
 */
export function lines(label, name, value, rows, hint) {
  count += 1;
  const id = `lines-${count}`;
  const input = h('textarea', { id, name, rows: String(rows), spellcheck: 'false', 'aria-describedby': `${id}-hint` });
  input.value = value;
  return h(
    'div',
    { class: 'field' },
    h('label', { for: id, text: label }),
    input,
    h('p', { class: 'hint', id: `${id}-hint`, text: hint }),
  );
}

/**
 * A labelled checkbox.
 * @param {string} label
 * @param {string} name
 * @param {boolean} checked
 */
export function checkbox(label, name, checked) {
  const box = h('input', { type: 'checkbox', name, class: 'tick' });
  box.checked = checked;
  return h('label', { class: 'row' }, box, label);
}

/**
 * @typedef {HTMLFormElement & {showError: (text: string) => void}} ApiForm
 */

/**
 * A form that sends once, shows errors at their fields, and focuses the first field to correct.
 * @param {{action: (values: Values, report: (text: string) => void) => any, submit: string,
 *   danger?: boolean, messages?: Object<string, string>}} options `report` shows a success,
 *   `messages` texts for error codes that this form knows better
 * @param {...Child} children
 * @returns {ApiForm}
 */
export function form({ action, submit, danger = false, messages = {} }, ...children) {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const success = h('p', { class: 'success', role: 'status' });
  const button = h('button', { class: danger ? 'danger' : 'primary', text: submit });
  const node = h('form', { class: 'stack', novalidate: true }, alert, ...children, button, success);
  const showError = (/** @type {string} */ text) => {
    alert.textContent = text;
    success.textContent = '';
  };
  const inputs = () => /** @type {HTMLInputElement[]} */ ([...node.elements]);
  const invalid = (/** @type {HTMLElement|null|undefined} */ input) => input?.setAttribute('aria-invalid', 'true');
  node.addEventListener('submit', async (event) => {
    event.preventDefault();
    showError('');
    for (const input of inputs()) input.removeAttribute('aria-invalid');
    // Steps of the form that are not shown are not to be corrected now.
    const wrong = inputs().find((input) => input.willValidate && !input.validity.valid && !input.closest('[hidden]'));
    if (wrong) {
      for (let at = wrong.parentElement; at && at !== node; at = at.parentElement)
        if (at instanceof HTMLDetailsElement) at.open = true;
      invalid(wrong);
      showError(
        `${node.querySelector(`label[for="${wrong.id}"]`)?.textContent ?? 'Input'}: ${wrong.validationMessage}`,
      );
      wrong.focus();
      return;
    }
    button.disabled = true;
    try {
      const values = /** @type {Values} */ (Object.fromEntries(new FormData(node)));
      await action(values, (text) => {
        success.textContent = text;
      });
    } catch (error) {
      showError(errorText(error, messages));
      for (const { field: path, message } of error instanceof ApiError ? error.fields : []) {
        const input = node.elements.namedItem(path.split('.').pop() ?? '');
        if (!(input instanceof HTMLElement)) continue;
        invalid(input);
        const hint = node.querySelector(`#${input.id}-hint`);
        if (hint && message) hint.textContent = message;
      }
      const first =
        node.querySelector('[aria-invalid]') ?? node.querySelector('[type="password"]') ?? node.querySelector('input');
      if (first instanceof HTMLElement) first.focus();
    } finally {
      button.disabled = false;
      // A disabled button loses the focus.
      if (document.activeElement === document.body) button.focus();
    }
  });
  return Object.assign(node, { showError });
}
