// Drives Chromium over the explore page the way a person would:
//
//   node explore_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ..., "link": ...,
//     "org": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core, `link` is a sign-in link of a demo.
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise. Any console error, policy violation,
// script error or failed request is a failure, unless the flow announced it.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { check, scenario } from './scenario.mjs';

const RATE = 'sum by (route) (rate(shop_http_requests_total[5m]))';
const given = JSON.parse(process.argv[2]);
const { browser, page, announced, checkLooks, run } = await scenario('explore', given, { context: { timezoneId: 'Europe/Berlin' } });
await browser.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(given.server).origin });

const picture = (name) => page.screenshot({ path: join(given.pictures, `explore-${name}.png`) });
async function looks(name) {
  // The list of metrics is checked elsewhere, and takes longer than the rest.
  const list = (hidden) => page.evaluate((to) => (document.querySelector('.browser').hidden = to), hidden);
  await list(true);
  await checkLooks(`explore-${name}`, { looks: [['light', null], ['dark', 320]], settle: 150 });
  await list(false);
}
const open = async (parameters) => {
  await page.goto(`${given.server}/explore?${new URLSearchParams({ org: given.org, ...parameters })}`);
  await page.locator('#query').waitFor();
};
const drawn = () => page.waitForFunction(() => document.querySelector('metric-chart')?.dataset.state === 'drawn');
const api = (path) =>
  page.evaluate(async (at) => (await fetch(at)).json(), `/api/v1/orgs/${given.org}/${path}`);
const query = () => page.inputValue('#query');
const parameter = (name) => new URL(page.url()).searchParams.get(name);
const offered = (text) =>
  page.locator('.options li', { has: page.locator('.what', { hasText: new RegExp(`^${text}$`) }) }).first();
const type = (text) => page.keyboard.type(text, { delay: 5 });
/** Colours of the text below the field, by kind of token. */
const coloured = (kind) => page.locator(`.query-colours .t-${kind}`).allTextContents();

/** A whole query by keyboard, with completion. */
async function typing() {
  await open({});
  await page.focus('#query');
  await type('su');
  await offered('sum').waitFor();
  check((await offered('sum').textContent()).includes('(v)Sum over the series'), 'a function has its help');
  await page.keyboard.press('Escape');
  check(await page.locator('.options').isHidden(), 'Escape closes the list');
  await type('m');
  await offered('sum_over_time').waitFor();
  await page.keyboard.press('Escape');
  await type(' b');
  await offered('by').waitFor();
  await page.keyboard.press('Tab');
  await type('(rou');
  await offered('route').waitFor();
  await page.keyboard.press('Tab');
  await type(') (rat');
  await offered('rate').waitFor();
  await page.keyboard.press('ArrowDown');
  const active = await page.getAttribute('#query', 'aria-activedescendant');
  check((await page.locator(`#${active} .what`).textContent()) === 'rate', 'the arrow marks the first option');
  await page.keyboard.press('Enter');
  // Suggestions that no longer fit are not accepted, even before there are new ones.
  await type('shop_ht');
  await offered('shop_http_requests_total').waitFor();
  await page.keyboard.insertText('tp_requests_');
  check(/counter/.test(await offered('shop_http_requests_total').textContent()), 'a metric has its type');
  await page.keyboard.press('Tab');
  await type('{meth');
  await offered('method').waitFor();
  await page.keyboard.press('Tab');
  await type('G');
  await offered('GET').waitFor();
  await page.keyboard.press('Tab');
  await type('}[');
  await offered('5m').waitFor();
  await looks('suggestions');
  await page.focus('#query');
  await page.keyboard.press('End');
  await type('1');
  await offered('15m').waitFor();
  await offered('5m').waitFor({ state: 'hidden' });
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await type('))');
  const text = 'sum by (route) (rate(shop_http_requests_total{method="GET"}[15m]))';
  check((await query()) === text, `completion by keyboard makes the query: ${await query()}`);
  check((await page.textContent('.query-colours')).startsWith(text), 'the colours are those of the text');
  check((await coloured('function')).join() === 'rate' && (await coloured('label')).join() === 'route,method', 'kinds');
  check((await page.locator('.t-pair').count()) === 2, 'the bracket at the caret and its partner are marked');
  await page.getByText(/^About \d+ series, [\d,.k]+ samples, /).waitFor();
  for (let press = 0; press < 2; press += 1) await page.keyboard.press('Control+z');
  check((await query()).length < text.length, 'Ctrl+Z undoes');
  for (let press = 0; press < 2; press += 1) await page.keyboard.press('Control+Shift+z');
  await page.keyboard.press('Shift+Enter');
  check((await query()).endsWith('\n'), 'Shift+Enter adds a line');
  await page.keyboard.press('Enter');
  await drawn();
  check(parameter('expr') === text, `Enter runs: ${page.url()}`);
}

/** An error at its place, and the formatter. */
async function errors() {
  announced.push('/query/', '/format_query');
  await page.fill('#query', 'sum(\n  rate(shop_http_requests_total[5m]) +* 2)');
  const sentence = page.locator('.query-error', { hasText: 'Unexpected "*" inside aggregation (line 2, column 39).' });
  await sentence.waitFor();
  check((await page.textContent('.t-wrong')) === '*', 'the place of the error is underlined');
  await looks('error');
  await page.locator('.query-colours').waitFor();
  await page.fill('#query', '  sum(rate(shop_http_requests_total[5m]))by(route)/2');
  check(await page.locator('.query-error').isHidden(), 'an edit removes the error');
  await page.getByRole('button', { name: 'Format' }).click();
  await page.waitForFunction((text) => document.querySelector('#query').value === text, `${RATE} / 2`);
  await page.keyboard.press('Control+z');
  check((await query()).startsWith('  sum'), 'Ctrl+Z undoes the formatter');
  await page.fill('#query', 'rate(up)');
  await page.getByRole('button', { name: 'Format' }).click();
  await page.locator('.query-error', { hasText: 'range vector' }).waitFor();
  announced.length = 0;
  // The estimate may arrive later.
  announced.push('/query/estimate?expr=rate%28up%29');
}

/** Plan, cancel, raw samples. */
async function plans() {
  await open({ expr: RATE, tab: 'explain' });
  await page.locator('.plan tbody tr').nth(2).waitFor();
  const rows = await page.locator('.plan tbody tr').allTextContents();
  check(/^sum by \(route\).*\d/.test(rows[0]) && /shop_http_requests_total/.test(rows.at(-1)), `the plan: ${rows}`);
  check(/estimated \d/.test(rows[0]) && / % /.test(rows[0]), `estimated and actual cost, and the share: ${rows[0]}`);
  await looks('plan');
  // A query of many seconds: its end is seen by the server.
  const rates = 'sum by (route, code) (rate(shop_http_requests_total[5m]))';
  const slow = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    .map((tenth) => `quantile_over_time(0.${tenth}, (${rates})[1d:1s])`)
    .join(' + ');
  const running = async () => (await api('queries')).data.length;
  await page.click('#tab-chart');
  await page.fill('#query', slow);
  await page.keyboard.press('Control+Enter');
  const cancel = page.getByRole('button', { name: 'Cancel' });
  await cancel.waitFor();
  await page.getByText(/^Running \d\.\d s$/).waitFor();
  check((await running()) > 0, 'the query is listed while it runs');
  await picture('running');
  await cancel.click();
  await page.getByText(/^The query was cancelled after \d+\.\d s\.$/).waitFor();
  check(await cancel.isHidden(), 'nothing runs any more');
  for (let tries = 0; (await running()) > 0; tries += 1) {
    check(tries < 20, 'the server ends the query');
    await page.waitForTimeout(100);
  }
  await page.fill('#query', 'shop_queue_depth');
  await page.click('#tab-table');
  await page.locator('.samples').first().click();
  const dialog = page.getByRole('dialog', { name: 'Stored samples' });
  await dialog.locator('tbody tr').nth(3).waitFor();
  const time = await dialog.locator('time').first().textContent();
  check(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}$/.test(time), `times are exact: ${time}`);
  await looks('samples');
  await page.keyboard.press('Escape');
  await page.click('#tab-chart');
  await page.fill('#query', 'shop_queue_depth[2m]');
  await page.keyboard.press('Enter');
  await page.getByText('A range of samples has no chart').waitFor();
  await page.locator('td small', { hasText: 'last of' }).first().waitFor();
  await page.locator('.samples').first().click();
  await dialog.locator('tbody tr').first().waitFor();
  const count = await dialog.locator('tbody tr').count();
  check(count > 1 && count <= 9, `the samples of a range selector are those of its range: ${count}`);
  await page.keyboard.press('Escape');
}

/** Absolute ranges, moves, and time zones. */
async function ranges() {
  await open({ expr: RATE, range: '1h' });
  await drawn();
  const custom = page.locator('.custom');
  await custom.click();
  await page.fill('#time-from', 'tomorrow');
  await page.keyboard.press('Enter');
  await page.locator('#time-from-hint', { hasText: 'Write times such as' }).waitFor();
  await page.fill('#time-from', 'now-1h');
  await page.fill('#time-to', 'now-2h');
  await page.keyboard.press('Enter');
  await page.locator('#time-to-hint', { hasText: 'later than the start' }).waitFor();
  check(parameter('start') === null, 'a wrong range changes nothing');
  await looks('range');
  const hour = Math.floor(Date.now() / 3_600_000) * 3600 - 3600;
  const wall = new Date(hour * 1000).toLocaleString('sv', { timeZone: 'Europe/Berlin' });
  await page.fill('#time-from', wall.slice(0, 16));
  await page.fill('#time-to', new Date((hour + 1800) * 1000).toISOString());
  await page.keyboard.press('Enter');
  await page.waitForFunction((start) => new URLSearchParams(location.search).get('start') === String(start), hour);
  check(parameter('end') === String(hour + 1800), `an RFC 3339 time is the end: ${page.url()}`);
  await page.getByRole('button', { name: 'Earlier' }).click();
  check(parameter('start') === String(hour - 900), `earlier by half of the range: ${page.url()}`);
  await page.getByRole('button', { name: 'Later' }).click();
  check(parameter('start') === String(hour), `later by half of the range: ${page.url()}`);
  await page.getByRole('button', { name: 'Zoom out' }).click();
  check(Number(parameter('end')) - Number(parameter('start')) === 3600, `twice the range: ${page.url()}`);
  await drawn();
  const shown = () => page.textContent('.fixed span');
  const clock = (zone) =>
    new Date(Number(parameter('start')) * 1000).toLocaleString('sv', { timeZone: zone }).slice(11, 19);
  check((await shown()).includes(clock('Europe/Berlin')), `the zone of the browser: ${await shown()}`);
  await custom.click();
  await page.selectOption('#time-zone', 'Asia/Tokyo');
  await page.waitForFunction(() => document.querySelector('.fixed span').textContent.includes('Asia/Tokyo'));
  check((await shown()).includes(clock('Asia/Tokyo')), `a named zone: ${await shown()}`);
  await page.reload();
  await drawn();
  check((await shown()).includes(clock('Asia/Tokyo')), 'the zone is remembered');
  const heard = await page
    .locator('metric-chart')
    .evaluate((node) => node.shadowRoot.querySelector('caption').textContent);
  check(heard.includes(clock('Asia/Tokyo').slice(0, 5)), `the chart uses the zone: ${heard}`);
  await custom.click();
  check((await page.inputValue('#time-from')).endsWith(clock('Asia/Tokyo')), 'the fields use the zone');
  await page.selectOption('#time-zone', 'browser');
}

/** The next save of a dashboard finds that somebody else has renamed it in the meantime. */
async function conflict() {
  let first = true;
  announced.push('/dashboards/');
  await page.route('**/dashboards/*', async (route) => {
    const request = route.request();
    if (request.method() === 'PUT' && first) {
      first = false;
      const body = JSON.parse(request.postData());
      body.dashboard = { ...body.dashboard, panels: body.dashboard.panels.slice(0, 1), description: 'kept' };
      await route.fetch({ postData: JSON.stringify(body) });
    }
    await route.continue();
  });
}

/** Every export, with what it holds. */
async function exports() {
  await open({ expr: RATE, range: '1h' });
  await drawn();
  const choose = async (name) => {
    await page.getByRole('button', { name: 'Export' }).click();
    await page.locator('.export-menu').getByRole('button', { name }).click();
  };
  const saved = async (name) => {
    const [download] = await Promise.all([page.waitForEvent('download'), choose(name)]);
    return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
  };
  const csv = await saved('CSV');
  const lines = csv.bytes.toString().split('\r\n');
  check(csv.name === 'sum-by-route-rate-shop_http_requests_total-5m.csv', `the file is named: ${csv.name}`);
  check(lines[0].startsWith('time,"{route=""/""}"') && lines.length > 200, `the heads are series: ${lines[0]}`);
  check(/^\d{4}-\d\d-\d\dT[\d:.]+Z,[\d.]+,/.test(lines[5]), `a row is a time: ${lines[5]}`);
  const json = JSON.parse((await saved('JSON')).bytes.toString());
  check(json.data.resultType === 'matrix' && json.data.result.length > 2, 'the JSON is the answer');
  const png = (await saved('PNG')).bytes;
  check(png.subarray(1, 4).toString() === 'PNG' && png.length > 10_000, `the PNG is a picture: ${png.length} bytes`);
  const size = [png.readUInt32BE(16), png.readUInt32BE(20)];
  const plot = await page.locator('metric-chart').evaluate((node) => node.shadowRoot.querySelector('canvas').width);
  check(size[0] > plot && size[1] > 300, `it has title and legend: ${size}`);
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await choose('Copy as curl');
  await page.getByText('Set PROMLET_API_KEY').waitFor();
  const curl = await copied();
  check(curl.includes('Bearer $PROMLET_API_KEY') && curl.includes(`query=${RATE}`), `the command: ${curl}`);
  check(!/mgl_|ses_|eyJ/.test(curl), 'the command has no secret');
  await choose('Copy as panel');
  await page.getByText('Paste the panel').waitFor();
  const panel = JSON.parse(await copied());
  check(panel.type === 'timeseries' && panel.targets[0].expr === RATE, 'the panel has the query');
  const stored = await page.evaluate(() => JSON.parse(localStorage.getItem('promlet.clipboard.panel')));
  check(JSON.stringify(stored) === JSON.stringify(panel), 'the editor of dashboards finds the panel');
  const wishes = [
    ['New dashboard', 'Rates', 'timeseries'],
    ['From explore', 'Now', 'bargauge'],
  ];
  for (const [dashboard, title, kind] of wishes) {
    await choose('Add to dashboard…');
    const dialog = page.getByRole('dialog', { name: 'Add to dashboard' });
    await dialog.waitFor();
    await page.selectOption('#panel-uid', { label: dashboard });
    if (dashboard === 'New dashboard') {
      await looks('add-to-dashboard');
      await dialog.getByLabel('Name of the new dashboard').fill('From explore');
    }
    await dialog.getByLabel('Panel title').fill(title);
    await page.selectOption('#panel-kind', kind);
    // Another save comes between: the dashboard is read again, and nothing of that save is lost.
    if (kind === 'bargauge') await conflict();
    await dialog.getByRole('button', { name: 'Add panel' }).click();
    await page.getByRole('link', { name: 'Open From explore' }).waitFor();
    if (kind === 'timeseries') await page.getByRole('button', { name: 'Close', exact: true }).click();
  }
  await page.unroute('**/dashboards/*');
  announced.length = 0;
  const { uid } = (await api('dashboards')).data.find(({ title }) => title === 'From explore');
  const latest = await api(`dashboards/${uid}`);
  check(latest.version === 3 && latest.dashboard.description === 'kept', `the other save is kept: ${latest.version}`);
  await page.getByRole('link', { name: 'Open From explore' }).click();
  for (const title of ['Rates', 'Now']) {
    const heading = page.locator('.panel-title', { hasText: title });
    await page.locator('.panel[data-state="drawn"]', { has: heading }).waitFor();
  }
}

/** Earlier queries: search, star, and back into the field. */
async function earlier() {
  await open({ expr: 'host_load1' });
  await page.getByRole('button', { name: 'History' }).click();
  const popup = page.getByRole('dialog', { name: 'Earlier queries' });
  await page.getByRole('button', { name: 'Star host_load1' }).click();
  await looks('history');
  await page.fill('#history-search', 'QUEUE [2m]');
  await popup.getByText('1 query', { exact: true }).waitFor();
  await page.keyboard.press('Enter');
  check((await query()) === 'shop_queue_depth[2m]', `the query is back: ${await query()}`);
  check(parameter('expr') === 'host_load1', 'and it does not run yet');
  await page.getByRole('button', { name: 'History' }).click();
  const first = popup.locator('li').first();
  check((await first.locator('.entry').textContent()) === 'host_load1', 'a starred query comes first');
  await page.keyboard.press('Escape');
  check((await page.evaluate(() => document.activeElement?.textContent)) === 'History', 'Escape returns the focus');
}

await run(async () => {
  await page.goto(given.link);
  await page.waitForSelector('.metrics li');
}, [typing, errors, plans, ranges, exports, earlier]);
