// The PromQL input: grows with its text, runs, remembers, suggests.

import { h } from '../chart/dom.js';
import { FUNCTIONS, atCaret, isPlainName } from './promql.js';
import { look } from './server.js';
import { recall, remember } from './storage.js';

const HISTORY_MAX = 50;
const OPTIONS_MAX = 10;
/** Typing faster than this asks only once. */
const PAUSE_MS = 120;

/**
 * A textarea with suggestions. Enter and Ctrl+Enter run, Shift+Enter adds a line, up and down move through open
 * suggestions or, at the edges of the text, the history; Tab accepts, Escape closes.
 * @param {{org: string, run: (expr: string) => void}} options
 */
export function queryInput({ org, run }) {
  const list = h('ul', { class: 'options', id: 'query-options', role: 'listbox', 'aria-label': 'Suggestions', hidden: true });
  const input = h('textarea', {
    id: 'query', rows: '1', spellcheck: 'false', autocapitalize: 'none', autocomplete: 'off', placeholder: 'sum by (job) (rate(http_requests_total[5m]))',
    'aria-haspopup': 'listbox', 'aria-controls': 'query-options', 'aria-autocomplete': 'list', 'aria-describedby': 'query-hint',
  });
  const said = h('span', { class: 'unseen', role: 'status' });
  const historyKey = `history.${org}`;
  let past = recall(historyKey, []);
  let place = past.length;
  let draft = '';
  let options = [];
  let active = -1;
  let timer = 0;
  let waiting = null;
  const labels = new Map();

  const grow = () => {
    input.style.height = 'auto';
    input.style.height = `${Math.min(input.scrollHeight + 2, 240)}px`;
  };
  const close = () => {
    clearTimeout(timer);
    waiting?.abort();
    options = [];
    active = -1;
    list.hidden = true;
    said.textContent = '';
    input.removeAttribute('aria-activedescendant');
  };
  const set = (text) => {
    input.value = text;
    input.removeAttribute('aria-invalid');
    close();
    grow();
  };
  const go = () => {
    const expr = input.value.trim();
    close();
    if (expr && past.at(-1) !== expr) {
      past = [...past.filter((old) => old !== expr), expr].slice(-HISTORY_MAX);
      remember(historyKey, past);
    }
    place = past.length;
    run(expr);
  };

  const accept = (option) => {
    const at = input.selectionStart;
    const before = input.value.slice(0, at - option.word.length);
    const after = input.value.slice(at);
    input.value = `${before}${option.insert}${after}`;
    const caret = before.length + option.insert.length;
    input.setSelectionRange(caret, caret);
    close();
    grow();
    input.focus();
  };
  const mark = (index) => {
    active = index;
    [...list.children].forEach((node, at) => node.setAttribute('aria-selected', String(at === index)));
    if (index >= 0) {
      input.setAttribute('aria-activedescendant', `option-${index}`);
      list.children[index].scrollIntoView({ block: 'nearest' });
    } else {
      input.removeAttribute('aria-activedescendant');
    }
  };
  const open = (found) => {
    options = found.slice(0, OPTIONS_MAX);
    active = -1;
    list.replaceChildren(...options.map((option, index) => h('li', {
      id: `option-${index}`, role: 'option', 'aria-selected': 'false',
      // Before the blur that would close the list.
      on: { pointerdown: (event) => { event.preventDefault(); accept(option); } },
    }, h('span', { class: 'what', text: option.text }), h('span', { class: 'kind', text: option.note }))));
    list.hidden = options.length === 0;
    said.textContent = options.length ? `${options.length} suggestions, arrow down to choose` : '';
  };

  async function labelsOf(metric) {
    if (!labels.has(metric)) labels.set(metric, look(org, `/metrics/${encodeURIComponent(metric)}/labels`, { values: 100 }).then((body) => body.data, () => []));
    return labels.get(metric);
  }
  async function suggestions(wish, signal) {
    const fits = (text) => text.toLowerCase().includes(wish.word.toLowerCase()) && text !== wish.word;
    const first = (a, b) => Number(b.text.startsWith(wish.word)) - Number(a.text.startsWith(wish.word));
    if (wish.kind === 'name') {
      const { data } = await look(org, '/metrics', { search: wish.word, limit: 50 }, signal);
      const metrics = data.filter(({ name }) => fits(name) && isPlainName(name)).map(({ name, type, help }) => ({ text: name, insert: name, note: help || type || 'metric' }));
      const functions = FUNCTIONS.filter((name) => name.startsWith(wish.word) && name !== wish.word).map((name) => ({ text: name, insert: `${name}(`, note: 'function' }));
      return [...functions.slice(0, 4), ...metrics.sort(first)];
    }
    const known = await labelsOf(wish.metric);
    if (wish.kind === 'label') return known.filter(({ name }) => fits(name)).map(({ name, values_count: count }) => ({ text: name, insert: `${name}="`, note: `${count} values` })).sort(first);
    const values = known.find(({ name }) => name === wish.label)?.values ?? [];
    return values.filter(fits).map((value) => ({ text: value, insert: `${JSON.stringify(value).slice(1, -1)}"`, note: wish.label })).sort(first);
  }
  const think = () => {
    clearTimeout(timer);
    waiting?.abort();
    const wish = input.selectionStart === input.selectionEnd ? atCaret(input.value.slice(0, input.selectionStart)) : null;
    if (!wish) {
      close();
      return;
    }
    timer = setTimeout(async () => {
      waiting = new AbortController();
      const { signal } = waiting;
      // Suggestions are a courtesy: a refusal here is no message to anyone.
      const found = await suggestions(wish, signal).catch(() => []);
      if (!signal.aborted && document.activeElement === input) open(found.map((option) => ({ ...option, word: wish.word })));
    }, PAUSE_MS);
  };
  const walk = (by) => {
    if (place === past.length) {
      draft = input.value;
      // The query that stands here is the newest of the history: the one before it is meant.
      if (by < 0 && past.at(-1) === draft.trim()) place -= 1;
    }
    const next = Math.max(0, Math.min(past.length, place + by));
    if (next === place) return;
    place = next;
    set(place === past.length ? draft : past[place]);
    input.setSelectionRange(input.value.length, input.value.length);
  };

  input.addEventListener('input', () => {
    input.removeAttribute('aria-invalid');
    place = past.length;
    grow();
    think();
  });
  input.addEventListener('blur', close);
  let width = 0;
  new ResizeObserver(() => {
    if (input.clientWidth !== width) grow();
    width = input.clientWidth;
  }).observe(input);
  input.addEventListener('keydown', (event) => {
    const open_ = !list.hidden;
    const keys = {
      Enter: () => (event.shiftKey ? false : open_ && active >= 0 && !event.ctrlKey ? accept(options[active]) : go()),
      Tab: () => (open_ && !event.shiftKey ? accept(options[Math.max(0, active)]) : false),
      Escape: () => (open_ ? close() : false),
      ArrowDown: () => {
        if (open_) return mark((active + 1) % options.length);
        return input.value.slice(input.selectionEnd).includes('\n') ? false : walk(1);
      },
      ArrowUp: () => {
        if (open_) return mark((active <= 0 ? options.length : active) - 1);
        return input.value.slice(0, input.selectionStart).includes('\n') ? false : walk(-1);
      },
    };
    if (event.isComposing || !keys[event.key]) return;
    if (keys[event.key]() !== false) event.preventDefault();
  });
  const node = h('div', { class: 'query' }, h('label', { for: 'query', text: 'PromQL' }), h('div', { class: 'combobox' }, input, list, said));
  return { node, input, set, go };
}
