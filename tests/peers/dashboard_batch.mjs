// All queries of a dashboard as the page asks them, with those that panels hide:
//
//   node tests/peers/dashboard_batch.mjs FILE VALUES FROM TO OUT
//
// `VALUES` is an object with a value for each variable, `FROM` and `TO` are in unix milliseconds.
// Writes a JSON array to OUT: the members of each query in the body of `query/batch`. Panels have
// the widths of a window of 1,200 pixels.

import { readFileSync, writeFileSync } from 'node:fs';

import { timed } from '../../src/ui/assets/components/panel_runner.js';
import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { COLUMNS } from '../../src/ui/assets/model/grid.js';
import { planPanel } from '../../src/ui/assets/model/panel_queries.js';
import { writeQuery } from '../../src/ui/assets/model/query_text.js';
import { savedSelections } from '../ui/saved_selections.mjs';

/** The width of the grid in pixels. */
const WIDTH = 950;

const [, , file = '', values = '{}', from = '', to = '', out = ''] = process.argv;
const document = JSON.parse(readFileSync(file, 'utf8'));
for (const [name, value] of Object.entries(JSON.parse(values))) {
  document.templating.list.find((variable) => variable.name === name).current = { text: value, value };
}
const { dashboard } = readDashboard(document);
const range = { from: Number(from), to: Number(to), raw: { from, to } };
const view = {
  selections: savedSelections(dashboard.variables),
  range,
  now: range.to,
  dashboard: { title: dashboard.title, uid: dashboard.uid },
  timeZone: 'utc',
  write: writeQuery,
};
const panels = dashboard.panels.flatMap((panel) => [panel, ...panel.panels]);
const queries = panels.flatMap((panel) => {
  // The hidden queries as well.
  const shown = { ...panel, targets: panel.targets.map((target) => ({ ...target, hide: false })) };
  const plan = planPanel(shown, { ...view, width: (panel.gridPos.w / COLUMNS) * WIDTH });
  return plan.queries.map((query, at) => {
    const { ask, ...times } = timed(query, plan);
    return { id: `${panel.id}.${at}`, ...ask, ...times };
  });
});
writeFileSync(out, JSON.stringify(queries));
