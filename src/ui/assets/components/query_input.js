// The PromQL input: grows with its text, colours it, runs, keeps a history, completes names.

import { h } from '../chart/dom.js';
import { atCaret } from '../model/promql.js';
import { errorSentence, queryError } from '../model/promql_tokens.js';
import { remembered } from '../model/query_history.js';
import { recall, remember } from '../model/storage.js';
import { highlighter } from './query_input/highlight.js';
import { optionsList } from './query_input/options_list.js';

/** The pause after the last key press before suggestions are requested, in milliseconds. */
const PAUSE_MS = 120;
/** Lines at which the input starts to scroll. */
const LINES_MAX = 8;

/** @typedef {import('./query_input/options_list.js').Option} Option */

/**
 * A textarea with suggestions. Enter and Ctrl+Enter run, Shift+Enter adds a line, up and down move
 * through open suggestions or, at the edges of the text, the history; Tab accepts, Escape closes.
 * @param {{org: string, run: (expr: string) => void, edited: (text: string) => void, id?: string, label?: string,
 *   describedBy?: string, tools?: Node[]}} options
 *   `edited` is called after each edit by the user; `id` must differ between the inputs of a page;
 *   `tools` are shown at the end of the line of the label
 */
export function queryInput({
  org, run, edited, id = 'query', label = 'PromQL', describedBy = 'query-hint', tools = [],
}) {
  const input = h('textarea', {
    id,
    rows: '1',
    spellcheck: 'false',
    autocapitalize: 'none',
    autocomplete: 'off',
    placeholder: 'sum by (job) (rate(http_requests_total[5m]))',
    'aria-haspopup': 'listbox',
    'aria-controls': `${id}-options`,
    'aria-autocomplete': 'list',
    'aria-describedby': `${id}-error ${describedBy}`,
  });
  const error = h('p', { class: 'query-error', id: `${id}-error`, role: 'alert' });
  const colours = highlighter(input);
  const list = optionsList({ id, input, accept: (option) => accept(option) });
  const historyKey = `history.${org}`;
  let past = /** @type {string[]} */ (recall(historyKey, []));
  let place = past.length;
  let draft = '';
  /** The part before the caret that a suggestion replaces, and the text before it. */
  let [word, lead] = ['', ''];
  let timer = 0;
  /** @type {AbortController | null} */
  let request = null;
  /**
   * Loaded for the first suggestion.
   * @type {ReturnType<typeof import('./query_input/completion.js').completer> | null}
   */
  let suggestions = null;

  const grow = () => {
    input.style.height = 'auto';
    const { lineHeight, paddingTop, paddingBottom } = getComputedStyle(input);
    const most = LINES_MAX * (parseFloat(lineHeight) || 22) + parseFloat(paddingTop) + parseFloat(paddingBottom);
    input.style.height = `${Math.min(input.scrollHeight, most) + 2}px`;
    colours.paint();
  };
  const close = () => {
    clearTimeout(timer);
    request?.abort();
    list.close();
  };
  /**
   * Underlines an error and says it below the field; null removes it.
   * @param {{from: number, to: number, sentence: string} | null} found
   */
  const showError = (found) => {
    if (found) input.setAttribute('aria-invalid', 'true');
    else input.removeAttribute('aria-invalid');
    error.textContent = found?.sentence ?? '';
    colours.underline(found && found.to > found.from ? found : null);
  };
  /**
   * Shows the server's refusal of an expression, if the text is still that one.
   * @param {string} expr the text without blanks around it
   * @param {string} detail of the error
   */
  const showRefusal = (expr, detail) => {
    const text = input.value;
    if (text.trim() !== expr) return;
    const shift = text.length - text.trimStart().length;
    const found = queryError(expr, detail);
    if (found) showError({ from: found.from + shift, to: found.to + shift, sentence: errorSentence(expr, found) });
    else showError({ from: 0, to: 0, sentence: detail });
  };
  const set = (/** @type {string} */ text) => {
    input.value = text;
    showError(null);
    close();
    grow();
  };
  /** Adds an expression to the history. */
  const record = (/** @type {string} */ expr) => {
    // Another tab may have added some.
    past = remembered(recall(historyKey, past), expr);
    if (expr) remember(historyKey, past);
    place = past.length;
  };
  const submit = () => {
    close();
    run(input.value.trim());
  };
  /** Replaces a part of the text as if it were typed, so that Ctrl+Z undoes it. */
  const replace = (/** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ text) => {
    input.focus();
    input.setSelectionRange(from, to);
    // There is no other way to edit that keeps the browser's undo stack.
    if (!document.execCommand('insertText', false, text)) input.setRangeText(text, from, to, 'end');
  };
  const changed = () => {
    close();
    showError(null);
    grow();
    edited(input.value);
  };
  /** Replaces the whole text; Ctrl+Z undoes it. @param {string} text */
  const rewrite = (text) => {
    replace(0, input.value.length, text);
    changed();
  };
  /** Whether the caret is still where the suggestions belong. */
  const isCurrent = () => input.value.slice(0, input.selectionStart) === lead + word;
  const accept = (/** @type {Option} */ option) => {
    if (!isCurrent()) return close();
    const at = input.selectionStart;
    const caret = option.insert.indexOf('‸');
    let text = option.insert.replace('‸', '');
    // An editor's bracket or quote that follows already is not doubled.
    if (text.length > 1 && /[\]"]$/.test(text) && input.value[at] === text.at(-1)) text = text.slice(0, -1);
    replace(at - word.length, at, text);
    if (caret >= 0) input.setSelectionRange(at - word.length + caret, at - word.length + caret);
    changed();
  };
  const suggest = () => {
    clearTimeout(timer);
    request?.abort();
    const at = input.selectionStart;
    const completion = at === input.selectionEnd ? atCaret(input.value.slice(0, at), input.value.slice(at)) : null;
    if (!completion) {
      close();
      return;
    }
    // Until there are new suggestions, those that no longer fit must not be accepted.
    const before = input.value.slice(0, at);
    if (before.startsWith(lead)) {
      word = before.slice(lead.length);
      list.narrow(word);
    } else {
      list.close();
    }
    timer = setTimeout(async () => {
      request = new AbortController();
      const { signal } = request;
      // Suggestions are optional: an error shows none.
      suggestions ??= await import('./query_input/completion.js').then(({ completer }) => completer(org), () => null);
      const found = (await suggestions?.(completion, signal).catch(() => [])) ?? [];
      if (signal.aborted || document.activeElement !== input) return;
      [word, lead] = [completion.word, before.slice(0, before.length - completion.word.length)];
      list.open(found);
    }, PAUSE_MS);
  };
  const walkHistory = (/** @type {1 | -1} */ by) => {
    if (place === past.length) {
      draft = input.value;
      // The newest entry is the query in the input already: go to the one before.
      if (by < 0 && past.at(-1) === draft.trim()) place -= 1;
    }
    const next = Math.max(0, Math.min(past.length, place + by));
    if (next === place) return;
    place = next;
    set(place === past.length ? draft : past[place]);
    input.setSelectionRange(input.value.length, input.value.length);
    edited(input.value);
  };

  input.addEventListener('input', () => {
    place = past.length;
    showError(null);
    grow();
    suggest();
    edited(input.value);
  });
  input.addEventListener('blur', close);
  let width = 0;
  new ResizeObserver(() => {
    if (input.clientWidth !== width) grow();
    width = input.clientWidth;
  }).observe(input);
  input.addEventListener('keydown', (event) => {
    if (list.isOpen() && !isCurrent()) list.close();
    const isOpen = list.isOpen();
    /**
     * Each returns false if the key keeps its usual effect.
     * @type {Record<string, () => boolean | void>}
     */
    const keys = {
      Enter: () => {
        if (event.shiftKey) return false;
        const chosen = isOpen && !event.ctrlKey ? list.chosen(false) : undefined;
        if (chosen) accept(chosen);
        else submit();
      },
      Tab: () => {
        const chosen = isOpen && !event.shiftKey ? list.chosen(true) : undefined;
        if (!chosen) return false;
        accept(chosen);
      },
      Escape: () => (isOpen ? close() : false),
      ArrowDown: () => {
        if (isOpen) list.move(1);
        else if (input.value.slice(input.selectionEnd).includes('\n')) return false;
        else walkHistory(1);
      },
      ArrowUp: () => {
        if (isOpen) list.move(-1);
        else if (input.value.slice(0, input.selectionStart).includes('\n')) return false;
        else walkHistory(-1);
      },
    };
    if (event.isComposing || !Object.hasOwn(keys, event.key)) return;
    if (keys[event.key]() !== false) event.preventDefault();
  });
  const box = h('div', { class: 'combobox' }, colours.layer, input, list.nodes);
  const node = h(
    'div',
    { class: 'query' },
    h('div', { class: 'query-head' }, h('label', { for: id, text: label }), tools),
    box,
    error,
  );
  return { node, input, set, submit, record, rewrite, showError, showRefusal };
}
