// Short messages at the edge of the window, which confirm an action. Errors belong where they
// happened.

import { h } from '../chart/dom.js';
import { textButton } from './buttons.js';
import { icon } from './icons.js';

/** How long a message is shown unless the pointer or the focus is on it, in milliseconds. */
const SHOWN_MS = 6000;
/** How long a message with an action is shown, in milliseconds. */
const ACTION_SHOWN_MS = 20_000;
/** Maximum number of messages at once; the oldest is removed first. */
const SHOWN_MAX = 3;

const region = h('div', { class: 'toasts', role: 'status', 'aria-live': 'polite' });

/**
 * Shows a message for some seconds.
 * @param {string} text a sentence
 * @param {{text: string, click: () => unknown}} [action] a button beside it, which also removes the message
 */
export function toast(text, action) {
  if (!region.isConnected) document.body.append(region);
  let timer = 0;
  const message = h(
    'div',
    { class: 'toast card' },
    h('span', { text }),
    action && textButton(action.text, () => act(action.click), { class: 'plain' }),
    h(
      'button',
      { type: 'button', class: 'plain', 'aria-label': 'Dismiss', on: { click: () => message.remove() } },
      icon('close'),
    ),
  );
  const act = (/** @type {() => unknown} */ click) => {
    message.remove();
    click();
  };
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => message.remove(), action ? ACTION_SHOWN_MS : SHOWN_MS);
  };
  const hold = () => clearTimeout(timer);
  message.addEventListener('pointerenter', hold);
  message.addEventListener('pointerleave', wait);
  message.addEventListener('focusin', hold);
  message.addEventListener('focusout', wait);
  region.append(message);
  while (region.childElementCount > SHOWN_MAX) region.firstElementChild?.remove();
  wait();
}
