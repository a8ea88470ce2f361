// Drives Chromium over the editors of panels and of variables the way a person would:
//
//   node panel_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ...,
//     "link": ..., "org": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core, `link` is a sign-in link. The organisation has the
// metrics of the demo.
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise. Any console error, policy violation
// or script error is a failure.

import { join } from 'node:path';
import { check, scenario } from './scenario.mjs';

/** Queries of batches, in order. */
const asked = [];
const given = JSON.parse(process.argv[2]);
const { page, checkLooks, run } = await scenario('panel', given, {
  // Until a variable has its query, the text of its former kind may be queried.
  announced: ['/api/v1/auth/me', 'match%5B%5D=small%2Clarge'],
  context: { viewport: { width: 1280, height: 900 } },
});
page.on('request', (request) => {
  if (request.url().endsWith('/query/batch'))
    asked.push(JSON.parse(request.postData()).queries.map(({ expr }) => expr));
});
page.on('dialog', (dialog) => dialog.accept());

const button = (name) => page.getByRole('button', { name, exact: true });
const label = (name) => page.getByLabel(name, { exact: true });
const editor = page.locator('.panel-editor');

const looks = (name) =>
  checkLooks(name, { looks: [['light', null], ['dark', null], ['light', 320]], settle: 120, fullPage: true });

/** The document of the dashboard under test: a chart with members that no editor knows. */
const SHOP = {
  title: 'Shop',
  schemaVersion: 41,
  time: { from: 'now-1h', to: 'now' },
  templating: {
    list: [{ name: 'route', type: 'query', query: 'label_values(shop_http_requests_total, route)', refresh: 1,
      multi: true, includeAll: true, current: { text: 'All', value: '$__all' }, unknown: 7 }],
  },
  panels: [
    {
      id: 1, type: 'timeseries', title: 'Requests', gridPos: { x: 0, y: 0, w: 12, h: 8 }, unknown: { kept: true },
      fieldConfig: { defaults: { unit: 'reqps', custom: { lineWidth: 2, odd: 'kept' } }, overrides: [] },
      targets: [{ refId: 'A', expr: 'sum by (route) (rate(shop_http_requests_total{route=~"$route"}[5m]))',
        legendFormat: '{{route}}', odd: 1 }],
    },
  ],
};
let uid = '';

async function start() {
  await page.goto(given.link);
  await page.waitForFunction(() => !location.pathname.startsWith('/api'));
  const made = await page.evaluate(
    async ([org, dashboard]) => {
      const answer = await fetch(`/api/v1/orgs/${org}/dashboards`, {
        method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ dashboard }),
      });
      return answer.json();
    },
    [given.org, SHOP],
  );
  ({ uid } = made);
  check(typeof uid === 'string', `the dashboard is created: ${JSON.stringify(made)}`);
}

const address = (more) => `${given.server}/dashboard?org=${given.org}&uid=${uid}${more}`;
const drawn = (kind) => page.locator(`.editor-preview .panel[data-kind="${kind}"][data-state="drawn"]`).waitFor();

async function previewFlow() {
  await page.goto(address('&edit='));
  await page.locator('.edit-bar').waitFor();
  await page.locator('.panel').first().focus();
  await page.keyboard.press('e');
  await drawn('timeseries');
  check(await button('Apply').isDisabled(), 'a panel without changes cannot be applied');
  await looks('panel-editor');
  const before = asked.length;
  await label('Line width').fill('4');
  await label('Title').fill('<b>Requests</b>');
  await page.locator('.editor-title', { hasText: '<b>Requests</b>' }).waitFor();
  await label('Search options').fill('unit');
  check(!(await label('Title').isVisible()), 'the search hides other options');
  await label('Unit').click();
  await label('Unit').fill('percent 0.0');
  await label('Unit').press('ArrowDown');
  await label('Unit').press('Enter');
  check((await label('Unit').inputValue()) === 'Percent (0.0-1.0)', 'the unit is chosen by keyboard');
  await label('Search options').fill('');
  await label('Table view').check();
  await page.locator('.editor-preview table').waitFor();
  await label('Table view').uncheck();
  await drawn('timeseries');
  check(asked.length === before, 'options and views ask no query again');
  await page.locator('[data-focus="expr A"]').fill('sum(rate(shop_http_requests_total{route=~"$route"}[5m]))');
  await page.keyboard.press('Enter');
  await page.waitForTimeout(300);
  check(asked.length === before + 1, `another expression is asked once: ${asked.length - before}`);
}

async function kindsFlow() {
  for (const [name, kind] of [['Stat', 'stat'], ['Gauge', 'gauge'], ['Bar gauge', 'bargauge'], ['Table', 'table'],
    ['Pie chart', 'piechart'], ['Bar chart', 'barchart'], ['Histogram', 'histogram'], ['Heatmap', 'heatmap'],
    ['State timeline', 'state-timeline'], ['Status history', 'status-history'], ['Text', 'text']]) {
    await label('Kind of panel').selectOption(name);
    await drawn(kind);
    if (kind === 'stat') await looks('panel-editor-stat');
  }
  await label('Kind of panel').selectOption('Time series');
  await drawn('timeseries');
  check((await label('Line width').inputValue()) === '4', 'the field configuration stays');
}

async function listsFlow() {
  await page.getByRole('tab', { name: /Queries/ }).click();
  const styles = await page.locator('.query-row').first().evaluate((row) =>
    ['textarea', '.query-colours'].map((part) => {
      const { font, paddingLeft, paddingTop } = getComputedStyle(row.querySelector(part));
      return [font, paddingLeft, paddingTop].join(' ');
    }));
  check(styles[0] === styles[1], `the colours of a query are below its letters: ${styles.join(', ')}`);
  await button('Add query').click();
  await button('Duplicate query A').click();
  check((await page.locator('.query-row').count()) === 3, 'there are three queries');
  await button('Remove query B').click();
  await button('Remove query C').click();
  await page.getByRole('tab', { name: /Transformations/ }).click();
  await label('Add transformation').selectOption('Reduce');
  await label('Add transformation').selectOption('Organize fields');
  await label('New name of Field').fill('Series');
  await page.locator('summary', { hasText: 'Thresholds' }).click();
  await button('Add threshold').click();
  await page.locator('summary', { hasText: 'Value mappings' }).click();
  await button('Add mapping').click();
  await label('Text of mapping 1').fill('none');
  await page.locator('summary', { hasText: 'Overrides' }).click();
  await button('Add override').click();
  await label('Add property to override 1').selectOption('Line width');
  await looks('panel-editor-lists');
  const heading = page.locator('.editor-title');
  await heading.focus();
  const text = await page.locator('.group[data-title="Overrides"] .entry').count();
  check(text === 1, 'the override is listed');
  await page.keyboard.press('Control+z');
  await page.keyboard.press('Control+z');
  check((await page.locator('.group[data-title="Overrides"] .entry').count()) === 0, 'undo takes the override back');
  await page.getByRole('tab', { name: 'JSON' }).click();
  const area = label('JSON of the panel');
  const good = await area.inputValue();
  await area.fill('{\n  "type": }');
  await button('Use this JSON').click();
  await page.getByText('Line 2, column 11').waitFor();
  await area.fill(good);
  await button('Use this JSON').click();
}

async function rangeFlow() {
  const before = asked.length;
  await page.getByRole('button', { name: /^Time range/ }).click();
  await page.getByRole('button', { name: 'Last 15 minutes', exact: true }).click();
  await page.waitForFunction(() => location.search.includes('from=now-15m'));
  await page.waitForTimeout(300);
  check(asked.length === before + 1, `the preview follows the range of the dashboard: ${asked.length - before}`);
  await page.goBack();
  await page.waitForTimeout(300);
  check(await editor.isVisible() && asked.length === before + 2, 'Back shows the range before in the editor');
}

async function applyFlow() {
  await page.goBack();
  await page.getByRole('dialog').getByText('will be lost').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  check(await editor.isVisible(), 'Back asks before the changes are lost');
  await button('← Back to dashboard').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  await button('Apply').click();
  await page.getByText('Applied.').waitFor();
  await page.getByRole('tab', { name: 'JSON' }).click();
  const raw = JSON.parse(await label('JSON of the panel').inputValue());
  check(raw.unknown.kept === true && raw.fieldConfig.defaults.custom.odd === 'kept' && raw.targets[0].odd === 1,
    'members that the editor does not know are kept');
  check(raw.fieldConfig.defaults.unit === 'percentunit' && raw.type === 'timeseries', 'the edits are in the panel');
  await page.locator('.editor-title').focus();
  await page.keyboard.press('Escape');
  await editor.waitFor({ state: 'detached' });
}

async function variablesFlow() {
  await page.getByRole('link', { name: 'Variables', exact: true }).click();
  await page.locator('.variable-values li').nth(2).waitFor();
  await looks('variable-editor');
  await label('Add variable').selectOption('Custom');
  await label('Name').fill('size');
  await label('Values').first().fill('small,large : 9');
  await page.locator('.variable-values li', { hasText: 'large : 9' }).waitFor();
  await label('Kind').selectOption('Query');
  await label('Query').fill('label_values(up{size="$size"}, job)');
  await page.locator('.problems', { hasText: 'size → size' }).waitFor();
  check(await button('Apply').isDisabled(), 'a cycle cannot be applied');
  await label('Query').fill('label_values(up{a="$nothing"}, job)');
  await page.locator('.problems', { hasText: '$nothing' }).waitFor();
  await label('Query').fill('label_values(shop_queue_depth, queue)');
  await button('Remove route').click();
  await page.getByRole('dialog').getByText('Panels that use it').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  await button('Apply').click();
  await page.getByText('Applied.').waitFor();
}

async function typedFlow() {
  await page.goto(address(''));
  await button('Resume').click();
  await page.locator('.edit-bar').waitFor();
  // A panel that is still being made would lose the focus.
  await page.locator('.panel[data-state="drawn"]').first().waitFor();
  await page.locator('.panel').first().focus();
  await page.keyboard.press('e');
  await drawn('timeseries');
  const before = asked.length;
  const query = page.locator('[data-focus="expr A"]');
  await query.fill('sum(shop_queue_depth) +');
  check(!(await button('Apply').isDisabled()), 'a query that is typed is a change');
  await page.waitForTimeout(300);
  check(asked.length === before, 'half a query is not asked');
  await page.reload();
  await button('Resume').click();
  await query.waitFor();
  check((await query.inputValue()) === 'sum(shop_queue_depth) +', 'the draft has the query that was typed');
}

await run(async () => {
  await start();
}, [previewFlow, kindsFlow, listsFlow, rangeFlow, applyFlow, variablesFlow, typedFlow]);
