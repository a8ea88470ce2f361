// Imports public Grafana dashboards, which are never copied into the project:
//
//   node tests/peers/dashboards.mjs FOLDER [QUERIES]
//
// Reads every JSON file below the folder. Fails unless each one imports, is exported as it came, has
// at least 96 % of its panels drawn as their kind, and every expression has its variables replaced.
// Writes a JSON array of all expressions to the file QUERIES.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { writeDashboard } from '../../src/ui/assets/model/write_dashboard.js';
import { interpolate } from '../../src/ui/assets/model/interpolate.js';
import { expandRepeats } from '../../src/ui/assets/model/repeat.js';
import { intervalFor, resolveRange } from '../../src/ui/assets/model/time.js';
import { parseVariableQuery } from '../../src/ui/assets/model/variable_query.js';
import { savedSelections } from '../ui/saved_selections.mjs';

/** Least share of panels that are drawn as their kind. */
const SHARE = 0.96;

const [, , folder = '.', queriesFile] = process.argv;
const files = readdirSync(folder, { recursive: true }).map(String).filter((name) => name.endsWith('.json')).sort();
assert.ok(files.length > 0, `there are dashboards in ${folder}`);

let panelCount = 0;
let queryCount = 0;
/** @type {Set<string>} */
const queries = new Set();
for (const file of files) {
  const text = readFileSync(join(folder, file), 'utf8');
  const { dashboard, report } = readDashboard(text);
  assert.deepEqual(writeDashboard(dashboard), JSON.parse(text), `${file} is exported as it came`);

  const panels = dashboard.panels.flatMap((panel) => [panel, ...panel.panels]);
  const drawn = panels.filter((panel) => panel.supported);
  const share = drawn.length / panels.length;
  assert.ok(share >= SHARE, `${file}: ${drawn.length} of ${panels.length} panels are drawn as their kind`);
  for (const panel of panels.filter((candidate) => !candidate.supported)) {
    assert.ok(report.some((line) => line.panel === panel.id), `${file}: panel ${panel.title} is in the report`);
  }

  const range = resolveRange(dashboard.time, { timeZone: dashboard.timezone });
  const interval = intervalFor({ ...range, maxDataPoints: 1000 });
  const selections = savedSelections(dashboard.variables);
  const context = { format: 'promql', range, interval };
  // Text that names no variable of the dashboard stays: groups of regular expressions, and mistakes.
  const left = (text) => [...text.matchAll(/\$\{?(\w+)|\[\[(\w+)/g)].map(([, name, older]) => name ?? older)
    .filter((name) => name.startsWith('__') || selections.has(name));
  const targets = panels.flatMap((panel) => panel.targets);
  for (const target of targets) {
    const expr = interpolate(target.expr, selections, context);
    assert.deepEqual(left(expr), [], `${file}: no variable is left in ${expr}`);
    queries.add(expr);
  }
  for (const variable of dashboard.variables.filter((candidate) => candidate.type === 'query')) {
    const query = parseVariableQuery(variable.query);
    assert.notEqual(query.kind, 'none', `${file}: the query of ${variable.name} is understood`);
    const asked = interpolate(JSON.stringify(query), selections, context);
    assert.deepEqual(left(asked), [], `${file}: no variable is left in ${asked} of ${variable.name}`);
  }
  const { placed, omitted } = expandRepeats(dashboard.panels, selections);
  assert.equal(omitted, 0);
  assert.equal(new Set(placed.map((one) => one.key)).size, placed.length, `${file}: keys are unique`);

  panelCount += panels.length;
  queryCount += targets.length;
  const lines = report.length === 0 ? '' : `, ${report.length} lines of report`;
  console.log(`${file}: ${drawn.length}/${panels.length} panels, ${targets.length} queries${lines}`);
  for (const line of report) console.log(`  ${line.severity}: ${line.title || '(dashboard)'}: ${line.what}`);
}
console.log(`${files.length} dashboards, ${panelCount} panels, ${queryCount} queries`);
if (queriesFile) writeFileSync(queriesFile, JSON.stringify([...queries]));
