// Export of dashboards, with and without edits.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { writeDashboard } from '../../src/ui/assets/model/write_dashboard.js';
import { CURRENT } from './dashboard_samples.mjs';

test('the_source_is_never_changed', () => {
  const source = structuredClone(CURRENT);
  const { dashboard } = readDashboard(source);
  dashboard.panels[1].options.legend = null;
  dashboard.panels[1].fieldConfig.defaults.unit = 'x';
  writeDashboard(dashboard, { title: 'y', panels: [] });
  assert.deepEqual(source, CURRENT);
});

test('an_edit_changes_its_field_and_nothing_else', () => {
  const { dashboard } = readDashboard(CURRENT);
  const [open, cpu, closed] = dashboard.panels;
  const title = writeDashboard(dashboard, { panels: [open, { ...cpu, title: 'New' }, closed] });
  const expected = /** @type {any} */ (structuredClone(CURRENT));
  expected.panels[1].title = 'New';
  assert.deepEqual(title, expected);

  const [a, b] = cpu.targets;
  const targets = writeDashboard(dashboard, { panels: [open, { ...cpu, targets: [{ ...a, expr: 'up > 0' }, b] },
    closed] });
  expected.panels[1].title = 'CPU';
  expected.panels[1].targets[0].expr = 'up > 0';
  assert.deepEqual(targets, expected);

  const [job] = dashboard.variables;
  const variable = writeDashboard(dashboard, { refresh: '1m', time: { from: 'now-2h', to: 'now' },
    variables: [{ ...job, name: 'jobs', autoCount: 5 }] });
  const changed = /** @type {any} */ (structuredClone(CURRENT));
  Object.assign(changed, { refresh: '1m', time: { from: 'now-2h', to: 'now' } });
  Object.assign(changed.templating.list[0], { name: 'jobs', auto_count: 5 });
  assert.deepEqual(variable, changed);

  const inner = writeDashboard(dashboard, { panels: [open, cpu, { ...closed, panels: [{ ...closed.panels[0],
    title: 'X' }] }] });
  assert.equal(inner.panels[2].panels[0].title, 'X');
});

/** Values for the fields that do not accept any text, number or boolean. */
const VALUES = new Map(Object.entries({
  'dashboard.time': { from: 'now-9h', to: 'now' }, 'dashboard.tags': ['z'], 'dashboard.graphTooltip': 2,
  'dashboard.links': [{ title: 'M', url: '/y', targetBlank: false }],
  'panel.type': 'stat', 'panel.repeatDirection': 'h', 'panel.maxDataPoints': 55, 'panel.options': { a: 1 },
  'panel.fieldConfig': { defaults: { unit: 's' }, overrides: [] },
  'panel.transformations': [{ id: 'merge', options: {} }],
  'panel.links': [{ title: 'M', url: '/y', targetBlank: false }], 'panel.gridPos': { x: 2, y: 1, w: 9, h: 4 },
  'panel.datasource': { type: 'prometheus', uid: 'u' }, 'target.format': 'heatmap',
  'target.datasource': { type: 'prometheus', uid: 'u' },
  'variable.type': 'custom', 'variable.query': 'a, b', 'variable.current': { text: ['x'], value: ['x'] },
  'variable.options': [{ text: 'x', value: 'x' }], 'variable.datasource': { type: 'prometheus', uid: 'u' },
  'variable.hide': 1, 'variable.filters': [{ label: 'a', op: '!=', value: 'b' }], 'annotation.panelIds': [5],
}));

/** Another value of the same kind. @param {unknown} value @param {string} name */
function otherThan(value, name) {
  if (VALUES.has(name)) return VALUES.get(name);
  if (typeof value === 'boolean') return !value;
  return typeof value === 'number' ? value + 1 : 'other';
}

test('each_field_that_was_edited_is_read_back', () => {
  const { dashboard } = readDashboard(CURRENT);
  const readOnly = new Set(['key', 'id', 'supported', 'legacy', 'sourceType', 'unsupported', 'panels', 'targets',
    'collapsed', 'source', 'path', 'schemaVersion', 'variables', 'annotations', 'builtIn', 'valuesFormat', 'range',
    'place']);
  /** @type {[string, any, (item: any) => object, (model: any) => any][]} */
  const kinds = [
    ['dashboard', dashboard, (item) => item, (model) => model],
    ['panel', dashboard.panels[1], (item) => ({ panels: dashboard.panels.with(1, item) }), (model) => model.panels[1]],
    ['target', dashboard.panels[1].targets[0], (item) => ({ panels: dashboard.panels.with(1,
      { ...dashboard.panels[1], targets: dashboard.panels[1].targets.with(0, item) }) }),
    (model) => model.panels[1].targets[0]],
    ['variable', dashboard.variables[0], (item) => ({ variables: [item] }), (model) => model.variables[0]],
    ['annotation', dashboard.annotations[1], (item) => ({ annotations: dashboard.annotations.with(1, item) }),
      (model) => model.annotations[1]],
  ];
  for (const [kind, item, editsOf, find] of kinds) {
    for (const field of Object.keys(item).filter((name) => !readOnly.has(name))) {
      const value = otherThan(item[field], `${kind}.${field}`);
      const written = writeDashboard(dashboard, editsOf({ ...item, [field]: value }));
      const read = find(readDashboard(written).dashboard);
      assert.deepEqual(read[field], value, `${kind}.${field}`);
      // A variable with several values has lists of them.
      const others = Object.keys(item).filter((name) => !readOnly.has(name) && name !== field
        && !(field === 'multi' && name === 'current'));
      for (const name of others) assert.deepEqual(read[name], item[name], `${kind}.${name} after an edit of ${field}`);
    }
  }
});

test('a_query_may_be_instant_and_range_at_once', () => {
  const { dashboard } = readDashboard({ title: 't',
    panels: [{ type: 'table', targets: [{ refId: 'A', expr: 'up' }] }] });
  const [panel] = dashboard.panels;
  for (const [instant, range] of [[true, true], [true, false], [false, true]]) {
    const targets = [{ ...panel.targets[0], instant, range }];
    const [read] = readDashboard(writeDashboard(dashboard,
      { panels: [{ ...panel, targets }] })).dashboard.panels[0].targets;
    assert.deepEqual([read.instant, read.range], [instant, range]);
  }
});

test('panels_are_added_removed_copied_and_moved', () => {
  const { dashboard } = readDashboard(CURRENT);
  const [open, cpu, closed] = dashboard.panels;
  const added = /** @type {any} */ ({ ...cpu, key: 'new', id: null, title: 'Fresh', targets: [cpu.targets[0]],
    gridPos: { x: 0, y: 9, w: 24, h: 4 } });
  const copy = /** @type {any} */ ({ ...cpu, key: 'copy', copyOf: cpu.key, id: null,
    gridPos: { x: 12, y: 1, w: 12, h: 8 } });
  const result = writeDashboard(dashboard, { panels: [open, cpu, copy, added] });
  assert.deepEqual(result.panels.map((/** @type {any} */ panel) => panel.id), [1, 2, 3, 4]);
  assert.equal(result.panels[2].targets[0].unknown, 1, 'a copy keeps unknown fields');
  assert.deepEqual(result.panels[1], CURRENT.panels[1]);
  assert.equal(result.panels[3].title, 'Fresh');
  assert.equal(Object.hasOwn(result.panels[3], 'legacy'), false);
  const again = readDashboard(result).dashboard;
  assert.deepEqual(again.panels.map((panel) => panel.title), ['Open', 'CPU', 'CPU', 'Fresh']);

  const opened = writeDashboard(dashboard, { panels: [open, cpu, { ...closed, collapsed: false, panels: [] },
    ...closed.panels] });
  assert.deepEqual(opened.panels.map((/** @type {any} */ panel) => panel.title), ['Open', 'CPU', 'Closed', 'In']);
  assert.deepEqual(opened.panels[3], /** @type {any} */ (CURRENT.panels[2]).panels[0]);
});

test('editing_an_old_panel_writes_its_new_form_and_keeps_the_rest', () => {
  const source = { title: 't', panels: [{ id: 1, type: 'graph', title: 'g', gridPos: { x: 0, y: 0, w: 8, h: 4 },
    lines: true,
    unknownField: { deep: [1] }, yaxes: [{ format: 'bytes' }] }] };
  const { dashboard } = readDashboard(source);
  const [panel] = dashboard.panels;
  const titled = writeDashboard(dashboard, { panels: [{ ...panel, title: 'h' }] });
  assert.deepEqual(titled, { title: 't', panels: [{ ...source.panels[0], title: 'h' }] });
  const fieldConfig = { ...panel.fieldConfig, defaults: { ...panel.fieldConfig.defaults, unit: 'bits' } };
  const edited = writeDashboard(dashboard, { panels: [{ ...panel, fieldConfig }] });
  assert.deepEqual([edited.panels[0].type, edited.panels[0].fieldConfig.defaults.unit], ['timeseries', 'bits']);
  assert.deepEqual(edited.panels[0].unknownField, { deep: [1] });
  const again = readDashboard(edited).dashboard.panels[0];
  assert.deepEqual([again.type, again.legacy, again.options], ['timeseries', false, panel.options]);
});

test('moving_a_panel_of_an_old_dashboard_gives_all_panels_places', () => {
  const source = { title: 't', schemaVersion: 12, extra: 1, rows: [{ title: 'R', showTitle: true, height: '200px',
    custom: 2,
    panels: [{ id: 1, type: 'graph', title: 'a', span: 6, keep: 1 }, { id: 2, type: 'text', title: 'b', span: 6 }] }] };
  const { dashboard } = readDashboard(source);
  const [row, a, b] = dashboard.panels;
  const titled = writeDashboard(dashboard, { panels: [row, { ...a, title: 'A' }, b] });
  assert.equal(titled.rows[0].panels[0].title, 'A');
  assert.equal(titled.schemaVersion, 12);
  const moved = writeDashboard(dashboard, { panels: [row, { ...a, gridPos: { ...a.gridPos, h: 9 } }, b] });
  assert.equal(moved.rows, undefined);
  assert.deepEqual([moved.schemaVersion, moved.extra, moved.panels.length, moved.panels[0].type,
    moved.panels[0].custom],
    [16, 1, 3, 'row', 2]);
  assert.deepEqual(moved.panels[1], { id: 1, type: 'graph', title: 'a', span: 6, keep: 1, gridPos: { ...a.gridPos,
    h: 9 } });
  assert.deepEqual(readDashboard(moved).dashboard.panels.map((panel) => panel.gridPos.h), [1, 9, b.gridPos.h]);
});
