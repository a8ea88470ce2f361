// Import of Grafana dashboards: fields, wrapped forms, the report and the limits.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { DashboardError, readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { writeDashboard } from '../../src/ui/assets/model/write_dashboard.js';
import { JSON_MAX, PANELS_MAX, QUERIES_MAX, VARIABLES_MAX } from '../../src/ui/assets/model/limits.js';
import { CURRENT, panelOf } from './dashboard_samples.mjs';

/** What the report says. @param {object} root */
function reportOf(root) {
  return readDashboard({ title: 't', ...root }).report.map((line) => `${line.severity}: ${line.title}: ${line.what}`);
}

test('a_current_dashboard_is_read_field_by_field', () => {
  const { dashboard, report } = readDashboard(CURRENT);
  assert.equal(dashboard.title, 'Shop');
  assert.equal(dashboard.uid, 'abc');
  assert.deepEqual(dashboard.tags, ['a', 'b']);
  assert.deepEqual(dashboard.time, { from: 'now-1h', to: 'now' });
  assert.deepEqual([dashboard.refresh, dashboard.timezone, dashboard.weekStart, dashboard.graphTooltip],
    ['30s', 'utc', 'monday', 1]);
  assert.deepEqual(dashboard.panels.map((panel) => panel.title), ['Open', 'CPU', 'Closed']);
  const [open, cpu, closed] = dashboard.panels;
  assert.deepEqual([open.type, open.collapsed, open.panels.length], ['row', false, 0]);
  assert.deepEqual([closed.collapsed, closed.panels[0].title], [true, 'In']);
  assert.deepEqual(cpu.gridPos, { x: 0, y: 1, w: 12, h: 8 });
  assert.deepEqual([cpu.transparent, cpu.interval, cpu.maxDataPoints, cpu.timeFrom, cpu.timeShift,
    cpu.hideTimeOverride],
    [true, '1m', 100, '2h', '1d', true]);
  assert.deepEqual([cpu.repeat, cpu.repeatDirection, cpu.maxPerRow, cpu.legacy, cpu.supported], ['job', 'v', 3, false,
    true]);
  assert.deepEqual(cpu.fieldConfig.defaults, { unit: 'percent', custom: { lineWidth: 2 } });
  const [a, b] = cpu.targets;
  assert.deepEqual([a.refId, a.expr, a.legendFormat, a.instant, a.range, a.format, a.interval, a.exemplar,
    a.unsupported],
    ['A', 'up', '{{job}}', false, true, 'time_series', '30s', true, null]);
  assert.deepEqual([b.refId, b.instant, b.range, b.format, b.hide], ['B', true, false, 'table', true]);
  const [job] = dashboard.variables;
  assert.deepEqual([job.name, job.multi, job.includeAll, job.allValue, job.hide, job.sort], ['job', true, true, '.+',
    2, 1]);
  const [builtIn, deploys] = dashboard.annotations;
  assert.equal(builtIn.builtIn, true);
  assert.deepEqual([deploys.expr, deploys.color, deploys.supported, deploys.panelIds, deploys.exclude],
    ['changes(x[1m]) > 0', 'red', true, [2], true]);
  assert.deepEqual(report, [{ panel: 2, title: 'CPU', what: 'the transformation nope is not supported',
    severity: 'warning' }]);
});

test('wrapped_and_exported_forms_are_unwrapped', () => {
  const inner = { title: 'In', panels: [] };
  for (const wrapped of [{ dashboard: inner, meta: { slug: 'x' } }, { apiVersion: 'dashboard.grafana.app/v1beta1',
    kind: 'Dashboard', metadata: { name: 'x' }, spec: inner }]) {
    const { dashboard } = readDashboard(wrapped);
    assert.equal(dashboard.title, 'In');
    const changed = writeDashboard(dashboard, { title: 'Out' });
    assert.deepEqual(changed, JSON.parse(JSON.stringify(wrapped).replace('"In"', '"Out"')));
  }
  assert.throws(() => readDashboard({ apiVersion: 'dashboard.grafana.app/v2', spec: { elements: {}, title: 'x' } }),
    { code: 'unsupported_schema' });
});

test('inputs_of_an_exported_dashboard_are_used', () => {
  const root = { title: 't', __inputs: [{ name: 'DS_A', type: 'datasource', pluginId: 'prometheus' },
    { name: 'DS_B', type: 'datasource', pluginId: 'loki' }, { name: 'VAR_NS', type: 'constant', value: 'prod' }],
  templating: { list: [{ name: 'ns', type: 'constant', query: '${VAR_NS}', current: { value: '${VAR_NS}' } }] },
  panels: [{ id: 1, type: 'timeseries', title: 'a', datasource: '${DS_A}', targets: [{ expr: 'up' }] },
    { id: 2, type: 'timeseries', title: 'b', datasource: { uid: '${DS_B}' }, targets: [{ expr: '{a="b"}' }] }] };
  const { dashboard, report } = readDashboard(root);
  assert.equal(dashboard.variables[0].query, 'prod');
  assert.equal(dashboard.variables[0].current.value, 'prod');
  assert.equal(dashboard.panels[0].targets[0].unsupported, null);
  assert.match(String(dashboard.panels[1].targets[0].unsupported), /loki/);
  assert.deepEqual(report.map((line) => [line.panel, line.severity]), [[2, 'error']]);
});

test('everything_that_is_not_supported_is_in_the_report', () => {
  assert.deepEqual(reportOf({
    templating: { list: [{ name: 'g', type: 'groupby' }, { name: 'bad name' }, null,
      { name: 'sql', type: 'datasource', query: 'mysql' }] },
    annotations: { list: [{ name: 'git', datasource: 'Loki', enable: true }] },
    panels: [{ type: 'geomap', title: 'map' }, { type: 'timeseries', title: 'logs', datasource: { type: 'loki' },
      targets: [{ refId: 'A', expr: '{}' }] }, { type: 'stat', title: 'math', targets: [{ refId: 'B',
        datasource: { type: '__expr__',
      uid: '__expr__' }, expression: 'A * 2' }] }, { type: 'stat', title: 'sql', targets: [{ refId: 'A',
        rawSql: 'SELECT 1' }] },
    { libraryPanel: { uid: 'u', name: 'lib' }, title: 'shared' }, 7,
    { type: 'table', title: 'mixed', datasource: '-- Mixed --', targets: [{ refId: 'A', expr: 'up',
      datasource: { type: 'prometheus' } },
      { refId: 'B', expr: 'x', datasource: { type: '$kind' } }, { refId: 'C', datasource: { type: 'influxdb' },
        query: 'x' }] }],
  }), [
    'error: : entry 3 of templating.list is not an object',
    'error: : the variable g has the type groupby, which is not supported',
    'error: : the variable bad name has no usable name of its own',
    'warning: : the variable sql selects a data source of the type mysql',
    'warning: : the annotation git does not come from a PromQL query and is not drawn',
    'error: : entry 6 of panels is not an object',
    'error: map: the panel type geomap is not supported; its data is shown as a table',
    'error: logs: query A: the data source loki is not supported',
    'error: math: query B: server-side expressions are not supported',
    'warning: sql: query A: it has no PromQL expression',
    'error: shared: the library panel lib is not part of the file',
    'error: mixed: query C: the data source influxdb is not supported',
  ]);
});

test('supported_types_leave_the_report_empty', () => {
  const types = ['timeseries', 'graph', 'stat', 'singlestat', 'gauge', 'bargauge', 'table', 'table-old', 'text', 'row',
    'heatmap', 'state-timeline', 'status-history', 'barchart', 'piechart', 'histogram', 'alertlist', 'dashlist'];
  const kinds = ['query', 'custom', 'interval', 'constant', 'textbox', 'datasource', 'adhoc'];
  const transformations = ['organize', 'merge', 'joinByField', 'seriesToColumns', 'seriesToRows', 'filterFieldsByName',
    'filterByValue', 'groupBy', 'calculateField', 'labelsToFields', 'reduce', 'sortBy', 'renameByRegex', 'limit'];
  assert.deepEqual(reportOf({ panels: types.map((type) => ({ type, title: type,
    transformations: transformations.map((id) => ({ id })) })),
  templating: { list: kinds.map((type) => ({ name: type, type })) } }), []);
});

test('queries_without_a_name_get_the_first_free_letters', () => {
  const { targets } = panelOf({ type: 'stat', targets: [{ refId: 'B', expr: 'x' }, ...Array(27).fill({ expr: 'y' })] });
  assert.deepEqual([1, 2, 25, 26, 27].map((at) => targets[at].refId), ['A', 'C', 'Z', 'AA', 'AB']);
});

test('a_library_panel_is_read_from_the_exported_elements', () => {
  const source = { title: 't',
    __elements: { u: { kind: 1, model: { type: 'stat', title: 'from', targets: [{ expr: 'up' }] } } },
    panels: [{ id: 3, title: 'own', libraryPanel: { uid: 'u', name: 'lib' }, gridPos: { x: 1, y: 0, w: 5, h: 5 } }] };
  const { dashboard, report } = readDashboard(source);
  const [panel] = dashboard.panels;
  assert.deepEqual([panel.type, panel.title, panel.targets[0].expr, panel.gridPos.w], ['stat', 'own', 'up', 5]);
  assert.deepEqual(report, []);
  const { panels } = writeDashboard(dashboard, { panels: [{ ...panel, title: 'new' }] });
  assert.deepEqual(panels, [{ ...source.panels[0], title: 'new' }]);
});

test('panels_inside_an_open_row_follow_it', () => {
  const { dashboard } = readDashboard({ title: 't', panels: [
    { type: 'stat', title: 'last', gridPos: { x: 0, y: 20, w: 4, h: 4 } },
    { type: 'row', title: 'row', collapsed: false, gridPos: { x: 0, y: 0, w: 24, h: 1 }, panels: [
      { type: 'stat', title: 'b', gridPos: { x: 4, y: 1, w: 4, h: 4 } }, { type: 'stat', title: 'a',
        gridPos: { x: 0, y: 1, w: 4, h: 4 } }] }] });
  assert.deepEqual(dashboard.panels.map((panel) => `${panel.title} ${panel.gridPos.x},${panel.gridPos.y}`),
    ['row 0,0', 'a 0,1', 'b 4,1', 'last 0,20']);
});

test('panels_without_a_place_come_below_the_others_two_in_a_line', () => {
  const { dashboard } = readDashboard({ title: 't',
    panels: [{ title: 'x' }, { title: 'y' }, { title: 'z', gridPos: {} },
    { title: 'a', gridPos: { x: 0, y: 3, w: 4, h: 4 } },
      { title: 'wide', gridPos: { x: 99, y: -1, w: 99, h: 0.2 } }] });
  assert.deepEqual(dashboard.panels.map(({ title, gridPos: { x, y, w, h } }) => `${title} ${x},${y} ${w}x${h}`),
    ['wide 0,0 24x1', 'a 0,3 4x4', 'x 0,7 12x8', 'y 12,7 12x8', 'z 0,15 12x8']);
});

test('panels_inside_a_panel_that_is_no_row_are_reported', () => {
  assert.deepEqual(reportOf({ panels: [{ type: 'stat', title: 's', panels: [{ type: 'stat' }] }] }),
    ['error: s: the panels inside it are not drawn: it is no row']);
});

test('panels_of_unknown_types_stay_in_the_model', () => {
  const panel = panelOf({ type: 'geomap', title: 'map', targets: [{ expr: 'up' }], options: { view: 1 } });
  assert.deepEqual([panel.type, panel.supported, panel.targets[0].expr, panel.options.view], ['geomap', false, 'up',
    1]);
});

test('saved_copies_of_repeated_panels_are_not_read_but_exported', () => {
  const source = { title: 't', panels: [{ id: 1, type: 'stat', title: 'a', repeat: 'v' },
    { id: 2, type: 'stat', title: 'a', repeatPanelId: 1, scopedVars: {} }] };
  const { dashboard, report } = readDashboard(source);
  assert.equal(dashboard.panels.length, 1);
  assert.equal(report[0].severity, 'info');
  assert.deepEqual(writeDashboard(dashboard), source);
});

test('limits_are_named_in_the_error', () => {
  const panel = { type: 'stat', title: 'x' };
  /** @type {[object, string, number, number][]} */
  const cases = [
    [{ panels: Array(PANELS_MAX + 1).fill(panel) }, 'too_many_panels', 413, PANELS_MAX],
    [{ rows: Array(251).fill({ panels: [panel] }) }, 'too_many_panels', 413, PANELS_MAX],
    [{ panels: Array(11).fill({ targets: Array(91).fill({}) }) }, 'too_many_queries', 413, QUERIES_MAX],
    [{ templating: { list: Array(VARIABLES_MAX + 1).fill({}) }, panels: [] }, 'too_many_variables', 413, VARIABLES_MAX],
    [{ title: 'x'.repeat(JSON_MAX) }, 'json_too_large', 413, JSON_MAX],
  ];
  for (const [root, code, status, limit] of cases) {
    for (const json of [root, JSON.stringify(root)]) {
      assert.throws(() => readDashboard(json), (error) => {
        assert.ok(error instanceof DashboardError);
        assert.deepEqual([error.code, error.status, error.detail.limit], [code, status, limit]);
        assert.ok(error.message.includes(String(limit)), error.message);
        return true;
      });
    }
  }
  assert.doesNotThrow(() => readDashboard({ panels: Array(PANELS_MAX).fill({ ...panel, targets: [{}, {}] }) }));
  const deep = `{"title":"x","panels":${'['.repeat(50_000)}${']'.repeat(50_000)}}`;
  assert.throws(() => readDashboard(deep), { code: 'too_deep', status: 422 });
  assert.throws(() => readDashboard('{'), { code: 'not_json' });
  for (const json of [null, 7, [], 'null', '"x"', {}, { dashboard: 1 }, undefined]) {
    assert.throws(() => readDashboard(json), DashboardError);
  }
});

test('a_cycle_of_objects_is_an_error', () => {
  /** @type {any} */
  const loop = { title: 'x', panels: [] };
  loop.panels.push(loop);
  assert.throws(() => readDashboard(loop), { code: 'too_deep' });
});
