// A text of YAML with line numbers, and a mark at the line of an error.

import { h } from '../chart/dom.js';
import { ApiError } from '../chart/request.js';
import { errorText } from '../model/error_text.js';
import { offsetOf, placeOf } from '../model/rule_text.js';

/** Lines at which the input starts to scroll. */
const LINES_MAX = 28;

let count = 0;

/** An error with its place, as far as it has one. @param {unknown} error */
export function errorPlace(error) {
  const place = error instanceof ApiError ? placeOf(error) : null;
  const isOfText = place && (place.line > 0 || (error instanceof ApiError && error.fields.length > 0));
  return isOfText ? place : { line: 0, column: 1, message: errorText(error) };
}

/**
 * @param {{label: string, value: string, readonly?: boolean, edited: (text: string) => void,
 *   moved: (offset: number) => void}} options `moved`: the caret is elsewhere
 */
export function yamlEditor({ label, value, readonly = false, edited, moved }) {
  count += 1;
  const id = `yaml-${count}`;
  const input = h('textarea', {
    id,
    spellcheck: 'false',
    autocapitalize: 'none',
    autocomplete: 'off',
    wrap: 'off',
    readonly,
    'aria-describedby': `${id}-problem`,
  });
  const gutter = h('div', { class: 'gutter', 'aria-hidden': 'true' });
  const message = h('span');
  const go = h('button', { type: 'button', class: 'plain', hidden: true });
  const problem = h('div', { class: 'alert yaml-problem', id: `${id}-problem`, role: 'alert' }, message, go);
  /** @type {import('../model/rule_text.js').Place|null} */
  let wrong = null;
  const paint = () => {
    const lines = input.value.split('\n').length;
    input.rows = Math.max(6, Math.min(lines + 1, LINES_MAX));
    while (gutter.childElementCount > lines) gutter.lastElementChild?.remove();
    while (gutter.childElementCount < lines) gutter.append(h('div', { text: String(gutter.childElementCount + 1) }));
    gutter.querySelector('.wrong')?.classList.remove('wrong');
    if (wrong) gutter.children[wrong.line - 1]?.classList.add('wrong');
    gutter.scrollTop = input.scrollTop;
  };
  const caret = () => {
    if (document.activeElement === input) moved(input.selectionStart);
  };
  /** Shows where an error is; null removes it. @param {import('../model/rule_text.js').Place|null} place */
  const mark = (place) => {
    wrong = place;
    message.textContent = place?.message ?? '';
    go.hidden = !place?.line;
    if (place?.line) go.textContent = `Go to line ${place.line}, column ${place.column}`;
    if (place) input.setAttribute('aria-invalid', 'true');
    else input.removeAttribute('aria-invalid');
    paint();
  };
  go.addEventListener('click', () => {
    if (!wrong) return;
    const at = offsetOf(input.value, wrong);
    input.focus();
    input.setSelectionRange(at, at);
    const height = input.scrollHeight / input.value.split('\n').length;
    input.scrollTop = Math.max(0, (wrong.line - 4) * height);
  });
  input.addEventListener('scroll', () => {
    gutter.scrollTop = input.scrollTop;
  });
  input.addEventListener('input', () => {
    paint();
    edited(input.value);
  });
  input.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.isComposing || event.ctrlKey || event.metaKey || readonly) return;
    // The next line gets the indentation of this one.
    const line = input.value.slice(0, input.selectionStart).split('\n').pop() ?? '';
    const next = `\n${/^\s*/.exec(line)?.[0] ?? ''}`;
    event.preventDefault();
    if (!document.execCommand('insertText', false, next)) input.setRangeText(next);
  });
  for (const name of ['keyup', 'click', 'focus']) input.addEventListener(name, caret);
  input.value = value;
  paint();
  return {
    node: h(
      'div',
      { class: 'field' },
      h('label', { for: id, text: label }),
      h('div', { class: 'yaml' }, gutter, input),
      problem,
    ),
    input,
    mark,
    set(/** @type {string} */ text) {
      input.value = text;
      mark(null);
    },
  };
}
