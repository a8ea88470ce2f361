// The forms of frequent transformations, as lists of options.

import { CALCULATIONS } from './controls.js';

/** @typedef {import('./controls.js').Option} Option */
/** @typedef {import('./controls.js').Choice} Choice */
/** @typedef {(path: string) => any} Read */
/** @typedef {{name: string, about: string, options?: Option[], rows?: 'organize' | 'groupBy' | 'filters'}}
 *   TransformationForm */

const get = (/** @type {string} */ path, /** @type {unknown} */ value) =>
  (/** @type {(path: string) => any} */ read) => read(path) === value;

/** @type {Choice[]} */
const OPERATORS = [['+', '+'], ['-', '−'], ['*', '×'], ['/', '÷']];

/** Transformations in the order of the list. @type {Map<string, TransformationForm>} */
export const FORMS = new Map(Object.entries({
  organize: { name: 'Organize fields', about: 'Hide, order and rename fields.', rows: 'organize' },
  reduce: {
    name: 'Reduce', about: 'One row a field, with calculations of its values.',
    options: [
      {
        path: 'mode', label: 'Result', control: 'select', default: 'seriesToRows',
        choices: [['seriesToRows', 'A row for each field'], ['reduceFields', 'The fields with one value']],
      },
      { path: 'reducers', label: 'Calculations', control: 'calcs', hint: 'The maximum, if none is chosen.' },
      {
        path: 'labelsToFields', label: 'Labels as fields', control: 'switch', default: false,
        when: (/** @type {Read} */ read) => read('mode') !== 'reduceFields',
      },
      {
        path: 'includeTimeField', label: 'With the time', control: 'switch', default: false,
        when: get('mode', 'reduceFields'),
      },
    ],
  },
  filterByValue: {
    name: 'Filter rows by value', about: 'Keep or leave out rows whose values match.', rows: 'filters',
    options: [
      {
        path: 'type', label: 'Rows that match', control: 'select', default: 'include',
        choices: [['include', 'Are kept'], ['exclude', 'Are left out']],
      },
      {
        path: 'match', label: 'A row matches', control: 'select', default: 'any',
        choices: [['any', 'Any condition'], ['all', 'All conditions']],
      },
    ],
  },
  sortBy: {
    name: 'Sort rows', about: 'Order rows by a field.',
    options: [
      { path: 'sort.0.field', label: 'Field', control: 'name' },
      { path: 'sort.0.desc', label: 'Falling', control: 'switch', default: false },
    ],
  },
  limit: {
    name: 'Limit rows', about: 'Keep the first rows, or the last with a negative number.',
    options: [{ path: 'limitField', label: 'Rows', control: 'number', step: 1, default: 10 }],
  },
  groupBy: { name: 'Group rows', about: 'One row a group, with calculations.', rows: 'groupBy' },
  joinByField: {
    name: 'Join by field', about: 'One table of all frames, joined by a field.',
    options: [
      { path: 'byField', label: 'Field', control: 'name', placeholder: 'Time' },
      {
        path: 'mode', label: 'Mode', control: 'select', default: 'outer',
        choices: [['outer', 'All rows'], ['inner', 'Rows that all frames have'],
          ['outerTabular', 'All rows, of tables']],
      },
    ],
  },
  merge: { name: 'Merge', about: 'One table of all frames; rows with equal fields are joined.', options: [] },
  calculateField: {
    name: 'Add a calculated field', about: 'A field that is calculated from others.',
    options: [
      {
        path: 'mode', label: 'Calculation', control: 'select', default: 'reduceRow',
        choices: [['reduceRow', 'Over the fields of a row'], ['binary', 'Two fields'], ['unary', 'One field'],
          ['cumulativeFunctions', 'Cumulative'], ['windowFunctions', 'Moving window'], ['index', 'Number of the row']],
      },
      {
        path: 'reduce.reducer', label: 'Function', control: 'select', default: 'sum', choices: CALCULATIONS,
        when: (/** @type {Read} */ read) => (read('mode') ?? 'reduceRow') === 'reduceRow',
      },
      { path: 'binary.left', label: 'Left', control: 'name', when: get('mode', 'binary') },
      {
        path: 'binary.operator', label: 'Operator', control: 'select', default: '+', choices: OPERATORS,
        when: get('mode', 'binary'),
      },
      { path: 'binary.right', label: 'Right', control: 'name', when: get('mode', 'binary') },
      {
        path: 'unary.operator', label: 'Function', control: 'select', default: 'abs', when: get('mode', 'unary'),
        choices: ['abs', 'exp', 'ln', 'round', 'floor', 'ceil'].map((name) => [name, name]),
      },
      { path: 'unary.fieldName', label: 'Field', control: 'name', when: get('mode', 'unary') },
      { path: 'cumulative.field', label: 'Field', control: 'name', when: get('mode', 'cumulativeFunctions') },
      {
        path: 'cumulative.reducer', label: 'Function', control: 'select', default: 'sum',
        choices: [['sum', 'Total'], ['mean', 'Mean']], when: get('mode', 'cumulativeFunctions'),
      },
      { path: 'window.field', label: 'Field', control: 'name', when: get('mode', 'windowFunctions') },
      {
        path: 'window.reducer', label: 'Function', control: 'select', default: 'mean',
        choices: [['mean', 'Mean'], ['stdDev', 'Standard deviation'], ['variance', 'Variance']],
        when: get('mode', 'windowFunctions'),
      },
      {
        path: 'window.windowSize', label: 'Window', control: 'number', min: 0, default: 0.1,
        when: get('mode', 'windowFunctions'),
      },
      { path: 'alias', label: 'Name', control: 'text', placeholder: 'Auto' },
      { path: 'replaceFields', label: 'Replace all fields', control: 'switch', default: false },
    ],
  },
  renameByRegex: {
    name: 'Rename by pattern', about: 'Rename fields with a regular expression.',
    options: [
      { path: 'regex', label: 'Regular expression', control: 'text', placeholder: '(.*)_total' },
      { path: 'renamePattern', label: 'New name', control: 'text', placeholder: '$1' },
    ],
  },
  labelsToFields: {
    name: 'Labels to fields', about: 'Labels of series become fields.',
    options: [
      {
        path: 'mode', label: 'Labels are', control: 'select', default: 'columns',
        choices: [['columns', 'Columns'], ['rows', 'Rows']],
      },
      { path: 'valueLabel', label: 'Label that names the value', control: 'text' },
    ],
  },
}).map(([id, form]) => [id, /** @type {TransformationForm} */ (form)]));

/** Conditions on a value, with the members that they need. @type {[string, string, string[]][]} */
export const CONDITIONS = [
  ['greater', 'is above', ['value']],
  ['greaterOrEqual', 'is at least', ['value']],
  ['lower', 'is below', ['value']],
  ['lowerOrEqual', 'is at most', ['value']],
  ['equal', 'equals', ['value']],
  ['notEqual', 'differs from', ['value']],
  ['between', 'is between', ['from', 'to']],
  ['substring', 'contains', ['value']],
  ['notSubstring', 'does not contain', ['value']],
  ['regex', 'matches', ['value']],
  ['isNull', 'is null', []],
  ['isNotNull', 'is not null', []],
];
