// Groups of options that several kinds of panels have.

/** @typedef {import('../controls.js').Option} Option */
/** @typedef {import('../controls.js').Choice} Choice */
/** @typedef {import('./index.js').Group} Group */

export const CUSTOM = 'fieldConfig.defaults.custom.';

/** @type {Choice[]} */
export const ORIENTATIONS = [['auto', 'Auto'], ['horizontal', 'Horizontal'], ['vertical', 'Vertical']];

/** @type {Group} */
export const LEGEND = {
  title: 'Legend',
  options: [
    { path: 'options.legend.showLegend', label: 'Show the legend', control: 'switch', default: true },
    {
      path: 'options.legend.displayMode', label: 'Form', control: 'select', default: 'list',
      choices: [['list', 'List'], ['table', 'Table']],
    },
    {
      path: 'options.legend.placement', label: 'Place', control: 'select', default: 'bottom',
      choices: [['bottom', 'Below'], ['right', 'Right']],
    },
    {
      path: 'options.legend.width', label: 'Width in pixels', control: 'number', min: 0, max: 2000,
      when: (get) => get('options.legend.placement') === 'right',
    },
    { path: 'options.legend.calcs', label: 'Calculations', control: 'calcs' },
  ],
};

/** @type {Group} */
export const TOOLTIP = {
  title: 'Tooltip',
  options: [
    {
      path: 'options.tooltip.mode', label: 'Shows', control: 'select', default: 'single',
      choices: [['single', 'The nearest series'], ['multi', 'All series'], ['none', 'Nothing']],
    },
    {
      path: 'options.tooltip.sort', label: 'Order of values', control: 'select', default: 'none',
      choices: [['none', 'As the series'], ['asc', 'Rising'], ['desc', 'Falling']],
      when: (get) => get('options.tooltip.mode') === 'multi',
    },
    {
      path: 'options.tooltip.hideZeros', label: 'Hide zeros', control: 'switch', default: false,
      when: (get) => get('options.tooltip.mode') === 'multi',
    },
  ],
};

/** @type {Group} */
export const VALUE = {
  title: 'Values',
  options: [
    {
      path: 'options.reduceOptions.values', label: 'Show', control: 'select', default: false,
      choices: [[false, 'One value a series'], [true, 'Each row']],
    },
    {
      path: 'options.reduceOptions.calcs', label: 'Calculation', control: 'calcs',
      hint: 'The last value that is not null, if none is chosen.',
      when: (get) => get('options.reduceOptions.values') !== true,
    },
    {
      path: 'options.reduceOptions.limit', label: 'Most rows', control: 'number', min: 1, max: 1000, step: 1,
      default: 25, when: (get) => get('options.reduceOptions.values') === true,
    },
    {
      path: 'options.reduceOptions.fields', label: 'Fields', control: 'name', placeholder: 'Numeric fields',
      hint: 'A name, or a regular expression between slashes.',
    },
  ],
};
