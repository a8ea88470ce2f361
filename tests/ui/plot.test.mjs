// Scales, series and stacks of plots, and the cells of heatmaps.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { applyFieldConfig } from '../../src/ui/assets/model/fields.js';
import { framesOf } from '../../src/ui/assets/model/frame.js';
import { channels, palette } from '../../src/ui/assets/model/palette.js';
import { heatGrid } from '../../src/ui/assets/plot/heat_grid.js';
import { tickTexts, valueScale } from '../../src/ui/assets/plot/scale.js';
import { extent, fillTarget, isPercent, plotData, softLimits, stack } from '../../src/ui/assets/plot/series.js';
import { textColor } from '../../src/ui/assets/plot/values.js';

test('an axis has a tenth more than the values, and ends at zero rather than beyond it', () => {
  const scale = valueScale(0.5, 20, 5, {});
  assert.equal(scale.low, 0);
  assert.ok(scale.high >= 21.8 && scale.high <= 23, `${scale.high}`);
  const high = valueScale(950, 1000, 5, {});
  assert.ok(high.low > 900 && high.low <= 945, `${high.low}`);
  assert.equal(valueScale(-10, -0.5, 5, {}).high, 0);
  assert.ok(valueScale(-10, -2, 5, {}).high < 0);
});

test('configured ends are the ends of the axis', () => {
  const { low, high } = valueScale(3, 7, 5, { min: 0, max: 100 });
  assert.deepEqual([low, high], [0, 100]);
  assert.deepEqual(
    [valueScale(3, 7, 5, { softMax: 50 }).high >= 50, valueScale(3, 70, 5, { softMax: 50 }).high > 70],
    [true, true],
  );
});

test('an axis without values, and of one value, has two ends', () => {
  for (const [low, high] of [
    [Infinity, -Infinity],
    [0, 0],
    [5, 5],
    [-3, -3],
  ]) {
    const scale = valueScale(low, high, 5, {});
    assert.ok(scale.high > scale.low && scale.ticks.length >= 2, JSON.stringify([low, high, scale.ticks]));
  }
});

test('ticks have as few decimals as tell them apart', () => {
  assert.deepEqual(tickTexts([0, 0.5, 1], undefined, undefined), ['0', '0.5', '1']);
  assert.deepEqual(tickTexts([0, 536870912, 1073741824], 'bytes', undefined), ['0 B', '512 MiB', '1 GiB']);
  assert.deepEqual(tickTexts([0, 0.001, 0.002], undefined, undefined), ['0', '0.001', '0.002']);
  assert.deepEqual(tickTexts([0, 0.25], 'percentunit', 1), ['0.0%', '25.0%']);
});

test('a logarithmic axis has powers of its base', () => {
  const scale = valueScale(3, 4000, 4, { log: 10 });
  assert.deepEqual(scale.ticks, [1, 10, 100, 1000, 10000]);
  assert.equal(scale.at(100), 0.5);
  assert.ok(Math.abs(scale.value(0.25) - 10) < 1e-9);
});

/** Frames of series with one value a minute; null leaves the sample out. */
function framesFrom(series, fieldConfig) {
  const result = Object.entries(series).map(([name, values]) => ({
    metric: { name },
    values: values.flatMap((value, at) => (value === null ? [] : [[at * 60, String(value)]])),
  }));
  return applyFieldConfig(
    framesOf({ resultType: 'matrix', result }, { refId: 'A', legendFormat: '{{name}}' }),
    fieldConfig,
  );
}
const stacked = { defaults: { custom: { stacking: { mode: 'normal', group: 'A' } } }, overrides: [] };

test('a stack adds the values below, positive and negative ones apart', () => {
  const { series, times } = plotData(framesFrom({ a: [1, 2], b: [10, 20], c: [-3, -4] }, stacked), 'light');
  stack(series, times.length);
  assert.deepEqual(
    series.map(({ drawn }) => [...drawn]),
    [
      [1, 2],
      [11, 22],
      [-3, -4],
    ],
  );
  assert.deepEqual([...series[1].base], [1, 2]);
  assert.deepEqual(extent(series), [-4, 22]);
});

test('a hidden series leaves the stack', () => {
  const { series, times } = plotData(framesFrom({ a: [1, 2], b: [10, 20] }, stacked), 'light');
  stack(series.slice(1), times.length);
  assert.deepEqual([...series[1].drawn], [10, 20]);
});

test('a stack in percent ends at one', () => {
  const percent = { defaults: { custom: { stacking: { mode: 'percent', group: 'A' } } }, overrides: [] };
  const { series, times } = plotData(framesFrom({ a: [1, 0], b: [3, 0] }, percent), 'light');
  stack(series, times.length);
  assert.deepEqual([...series[1].drawn], [1, 0]);
});

test('the_axis_of_a_stack_in_percent_ends_at_zero_and_one_unless_limits_are_set', () => {
  const axis = (custom, values) => {
    const { series, times } = plotData(
      framesFrom(values, { defaults: { custom: { stacking: { mode: 'percent', group: 'A' }, ...custom } } }),
      'light',
    );
    stack(series, times.length);
    assert.equal(isPercent(series), true);
    const { low, high } = valueScale(...extent(series), 5, softLimits(series));
    return [low, high];
  };
  // The parts of these add up to 0.9999999999999999 or 1.0000000000000002 without rounding.
  const many = Object.fromEntries(Array.from({ length: 49 }, (_, at) => [`s${at}`, [at * 0.1 + 0.3, at + 7 / 3]]));
  assert.deepEqual(axis({}, many), [0, 1]);
  assert.deepEqual(axis({}, { a: [1, 0], b: [3, 0] }), [0, 1]);
  assert.ok(axis({ axisSoftMax: 2 }, { a: [1], b: [3] })[1] >= 1.1);
  assert.deepEqual(softLimits([]), { softMin: undefined, softMax: undefined });
  const [plain] = plotData(framesFrom({ a: [1] }, stacked), 'light').series;
  assert.deepEqual([isPercent([plain]), softLimits([plain])], [false, { softMin: undefined, softMax: undefined }]);
  // Hard limits still count.
  assert.equal(valueScale(0, 1, 5, { softMin: 0, softMax: 1, max: 1.5 }).high, 1.5);
});

test('points further apart than one and a half steps are not connected, unless the dashboard says so', () => {
  const values = { a: [1, 1, null, null, 1, 1] };
  const [plain] = plotData(framesFrom(values), 'light').series;
  assert.equal(plain.gap, 90_000);
  const [spanned] = plotData(
    framesFrom(values, { defaults: { custom: { spanNulls: true } }, overrides: [] }),
    'light',
  ).series;
  assert.equal(spanned.gap, Infinity);
  const [some] = plotData(
    framesFrom(values, { defaults: { custom: { spanNulls: 300_000 } }, overrides: [] }),
    'light',
  ).series;
  assert.equal(some.gap, 300_000);
});

test('a second unit has the right axis, and a placement wins', () => {
  const override = (name, id, value) => ({ matcher: { id: 'byName', options: name }, properties: [{ id, value }] });
  const frames = framesFrom(
    { a: [1], b: [2], c: [3] },
    {
      defaults: { unit: 'bytes' },
      overrides: [override('b', 'unit', 's'), override('c', 'custom.axisPlacement', 'right')],
    },
  );
  assert.deepEqual(
    plotData(frames, 'light').series.map(({ axis }) => axis),
    [0, 1, 1],
  );
});

test('a series is mirrored and filled down to another one', () => {
  const frames = framesFrom(
    { a: [1], b: [2] },
    {
      defaults: {},
      overrides: [
        {
          matcher: { id: 'byName', options: 'b' },
          properties: [
            { id: 'custom.transform', value: 'negative-Y' },
            { id: 'custom.fillBelowTo', value: 'a' },
          ],
        },
      ],
    },
  );
  const { series } = plotData(frames, 'light');
  assert.deepEqual([...series[1].values], [-2]);
  assert.equal(fillTarget(series[1], series), series[0]);
  assert.equal(fillTarget(series[0], series), null);
});

test('series of the same name have keys of their own', () => {
  const { series } = plotData([...framesFrom({ a: [1] }), ...framesFrom({ a: [2] })], 'light');
  assert.equal(new Set(series.map(({ key }) => key)).size, 2);
});

const buckets = {
  resultType: 'matrix',
  result: [
    ['0.1', 1],
    ['1', 3],
    ['+Inf', 3],
  ].map(([le, count]) => ({
    metric: { le },
    values: [
      [60, String(count)],
      [120, String(2 * count)],
    ],
  })),
};

test('a heatmap has a row a bucket with its own count', () => {
  const grid = heatGrid(framesOf(buckets, { refId: 'A', format: 'heatmap' }), { from: 0, to: 120_000 }, {});
  assert.deepEqual(
    grid.rows.map(({ top, counts }) => [top, ...counts]),
    [
      [0.1, 1, 2],
      [1, 2, 4],
      [Infinity, 0, 0],
    ],
  );
  assert.deepEqual([grid.step, grid.high], [60_000, 4]);
});

test('a calculated heatmap counts every value once', () => {
  const grid = heatGrid(
    framesFrom({ a: [1, 2, 3, 4], b: [4, 4, 4, 4] }),
    { from: 0, to: 240_000 },
    { calculate: true },
  );
  const total = grid.rows.reduce((sum, { counts }) => sum + counts.reduce((all, count) => all + count, 0), 0);
  assert.equal(total, 8);
});

test('a heatmap without values is none', () => {
  assert.equal(heatGrid([], { from: 0, to: 1 }, {}), null);
});

test('a value in any colour of the palette is readable as small text, and a readable colour stays', () => {
  const linear = (channel) => (channel <= 10 ? channel / 3294.6 : ((channel / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = (hex) => [0.2126, 0.7152, 0.0722].reduce((sum, part, at) => sum + part * linear(channels(hex)[at]), 0);
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((left, right) => left - right);
    return (high + 0.05) / (low + 0.05);
  };
  let changed = 0;
  for (const theme of ['light', 'dark']) {
    const { named, series, background } = palette(theme);
    const opaque = [...named.values(), ...series].filter((hex) => hex.length === 7);
    for (const hex of opaque) {
      const shown = textColor(hex, theme);
      assert.ok(contrast(shown, background) >= 4.5, `${hex} on a ${theme} page: ${shown}`);
      if (contrast(hex, background) >= 4.8) assert.equal(shown, hex);
      else changed += 1;
    }
    for (const other of ['#00000000', 'rgb(1, 2, 3)', '#fff']) assert.equal(textColor(other, theme), other);
  }
  assert.ok(changed > 10, `${changed} colours are hard to read`);
});
