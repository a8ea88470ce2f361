// The tab with the JSON of the panel.

import { h } from '../../chart/dom.js';
import { jsonError } from '../../model/edit_panel.js';
import { isObject, JSON_MAX } from '../../model/limits.js';
import { lines } from '../form.js';

/**
 * @param {import('./draft.js').Draft} draft
 * @returns {HTMLElement[]}
 */
export function jsonTab(draft) {
  const area = lines('JSON of the panel', 'panel-json', JSON.stringify(draft.raw, null, 2), 18, '');
  const input = /** @type {HTMLTextAreaElement} */ (area.querySelector('textarea'));
  const alert = h('p', { class: 'alert', role: 'alert' });
  const use = () => {
    alert.textContent = problemOf(input.value);
    if (alert.textContent !== '') {
      const error = jsonError(input.value);
      input.setAttribute('aria-invalid', 'true');
      input.focus();
      if (error) input.setSelectionRange(error.at, Math.min(error.at + 1, input.value.length));
      return;
    }
    input.removeAttribute('aria-invalid');
    draft.set(JSON.parse(input.value), { rebuild: true });
  };
  return [
    area,
    alert,
    h('div', { class: 'row' }, h('button', { type: 'button', text: 'Use this JSON', on: { click: use } })),
  ];
}

/** Why a text cannot be a panel; empty when it can. @param {string} text */
function problemOf(text) {
  if (text.length > JSON_MAX) return 'The text is longer than 1 MiB.';
  const error = jsonError(text);
  if (error) return `Line ${error.line}, column ${error.column}: ${error.message}.`;
  const value = JSON.parse(text);
  if (!isObject(value)) return 'A panel is a JSON object.';
  return typeof value.type === 'string' ? '' : 'A panel has a member "type" with its kind.';
}
