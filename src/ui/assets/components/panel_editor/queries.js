// The tab of queries: a row for each query, and the options of all.

import { h } from '../../chart/dom.js';
import { addTarget, moved, queryType, setAt, targetsOf } from '../../model/edit_panel.js';
import { textOf } from '../../model/limits.js';
import { queryInput } from '../query_input.js';
import { control, iconButton, listButtons } from './controls.js';

/** @typedef {import('./controls.js').Option} Option */

/** @type {Option[]} */
const ROW_OPTIONS = [
  { path: 'legendFormat', label: 'Legend', control: 'text', placeholder: 'Auto, or {{label}}' },
  {
    path: 'format', label: 'Format', control: 'select', default: 'time_series',
    choices: [['time_series', 'Time series'], ['table', 'Table'], ['heatmap', 'Heatmap']],
  },
  { path: 'interval', label: 'Step at least', control: 'text', placeholder: 'Auto, e.g. 1m' },
];

/** @type {Option[]} */
const ALL_OPTIONS = [
  { path: 'maxDataPoints', label: 'Max data points', control: 'number', min: 1, max: 11_000, step: 1 },
  { path: 'interval', label: 'Min interval', control: 'text', placeholder: 'Auto, e.g. 15s' },
  {
    path: 'timeFrom', label: 'Relative time', control: 'text', placeholder: 'e.g. 2h',
    hint: 'The last part of time, whatever the dashboard shows.',
  },
  { path: 'timeShift', label: 'Time shift', control: 'text', placeholder: 'e.g. 1d', hint: 'Moves the range back.' },
];

/** Counts the texts that were typed to their end: each one is a step of undo. */
let texts = 0;

/**
 * @param {import('./draft.js').Draft} draft
 * @param {{org: string, run: () => void, update: () => void}} host `run` runs the queries, `update` only those
 *   that changed
 * @returns {HTMLElement[]}
 */
export function queriesTab(draft, { org, run, update }) {
  const targets = targetsOf(draft.raw);
  const write = (/** @type {import('../../model/limits.js').Json[]} */ next) =>
    draft.setAt('targets', next, { rebuild: true });

  /** @param {import('../../model/limits.js').Json} target @param {number} at */
  const row = (target, at) => {
    const { refId } = target;
    const off = target.hide === true;
    // A letter that a stored query lacked is written with the first edit.
    const set = (/** @type {string} */ path, /** @type {unknown} */ value, how = {}) =>
      draft.set(setAt(draft.raw, 'targets', setAt(targetsOf(draft.raw), [at, ...path.split('.')], value)), {
        merge: `${at} ${path}`, ...how,
      });
    const get = (/** @type {string} */ path) => targetsOf(draft.raw)[at]?.[path];
    const options = {
      org,
      id: `query-${at}`,
      label: `Query ${refId}`,
      describedBy: 'editor-query-hint',
      edited: (/** @type {string} */ text) => type(text),
      run: (/** @type {string} */ text) => {
        type(text);
        commit();
        input.record(text);
        run();
      },
    };
    let typing = false;
    // Half an expression is part of the draft, but does not run before Enter, or before the field is left.
    const type = (/** @type {string} */ text) => {
      if (text === textOf(get('expr'))) return;
      set('expr', text, { typing: true, merge: `${at} expr ${texts}` });
      typing = true;
    };
    const commit = () => {
      if (!typing) return;
      typing = false;
      texts += 1;
      update();
    };
    const input = queryInput(options);
    input.set(textOf(target.expr));
    input.input.setAttribute('data-focus', `expr ${refId}`);
    input.input.addEventListener('blur', commit);
    const kind = {
      path: 'type', label: 'Type', control: /** @type {const} */ ('select'),
      choices: /** @type {import('./controls.js').Choice[]} */ ([
        ['range', 'Range'], ['instant', 'Instant'], ['both', 'Both']]),
    };
    return h(
      'li',
      { class: off ? 'query-row off' : 'query-row', 'aria-label': `Query ${refId}` },
      h(
        'div',
        { class: 'entry-head' },
        h('strong', { text: refId }),
        off && h('span', { class: 'hint', text: 'Hidden: it is not asked.' }),
        iconButton(off ? '○' : '●', off ? `Show query ${refId}` : `Hide query ${refId}`, () => {
          commit();
          set('hide', off ? undefined : true, { rebuild: true });
        }, { 'data-focus': `hide ${refId}` }),
        listButtons(`query ${refId}`, at, targets.length, {
          move: (to) => write(moved(targetsOf(draft.raw), at, to)),
          copy: () => draft.set(addTarget(draft.raw, at), { rebuild: true }),
          remove: () => write(targetsOf(draft.raw).toSpliced(at, 1)),
        }),
      ),
      input.node,
      h(
        'div',
        { class: 'option-line' },
        ROW_OPTIONS.map((option) =>
          control({ ...option }, {
            get: () => get(option.path),
            set: (value) => set(option.path, value),
          })),
        control(kind, {
          get: () => queryType(targetsOf(draft.raw)[at] ?? {}),
          set: (value) => {
            const next = { ...targetsOf(draft.raw)[at], instant: value !== 'range', range: value !== 'instant' };
            draft.setAt('targets', targetsOf(draft.raw).toSpliced(at, 1, next));
          },
        }),
      ),
    );
  };

  return [
    h('p', { id: 'editor-query-hint', class: 'hint', text: 'Enter runs the query, Shift+Enter adds a line.' }),
    h('ol', { class: 'entries' }, targets.map(row)),
    targets.length === 0 ? h('p', { class: 'hint', text: 'This panel has no query.' }) : h('span', { hidden: true }),
    h(
      'div',
      { class: 'row' },
      h('button', {
        type: 'button', text: 'Add query', 'data-focus': 'add query',
        on: { click: () => draft.set(addTarget(draft.raw), { rebuild: true }) },
      }),
      h('button', { type: 'button', text: 'Run queries', on: { click: run } }),
    ),
    h(
      'details',
      { class: 'group' },
      h('summary', { text: 'Query options' }),
      h('div', { class: 'option-line' }, ALL_OPTIONS.map((option) => control(option, draft.access(option.path)))),
    ),
  ];
}
