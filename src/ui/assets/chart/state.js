// The overlay of a chart: loading, empty, error.

import { h } from './dom.js';

/** Warnings beyond these are left to the load event. */
const NOTES_MAX = 3;

/**
 * @typedef {'idle'|'loading'|'drawn'|'empty'|'error'} State
 *
 * @typedef {Object} Situation
 * @property {State} state
 * @property {boolean} hasData whether an earlier response is on the screen
 * @property {boolean} infinite whether every value is infinite
 * @property {string[]} messages warnings and infos of the response
 * @property {import('./api_error.js').ApiError} [problem] the error, in state `error`
 * @property {import('./problems.js').Words|null} words for visitors of an embedding page; null on
 *   pages of the server itself, which show the error
 * @property {() => void} retry
 */

/**
 * The line below a drawn chart: the number of omitted series, and the first messages of the
 * response.
 * @param {import('./columns.js').Columns} data
 * @param {string[]} messages
 */
export function notes({ series, total }, messages) {
  const infinite = series.filter((one) => one.infinite > 0).length;
  const whose = infinite === 1 ? 'one series are' : `${infinite} series are`;
  return [
    ...(total > series.length ? [`Drawing ${series.length} of ${total} series.`] : []),
    ...(infinite > 0 ? [`Infinite values of ${whose} not drawn.`] : []),
    ...messages.slice(0, NOTES_MAX),
  ].join(' · ');
}

/**
 * Fills the overlay for a state.
 * @param {HTMLElement} box
 * @param {Situation} situation
 */
export function showState(box, { state, hasData, infinite, messages, problem, words, retry }) {
  box.className = `state ${state}`;
  const again = () => h('button', { type: 'button', text: 'Try again', on: { click: retry } });
  if (state === 'loading' && !hasData) {
    box.replaceChildren(
      h(
        'div',
        { class: 'bars', 'aria-hidden': 'true' },
        [1, 2, 3, 4, 5].map(() => h('i')),
      ),
      h('p', { text: 'Loading…' }),
    );
  } else if (state === 'empty') {
    box.replaceChildren(
      h('strong', { text: 'No data in this range' }),
      ...messages.slice(0, NOTES_MAX).map((text) => h('p', { text })),
    );
  } else if (state === 'error' && hasData) {
    box.classList.add('late');
    box.replaceChildren(h('span', { text: words?.visitor ?? `Not updated: ${problem?.detail}` }));
  } else if (state === 'error' && words) {
    box.replaceChildren(h('p', { text: words.visitor }), words.retry === 'ask' ? again() : '');
  } else if (state === 'error') {
    const invalid = problem?.status === 400;
    const trace = [problem?.code, problem?.requestId].filter(Boolean).join(' · ');
    box.replaceChildren(
      h('strong', { text: invalid ? 'This query cannot run' : 'No chart' }),
      h('p', { text: problem?.detail }),
      ...(trace ? [h('p', { class: 'code', text: trace })] : []),
      ...(invalid ? [] : [again()]),
    );
  } else if (state === 'drawn' && infinite) {
    box.replaceChildren(
      h('strong', { text: 'Every value is infinite' }),
      h('p', { text: 'An infinite value has no place on the axis. Point at the chart to see its sign.' }),
    );
  } else {
    box.replaceChildren();
  }
}
