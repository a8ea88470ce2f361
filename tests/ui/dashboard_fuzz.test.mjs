// Dashboards of any shape: nothing but the one error, and no lost field.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { DashboardError, readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { writeDashboard } from '../../src/ui/assets/model/write_dashboard.js';
import { CURRENT, generator, placesOf, useAll } from './dashboard_samples.mjs';

test('any_value_at_any_place_of_a_dashboard_throws_nothing_but_the_one_error', () => {
  const old = { title: 'old', rows: [{ title: 'r', height: '250px', collapse: true, panels: [
    { id: 1, type: 'graph', span: 4, yaxes: [{ format: 's', min: 0 }, {}], xaxis: { mode: 'time' },
      legend: { show: true },
      seriesOverrides: [{ alias: 'a', yaxis: 2 }], thresholds: [{ value: 1, op: 'gt' }], aliasColors: { a: 'red' },
      grid: { threshold1: 1 }, y_formats: ['s'], tooltip: { sort: 1 }, targets: [{ expr: 'up' }],
        links: [{ url: 'x' }] },
    { id: 2, type: 'singlestat', thresholds: '1,2', colors: ['a'], valueMaps: [{ value: '1', text: 'x' }],
      gauge: { show: true },
      sparkline: { show: true } },
    { id: 3, type: 'table', styles: [{ pattern: 'a', type: 'number', colorMode: 'cell', thresholds: [1] }],
      transform: 'table', columns: [{ value: 'avg' }], sort: { col: 0 }, fontSize: '80%' },
    { id: 4, type: 'heatmap', yAxis: { format: 's' }, color: { mode: 'opacity' }, cards: { cardPadding: 1 } },
    { id: 5, type: 'gauge', options: { fieldOptions: { defaults: { min: 1 }, mappings: [{ type: 1 }],
      calcs: ['max'] } } },
    { id: 6, type: 'grafana-piechart-panel', legend: { show: true }, combine: { threshold: 1 } }] }] };
  let read = 0;
  for (const dashboard of [CURRENT, old]) {
    for (const path of placesOf(dashboard).filter((one) => one.length > 0)) {
      for (const junk of [null, 0, -1e300, 'x', true, [], {}, [null, 1, 'x', []], { a: { b: 1 } }]) {
        const copy = /** @type {any} */ (structuredClone(dashboard));
        const parent = path.slice(0, -1).reduce((at, name) => at[name], copy);
        parent[path[path.length - 1]] = junk;
        try {
          const result = readDashboard(copy).dashboard;
          useAll(result);
          assert.deepEqual(writeDashboard(result), copy);
          read += 1;
        } catch (error) {
          if (!(error instanceof DashboardError)) {
            throw new Error(`${path.join('.')} = ${JSON.stringify(junk)}: ${error}`, { cause: error });
          }
        }
      }
    }
  }
  assert.ok(read > 2000, `${read} dashboards were read`);
});

test('bad_shapes_throw_nothing_but_the_one_error_and_good_ones_are_exported_as_they_came', () => {
  let read = 0;
  for (let seed = 1; seed <= 3000; seed += 1) {
    const { random, value, kinds } = generator(seed);
    const list = () => (random(6) === 0 ? value(1) : Array.from({ length: random(4) }, () => value(1)));
    const panels = () => (random(6) === 0 ? value(1) : Array.from({ length: random(4) }, () => (
      random(6) === 0 ? value(1) : { ...value(3), ...value(2), type: kinds[random(kinds.length)] })));
    const root = { ...Object(value(3)), title: value(4), panels: panels(),
      templating: random(4) ? { list: list() } : value(2),
      annotations: random(4) ? { list: list() } : value(2), time: value(3), tags: value(3), links: list(),
      ...(random(2) ? { rows: random(4) ? [{ panels: panels(), ...value(5) }] : value(1) } : {}),
        schemaVersion: value(6) };
    const before = JSON.stringify(root);
    try {
      const { dashboard } = readDashboard(root);
      read += 1;
      assert.equal(JSON.stringify(writeDashboard(dashboard)), before, `seed ${seed}: unedited`);
      const titled = writeDashboard(dashboard, { title: 'edited' });
      assert.equal(titled.title ?? titled.dashboard?.title ?? titled.spec?.title, 'edited', `seed ${seed}`);
      const keys = dashboard.panels.flatMap((panel) => [panel, ...panel.panels]).map((panel) => panel.key);
      assert.equal(new Set(keys).size, keys.length, `seed ${seed}: keys are unique`);
      const moved = writeDashboard(dashboard, { panels: dashboard.panels.map((panel) => (
        { ...panel, title: 'moved', gridPos: { ...panel.gridPos, h: panel.gridPos.h + 1 } })) });
      const again = readDashboard(moved).dashboard;
      assert.deepEqual(again.panels.map((panel) => panel.title), dashboard.panels.map(() => 'moved'),
        `seed ${seed}: moved`);
      assert.deepEqual(again.panels.map((panel) => panel.targets), dashboard.panels.map((panel) => panel.targets),
        `seed ${seed}`);
      useAll(dashboard);
    } catch (error) {
      if (!(error instanceof DashboardError)) throw new Error(`seed ${seed}: ${error}`, { cause: error });
    }
    assert.equal(JSON.stringify(root), before, `seed ${seed}: the source is unchanged`);
    assert.equal(/** @type {any} */ ({}).title, undefined, `seed ${seed}: no prototype is changed`);
  }
  assert.ok(read > 1500, `${read} dashboards were read`);
});

test('unknown_fields_survive_every_edit', () => {
  for (let seed = 1; seed <= 500; seed += 1) {
    const { value } = generator(seed);
    const unknown = () => ({ [`x${seed}`]: value(2), ['__proto__x']: value(4) });
    const root = { ...unknown(), title: 't', panels: [{ ...unknown(), id: 1, type: 'timeseries', title: 'a',
      gridPos: { x: 0, y: 0, w: 6, h: 6 }, targets: [{ ...unknown(), refId: 'A', expr: 'up' }] }],
    templating: { ...unknown(), list: [{ ...unknown(), name: 'v', type: 'custom', query: 'a,b' }] },
    annotations: { list: [{ ...unknown(), name: 'n', expr: 'x' }] }, time: { ...unknown(), from: 'now-1h',
      to: 'now' } };
    const { dashboard } = readDashboard(root);
    const [panel] = dashboard.panels;
    const result = writeDashboard(dashboard, {
      title: 'T', time: { from: 'now-2h', to: 'now' },
      panels: [{ ...panel, title: 'A', gridPos: { x: 6, y: 0, w: 6, h: 6 }, targets: [{ ...panel.targets[0],
        expr: 'down' }] }],
      variables: [{ ...dashboard.variables[0], query: 'c' }], annotations: [{ ...dashboard.annotations[0], expr: 'y' }],
    });
    const expected = /** @type {any} */ (structuredClone(root));
    expected.title = 'T';
    expected.time.from = 'now-2h';
    Object.assign(expected.panels[0], { title: 'A', gridPos: { x: 6, y: 0, w: 6, h: 6 } });
    expected.panels[0].targets[0].expr = 'down';
    Object.assign(expected.templating.list[0], { query: 'c', definition: 'c' });
    expected.annotations.list[0].expr = 'y';
    assert.deepEqual(result, expected, `seed ${seed}`);
  }
});
