// Buttons that several components have.

import { h } from '../chart/dom.js';

/**
 * A button with a text.
 * @param {string} text
 * @param {() => unknown} click
 * @param {Object<string, any>} [attributes] further ones, such as the class
 */
export const textButton = (text, click, attributes = {}) =>
  h('button', { type: 'button', text, ...attributes, on: { click } });

/**
 * A button with a sign; screen readers and the pointer get the text.
 * @param {string} text
 * @param {string} sign
 * @param {() => unknown} click
 */
export const signButton = (text, sign, click) =>
  h(
    'button',
    { type: 'button', class: 'icon', title: text, on: { click } },
    h('span', { 'aria-hidden': 'true', text: sign }),
    h('span', { class: 'unseen', text }),
  );
