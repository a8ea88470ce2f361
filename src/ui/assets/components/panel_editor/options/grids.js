// Options of tables, text, heatmaps, timelines and lists.

import { CUSTOM, LEGEND } from './shared.js';
import { CALCULATIONS } from '../controls.js';

/** @typedef {import('./index.js').KindOptions} KindOptions */
/** @typedef {import('./index.js').Group} Group */
/** @typedef {import('../controls.js').Option} Option */
/** @typedef {import('../controls.js').Choice} Choice */

/** @type {Option} */
const OPACITY = {
  path: `${CUSTOM}fillOpacity`, label: 'Fill opacity in %', control: 'number', min: 0, max: 100, default: 80,
};
/** @type {Option} */
const SHOW_VALUE = {
  path: 'options.showValue', label: 'Values', control: 'select', default: 'auto',
  choices: [['auto', 'When there is room'], ['never', 'Never']],
};
/** @type {Option} */
const ROW_HEIGHT = {
  path: 'options.rowHeight', label: 'Height of rows', control: 'number', min: 0.1, max: 1, step: 0.05, default: 0.9,
  hint: 'The part of a row that is filled.',
};

/** Footers store the one calculation in a list. @type {Choice[]} */
const FOOTERS = CALCULATIONS.map(([id, name]) => [[id], name]);

/** @type {Record<string, KindOptions>} */
export const GRIDS = {
  table: {
    name: 'Table',
    groups: [
      {
        title: 'Table',
        options: [
          { path: 'options.showHeader', label: 'Show the header', control: 'switch', default: true },
          { path: 'options.footer.show', label: 'Show a footer', control: 'switch', default: false },
          {
            path: 'options.footer.reducer', label: 'Footer shows', control: 'select', choices: FOOTERS,
            when: (get) => get('options.footer.show') === true,
          },
        ],
      },
      {
        title: 'Cells',
        options: [
          {
            path: `${CUSTOM}cellOptions.type`, label: 'Form', control: 'select', default: 'auto',
            choices: [['auto', 'Text'], ['color-text', 'Coloured text'], ['color-background', 'Coloured background'],
              ['gauge', 'Gauge']],
          },
          {
            path: `${CUSTOM}align`, label: 'Alignment', control: 'select', default: 'auto',
            choices: [['auto', 'Auto'], ['left', 'Left'], ['center', 'Centre'], ['right', 'Right']],
          },
          { path: `${CUSTOM}hidden`, label: 'Hide in the table', control: 'switch', default: false },
        ],
      },
    ],
  },
  text: {
    name: 'Text',
    plain: true,
    groups: [
      {
        title: 'Text',
        options: [
          {
            path: 'options.mode', label: 'Form', control: 'select', default: 'markdown',
            choices: [['markdown', 'Markdown'], ['code', 'Plain text']],
          },
          { path: 'options.content', label: 'Content', control: 'lines' },
        ],
      },
    ],
  },
  heatmap: {
    name: 'Heatmap',
    groups: [
      {
        title: 'Heatmap',
        options: [
          {
            path: 'options.calculate', label: 'Data', control: 'select', default: false,
            choices: [[false, 'Buckets of a histogram'], [true, 'Count values in buckets']],
          },
          { path: 'options.cellGap', label: 'Gap between cells', control: 'number', min: 0, max: 5, default: 1 },
          {
            path: 'options.filterValues.le', label: 'Hide counts up to', control: 'number', default: 1e-9,
          },
          { path: 'options.yAxis.unit', label: 'Unit of the axis', control: 'unit' },
          { path: 'options.yAxis.decimals', label: 'Decimals of the axis', control: 'number', min: 0, max: 20 },
          { path: 'options.legend.show', label: 'Show the scale of colours', control: 'switch', default: true },
        ],
      },
      {
        title: 'Colours',
        options: [
          {
            path: 'options.color.mode', label: 'Mode', control: 'select', default: 'scheme',
            choices: [['scheme', 'Scheme'], ['opacity', 'One colour']],
          },
          {
            path: 'options.color.scheme', label: 'Scheme', control: 'select', default: 'Oranges',
            choices: ['Oranges', 'Blues', 'Greens', 'Reds', 'Purples', 'Greys', 'Spectral', 'RdYlGn', 'Turbo',
              'Viridis'].map((name) => [name, name]),
            when: (get) => get('options.color.mode') !== 'opacity',
          },
          {
            path: 'options.color.fill', label: 'Colour', control: 'colour',
            when: (get) => get('options.color.mode') === 'opacity',
          },
          {
            path: 'options.color.exponent', label: 'Exponent', control: 'number', min: 0.05, max: 2, step: 0.05,
            default: 0.5,
          },
          { path: 'options.color.reverse', label: 'Reverse', control: 'switch', default: false },
        ],
      },
    ],
  },
  'state-timeline': {
    name: 'State timeline',
    groups: [
      {
        title: 'State timeline',
        options: [
          { path: 'options.mergeValues', label: 'Merge equal neighbours', control: 'switch', default: true },
          SHOW_VALUE, ROW_HEIGHT, OPACITY,
        ],
      },
      LEGEND,
    ],
  },
  'status-history': {
    name: 'Status history',
    groups: [{ title: 'Status history', options: [SHOW_VALUE, ROW_HEIGHT, OPACITY] }, LEGEND],
  },
  alertlist: { name: 'Alert list', plain: true, groups: [] },
  dashlist: {
    name: 'Dashboard list',
    plain: true,
    groups: [
      {
        title: 'Dashboard list',
        options: [
          { path: 'options.showStarred', label: 'Starred only', control: 'switch', default: false },
          { path: 'options.showSearch', label: 'Search', control: 'switch', default: false },
          {
            path: 'options.query', label: 'Words', control: 'text',
            when: (get) => get('options.showSearch') === true,
          },
          { path: 'options.maxItems', label: 'Most dashboards', control: 'number', min: 1, max: 100, default: 30 },
        ],
      },
    ],
  },
};
