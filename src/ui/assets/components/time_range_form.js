// The form of a time range: two ends with their errors beside them, and ranges to choose from.

import { h } from '../chart/dom.js';
import { dateText, parseTime } from '../model/time.js';

/** @type {[string, string, string][]} from, to, text */
export const QUICK = [
  ['now-5m', 'now', 'Last 5 minutes'],
  ['now-15m', 'now', 'Last 15 minutes'],
  ['now-30m', 'now', 'Last 30 minutes'],
  ['now-1h', 'now', 'Last 1 hour'],
  ['now-3h', 'now', 'Last 3 hours'],
  ['now-6h', 'now', 'Last 6 hours'],
  ['now-12h', 'now', 'Last 12 hours'],
  ['now-24h', 'now', 'Last 24 hours'],
  ['now-2d', 'now', 'Last 2 days'],
  ['now-7d', 'now', 'Last 7 days'],
  ['now-30d', 'now', 'Last 30 days'],
  ['now-90d', 'now', 'Last 90 days'],
  ['now/d', 'now', 'Today so far'],
  ['now-1d/d', 'now-1d/d', 'Yesterday'],
];

/**
 * @typedef {{from: string, to: string, start: number, end: number}} Chosen the ends as they were
 *   written, and in milliseconds
 */

/**
 * The nodes of the form, for a popup.
 * @param {{raw: {from: string | number, to: string | number}, timeZone?: string, apply: (chosen: Chosen) => void,
 *   more?: Node[]}} options
 *   `raw` is the present range, `apply` is called with a valid one, `more` is shown below the ends
 */
export function timeRangeForm({ raw, timeZone, apply, more = [] }) {
  const written = (/** @type {string | number} */ value) =>
    /^\d{5,}$/.test(String(value)) ? dateText(Number(value), 'YYYY-MM-DD HH:mm:ss', timeZone) : String(value);
  const end = (/** @type {string} */ id, /** @type {string} */ label, /** @type {string | number} */ value) => {
    const input = h('input', { id, autocomplete: 'off', spellcheck: 'false', 'aria-describedby': `${id}-hint` });
    input.value = written(value);
    const hint = h('p', { class: 'hint', id: `${id}-hint`, role: 'alert' });
    const say = (/** @type {string} */ text) => {
      hint.textContent = text;
      if (text) {
        input.setAttribute('aria-invalid', 'true');
        input.focus();
      } else input.removeAttribute('aria-invalid');
    };
    return { input, say, node: h('div', { class: 'field' }, h('label', { for: id, text: label }), input, hint) };
  };
  const from = end('time-from', 'From', raw.from);
  const to = end('time-to', 'To', raw.to);
  /** Reads both ends; shows errors at the fields. @param {string} first @param {string} last */
  const submit = (first, last) => {
    from.say('');
    to.say('');
    const [start, stop] = [parseTime(first, { timeZone }), parseTime(last, { timeZone, roundUp: true })];
    const example = 'Write times such as now-6h, 2026-01-31 08:00 or 2026-01-31T08:00:00Z.';
    if (start === null) from.say(example);
    else if (stop === null) to.say(example);
    else if (start >= stop) to.say('The end must be later than the start.');
    else apply({ from: first.trim(), to: last.trim(), start, end: stop });
  };
  return [
    h(
      'form',
      {
        class: 'stack',
        on: {
          submit: (/** @type {Event} */ event) => {
            event.preventDefault();
            submit(from.input.value, to.input.value);
          },
        },
      },
      from.node,
      to.node,
      more,
      h('button', { class: 'primary', text: 'Apply' }),
    ),
    h(
      'div',
      { class: 'quick' },
      QUICK.map(([first, last, text]) =>
        h('button', {
          type: 'button',
          text,
          'aria-pressed': String(first === raw.from && last === raw.to),
          on: { click: () => submit(first, last) },
        }),
      ),
    ),
  ];
}
