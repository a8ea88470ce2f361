// The queries of public dashboards as the page asks them with the saved values of all variables:
//
//   node tests/peers/dashboard_queries.mjs FOLDER OUT
//
// Writes a JSON array of dashboards to OUT: the file, the queries of panels with the text that the
// page sends, and those of variables. `tests/peers_ui.rs` compares them with the server's.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { interpolate } from '../../src/ui/assets/model/interpolate.js';
import { queryText } from '../../src/ui/assets/model/panel_queries.js';
import { parseVariableQuery, savedSelections } from '../../src/ui/assets/model/variables.js';

const [, , folder = '.', out = ''] = process.argv;
const files = readdirSync(folder, { recursive: true }).map(String).filter((name) => name.endsWith('.json')).sort();
assert.ok(files.length > 0, `there are dashboards in ${folder}`);
const range = { from: 1_700_000_000_000, to: 1_700_021_600_000 };
const interval = { intervalMs: 20_000, rateIntervalMs: 60_000 };

const dashboards = files.map((file) => {
  const { dashboard } = readDashboard(readFileSync(join(folder, file), 'utf8'));
  const selections = savedSelections(dashboard.variables);
  const context = {
    range, interval, timeZone: dashboard.timezone, dashboard: { title: dashboard.title, uid: dashboard.uid },
  };
  const queries = dashboard.panels.flatMap((panel) => [panel, ...panel.panels])
    .filter((panel) => Number.isInteger(panel.id))
    .flatMap((panel) => panel.targets.filter((target) => !target.hide && !target.unsupported)
      .map((target) => ({ panel: panel.id, ref: target.refId, text: queryText(target.expr, selections, context) })));
  const variables = dashboard.variables.filter(({ type }) => type === 'query').map((variable) => {
    const replaced = Object.entries(parseVariableQuery(variable.query))
      .map(([name, value]) => [name, name === 'kind' ? value : interpolate(value, selections, { ...context, format: 'promql' })]);
    return { name: variable.name, query: Object.fromEntries(replaced) };
  });
  return { file, uid: dashboard.uid, queries, variables };
});
writeFileSync(out, JSON.stringify(dashboards));
console.log(`${dashboards.length} dashboards, ${dashboards.flatMap(({ queries }) => queries).length} queries`);
