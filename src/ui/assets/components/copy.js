// A button that copies text, and the text that is shown once.

import { h } from '../chart/dom.js';

/** How long the button shows the outcome, in milliseconds. */
const SHOWN_MS = 1500;

/**
 * A button that copies a text and shows the outcome for a moment. Where the browser forbids the
 * clipboard (a page without TLS), `source` is selected so that Ctrl+C copies it.
 * @param {() => string} text
 * @param {{label?: string, what?: string, source?: Node|null, class?: string}} [options] `what`
 *   names the text for screen readers, `source` is a node that shows it
 */
export function copyButton(text, { label = 'Copy', what = '', source = null, class: kind = '' } = {}) {
  const shown = h('span', { text: label });
  const button = h(
    'button',
    { type: 'button', class: kind || undefined },
    shown,
    what && h('span', { class: 'unseen', text: ` ${what}` }),
  );
  button.addEventListener('click', async () => {
    const done =
      (await navigator.clipboard?.writeText(text()).then(
        () => true,
        () => false,
      )) ?? false;
    if (!done && source) getSelection()?.selectAllChildren(source);
    shown.textContent = done ? 'Copied' : source ? 'Press Ctrl+C' : 'Not copied';
    setTimeout(() => {
      shown.textContent = label;
    }, SHOWN_MS);
  });
  return button;
}

/**
 * A text to copy, such as a secret that is shown once, with its button.
 * @param {string} intro
 * @param {string} text
 * @param {string} what names the text for screen readers: "secret"
 */
export function copyable(intro, text, what) {
  const snippet = h('pre', { class: 'snippet', tabindex: '0', role: 'group', 'aria-label': what, text });
  return h(
    'div',
    { class: 'notice stack', role: 'status' },
    h('strong', { text: intro }),
    snippet,
    h(
      'div',
      { class: 'row' },
      copyButton(() => text, { what, source: snippet }),
    ),
  );
}
