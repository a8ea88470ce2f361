// Options of the kinds that draw single values.

import { ORIENTATIONS, VALUE } from './shared.js';

/** @typedef {import('./index.js').KindOptions} KindOptions */
/** @typedef {import('../controls.js').Option} Option */

/** @type {Option} */
const ORIENTATION = {
  path: 'options.orientation', label: 'Orientation', control: 'select', default: 'auto', choices: ORIENTATIONS,
};

/** @type {Record<string, KindOptions>} */
export const VALUES = {
  stat: {
    name: 'Stat',
    groups: [
      VALUE,
      {
        title: 'Stat',
        options: [
          ORIENTATION,
          {
            path: 'options.textMode', label: 'Text', control: 'select', default: 'auto',
            choices: [['auto', 'Auto'], ['value', 'Value'], ['value_and_name', 'Value and name'], ['name', 'Name'],
              ['none', 'None']],
          },
          {
            path: 'options.colorMode', label: 'Colour', control: 'select', default: 'value',
            choices: [['none', 'None'], ['value', 'Value'], ['background', 'Background, gradient'],
              ['background_solid', 'Background']],
          },
          {
            path: 'options.graphMode', label: 'Line of the past', control: 'select', default: 'none',
            choices: [['none', 'None'], ['area', 'Area']],
          },
          {
            path: 'options.justifyMode', label: 'Alignment', control: 'select', default: 'auto',
            choices: [['auto', 'Auto'], ['center', 'Centre']],
          },
          { path: 'options.text.titleSize', label: 'Size of names', control: 'number', min: 9, max: 60 },
          { path: 'options.text.valueSize', label: 'Size of values', control: 'number', min: 1, max: 200 },
        ],
      },
    ],
  },
  gauge: {
    name: 'Gauge',
    groups: [
      VALUE,
      {
        title: 'Gauge',
        options: [
          ORIENTATION,
          {
            path: 'options.showThresholdMarkers', label: 'Thresholds around the arc', control: 'switch', default: true,
          },
          { path: 'options.showThresholdLabels', label: 'Labels of thresholds', control: 'switch', default: false },
        ],
      },
    ],
  },
  bargauge: {
    name: 'Bar gauge',
    groups: [
      VALUE,
      {
        title: 'Bar gauge',
        options: [
          ORIENTATION,
          {
            path: 'options.displayMode', label: 'Form', control: 'select', default: 'gradient',
            choices: [['gradient', 'Gradient'], ['lcd', 'Cells'], ['basic', 'One colour']],
          },
          {
            path: 'options.valueMode', label: 'Value', control: 'select', default: 'color',
            choices: [['color', 'In its colour'], ['text', 'In the colour of text'], ['hidden', 'Hidden']],
          },
          {
            path: 'options.namePlacement', label: 'Name', control: 'select', default: 'auto',
            choices: [['auto', 'Auto'], ['top', 'Above'], ['left', 'Left'], ['hidden', 'Hidden']],
          },
          { path: 'options.showUnfilled', label: 'Show the unfilled part', control: 'switch', default: true },
          {
            path: 'options.maxVizHeight', label: 'Most height of a bar', control: 'number', min: 10, max: 300,
            default: 60,
          },
        ],
      },
    ],
  },
  piechart: {
    name: 'Pie chart',
    groups: [
      VALUE,
      {
        title: 'Pie chart',
        options: [
          {
            path: 'options.pieType', label: 'Form', control: 'select', default: 'pie',
            choices: [['pie', 'Pie'], ['donut', 'Donut']],
          },
          {
            path: 'options.displayLabels', label: 'Labels', control: 'many',
            choices: [['name', 'Name'], ['value', 'Value'], ['percent', 'Percent']],
          },
        ],
      },
      {
        title: 'Legend',
        options: [
          { path: 'options.legend.showLegend', label: 'Show the legend', control: 'switch', default: true },
          {
            path: 'options.legend.placement', label: 'Place', control: 'select', default: 'bottom',
            choices: [['bottom', 'Below'], ['right', 'Right']],
          },
          {
            path: 'options.legend.values', label: 'Values', control: 'many',
            choices: [['value', 'Value'], ['percent', 'Percent']],
          },
        ],
      },
    ],
  },
};
