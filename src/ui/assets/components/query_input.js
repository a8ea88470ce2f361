// The PromQL input: grows with its text, runs, keeps a history, completes names.

import { h } from '../chart/dom.js';
import { FUNCTIONS, atCaret, isPlainName } from '../model/promql.js';
import { counted } from '../model/metrics.js';
import { readOrg } from '../client/server.js';
import { recall, remember } from '../model/storage.js';

const HISTORY_MAX = 50;
const OPTIONS_MAX = 10;
/** The pause after the last key press before suggestions are requested, in milliseconds. */
const PAUSE_MS = 120;
/** The height at which the input starts to scroll, in pixels. */
const HEIGHT_MAX = 240;

/**
 * @typedef {{text: string, insert: string, note: string, word: string}} Option
 * @typedef {{name: string, values_count?: number, values?: string[]}} Label
 */

/**
 * A textarea with suggestions. Enter and Ctrl+Enter run, Shift+Enter adds a line, up and down move
 * through open suggestions or, at the edges of the text, the history; Tab accepts, Escape closes.
 * @param {{org: string, run: (expr: string) => void, edited: (text: string) => void}} options
 *   `edited` is called after each edit by the user
 */
export function queryInput({ org, run, edited }) {
  const list = h('ul', {
    class: 'options',
    id: 'query-options',
    role: 'listbox',
    'aria-label': 'Suggestions',
    hidden: true,
  });
  const input = h('textarea', {
    id: 'query',
    rows: '1',
    spellcheck: 'false',
    autocapitalize: 'none',
    autocomplete: 'off',
    placeholder: 'sum by (job) (rate(http_requests_total[5m]))',
    'aria-haspopup': 'listbox',
    'aria-controls': 'query-options',
    'aria-autocomplete': 'list',
    'aria-describedby': 'query-hint',
  });
  const status = h('span', { class: 'unseen', role: 'status' });
  const historyKey = `history.${org}`;
  /** @type {string[]} */
  let past = recall(historyKey, []);
  let place = past.length;
  let draft = '';
  /** @type {Option[]} */
  let options = [];
  let active = -1;
  let timer = 0;
  /** @type {AbortController|null} */
  let request = null;
  /** Labels by metric; '' holds those of any metric. @type {Map<string, Promise<Label[]>>} */
  const labels = new Map();

  const grow = () => {
    input.style.height = 'auto';
    input.style.height = `${Math.min(input.scrollHeight + 2, HEIGHT_MAX)}px`;
  };
  const close = () => {
    clearTimeout(timer);
    request?.abort();
    options = [];
    active = -1;
    list.hidden = true;
    status.textContent = '';
    input.removeAttribute('aria-activedescendant');
  };
  const set = (/** @type {string} */ text) => {
    input.value = text;
    input.removeAttribute('aria-invalid');
    close();
    grow();
  };
  /** Adds an expression to the history. */
  const record = (/** @type {string} */ expr) => {
    if (expr && past.at(-1) !== expr) {
      past = [...past.filter((old) => old !== expr), expr].slice(-HISTORY_MAX);
      remember(historyKey, past);
    }
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
  const accept = (/** @type {Option} */ option) => {
    const at = input.selectionStart;
    replace(at - option.word.length, at, option.insert);
    close();
    grow();
    edited(input.value);
  };
  const mark = (/** @type {number} */ index) => {
    active = index;
    [...list.children].forEach((node, at) => node.setAttribute('aria-selected', String(at === index)));
    input.setAttribute('aria-activedescendant', `option-${index}`);
    list.children[index]?.scrollIntoView({ block: 'nearest' });
  };
  const open = (/** @type {Option[]} */ found) => {
    options = found.slice(0, OPTIONS_MAX);
    active = -1;
    list.replaceChildren(
      ...options.map((option, index) =>
        h(
          'li',
          {
            id: `option-${index}`,
            role: 'option',
            'aria-selected': 'false',
            // Before the blur that would close the list.
            on: {
              pointerdown: (/** @type {Event} */ event) => {
                event.preventDefault();
                accept(option);
              },
            },
          },
          h('span', { class: 'what', text: option.text }),
          h('span', { class: 'kind', text: option.note }),
        ),
      ),
    );
    list.hidden = options.length === 0;
    status.textContent = options.length ? `${counted(options.length, 'suggestion')}, arrow down to choose` : '';
  };

  /** @param {string|undefined} metric */
  function labelsOf(metric) {
    const known = labels.get(metric ?? '');
    if (known) return known;
    /** @type {Promise<Label[]>} */
    const loading = metric
      ? readOrg(org, `/metrics/${encodeURIComponent(metric)}/labels`, { values: 100 }).then(
          (body) => body.data,
          () => [],
        )
      : readOrg(org, '/prometheus/api/v1/labels').then(
          ({ data }) =>
            data
              .filter((/** @type {string} */ name) => name !== '__name__')
              .map((/** @type {string} */ name) => ({ name })),
          () => [],
        );
    labels.set(metric ?? '', loading);
    return loading;
  }
  /**
   * @param {import('../model/promql.js').Completion} completion
   * @param {AbortSignal} signal
   * @returns {Promise<{text: string, insert: string, note: string}[]>}
   */
  async function suggestions(completion, signal) {
    const { kind, word, metric, label } = completion;
    const fits = (/** @type {string} */ text) => text.toLowerCase().includes(word.toLowerCase()) && text !== word;
    const first = (/** @type {{text: string}} */ a, /** @type {{text: string}} */ b) =>
      Number(b.text.startsWith(word)) - Number(a.text.startsWith(word));
    if (kind === 'name') {
      const { data } = /** @type {{data: import('../client/types.js').Metric[]}} */ (
        await readOrg(org, '/metrics', { search: word, limit: 50 }, signal)
      );
      const metrics = data
        .filter(({ name }) => fits(name) && isPlainName(name))
        .map(({ name, type, help }) => ({ text: name, insert: name, note: help || type || 'metric' }));
      const functions = FUNCTIONS.filter((name) => name.startsWith(word) && name !== word).map((name) => ({
        text: name,
        insert: `${name}(`,
        note: 'function',
      }));
      return [...functions.slice(0, 4), ...metrics.sort(first)];
    }
    const known = await labelsOf(metric);
    if (kind === 'label') {
      return known
        .filter(({ name }) => fits(name))
        .map(({ name, values_count: count }) => ({
          text: name,
          insert: completion.list ? name : `${name}="`,
          note: count === undefined ? 'label' : counted(count, 'value'),
        }))
        .sort(first);
    }
    const values = metric
      ? (known.find(({ name }) => name === label)?.values ?? [])
      : await readOrg(
          org,
          `/prometheus/api/v1/label/${encodeURIComponent(label ?? '')}/values`,
          { limit: 100 },
          signal,
        ).then(({ data }) => data);
    return values
      .filter(fits)
      .map((/** @type {string} */ value) => ({
        text: value,
        insert: `${JSON.stringify(value).slice(1, -1)}"`,
        note: label ?? '',
      }))
      .sort(first);
  }
  const suggest = () => {
    clearTimeout(timer);
    request?.abort();
    const at = input.selectionStart;
    const completion = at === input.selectionEnd ? atCaret(input.value.slice(0, at), input.value.slice(at)) : null;
    if (!completion) {
      close();
      return;
    }
    timer = setTimeout(async () => {
      request = new AbortController();
      const { signal } = request;
      // Suggestions are optional: an error shows none.
      const found = await suggestions(completion, signal).catch(() => []);
      if (!signal.aborted && document.activeElement === input)
        open(found.map((option) => ({ ...option, word: completion.word })));
    }, PAUSE_MS);
  };
  const walkHistory = (/** @type {number} */ by) => {
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
    input.removeAttribute('aria-invalid');
    place = past.length;
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
    const isOpen = !list.hidden;
    /**
     * Each returns false if the key keeps its usual effect.
     * @type {Object<string, () => boolean|void>}
     */
    const keys = {
      Enter: () => {
        if (event.shiftKey) return false;
        if (isOpen && active >= 0 && !event.ctrlKey) accept(options[active]);
        else submit();
      },
      Tab: () => {
        if (!isOpen || event.shiftKey) return false;
        accept(options[Math.max(0, active)]);
      },
      Escape: () => (isOpen ? close() : false),
      ArrowDown: () => {
        if (isOpen) mark((active + 1) % options.length);
        else if (input.value.slice(input.selectionEnd).includes('\n')) return false;
        else walkHistory(1);
      },
      ArrowUp: () => {
        if (isOpen) mark((active <= 0 ? options.length : active) - 1);
        else if (input.value.slice(0, input.selectionStart).includes('\n')) return false;
        else walkHistory(-1);
      },
    };
    if (event.isComposing || !Object.hasOwn(keys, event.key)) return;
    if (keys[event.key]() !== false) event.preventDefault();
  });
  const node = h(
    'div',
    { class: 'query' },
    h('label', { for: 'query', text: 'PromQL' }),
    h('div', { class: 'combobox' }, input, list, status),
  );
  return { node, input, set, submit, record };
}
