// Colours behind the text of a query: the same text in a layer below a transparent textarea.

import { h } from '../../chart/dom.js';
import { COLOURED_MAX, bracketsAt, tokenize } from '../../model/promql_tokens.js';

/** Kinds of tokens that keep the colour of the text. */
const PLAIN = new Set(['blank', 'other', 'metric']);

/**
 * @typedef {{from: number, to: number}} Part of the text, `to` exclusive
 */

/** The layer of one textarea. @param {HTMLTextAreaElement} input */
export function highlighter(input) {
  const layer = h('div', { class: 'query-colours', 'aria-hidden': 'true' });
  /** @type {Part | null} */
  let wrong = null;

  const paint = () => {
    const text = input.value;
    if (text.length > COLOURED_MAX) {
      layer.textContent = text;
      return;
    }
    const tokens = tokenize(text);
    const caret = document.activeElement === input && input.selectionStart === input.selectionEnd;
    const pair = caret ? bracketsAt(text, tokens, input.selectionStart) : null;
    layer.replaceChildren(
      ...tokens.map(({ kind, from, to }, index) => {
        const classes = [
          PLAIN.has(kind) ? '' : `t-${kind}`,
          pair?.includes(index) ? (pair.length === 2 ? 't-pair' : 't-alone') : '',
          wrong && from < wrong.to && to > wrong.from ? 't-wrong' : '',
        ].filter(Boolean);
        const piece = text.slice(from, to);
        return classes.length ? h('span', { class: classes.join(' '), text: piece }) : document.createTextNode(piece);
      }),
      // A line break at the end takes a line of its own only if something follows it.
      ...(text.endsWith('\n') ? ['\u200b'] : []),
    );
    follow();
  };
  /** Keeps the layer below the text: the width without a scroll bar, and the scroll position. */
  const follow = () => {
    layer.style.width = `${input.clientWidth}px`;
    layer.scrollTop = input.scrollTop;
    layer.scrollLeft = input.scrollLeft;
  };
  input.addEventListener('scroll', follow);
  const caretMoved = () => {
    if (!input.isConnected) document.removeEventListener('selectionchange', caretMoved);
    else if (document.activeElement === input) paint();
  };
  input.addEventListener('focus', () => document.addEventListener('selectionchange', caretMoved));
  input.addEventListener('blur', () => {
    document.removeEventListener('selectionchange', caretMoved);
    paint();
  });
  return {
    layer,
    paint,
    /** Underlines a part of the text. @param {Part | null} part */
    underline(part) {
      wrong = part;
      paint();
    },
  };
}
