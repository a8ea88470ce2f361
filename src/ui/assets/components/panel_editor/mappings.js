// The form of value mappings.

import { h } from '../../chart/dom.js';
import { mappingRows, mappingsOf, moved } from '../../model/edit_panel.js';
import { numberOf, textOf } from '../../model/limits.js';
import { currentMappings } from '../../model/mappings.js';
import { COLOURS, listButtons, select } from './controls.js';

/** @typedef {import('../../model/edit_panel.js').MappingRow} MappingRow */
/** @typedef {import('./controls.js').Choice} Choice */

/** @type {Choice[]} */
const TYPES = [['value', 'Value'], ['range', 'Range'], ['regex', 'Regex'], ['special', 'Special']];
/** @type {Choice[]} */
const SPECIAL = [['null', 'Null'], ['nan', 'NaN'], ['null+nan', 'Null or NaN'], ['true', 'True'], ['false', 'False'],
  ['empty', 'Empty text']];
/** @type {Record<MappingRow['type'], import('../../model/limits.js').Json>} */
const EMPTY = {
  value: { value: '' },
  range: { from: null, to: null },
  regex: { pattern: '' },
  special: { match: 'null' },
};

/**
 * @param {import('./controls.js').Access} access to the list of mappings
 * @returns {HTMLElement[]}
 */
export function mappingsGroup({ get, set }) {
  const rows = () => mappingRows(currentMappings(get()));
  const write = (/** @type {MappingRow[]} */ next, rebuild = false) => {
    const list = mappingsOf(next);
    set(list.length > 0 ? list : undefined, { rebuild });
  };
  const all = rows();
  const line = (/** @type {MappingRow} */ row, /** @type {number} */ at) => {
    const what = `mapping ${at + 1}`;
    const change = (/** @type {Partial<MappingRow>} */ part, rebuild = false) =>
      write(rows().with(at, { ...rows()[at], ...part }), rebuild);
    const retype = (/** @type {number} */ index, /** @type {MappingRow['type']} */ type) =>
      change({ type, match: EMPTY[type], entry: -1 - index }, true);
    const input = (/** @type {string} */ name, /** @type {string} */ label, /** @type {boolean} */ number) => {
      const node = h('input', {
        'aria-label': `${label} of ${what}`, placeholder: label, autocomplete: 'off', maxlength: '1000',
        type: number ? 'number' : 'text', step: number ? 'any' : null,
      });
      node.value = textOf(row.match[name]);
      // A half-written value could be that of another line: it counts when the field is left.
      node.addEventListener('change', () =>
        change({ match: { ...rows()[at].match, [name]: number ? numberOf(node.value) : node.value } }));
      return node;
    };
    const text = h('input', { 'aria-label': `Text of ${what}`, placeholder: 'Text', autocomplete: 'off' });
    text.value = textOf(row.result.text);
    text.addEventListener('input', () => {
      const { text: old, ...rest } = rows()[at].result;
      change({ result: text.value === '' ? rest : { ...rest, text: text.value } });
    });
    const match = row.type === 'value' ? [input('value', 'Value', false)]
      : row.type === 'range' ? [input('from', 'From', true), input('to', 'To', true)]
        : row.type === 'regex' ? [input('pattern', 'Pattern', false)]
          : [select(SPECIAL, row.match.match, { 'aria-label': `Match of ${what}` },
            (next) => change({ match: { ...row.match, match: next } }))];
    return h('li', { class: 'entry' },
      h('div', { class: 'entry-head' },
        select(TYPES, row.type, { 'aria-label': `Type of ${what}`, 'data-focus': `mapping type ${at}` }, (type) =>
          retype(at, /** @type {MappingRow['type']} */ (type))),
        listButtons(what, at, all.length, {
          move: (to) => write(moved(rows(), at, to), true),
          remove: () => write(rows().toSpliced(at, 1), true),
        })),
      h('div', { class: 'pair' }, match),
      h('div', { class: 'pair' }, text,
        select([[undefined, 'No colour'], ...COLOURS], row.result.color, { 'aria-label': `Colour of ${what}` },
          (color) => {
            const { color: old, ...rest } = rows()[at].result;
            change({ result: color === undefined ? rest : { ...rest, color } });
          })));
  };
  const add = () => {
    const last = all.at(-1);
    const taken = new Set(all.filter(({ type }) => type === 'value').map(({ match }) => match.value));
    let value = 0;
    while (taken.has(String(value))) value += 1;
    write([...all, { type: 'value', match: { value: String(value) }, result: { text: '', index: all.length },
      entry: last?.type === 'value' ? last.entry : -1, rest: last?.type === 'value' ? last.rest : {} }], true);
  };
  return [
    h('ol', { class: 'entries' }, all.map(line)),
    h('div', { class: 'row' },
      h('button', { type: 'button', text: 'Add mapping', 'data-focus': 'add mapping', on: { click: add } })),
  ];
}
