// Questions of edit mode with more than two answers.

import { h } from '../chart/dom.js';
import { openDialog } from './dialog.js';

/**
 * @template {string} Answer
 * @param {string} heading
 * @param {string} text
 * @param {[answer: Answer, text: string, kind: string][]} answers
 * @returns {Promise<Answer | null>} null if it was cancelled
 */
function ask(heading, text, answers) {
  const content = (/** @type {(answer: Answer | null) => void} */ close) => [
    h('p', { text }),
    h(
      'div',
      { class: 'row' },
      answers.map(([answer, label, kind]) =>
        h('button', { type: 'button', class: kind, text: label, on: { click: () => close(answer) } }),
      ),
      h('button', { type: 'button', text: 'Cancel', autofocus: true, on: { click: () => close(null) } }),
    ),
  ];
  return openDialog(heading, /** @type {Answer | null} */ (null), content, { class: 'wide-dialog' });
}

/**
 * @param {string} name such as `the row “Hosts”`
 * @param {number} panels that it owns
 */
export const removeRowDialog = (name, panels) =>
  ask(`Remove ${name}?`, `It has ${panels} ${panels === 1 ? 'panel' : 'panels'}.`, [
    ['row', 'Keep the panels', ''],
    ['panels', 'Remove the panels too', 'danger'],
  ]);

/** Asks whether changes that are not saved are discarded. */
export const leaveDialog = () =>
  ask('Leave edit mode?', 'Your changes are not saved. A draft stays in this browser until you discard it.', [
    ['keep', 'Keep the draft', 'primary'],
    ['discard', 'Discard the changes', 'danger'],
  ]);
