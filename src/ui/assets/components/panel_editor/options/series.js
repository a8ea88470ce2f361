// Options of the kinds that draw series in a plane.

import { CUSTOM, LEGEND, TOOLTIP } from './shared.js';

/** @typedef {import('./index.js').KindOptions} KindOptions */
/** @typedef {import('../controls.js').Option} Option */

/** @type {Option} */
const FILL = {
  path: `${CUSTOM}fillOpacity`, label: 'Fill opacity in %', control: 'number', min: 0, max: 100, default: 0,
};
const lines = (/** @type {(path: string) => any} */ get) => get(`${CUSTOM}drawStyle`) !== 'bars';

/** @type {Option[]} */
const STYLE = [
  {
    path: `${CUSTOM}drawStyle`, label: 'Style', control: 'select', default: 'line',
    choices: [['line', 'Lines'], ['bars', 'Bars'], ['points', 'Points']],
  },
  {
    path: `${CUSTOM}lineInterpolation`, label: 'Line between points', control: 'select', default: 'linear', when: lines,
    choices: [['linear', 'Straight'], ['smooth', 'Smooth'], ['stepBefore', 'Step before'], ['stepAfter', 'Step after']],
  },
  { path: `${CUSTOM}lineWidth`, label: 'Line width', control: 'number', min: 0, max: 10, default: 1 },
  {
    path: `${CUSTOM}lineStyle.fill`, label: 'Line style', control: 'select', default: 'solid', when: lines,
    choices: [['solid', 'Solid'], ['dash', 'Dashes'], ['dot', 'Dots']],
  },
  FILL,
  {
    path: `${CUSTOM}gradientMode`, label: 'Gradient', control: 'select', default: 'none',
    choices: [['none', 'None'], ['opacity', 'Opacity'], ['hue', 'Hue'], ['scheme', 'Colour scheme']],
  },
  {
    path: `${CUSTOM}showPoints`, label: 'Points', control: 'select', default: 'auto', when: lines,
    choices: [['auto', 'When there is room'], ['always', 'Always'], ['never', 'Never']],
  },
  { path: `${CUSTOM}pointSize`, label: 'Point size', control: 'number', min: 1, max: 20, default: 5 },
  {
    path: `${CUSTOM}spanNulls`, label: 'Connect over gaps', control: 'select', default: false, when: lines,
    choices: [[false, 'Never'], [true, 'Always'], [3_600_000, 'Gaps of up to 1 h']],
  },
  {
    path: `${CUSTOM}stacking.mode`, label: 'Stacking', control: 'select', default: 'none',
    choices: [['none', 'Off'], ['normal', 'Values'], ['percent', 'Shares of 100 %']],
  },
  {
    path: `${CUSTOM}transform`, label: 'Transform', control: 'select',
    choices: [[undefined, 'None'], ['negative-Y', 'Draw below zero']],
  },
];

/** @type {Option[]} */
const AXIS = [
  {
    path: `${CUSTOM}axisPlacement`, label: 'Axis', control: 'select', default: 'auto',
    choices: [['auto', 'Auto'], ['left', 'Left'], ['right', 'Right'], ['hidden', 'Hidden']],
  },
  { path: `${CUSTOM}axisLabel`, label: 'Axis label', control: 'text' },
  {
    path: `${CUSTOM}scaleDistribution`, label: 'Scale', control: 'select', default: { type: 'linear' },
    choices: [
      [{ type: 'linear' }, 'Linear'],
      [{ type: 'log', log: 2 }, 'Logarithmic, base 2'],
      [{ type: 'log', log: 10 }, 'Logarithmic, base 10'],
    ],
  },
  { path: `${CUSTOM}axisSoftMin`, label: 'Soft minimum', control: 'number', hint: 'The scale may go below it.' },
  { path: `${CUSTOM}axisSoftMax`, label: 'Soft maximum', control: 'number' },
  { path: `${CUSTOM}axisCenteredZero`, label: 'Zero in the middle', control: 'switch', default: false },
  {
    path: `${CUSTOM}thresholdsStyle.mode`, label: 'Show thresholds', control: 'select', default: 'off',
    choices: [['off', 'Off'], ['line', 'As lines'], ['dashed', 'As dashed lines'], ['area', 'As areas'],
      ['line+area', 'As lines and areas'], ['dashed+area', 'As dashed lines and areas']],
  },
];

/** @type {Record<string, KindOptions>} */
export const SERIES = {
  timeseries: {
    name: 'Time series',
    groups: [LEGEND, TOOLTIP, { title: 'Graph', options: STYLE }, { title: 'Axis', options: AXIS }],
  },
  barchart: {
    name: 'Bar chart',
    groups: [
      LEGEND,
      {
        title: 'Bars',
        options: [
          {
            path: 'options.xField', label: 'Field of the categories', control: 'name', placeholder: 'First text field',
          },
          {
            path: 'options.stacking', label: 'Stacking', control: 'select', default: 'none',
            choices: [['none', 'Off'], ['normal', 'Values'], ['percent', 'Shares of 100 %']],
          },
          {
            path: 'options.groupWidth', label: 'Width of groups', control: 'number', min: 0.1, max: 1, step: 0.05,
            default: 0.7, hint: 'From 0.1 to 1.',
          },
          { ...FILL, default: 80 },
        ],
      },
    ],
  },
  histogram: {
    name: 'Histogram',
    groups: [
      {
        title: 'Histogram',
        options: [
          { path: 'options.bucketCount', label: 'Buckets', control: 'number', min: 1, max: 200, step: 1, default: 30 },
          { path: 'options.bucketSize', label: 'Bucket size', control: 'number', min: 0 },
          { path: 'options.bucketOffset', label: 'Bucket offset', control: 'number', default: 0 },
          { path: 'options.combine', label: 'Combine series', control: 'switch', default: false },
        ],
      },
    ],
  },
};
