// The confirmation of a deletion: it states the loss in numbers, and may ask for the name.

import { h } from '../chart/dom.js';
import { openDialog } from './dialog.js';
import { field, form } from './form.js';

/**
 * Asks, and deletes if that was confirmed: errors are shown in the dialog. Returns whether the
 * object was deleted.
 * @param {Object} options
 * @param {string} options.heading
 * @param {string} options.loss what cannot be undone
 * @param {string} options.action the text of the button
 * @param {string} [options.name] must be typed
 * @param {() => Promise<string[]>} [options.count] what is lost, such as "12 dashboards"
 * @param {() => Promise<unknown>} options.run
 * @returns {Promise<boolean>}
 */
export function confirmLoss({ heading, loss, action, name, count, run }) {
  return openDialog(heading, false, (close) => {
    const lost = h('ul', { class: 'lost' });
    const told = h('div', { role: 'status' }, count ? h('p', { class: 'hint', text: 'Counting what is lost…' }) : null);
    count?.().then(
      (all) => {
        lost.append(...all.map((text) => h('li', { text })));
        told.replaceChildren(lost);
      },
      () => told.replaceChildren(),
    );
    const cancel = h('button', { type: 'button', text: 'Cancel', on: { click: () => close(false) } });
    // Enter must not delete by itself: without a name to type, the dialog starts at Cancel.
    if (name === undefined) cancel.autofocus = true;
    const typed =
      name !== undefined &&
      field(
        `Type ${name} to confirm`,
        'confirm',
        { autocomplete: 'off', autocapitalize: 'none', spellcheck: 'false', autofocus: true },
        '',
      );
    const entry = form(
      {
        submit: action,
        danger: true,
        action: async (values) => {
          if (name !== undefined && values.confirm.trim() !== name) throw new Error(`Type ${name} exactly.`);
          await run();
          close(true);
        },
      },
      typed,
    );
    const button = entry.querySelector('button');
    if (button) entry.append(h('div', { class: 'row' }, button, cancel));
    return [told, h('p', { text: loss }), entry];
  });
}
