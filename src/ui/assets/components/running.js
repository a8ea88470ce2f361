// Shows that a query runs, for how long, and a button that cancels it.

import { h } from '../chart/dom.js';

/** The time in milliseconds before a running query is shown. */
const SHOWN_AFTER_MS = 500;
/** The time between two updates of the elapsed time, in milliseconds. */
const TICK_MS = 100;

/**
 * The notice of a query that was cancelled.
 * @param {number} seconds that it has run
 * @param {() => void} again
 */
export const cancelledNotice = (seconds, again) => [
  h('p', { text: `The query was cancelled after ${seconds.toFixed(1)} s.` }),
  h('button', { type: 'button', text: 'Run again', on: { click: again } }),
];

/**
 * The node, hidden while nothing runs.
 * @param {(seconds: number) => void} cancel called with the time that the query has run
 */
export function runningNotice(cancel) {
  const elapsed = h('span', { class: 'elapsed' });
  const button = h('button', { type: 'button', class: 'cancel', text: 'Cancel' });
  const node = h(
    'div',
    { class: 'running', hidden: true },
    h('span', { class: 'unseen', role: 'status' }),
    elapsed,
    button,
  );
  let timer = 0;
  let since = 0;
  const seconds = () => (performance.now() - since) / 1000;
  const tick = () => {
    node.hidden = false;
    elapsed.textContent = `Running ${seconds().toFixed(1)} s`;
    timer = setTimeout(tick, TICK_MS);
  };
  const stop = () => {
    clearTimeout(timer);
    const focused = node.contains(document.activeElement);
    node.hidden = true;
    return focused;
  };
  button.addEventListener('click', () => cancel(seconds()));
  return {
    node,
    start() {
      stop();
      since = performance.now();
      timer = setTimeout(tick, SHOWN_AFTER_MS);
    },
    /** Returns whether the focus was on the button. */
    stop,
  };
}
