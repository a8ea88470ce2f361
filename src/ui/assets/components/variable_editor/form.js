// The form of one variable, by kind.

import { h } from '../../chart/dom.js';
import { setAt } from '../../model/edit_panel.js';
import { queryOf, queryTextOf, VARIABLE_KINDS, withQuery } from '../../model/edit_variable.js';
import { isObject, objectsOf, textOf } from '../../model/limits.js';
import { control, iconButton, select } from '../panel_editor/controls.js';

/** @typedef {import('../../model/limits.js').Json} Json */
/** @typedef {import('../panel_editor/controls.js').Option} Option */
/** @typedef {import('../panel_editor/controls.js').Choice} Choice */
/** @typedef {{get: () => Json, set: (next: Json, rebuild?: boolean) => void}} Edited */

const is = (/** @type {string[]} */ ...kinds) => (/** @type {(path: string) => any} */ get) =>
  kinds.includes(textOf(get('type'), 'query'));

/** @type {Option[]} */
const HEAD = [
  { path: 'name', label: 'Name', control: 'text', hint: 'Queries use it as $name.' },
  { path: 'type', label: 'Kind', control: 'select', default: 'query', choices: VARIABLE_KINDS },
  { path: 'label', label: 'Label', control: 'text', placeholder: 'The name' },
  { path: 'description', label: 'Description', control: 'text' },
  {
    path: 'hide', label: 'Show', control: 'select', default: 0,
    choices: [[0, 'Label and value'], [1, 'Value'], [2, 'Nothing']],
  },
];

/** @type {Option[]} */
const REST = [
  {
    path: 'regex', label: 'Regular expression', control: 'text', when: is('query', 'datasource'),
    hint: 'Keeps the values that match; a group is the part that is kept.',
  },
  {
    path: 'sort', label: 'Order', control: 'select', default: 0, when: is('query'),
    choices: [[0, 'As the server answers'],
      [1, 'A to Z'], [2, 'Z to A'], [3, 'Numbers, rising'],
      [4, 'Numbers, falling'], [5, 'A to Z, in any case'],
      [6, 'Z to A, in any case'], [7, 'Natural, rising'], [8, 'Natural, falling']],
  },
  {
    path: 'refresh', label: 'Values are asked', control: 'select', default: 0, when: is('query'),
    choices: [[0, 'Never'], [1, 'When the dashboard is opened'], [2, 'When the time range changes']],
  },
  {
    path: 'multi', label: 'Several values', control: 'switch', default: false,
    when: is('query', 'custom', 'datasource'),
  },
  {
    path: 'includeAll', label: 'Offer All', control: 'switch', default: false,
    when: is('query', 'custom', 'datasource'),
  },
  {
    path: 'allValue', label: 'Value of All', control: 'text', placeholder: 'All values',
    when: (get) => get('includeAll') === true && is('query', 'custom', 'datasource')(get),
  },
  {
    path: 'auto', label: 'Offer auto', control: 'switch', default: false, when: is('interval'),
    hint: 'A step that fits the time range.',
  },
  {
    path: 'auto_count', label: 'Steps of auto', control: 'number', min: 1, max: 10_000, step: 1, default: 30,
    when: (get) => get('auto') === true && is('interval')(get),
  },
  {
    path: 'auto_min', label: 'Shortest step of auto', control: 'text', default: '10s',
    when: (get) => get('auto') === true && is('interval')(get),
  },
];

/** The one text of a kind. @type {Record<string, [string, string]>} */
const TEXTS = {
  custom: ['Values', 'Separated by commas; “text : value” shows another text.'],
  interval: ['Intervals', 'Separated by commas, such as 1m,10m,1h.'],
  constant: ['Value', ''],
  textbox: ['Default value', ''],
  datasource: ['Type of data source', 'Usually prometheus; promlet answers all of them.'],
};

/** @type {Choice[]} */
const QUERIES = [
  ['label_values', 'Values of a label'],
  ['label_names', 'Names of labels'],
  ['metrics', 'Names of metrics'],
  ['query_result', 'Result of a query'],
  ['series', 'Series'],
];

/**
 * @param {Edited} edited
 * @returns {HTMLElement[]}
 */
export function variableForm({ get, set }) {
  const type = textOf(get().type, 'query');
  const value = (/** @type {string} */ path) => get()[path];
  const make = (/** @type {Option} */ option) =>
    control(option, {
      get: () => value(option.path),
      set: (next, how) => set(setAt(get(), option.path, next), how?.rebuild),
    });
  const shown = (/** @type {Option[]} */ options) => options.filter(({ when }) => when?.(value) ?? true).map(make);
  return [
    h('div', { class: 'option-line' }, shown(HEAD)),
    ...(type === 'query' ? queryForm({ get, set }) : type === 'adhoc' ? filtersForm({ get, set })
      : type in TEXTS ? [textForm(type, { get, set })] : []),
    h('div', { class: 'option-line' }, shown(REST)),
  ];
}

/** @param {string} type @param {Edited} edited */
function textForm(type, { get, set }) {
  const [label, hint] = TEXTS[type];
  return control({ path: 'query', label, hint, control: 'text' }, {
    get: () => (isObject(get().query) ? get().query.query : get().query),
    set: (next) => set(withQuery(get(), textOf(next))),
  });
}

/** The helper of queries, and the text that it writes. @param {Edited} edited @returns {HTMLElement[]} */
function queryForm({ get, set }) {
  const write = (/** @type {string} */ text) => set(withQuery(get(), text));
  const parts = h('div', { class: 'option-line' });
  const text = control({
    path: 'query', label: 'Query', control: 'text', placeholder: 'label_values(up, job)',
    hint: 'May use other variables.',
  }, {
    get: () => queryTextOf(queryOf(get())),
    set: (next) => {
      write(textOf(next));
      // The parts follow the text at once: a form that is made again when the field is left would
      // lose the click that left it.
      fill();
    },
  });
  const input = /** @type {HTMLInputElement} */ (text.querySelector('input'));
  const fill = () => {
    const query = queryOf(get());
    const kind = query.kind === 'none' ? 'label_values' : query.kind;
    const part = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ placeholder) =>
      control({ path: `part ${name}`, label, control: 'text', placeholder }, {
        get: () => /** @type {any} */ (queryOf(get()))[name],
        set: (next) => {
          const before = queryOf(get());
          const made = { ...(before.kind === kind ? before : { kind }), [name]: textOf(next) };
          input.value = queryTextOf(/** @type {any} */ (complete(made)));
          write(input.value);
        },
      });
    const offers = control({ path: 'query kind', label: 'Offers', control: 'select', choices: QUERIES }, {
      get: () => kind,
      set: (next) => {
        input.value = queryTextOf(/** @type {any} */ (complete({ ...queryOf(get()), kind: next })));
        write(input.value);
        fill();
        parts.querySelector('select')?.focus();
      },
    });
    parts.replaceChildren(offers, ...PARTS[kind].map(([name, label, placeholder]) => part(name, label, placeholder)));
  };
  fill();
  return [parts, text];
}

/** The parts of each kind of query: the member, its label, and an example.
 *  @type {Record<string, [string, string, string][]>} */
const PARTS = {
  label_values: [['label', 'Label', 'job'], ['match', 'Of the series', 'up{env="prod"}']],
  label_names: [['match', 'Of the series', 'up']],
  metrics: [['regex', 'Names that match', 'node_.*']],
  query_result: [['expr', 'Expression', 'topk(5, up)']],
  series: [['match', 'Series', 'up']],
};

/** A query with all members that its text needs. @param {Json} query */
const complete = (query) => ({
  label: 'job', regex: '.*', expr: textOf(query.match) || 'up', ...query,
  ...(query.kind === 'series' && !query.match ? { match: 'up' } : {}),
});

/** The matchers of an ad hoc variable. @param {Edited} edited @returns {HTMLElement[]} */
function filtersForm({ get, set }) {
  const list = () => objectsOf(get().filters);
  const write = (/** @type {Json[]} */ next, rebuild = false) => set({ ...get(), filters: next }, rebuild);
  const input = (/** @type {number} */ at, /** @type {string} */ name, /** @type {string} */ label) => {
    const node = h('input', { 'aria-label': `${label} of filter ${at + 1}`, placeholder: label, autocomplete: 'off' });
    node.value = textOf(list()[at]?.[name]);
    node.addEventListener('input', () => write(setAt(list(), [at, name], node.value)));
    return node;
  };
  return [
    h('ol', { class: 'fields field' }, list().map((filter, at) => h('li', {},
      input(at, 'key', 'Label'),
      select(['=', '!=', '=~', '!~'].map((op) => [op, op]), filter.operator,
        { 'aria-label': `Operator of filter ${at + 1}` }, (next) => write(setAt(list(), [at, 'operator'], next))),
      input(at, 'value', 'Value'),
      iconButton('×', `Remove filter ${at + 1}`, () => write(list().toSpliced(at, 1), true))))),
    h('div', { class: 'row' }, h('button', {
      type: 'button', text: 'Add filter', 'data-focus': 'add filter',
      on: { click: () => write([...list(), { key: '', operator: '=', value: '' }], true) },
    })),
  ];
}
