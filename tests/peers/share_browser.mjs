// Drives Chromium over the Share dialog of the demo's dashboard and of a query:
//
//   node share_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ..., "link": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core; `link` signs in to the organisation `org` as
// its owner.
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise. Any console error, policy violation,
// script error or request to another host is a failure, unless the flow announced it.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { check, scenario } from './scenario.mjs';

const given = JSON.parse(process.argv[2]);
const { browser, page, announced, checkLooks, run } = await scenario('share', given);
const dialog = page.getByRole('dialog').first();
/** Would end a string, an attribute or a script if it were copied into one as it is. */
const HOSTILE = `</script>'"\\$x`;

const looks = (name) =>
  checkLooks(`share-${name}`, {
    looks: [['light', null], ['dark', null], ['dark', 320]],
    height: page.viewportSize().height,
    also: async (where) => {
      const inner = await dialog.evaluate((node) => [node.scrollWidth, node.clientWidth]);
      check(inner[0] <= inner[1], `${where}: nothing is wider than the dialog: ${inner}`);
    },
  });

const button = (name) => dialog.getByRole('button', { name, exact: true });
const tab = (name) => dialog.getByRole('tab', { name, exact: true }).click();
const code = (label) => dialog.getByRole('group', { name: label, exact: true });
const close = () => button('Close').click();

async function openDashboard() {
  await page.goto(`${given.server}/dashboard?org=${given.org}&uid=promlet-shop`);
  await page.locator('.panel[data-state="drawn"]').first().waitFor();
}

async function openShare() {
  await page.getByRole('button', { name: 'Share', exact: true }).press('Enter');
  await dialog.waitFor();
}

async function start() {
  await page.goto(given.link);
  await page.getByRole('heading', { name: `Explore ${given.org}` }).waitFor();
}

/** The link has the range as it was chosen, or fixed, and one panel. */
async function linkFlow() {
  await openDashboard();
  await openShare();
  check((await code('Link').textContent()).includes('from=now-3h&to=now'), 'the range of the link is relative');
  check(/var-route=/.test(await code('Link').textContent()), 'the link has the values of variables');
  await dialog.getByLabel('Fix the time range').check();
  check(/from=\d{13}&to=\d{13}/.test(await code('Link').textContent()), 'the range of the link is fixed');
  await dialog.getByLabel('With the selected values').uncheck();
  check(!(await code('Link').textContent()).includes('var-'), 'the link has no values of variables');
  await dialog.getByLabel('What is shown').selectOption({ label: 'Panel: Requests by route' });
  check(/viewPanel=\d+/.test(await code('Link').textContent()), 'the link shows one panel');
  await looks('link');
  // Arrow keys choose a tab, Escape closes, and the focus returns.
  await dialog.getByRole('tab', { name: 'Link', exact: true }).press('ArrowRight');
  await dialog.getByRole('tab', { name: 'Embed', selected: true }).waitFor();
  await page.keyboard.press('Escape');
  const focused = await page.evaluate(() => document.activeElement?.textContent);
  check(focused === 'Share', `the focus returns to the button: ${focused}`);
}

/** A panel is preselected; the form becomes restrictions, HTML and programs; a token of them is tried. */
async function embedFlow() {
  const panel = page.getByRole('group', { name: 'Requests by route', exact: true });
  await panel.getByRole('button', { name: 'Menu of the panel' }).click();
  await page.getByRole('button', { name: 'Share panel' }).click();
  await tab('Embed');
  await button('Create another key').click();
  const made = page.getByRole('dialog', { name: /API key/ });
  for (let step = 0; step < 2; step += 1) await made.getByRole('button', { name: 'Next' }).click();
  await made.getByRole('button', { name: 'Create key' }).click();
  await made.getByRole('button', { name: 'Done' }).click();
  // The new key is chosen.
  const signing = dialog.getByLabel('API key that signs').locator('option:checked', { hasText: 'website (ak_' });
  await signing.waitFor({ state: 'attached' });
  const what = dialog.getByLabel('What is embedded');
  check(
    (await what.locator('option:checked').textContent()) === 'Panel: Requests by route',
    'the panel is preselected',
  );
  check(/panel="\d+"/.test(await code('Element').textContent()), 'the element shows one panel');
  await button('Try it').click();
  const one = dialog.locator('metric-dashboard');
  await one.evaluate((node) => node.scrollIntoView());
  await one.locator('.panel[data-state="drawn"]').waitFor();
  check((await one.locator('.panel-title').textContent()) === 'Requests by route', 'the preview shows the panel alone');
  await what.selectOption('');
  const access = dialog.getByLabel('Viewers see');
  await access.nth(0).selectOption('locked');
  await dialog.getByText('enter the value that it is locked to').waitFor();
  check(!(await code('Element').isVisible()), 'nothing is shown while the form is wrong');
  await dialog.getByLabel('Values', { exact: true }).first().fill(`web-1\n${HOSTILE}`);
  await access.nth(1).selectOption('open');
  await dialog.getByLabel('Only these values').nth(1).fill('/cart\n/checkout');
  await dialog.getByText('Limits and origins').click();
  await dialog.getByLabel('Origins').fill('https://App.example.com/page');
  await dialog.getByText('enter https://app.example.com.').waitFor();
  await dialog.getByLabel('Origins').fill('https://app.example.com');
  await dialog.getByLabel('Longest range').fill('1d');
  await dialog.getByText('The restrictions as JSON').click();
  const ms = JSON.parse(await code('Restrictions').textContent());
  const expected = {
    dashboard: {
      uid: 'promlet-shop',
      locked: { instance: ['web-1', HOSTILE] },
      open: { route: ['/cart', '/checkout'] },
    },
    max_range_s: 86400,
    origins: ['https://app.example.com'],
  };
  check(
    JSON.stringify(ms) === JSON.stringify(expected),
    `the restrictions are those of the form: ${JSON.stringify(ms)}`,
  );
  for (const language of ['Python', 'PHP', 'Go', 'Rust', 'Node']) {
    await dialog.getByRole('radio', { name: language }).check({ force: true });
    const program = await code(language).textContent();
    check(
      /ak_[a-z0-9]{16}/.test(program) && program.includes('promlet-shop'),
      `the program in ${language} is complete`,
    );
  }
  await dialog.getByRole('radio', { name: 'Frame' }).check({ force: true });
  check(
    (await code('Frame').textContent()).includes('allow="local-network-access"'),
    'the frame permits local servers',
  );
  await looks('embed');
  await button('Try it').click();
  await dialog.getByText('The token is valid until').waitFor();
  await dialog.getByText('What it grants').click();
  const granted = JSON.parse(await code('What the token grants').textContent());
  check(granted.max_range_s === 86400 && granted.dashboard.uid === 'promlet-shop', 'the token grants the dashboard');
  const element = dialog.locator('metric-dashboard');
  await element.evaluate((node) => node.scrollIntoView());
  await element.locator('.panel[data-state="drawn"]').first().waitFor();
  await looks('embed-tried');
  await close();
}

/** Public links are off, are permitted after a confirmation, and are made, opened, disabled and deleted. */
async function publicFlow() {
  await openShare();
  await tab('Public link');
  await dialog.getByText('Public links are off in this organisation').waitFor();
  await looks('public-off');
  await button('Permit public links…').click();
  const question = page.getByRole('dialog', { name: 'Permit public links?' });
  await question.getByRole('button', { name: 'Permit public links', exact: true }).click();
  await dialog.getByText('None yet.').waitFor();
  await dialog.getByLabel('Name', { exact: true }).fill('For the customer');
  await dialog.getByLabel('Viewers see').nth(0).selectOption('locked');
  await dialog.getByLabel('Values', { exact: true }).first().fill('web-1');
  await looks('public-new');
  await button('Create link').click();
  const row = dialog.getByRole('listitem').filter({ hasText: 'For the customer' });
  await row.getByText('instance is web-1').waitFor();
  const url = await row.getByRole('group', { name: 'Public link' }).textContent();
  check(url.startsWith(`${given.server}/share?link=mpl_`), `the address of the link: ${url}`);
  await looks('public-list');
  const visitor = await browser.newPage();
  await visitor.goto(url);
  await visitor.locator('metric-dashboard .panel[data-state="drawn"]').first().waitFor();
  await visitor.close();
  await row.getByRole('button', { name: 'Disable' }).click();
  await row.getByText('disabled').waitFor();
  await row.getByRole('button', { name: 'Enable' }).click();
  await row.getByRole('button', { name: 'Disable' }).waitFor();
  await row.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('button', { name: 'Delete link' }).click();
  await dialog.getByText('None yet.').waitFor();
  await button('Turn public links off…').click();
  await page.getByRole('button', { name: 'Turn off', exact: true }).click();
  await dialog.getByText('Public links are off in this organisation').waitFor();
  await close();
}

/** The server draws a panel for an address with a token. */
async function imageFlow() {
  await openShare();
  await tab('Image');
  await dialog.getByLabel('Panel', { exact: true }).selectOption({ label: 'Requests by route' });
  await dialog.getByLabel('Width').fill('99');
  await button('Make the image').click();
  await dialog.getByText('Width: enter 100 to 2000 pixels.').waitFor();
  await dialog.getByLabel('Width').fill('640');
  await button('Make the image').click();
  const image = dialog.getByRole('img', { name: 'Requests by route' });
  await image.waitFor();
  check((await image.evaluate((node) => node.naturalWidth)) === 640, 'the image has the width that was asked');
  await dialog.getByRole('radio', { name: 'Markdown' }).check({ force: true });
  check(/^!\[Requests by route\]\(http/.test(await code('Markdown').textContent()), 'the line of Markdown');
  await looks('image');
  await close();
}

/** The file shows the dashboard without a request, and holds neither queries nor tokens. */
async function snapshotFlow() {
  await openShare();
  await tab('Snapshot');
  const [download] = await Promise.all([page.waitForEvent('download'), button('Download the snapshot').click()]);
  await dialog.getByText(/\d series and [\d,]+ points\./).waitFor();
  await looks('snapshot');
  const file = join(given.pictures, 'share-snapshot.html');
  await download.saveAs(file);
  const html = readFileSync(file, 'utf8');
  const data = /<script type="application\/json" id="snapshot">([^]*?)<\/script>/.exec(html)[1];
  check(!/rate\(|shop_http_requests_total\{|eyJ/.test(data), 'the file has no query and no token');
  const reader = await browser.newPage();
  const problems = [];
  reader.on('console', (message) => message.type() === 'error' && problems.push(message.text()));
  reader.on('pageerror', (error) => problems.push(String(error)));
  reader.on('request', (request) => !/^(file|data):/.test(request.url()) && problems.push(request.url()));
  await reader.goto(pathToFileURL(file).href);
  await reader.locator('metric-dashboard .panel[data-state="drawn"]').nth(5).waitFor();
  check(problems.length === 0, `the file asks nothing and has no error: ${problems}`);
  await reader.screenshot({ path: join(given.pictures, 'share-snapshot.png') });
  await reader.close();
  await close();
}

/** The query of the explore page becomes a chart for another page. */
async function chartFlow() {
  const expr = 'sum by (route) (rate(shop_http_requests_total[5m]))';
  await page.goto(`${given.server}/explore?${new URLSearchParams({ org: given.org, expr, range: '1h' })}`);
  await page.getByRole('button', { name: 'Export' }).click();
  await page.getByRole('button', { name: 'Embed this chart…' }).click();
  await dialog.getByRole('tab', { name: 'Embed', selected: true }).waitFor();
  const element = await code('Element').textContent();
  check(element.includes(`expr="${expr}"`) && element.includes('range="1h"'), 'the element has query and range');
  await dialog.getByLabel('Label matchers').fill('code="200"');
  await button('Try it').click();
  await dialog.locator('metric-chart[data-state="drawn"]').waitFor();
  await looks('chart');
  await page.keyboard.press('Escape');
  check((await page.evaluate(() => document.activeElement?.textContent)) === 'Export', 'the focus returns');
}

/** Editors enter the id of a key, viewers read whom to ask. */
async function roleFlow() {
  for (const [role, text] of [
    ['editor', 'Only administrators see the keys. Ask an administrator:'],
    ['viewer', 'Viewers cannot sign tokens. Ask an administrator:'],
  ]) {
    await page.route('**/api/v1/auth/me', async (route) => {
      const response = await route.fetch();
      const me = await response.json();
      await route.fulfill({ response, json: { ...me, orgs: me.orgs.map((org) => ({ ...org, role })) } });
    });
    await openDashboard();
    await openShare();
    await tab('Embed');
    await dialog.getByText(text).waitFor();
    check(await button('Try it').isDisabled(), 'nothing is tried without a key');
    check(
      (await code('Node').textContent()).includes('YOUR_KEY_ID'),
      'the program says where the id of the key belongs',
    );
    await looks(`embed-${role}`);
    await close();
    await page.unroute('**/api/v1/auth/me');
  }
}

/** A server that is older than the dialog says so in each tab. */
async function oldServerFlow() {
  announced.push('/links', '/embed-dashboard.js', '/render.');
  const missing = { status: 404, json: { code: 'not_found', detail: 'there is no such page' } };
  for (const path of ['**/links', '**/embed-dashboard.js', '**/render.*'])
    await page.route(path, (route) => route.fulfill(missing));
  await openDashboard();
  await openShare();
  await tab('Public link');
  await dialog.getByText('This server has no public links: update it').waitFor();
  await tab('Image');
  await button('Make the image').click();
  await dialog.getByText('This server does not draw images: update it.').waitFor();
  await tab('Snapshot');
  await button('Download the snapshot').click();
  await dialog.getByText('This server has no embed-dashboard.js: update it').waitFor();
  await tab('Embed');
  await button('Try it').click();
  await dialog.getByText('This server has no element metric-dashboard').waitFor();
  await close();
  await page.unrouteAll();
}

await run(start, [linkFlow, embedFlow, publicFlow, imageFlow, snapshotFlow, chartFlow, roleFlow, oldServerFlow]);
