// Drives Chromium over the pages of dashboards the way a person would:
//
//   node dashboards_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ...,
//     "email": ..., "password": ..., "org": ..., "metric": ..., "label": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core. `metric` is a metric of the
// organisation and `label` one of its labels with at least two values. `link` is a sign-in link;
// without it and `email` the server needs no session.
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise. Any console error, policy violation,
// script error or failed request is a failure, unless the flow announced it.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { check, scenario } from './scenario.mjs';

const batches = [];
const given = { metric: 'shop_http_requests_total', label: 'route', ...JSON.parse(process.argv[2]) };
const { browser, page, complaints, announced, checkLooks, run } = await scenario('dashboards', given);
page.on('request', (request) => {
  if (request.url().endsWith('/query/batch')) batches.push(JSON.parse(request.postData()));
});
page.on('dialog', (dialog) => {
  complaints.push(`a script opened a dialog: ${dialog.message()}`);
  dialog.dismiss();
});

const HOSTILE = '<img src=x onerror=alert(1)>';
const series = `sum by (${given.label}) (rate(${given.metric}[5m]))`;
const target = (expr, more = {}) => ({ refId: 'A', expr, legendFormat: `{{${given.label}}}`, ...more });
const at = (x, y, w, h) => ({ x, y, w, h });
const dashboard = {
  uid: 'flow-of-the-browser',
  title: `Flow ${HOSTILE}`,
  tags: ['flow'],
  schemaVersion: 39,
  time: { from: 'now-1h', to: 'now' },
  refresh: '',
  links: [
    { type: 'link', title: 'Evil', url: 'javascript:alert(1)' },
    { type: 'link', title: 'Docs', url: '/docs?x=$chosen' },
  ],
  templating: {
    list: [
      {
        name: 'chosen',
        label: 'Chosen',
        type: 'query',
        query: `label_values(${given.metric}, ${given.label})`,
        multi: true,
        includeAll: true,
        current: { text: ['All'], value: ['$__all'] },
      },
      { name: 'factor', type: 'custom', query: '1,2,3', current: { text: '1', value: '1' } },
      { name: 'words', type: 'textbox', query: 'hello', current: { text: 'hello', value: 'hello' } },
    ],
  },
  panels: [
    {
      id: 1,
      type: 'timeseries',
      title: `Rate ${HOSTILE}`,
      gridPos: at(0, 0, 12, 8),
      targets: [target(`sum by (${given.label}) (rate(${given.metric}{${given.label}=~"$chosen"}[5m])) * $factor`)],
      fieldConfig: { defaults: { unit: 'reqps' }, overrides: [] },
      options: { legend: { displayMode: 'table', placement: 'bottom', calcs: ['mean', 'max'] } },
    },
    {
      id: 2,
      type: 'stat',
      title: 'Value $words',
      gridPos: at(12, 0, 6, 4),
      targets: [target('vector(42)', { instant: true })],
      options: { reduceOptions: { calcs: ['lastNotNull'] } },
    },
    {
      id: 3,
      type: 'gauge',
      title: 'Gauge',
      gridPos: at(18, 0, 6, 8),
      targets: [target('vector(70)')],
      fieldConfig: { defaults: { unit: 'percent', min: 0, max: 100 }, overrides: [] },
    },
    {
      id: 4,
      type: 'table',
      title: 'Table',
      gridPos: at(12, 4, 6, 4),
      targets: [target(series, { instant: true, format: 'table' })],
    },
    {
      id: 5,
      type: 'text',
      title: 'Words',
      gridPos: at(0, 8, 8, 4),
      options: { mode: 'markdown', content: `# Head\n\n**bold** ${HOSTILE} [evil](javascript:alert(1))` },
    },
    { id: 6, type: 'geomap', title: 'Map', gridPos: at(8, 8, 8, 6), targets: [target(series)] },
    { id: 7, type: 'timeseries', title: 'Broken', gridPos: at(16, 8, 8, 6), targets: [target('sum(')] },
    {
      id: 8,
      type: 'row',
      title: 'Closed row',
      collapsed: true,
      gridPos: at(0, 14, 24, 1),
      panels: [{ id: 9, type: 'bargauge', title: 'Inside', gridPos: at(0, 15, 12, 6), targets: [target(series)] }],
    },
    { id: 10, type: 'row', title: 'Far below', gridPos: at(0, 60, 24, 1), panels: [] },
    {
      id: 13,
      type: 'timeseries',
      title: 'Long names '.repeat(8),
      description: 'What it shows',
      gridPos: at(0, 15, 12, 8),
      targets: [target(series, { legendFormat: `${'long '.repeat(30)}{{${given.label}}}` })],
      options: { legend: { displayMode: 'table', placement: 'bottom', calcs: ['min', 'mean', 'max', 'lastNotNull'] } },
    },
    { id: 11, type: 'timeseries', title: 'Tall', gridPos: at(0, 61, 24, 60), targets: [target(series)] },
    { id: 12, type: 'timeseries', title: 'Out of sight', gridPos: at(0, 121, 24, 8), targets: [target(series)] },
  ],
};

const looks = (name) =>
  checkLooks(name, { looks: [['light', null], ['light', 320], ['dark', null], ['dark', 320]], settle: 400 });
const panel = (title) => page.locator('.panel', { has: page.locator('.panel-title', { hasText: title }) });
const drawn = (title) => panel(title).and(page.locator('[data-state="drawn"]')).waitFor({ timeout: 10_000 });
const settled = () => page.waitForFunction(() => !document.querySelector('.panel.loading'));
const parameters = () => new URL(page.url()).searchParams;

async function importFlow() {
  await page.goto(`${given.server}/dashboards?org=${given.org}`);
  await page.getByRole('heading', { name: 'Dashboards', exact: true }).waitFor();
  await looks('dashboards-list');
  await page.getByRole('button', { name: 'Import dashboard' }).click();
  // A file that is no dashboard is refused with a reason.
  await page.getByLabel('Or paste the JSON of a dashboard').fill('{"a": 1}');
  await page.getByRole('button', { name: 'Check the JSON' }).click();
  await page.getByText('is not a Grafana dashboard').waitFor();
  const file = join(given.pictures, 'flow.json');
  writeFileSync(file, JSON.stringify(dashboard));
  await page.getByLabel('Files').setInputFiles(file);
  await page.getByText('the panel type geomap is not supported').waitFor();
  await page.getByText('13 panels, 10 queries').waitFor();
  await looks('dashboards-import');
  await page.getByLabel('Folder', { exact: true }).first().fill('Flows');
  await page.getByRole('button', { name: 'Save the dashboard' }).click();
  const saved = page.locator('.candidate .success a');
  await saved.waitFor();
  await page.getByText('13 panels', { exact: true }).waitFor();
  await page.getByRole('button', { name: `Star ${dashboard.title}` }).click();
  await page.getByRole('button', { name: `Star ${dashboard.title}`, pressed: true }).waitFor();
  await saved.click();
}

async function viewFlow() {
  await drawn('Rate');
  await drawn('Value hello');
  check((await panel('Value hello').locator('.stat-value').textContent()).includes('42'), 'the stat shows its value');
  await drawn('Table');
  await panel('Map').getByText('Panel kind geomap is shown as a table.').waitFor();
  await panel('Broken').getByRole('alert').waitFor();
  check(batches.length === 1, `the first screen is one request: ${batches.length}`);
  check(!batches.some(({ queries }) => queries.length === 0), 'no batch is empty');
  check((await page.locator('img[src="x"]').count()) === 0, 'markup in titles stays text');
  check((await page.locator('[href^="javascript"]').count()) === 0, 'no link leads to a script');
  check((await page.locator('.panel-title', { hasText: HOSTILE }).count()) === 1, 'the title is shown as it is');
  const canvas = await panel('Rate')
    .locator('canvas')
    .first()
    .evaluate((node) => {
      const { data } = node.getContext('2d').getImageData(0, 0, node.width, node.height);
      return data.filter((value, index) => index % 4 === 3 && value > 200).length;
    });
  check(canvas > 500, `the plot has lines: ${canvas}`);
  await looks('dashboard-view');
  await panel('Long names').scrollIntoViewIfNeeded();
  await drawn('Long names');
  const [hidden, sides] = await panel('Long names').evaluate((node) => {
    const [table, info] = ['.legend-table', '.panel-info'].map((name) => node.querySelector(name));
    return [table.scrollWidth - table.clientWidth, info.offsetWidth / info.offsetHeight];
  });
  check(hidden === 0, `the values of a legend fit beside long names: ${hidden} pixels are hidden`);
  check(sides === 1, `a long title leaves the mark of a description round: ${sides}`);
  // Panels below are asked when they come into sight.
  check((await panel('Out of sight').getAttribute('data-state')) === null, 'a panel out of sight is not asked');
  await panel('Out of sight').scrollIntoViewIfNeeded();
  await drawn('Out of sight');
  await page.evaluate(() => scrollTo(0, 0));
}

async function variableFlow() {
  await settled();
  const before = await panel('Rate').locator('.legend-table tbody tr').count();
  check(before >= 2, `All shows every series: ${before}`);
  await page.locator('#variable-chosen').click();
  const search = page.getByRole('searchbox', { name: 'Search values of Chosen' });
  await search.waitFor();
  const option = page.locator('.variable-options label').nth(1);
  const wanted = (await option.textContent()).trim();
  await search.fill(wanted);
  await page.getByRole('checkbox', { name: wanted, exact: true }).check();
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.waitForFunction(
    (value) => new URLSearchParams(location.search).getAll('var-chosen').join() === value,
    wanted,
  );
  await page.waitForFunction(() => document.querySelector('.legend-table').querySelectorAll('tbody tr').length === 1);
  // The answer to one choice arrives while the next one is typed: the text stays.
  let release;
  const released = new Promise((resolve) => (release = resolve));
  const listings = (url) => url.pathname.endsWith('/values');
  await page.route(listings, (route) => released.then(() => route.continue()));
  await page.selectOption('#variable-factor', '3');
  await page.fill('#variable-words', HOSTILE);
  release();
  await page.waitForFunction(() => new URLSearchParams(location.search).get('var-factor') === '3');
  await settled();
  await page.waitForTimeout(500);
  check((await page.inputValue('#variable-words')) === HOSTILE, 'a text that was not confirmed stays');
  await page.unroute(listings);
  await page.keyboard.press('Enter');
  await panel(`Value ${HOSTILE}`).waitFor();
  // The request follows the titles.
  const tripled = () => batches.at(-1).queries.some(({ expr }) => expr.includes('* 3'));
  for (let turn = 0; turn < 50 && !tripled(); turn += 1) await page.waitForTimeout(100);
  check(tripled(), 'the query has the value of the variable');
  await page.goBack();
  await panel('Value hello').waitFor();
  await page.goBack();
  await page.waitForFunction(() => new URLSearchParams(location.search).get('var-factor') === '1');
  await page.waitForFunction(() => document.querySelector('#variable-factor')?.value === '1');
}

async function timeFlow() {
  await page.locator('.time-button').click();
  await page.getByRole('button', { name: 'Last 15 minutes' }).click();
  check(
    parameters().get('from') === 'now-15m' && parameters().get('to') === 'now',
    `the range is in the address: ${page.url()}`,
  );
  await page.locator('.time-button').click();
  await page.fill('#time-from', 'rubbish');
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('Write times such as now-6h').waitFor();
  await page.fill('#time-from', 'now-2h');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => new URLSearchParams(location.search).get('from') === 'now-2h');
  await drawn('Rate');
  await settled();
  // A drag over the plot zooms, and going back ends the zoom.
  const box = await panel('Rate').locator('.plot-cursor').boundingBox();
  await page.mouse.move(box.x + box.width * 0.4, box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.7, box.y + 50, { steps: 4 });
  await page.mouse.up();
  await page.waitForFunction(() => /^\d{12,}$/.test(new URLSearchParams(location.search).get('from')));
  await page.goBack();
  await page.waitForFunction(() => new URLSearchParams(location.search).get('from') === 'now-2h');
  await page.selectOption('#dashboard-refresh', '5s');
  check(parameters().get('refresh') === '5s', 'the interval is in the address');
  const count = batches.length;
  await page.waitForFunction(() => true);
  await page.waitForTimeout(6500);
  check(batches.length > count, 'the dashboard refreshes');
  await page.selectOption('#dashboard-refresh', '');
}

async function rowFlow() {
  const row = page.getByRole('button', { name: /Closed row/ });
  check((await row.getAttribute('aria-expanded')) === 'false', 'the row is closed at first');
  await row.click();
  await panel('Inside').scrollIntoViewIfNeeded();
  await drawn('Inside');
  await row.click();
  await panel('Inside').waitFor({ state: 'detached' });
  check(
    await page.evaluate(() => document.activeElement?.textContent.includes('Closed row')),
    'the row keeps the focus',
  );
}

async function keyboardFlow() {
  await page.evaluate(() => scrollTo(0, 0));
  await settled();
  const slider = panel('Rate').getByRole('slider');
  await slider.focus();
  await page.keyboard.press('ArrowLeft');
  check((await slider.getAttribute('aria-valuetext')).length > 10, 'the plot tells its values');
  await panel('Rate').getByRole('button', { name: 'Menu of the panel' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Show the data as a table' }).click();
  await panel('Rate').locator('.table-scroll').waitFor();
}

async function jsonFlow() {
  const views = page.getByRole('navigation', { name: 'Views' });
  await views.getByRole('link', { name: 'JSON' }).click();
  const area = page.getByLabel('JSON of the dashboard');
  await area.waitFor();
  check(JSON.parse(await area.inputValue()).panels.length === dashboard.panels.length, 'the JSON is the stored one');
  await looks('dashboard-json');
  await area.fill('{"title": ');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('The file is not JSON').waitFor();
  await area.fill(JSON.stringify({ ...dashboard, title: 'Changed title' }));
  await page.getByLabel('What changed').fill('A new title');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByRole('heading', { name: 'Changed title' }).waitFor();
  // Another tab saves meanwhile: the answer is a choice, not a lost change.
  const status = await page.evaluate(
    async ([org, uid, body]) => {
      const path = new URL(`api/v1/orgs/${org}/dashboards/${uid}`, location.href).pathname;
      const { version } = await (await fetch(path)).json();
      return (
        await fetch(path, {
          method: 'PUT',
          headers: { 'Content-Type': 'application/json', 'If-Match': `"${version}"` },
          body,
        })
      ).status;
    },
    [given.org, dashboard.uid, JSON.stringify({ dashboard: { ...dashboard, title: 'Theirs' } })],
  );
  check(status === 200, `the other save succeeds: ${status}`);
  announced.push(`/dashboards/${dashboard.uid}`);
  await page.getByLabel('JSON of the dashboard').fill(JSON.stringify({ ...dashboard, title: 'Mine' }));
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByRole('button', { name: 'Save mine over theirs' }).click();
  await page.getByRole('heading', { name: 'Mine' }).waitFor();
  await views.getByRole('link', { name: 'Versions' }).click();
  await page.getByText('A new title').waitFor();
  await looks('dashboard-versions');
  await page.getByRole('button', { name: 'Restore version 1' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Restore' }).click();
  await page.getByRole('heading', { name: dashboard.title }).waitFor();
}

async function deleteFlow() {
  await page.getByRole('link', { name: 'Dashboards' }).first().click();
  await page.fill('#dashboard-search', 'Flow <img');
  await page.getByRole('button', { name: `Delete ${dashboard.title}` }).click();
  await page.getByRole('dialog').getByText('versions will be lost').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete dashboard' }).click();
  await page.getByText('No dashboard matches.').waitFor();
}

await run(async () => {
  if (given.link) {
    await page.goto(given.link);
    await page.waitForSelector('.menu');
  } else if (given.email) {
    await page.goto(`${given.server}/login`);
    await page.fill('[name="email"]', given.email);
    await page.fill('[name="password"]', given.password);
    await page.keyboard.press('Enter');
    await page.waitForSelector('.menu');
  }
}, [importFlow, viewFlow, variableFlow, timeFlow, rowFlow, keyboardFlow, jsonFlow, deleteFlow]);
