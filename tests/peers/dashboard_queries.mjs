// The queries of public dashboards as the page asks them with the saved values of all variables:
//
//   node tests/peers/dashboard_queries.mjs FOLDER OUT
//
// Writes a JSON array of dashboards to OUT: the file, the document, the queries of panels with the
// text that the page sends, and those of variables. Each dashboard is there twice: as it is, and
// with a value for each variable, because most public dashboards are saved without. Then
// `tests/peers_ui.rs` compares them with the queries that the server makes of the same documents.
//
// One difference is meant. The page knows the options of a query, and writes them for All. The
// server does not ask for them, and writes the pattern `.+`, also for a variable with All that was
// saved without a value.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { ALL, interpolate, isAll } from '../../src/ui/assets/model/interpolate.js';
import { queryText } from '../../src/ui/assets/model/query_text.js';
import { parseVariableQuery } from '../../src/ui/assets/model/variable_query.js';
import { savedSelections } from '../ui/saved_selections.mjs';

const [, , folder = '.', out = ''] = process.argv;
const files = readdirSync(folder, { recursive: true }).map(String).filter((name) => name.endsWith('.json')).sort();
assert.ok(files.length > 0, `there are dashboards in ${folder}`);
const range = { from: 1_700_000_000_000, to: 1_700_021_600_000 };
const interval = { intervalMs: 20_000, rateIntervalMs: 60_000 };

/** The document with a value for each query variable. */
function filled(document) {
  const copy = structuredClone(document);
  for (const [at, variable] of (copy.templating?.list ?? []).entries()) {
    if ((variable.type ?? 'query') !== 'query') continue;
    const several = at % 2 === 0 ? [`a.b-${at}`, 'c\\d"'] : [`only+${at}`];
    const value = variable.multi ? several : `one.${at}`;
    variable.current = { text: value, value };
  }
  return copy;
}

/** The selections of the page, with the pattern of the server for All. */
function selectionsOf(variables) {
  const selections = savedSelections(variables);
  for (const { name, type, includeAll, multi } of variables) {
    const selection = selections.get(name);
    const none = selection.value.length === 0;
    if (type === 'query' && includeAll && (none || isAll(selection.value))) {
      selections.set(name, { ...selection, value: multi ? [ALL] : ALL, text: 'All',
        allValue: selection.allValue ?? '.+' });
    }
  }
  return selections;
}

const dashboards = files.flatMap((file) => {
  const document = JSON.parse(readFileSync(join(folder, file), 'utf8'));
  return [document, filled(document)].map((source) => {
    const { dashboard } = readDashboard(source);
    const selections = selectionsOf(dashboard.variables);
    const context = {
      range, interval, timeZone: dashboard.timezone, dashboard: { title: dashboard.title, uid: dashboard.uid },
    };
    const queries = dashboard.panels.flatMap((panel) => [panel, ...panel.panels])
      .filter((panel) => Number.isInteger(panel.id))
      .flatMap((panel) => panel.targets
        // For the server, a second query of the same name has another one.
        .filter(({ refId }, at, all) => all.findIndex((other) => other.refId === refId) === at)
        .filter((target) => !target.hide && !target.unsupported)
        .map((target) => ({ panel: panel.id, ref: target.refId, text: queryText(target.expr, selections, context) })));
    const variables = dashboard.variables.filter(({ type }) => type === 'query').map((variable) => {
      const replace = (text) => interpolate(text, selections, { ...context, format: 'promql' });
      const replaced = Object.entries(parseVariableQuery(variable.query))
        .map(([name, value]) => [name, name === 'kind' ? value : replace(value)]);
      return { name: variable.name, query: Object.fromEntries(replaced) };
    });
    return { file, uid: dashboard.uid, document: JSON.stringify(source), queries, variables };
  });
});
writeFileSync(out, JSON.stringify(dashboards));
console.log(`${dashboards.length} dashboards, ${dashboards.flatMap(({ queries }) => queries).length} queries`);
