// Panels and rows of old Grafana versions.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { overrideOf, panelOf } from './dashboard_samples.mjs';

test('an_old_graph_becomes_a_time_series', () => {
  const panel = panelOf({ type: 'graph', lines: true, linewidth: 2, fill: 4, fillGradient: 3, points: true,
    pointradius: 3,
    steppedLine: true, stack: true, percentage: true, nullPointMode: 'connected', decimals: 2,
    yaxes: [{ format: 'bytes', label: 'left', logBase: 10, min: '0', max: null, show: true },
      { format: 'percent', label: 'right', max: 100, logBase: 1, show: true }],
    xaxis: { mode: 'time', show: false }, aliasColors: { eth0: '#aa0000', __proto__: '#fff' },
    seriesOverrides: [{ alias: '/^tx/', yaxis: 2, transform: 'negative-Y', fill: 0, linewidth: 5, stack: false },
      { alias: 'total', bars: true, lines: false, legend: false, color: 'red', dashes: true,
        nullPointMode: 'null as zero' }],
    thresholds: [{ value: 90, op: 'gt', colorMode: 'critical', fill: true, line: true },
      { value: 10, op: 'lt', colorMode: 'custom', fillColor: 'blue', fill: true }],
    legend: { show: true, values: true, min: true, avg: true, current: true, alignAsTable: true, rightSide: true,
      sort: 'current', sortDesc: true, sideWidth: 300 },
    tooltip: { shared: true, sort: 2 }, timeRegions: [{ op: 'time' }] });
  assert.deepEqual([panel.type, panel.sourceType, panel.legacy], ['timeseries', 'graph', true]);
  assert.deepEqual(panel.fieldConfig.defaults, {
    color: { mode: 'palette-classic' }, unit: 'bytes', decimals: 2, min: 0,
    thresholds: { mode: 'absolute', steps: [{ value: null, color: 'blue' }, { value: 10, color: 'transparent' },
      { value: 90, color: 'red' }] },
    custom: { drawStyle: 'line', showPoints: 'always', fillOpacity: 40, gradientMode: 'opacity', lineWidth: 2,
      pointSize: 8,
      lineInterpolation: 'stepAfter', spanNulls: true, stacking: { mode: 'percent', group: 'A' },
      thresholdsStyle: { mode: 'line+area' }, axisLabel: 'left', scaleDistribution: { type: 'log', log: 10 } },
  });
  assert.deepEqual(overrideOf(panel, 'eth0'), { color: { mode: 'fixed', fixedColor: '#aa0000' } });
  assert.equal(panel.fieldConfig.overrides.find((one) => one.matcher.options === '/^tx/')?.matcher.id, 'byRegexp');
  assert.deepEqual(overrideOf(panel, '/^tx/'), { 'custom.fillOpacity': 0, 'custom.lineWidth': 5, unit: 'percent',
    max: 100,
    'custom.axisLabel': 'right', 'custom.axisPlacement': 'right', 'custom.stacking': { mode: 'none', group: false },
    'custom.transform': 'negative-Y' });
  const total = overrideOf(panel, 'total');
  assert.deepEqual([total['custom.drawStyle'], total.color.fixedColor, total.nullValueMode], ['bars', 'red',
    'null as zero']);
  assert.deepEqual(total['custom.hideFrom'], { legend: true, tooltip: false, viz: false });
  assert.deepEqual(total['custom.lineStyle'], { fill: 'dash', dash: [10, 10] });
  assert.deepEqual(panel.options.legend, { showLegend: true, displayMode: 'table', placement: 'right',
    calcs: ['min', 'mean', 'lastNotNull'], width: 300, sortBy: 'lastNotNull', sortDesc: true });
  assert.deepEqual(panel.options.tooltip, { mode: 'multi', sort: 'desc' });
  assert.equal(panel.fieldConfig.overrides.at(-1)?.matcher.id, 'byType');
});

test('details_of_graphs_are_kept', () => {
  const panel = panelOf({ type: 'graph', linewidth: 3, alert: { name: 'a' },
    legend: { hideEmpty: true, hideZero: true },
    tooltip: { shared: false }, seriesOverrides: [{ alias: 'a', stack: 'B' }, { alias: 'b', stack: true },
      { alias: 'c', points: true, lines: false }, { alias: 'd', hideTooltip: true, fillBelowTo: 'e' }] });
  const { legend, tooltip } = panel.options;
  assert.deepEqual([legend.hideEmpty, legend.hideZero, legend.displayMode, tooltip.mode],
    [true, true, 'list', 'single']);
  assert.deepEqual([panel.fieldConfig.defaults.custom.lineWidth, panel.fieldConfig.defaults.custom.fillOpacity],
    [3, 10]);
  assert.deepEqual(overrideOf(panel, 'a')['custom.stacking'], { mode: 'normal', group: 'B' });
  assert.deepEqual(overrideOf(panel, 'b')['custom.stacking'], { mode: 'normal', group: 'A' });
  assert.deepEqual(overrideOf(panel, 'c'), { 'custom.drawStyle': 'points', 'custom.showPoints': 'always' });
  assert.deepEqual([overrideOf(panel, 'd')['custom.hideFrom'].tooltip, overrideOf(panel, 'd')['custom.fillBelowTo']],
    [true, 'e']);
  const { report } = readDashboard({ title: 't', panels: [{ type: 'graph', alert: {}, timeRegions: [{}],
    transformations: [1] }] });
  assert.deepEqual(report.map((line) => `${line.severity}: ${line.what}`), ['warning: time regions are not drawn',
    'warning: its alert rule is not imported', 'warning: a transformation is not an object']);
});

test('each_old_name_of_a_calculation_has_its_new_one', () => {
  const names = { current: 'lastNotNull', avg: 'mean', total: 'sum', min: 'min', max: 'max', first: 'firstNotNull',
    delta: 'delta', diff: 'diff', range: 'range', count: 'count', name: 'lastNotNull', last_time: 'lastNotNull' };
  for (const [valueName, calculation] of Object.entries(names)) {
    assert.deepEqual(panelOf({ type: 'singlestat', valueName }).options.reduceOptions.calcs, [calculation]);
  }
  assert.equal(panelOf({ type: 'singlestat', valueName: 'name' }).options.textMode, 'name');
});

test('graphs_of_the_first_versions_keep_axes_thresholds_and_units', () => {
  const panel = panelOf({ type: 'graphite', y_formats: ['ms', 'short'], leftYAxisLabel: 'time', bars: true,
    lines: false,
    grid: { leftMin: 1, leftMax: 9, leftLogBase: 2, threshold1: 5, threshold1Color: 'orange', threshold2: 8,
      threshold2Color: 'red', thresholdLine: true }, aliasYAxis: { errors: 2 }, 'x-axis': true, 'y-axis': false });
  const { defaults } = panel.fieldConfig;
  assert.deepEqual([panel.type, defaults.unit, defaults.min, defaults.max], ['timeseries', 'ms', 1, 9]);
  assert.deepEqual([defaults.custom.drawStyle, defaults.custom.axisLabel, defaults.custom.axisPlacement,
    defaults.custom.fillOpacity],
    ['bars', 'time', 'hidden', 100]);
  assert.deepEqual(defaults.thresholds.steps, [{ value: null, color: 'transparent' }, { value: 5, color: 'orange' },
    { value: 8, color: 'red' }]);
  assert.equal(defaults.custom.thresholdsStyle.mode, 'line');
  assert.equal(overrideOf(panel, 'errors').unit, 'short');
});

test('the_x_axis_of_a_graph_decides_its_kind', () => {
  const histogram = panelOf({ type: 'graph', xaxis: { mode: 'histogram', buckets: 20 } });
  assert.deepEqual([histogram.type, histogram.options.bucketCount], ['histogram', 20]);
  const bars = panelOf({ type: 'graph', xaxis: { mode: 'series', values: ['avg'] } });
  assert.equal(bars.type, 'barchart');
  assert.deepEqual(bars.transformations, [{ id: 'reduce', options: { reducers: ['mean'] } }]);
});

test('singlestat_becomes_a_stat_or_a_gauge', () => {
  const old = { type: 'singlestat', format: 'percent', decimals: 1, valueName: 'current', prefix: 'p', postfix: 's',
    thresholds: '85,95', colors: ['green', 'orange', 'red'], colorValue: true, sparkline: { show: true },
    mappingType: 1, valueMaps: [{ op: '=', text: 'N/A', value: 'null' }, { value: '1', text: 'UP' }],
    rangeMaps: [{ from: '1', to: '2', text: 'low' }], nullText: 'none', gauge: { show: false, minValue: 0,
      maxValue: 50 } };
  const stat = panelOf(old);
  assert.equal(stat.type, 'stat');
  assert.deepEqual(stat.options, { reduceOptions: { values: false, calcs: ['lastNotNull'], fields: '' }, prefix: 'p',
    postfix: 's', colorMode: 'value', graphMode: 'area', justifyMode: 'auto', orientation: 'horizontal',
      textMode: 'auto' });
  assert.deepEqual(stat.fieldConfig.defaults, { unit: 'percent', decimals: 1, noValue: 'none',
    color: { mode: 'thresholds' },
    mappings: [{ type: 'special', options: { match: 'null', result: { text: 'N/A', index: 0 } } },
      { type: 'value', options: { 1: { text: 'UP', index: 1 } } }],
    thresholds: { mode: 'absolute', steps: [{ color: 'green', value: null }, { color: 'orange', value: 85 },
      { color: 'red', value: 95 }] } });
  const gauge = panelOf({ ...old, gauge: { show: true, minValue: 5, maxValue: 50, thresholdLabels: true },
    mappingType: 2 });
  assert.deepEqual([gauge.type, gauge.fieldConfig.defaults.min, gauge.fieldConfig.defaults.max], ['gauge', 5, 50]);
  assert.deepEqual([gauge.options.showThresholdLabels, gauge.options.showThresholdMarkers], [true, true]);
  assert.deepEqual(gauge.fieldConfig.defaults.mappings,
    [{ type: 'range', options: { from: 1, to: 2, result: { text: 'low', index: 0 } } }]);
  assert.equal(panelOf({ type: 'singlestat' }).options.reduceOptions.calcs[0], 'mean',
    'the old default is the average');
  assert.equal(panelOf({ type: 'singlestat', colorBackground: true }).options.colorMode, 'background');
  assert.equal(panelOf({ type: 'singlestat', tableColumn: 'a.b' }).options.reduceOptions.fields, '/^a\\.b$/');
});

test('an_old_table_becomes_overrides_and_one_transformation', () => {
  const panel = panelOf({ type: 'table', transform: 'timeseries_aggregations', columns: [{ text: 'Avg', value: 'avg' },
    { text: 'Current', value: 'current' }], sort: { col: 2, desc: true }, pageSize: 20, showHeader: true, styles: [
    { pattern: 'Time', type: 'date', alias: 'When', dateFormat: 'YYYY' },
    { pattern: '/secret/', type: 'hidden' },
    { pattern: 'Value', type: 'number', unit: 'bytes', decimals: 1, colorMode: 'cell', thresholds: ['5', '10'],
      colors: ['a', 'b', 'c'], align: 'right', link: true, linkUrl: '/d/x?v=$__cell&w=${__cell_2}',
        linkTargetBlank: true,
      mappingType: 1, valueMaps: [{ value: '0', text: 'no' }] },
    { pattern: '/.*/', type: 'string' }] });
  assert.equal(panel.type, 'table');
  assert.deepEqual(panel.transformations,
    [{ id: 'reduce', options: { reducers: ['mean', 'lastNotNull'], includeTimeField: false } }]);
  assert.deepEqual(overrideOf(panel, 'Time'), { displayName: 'When', unit: 'time: YYYY' });
  assert.deepEqual(overrideOf(panel, '/secret/'), { 'custom.hidden': true });
  const value = overrideOf(panel, 'Value');
  assert.deepEqual(value.thresholds.steps,
    [{ color: 'a', value: null }, { color: 'b', value: 5 }, { color: 'c', value: 10 }]);
  assert.deepEqual([value.unit, value['custom.align'], value['custom.cellOptions'].type], ['bytes', 'right',
    'color-background']);
  assert.deepEqual(value.links, [{ title: '', url: '/d/x?v=${__value.text}&w=${__data.fields[2]}',
    targetBlank: true }]);
  assert.deepEqual(panel.options.sortBy, [{ column: 2, desc: true }]);
  assert.equal(panel.options.footer.enablePagination, true);
  assert.equal(panel.fieldConfig.overrides[0].matcher.options, '/.*/',
    'the first style that matches is the last override');
  assert.equal(panelOf({ type: 'table-old', transform: 'timeseries_to_columns' }).transformations[0].id,
    'seriesToColumns');
  assert.equal(panelOf({ type: 'table', transform: 'table' }).transformations[0].id, 'merge');
  assert.equal(panelOf({ type: 'table', fieldConfig: {}, styles: [] }).legacy, false);
});

test('first_versions_of_gauge_bar_gauge_and_stat_get_a_field_configuration', () => {
  const gauge = panelOf({ type: 'gauge', options: { maxValue: 90, minValue: 10, valueOptions: { unit: 'percent',
    stat: 'max',
    decimals: 2, prefix: '<', suffix: '>' }, thresholds: [{ index: 1, value: 50, color: 'red' }, { index: 0,
      value: null, color: 'green' }],
  valueMappings: [{ id: 1, type: 2, from: '0', to: '5', text: 'low' }], showThresholdLabels: true } });
  assert.deepEqual(gauge.fieldConfig.defaults, { unit: 'percent', decimals: 2, min: 10, max: 90,
    color: { mode: 'thresholds' },
    mappings: [{ type: 'range', options: { from: 0, to: 5, result: { text: 'low', index: 0 } } }],
    thresholds: { mode: 'absolute', steps: [{ index: 0, value: null, color: 'green' }, { index: 1, value: 50,
      color: 'red' }] } });
  assert.deepEqual(gauge.options, { showThresholdLabels: true, prefix: '<', postfix: '>',
    reduceOptions: { values: false, calcs: ['max'], fields: '' } });
  const bars = panelOf({ type: 'bargauge', options: { displayMode: 'lcd', fieldOptions: { calcs: ['last'],
    defaults: { unit: 'short', title: 'T', min: 0 }, mappings: [], thresholds: [{ value: null, color: 'x' }] } } });
  assert.deepEqual([bars.options.displayMode, bars.options.reduceOptions.calcs, bars.fieldConfig.defaults.displayName],
    ['lcd', ['last'], 'T']);
});

test('other_old_panels_and_plugins_are_converted', () => {
  const pie = panelOf({ type: 'grafana-piechart-panel', pieType: 'donut', valueName: 'total', format: 'bytes',
    legendType: 'Right side', legend: { show: true, values: true, percentage: true }, aliasColors: { a: 'red' } });
  assert.deepEqual([pie.type, pie.options.pieType, pie.options.reduceOptions.calcs[0], pie.options.legend.placement],
    ['piechart', 'donut', 'sum', 'right']);
  assert.deepEqual(pie.options.legend.values, ['value', 'percent']);
  const heatmap = panelOf({ type: 'heatmap', dataFormat: 'tsbuckets', yAxis: { format: 's', logBase: 1, show: true },
    color: { mode: 'spectrum', colorScheme: 'interpolateSpectral', exponent: 0.7 }, hideZeroBuckets: true,
    reverseYBuckets: true, tooltip: { show: true, showHistogram: true } });
  assert.equal(heatmap.options.calculate, false);
  assert.deepEqual([heatmap.options.color.scheme, heatmap.options.color.exponent, heatmap.options.yAxis.unit,
    heatmap.options.yAxis.reverse, heatmap.options.filterValues.le, heatmap.options.tooltip.yHistogram],
  ['Spectral', 0.7, 's', true, 1e-9, true]);
  const calculated = panelOf({ type: 'heatmap', dataFormat: 'timeseries', xBucketSize: '1m', yBucketNumber: 12,
    yAxis: { logBase: 2 } });
  assert.deepEqual(calculated.options.calculation, { xBuckets: { mode: 'size', value: '1m' },
    yBuckets: { mode: 'count', value: '12', scale: { type: 'log', log: 2 } } });
  const text = panelOf({ type: 'text', mode: 'html', content: '<b>x</b>' });
  assert.deepEqual(text.options, { mode: 'html', content: '<b>x</b>' });
  assert.deepEqual(panelOf({ type: 'dashlist', limit: 5, tags: ['a'], starred: true }).options.maxItems, 5);
  assert.deepEqual(panelOf({ type: 'alertlist', limit: 3, stateFilter: ['alerting'] }).options.stateFilter,
    { alerting: true });
  assert.equal(panelOf({ type: 'natel-discrete-panel', valueMaps: [{ value: '1', text: 'up' }] }).type,
    'state-timeline');
});

test('mappings_and_thresholds_before_version_8_are_converted_everywhere', () => {
  const old = [{ id: 0, type: 1, value: '1', text: 'UP' }, { type: 2, from: 5, to: 6, text: 'mid' },
    { type: 1, value: 'null', text: '-' }, { type: 'value', options: { 3: { text: 'new' } } }];
  const panel = panelOf({ type: 'stat', fieldConfig: { defaults: { mappings: old,
    thresholds: { mode: 'percentage', steps: [{ value: 80, color: 'red' }, { value: null, color: 'green' }] } },
  overrides: [{ matcher: { id: 'byName', options: 'a' }, properties: [{ id: 'mappings', value: old.slice(0, 1),
    note: 1 }] }] } });
  const expected = [{ type: 'value', options: { 1: { text: 'UP', index: 0 } } },
    { type: 'range', options: { from: 5, to: 6, result: { text: 'mid', index: 1 } } },
    { type: 'special', options: { match: 'null', result: { text: '-', index: 2 } } }, old[3]];
  assert.deepEqual(panel.fieldConfig.defaults.mappings, expected);
  assert.deepEqual(panel.fieldConfig.defaults.thresholds, { mode: 'percentage',
    steps: [{ value: null, color: 'green' }, { value: 80, color: 'red' }] });
  assert.deepEqual(overrideOf(panel, 'a').mappings, expected.slice(0, 1));
});

test('rows_of_old_dashboards_are_placed_in_the_grid', () => {
  const root = { title: 't', schemaVersion: 14, rows: [
    { title: 'One', showTitle: true, height: '250px', panels: [{ id: 1, title: 'a', type: 'graph', span: 6 },
      { id: 2, title: 'b', type: 'graph', span: 6 }, { id: 3, title: 'c', type: 'graph', span: 12, height: '100px' }] },
    { title: 'Two', collapse: true, height: 300, repeat: 'host', panels: [{ id: 4, title: 'd', type: 'graph',
      minSpan: 3 }] },
    { title: 'Three', panels: [{ id: 5, title: 'e', type: 'singlestat', span: 2 }] }] };
  const { dashboard } = readDashboard(root);
  assert.deepEqual(dashboard.panels.map(({ title, type, gridPos: { x, y, w,
    h } }) => `${title} ${type} ${x},${y} ${w}x${h}`), [
    'One row 0,0 24x1', 'a timeseries 0,1 12x7', 'b timeseries 12,1 12x7', 'c timeseries 0,8 24x3',
    'Two row 0,11 24x1', 'Three row 0,12 24x1', 'e stat 0,13 4x7']);
  const two = dashboard.panels[4];
  assert.deepEqual([two.collapsed, two.repeat, two.panels[0].title, two.panels[0].gridPos.w, two.panels[0].maxPerRow],
    [true, 'host', 'd', 8, 4]);
  const plain = readDashboard({ title: 't', rows: [{ panels: [{ title: 'a', span: 4 }] },
    { panels: [{ title: 'b' }] }] });
  assert.deepEqual(plain.dashboard.panels.map((panel) => [panel.title, panel.gridPos.y]), [['a', 0], ['b', 7]]);
});
