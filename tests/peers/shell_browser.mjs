// Drives Chromium over the shell of the cabinet the way a person would, mostly by keyboard:
//
//   node shell_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ...,
//     "email": ..., "password": ..., "org": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core. The organisation has no samples, and the account
// administers the server.
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise. Any console error, policy
// violation, script error or failed request is a failure, unless the flow announced it.

import { join } from 'node:path';
import { check, scenario } from './scenario.mjs';

const given = JSON.parse(process.argv[2]);
const { browser, page, axe, checkLooks, run } = await scenario('shell', given, { announced: ['/api/v1/auth/me'] });
/** Loads of a document since the last look. */
let loads = 0;
page.on('domcontentloaded', () => {
  loads += 1;
});

const picture = (name) => page.screenshot({ path: join(given.pictures, `shell-${name}.png`) });
const looks = (name) => checkLooks(`shell-${name}`, { looks: [['light', null], ['dark', 320]] });
const focused = () => page.evaluate(() => document.activeElement?.textContent?.trim() ?? '');
const focusIs = (text) =>
  page.waitForFunction((wanted) => document.activeElement?.textContent?.trim() === wanted, text).catch(async () => {
    const found = await page.evaluate(() => document.activeElement?.outerHTML.slice(0, 200));
    throw new Error(`not so: the focus is on ${text}: ${found}`);
  });
const headingIs = (text) =>
  page.waitForFunction((wanted) => document.querySelector('h1:focus')?.textContent === wanted, text);
const press = async (...keys) => {
  for (const key of keys) await page.keyboard.press(key);
};
/** Presses Tab until the focus is on an element with this text. */
async function tabTo(text) {
  for (let presses = 0; presses < 40; presses += 1) {
    if ((await focused()) === text) return;
    await press('Tab');
  }
  throw new Error(`not so: Tab leads to ${text}: ${await focused()}`);
}
/** Opens the palette, types, and chooses the first entry once it has this text. */
async function palette(query, first) {
  await press('Control+k');
  await page.getByRole('combobox', { name: /Search pages/ }).waitFor();
  await page.keyboard.type(query);
  await page.locator('[role="option"][aria-selected="true"] .what').filter({ hasText: first }).waitFor();
  const described = await page.evaluate(() => {
    const id = document.activeElement?.getAttribute('aria-activedescendant');
    return document.getElementById(id ?? '')?.querySelector('.what')?.textContent;
  });
  check(described === first, `the field names the entry: ${described}`);
  await press('Enter');
  await page.locator('dialog.palette').waitFor({ state: 'detached' });
}
const address = () => new URL(page.url());
const arrived = (path) => page.waitForFunction((end) => location.pathname.endsWith(end), path);

/** The first page of an empty organisation, the skip link, and the navigation, by keyboard only. */
async function keyboardFlow() {
  await page.locator('.state').getByRole('link', { name: 'Add data' }).waitFor();
  await looks('home-empty');
  await page.evaluate(() => {
    globalThis.sameDocument = true;
  });
  // The first stop of the Tab key in the document.
  const first = await page.evaluate(() => document.querySelector('a[href], button, input, select')?.textContent);
  check(first === 'Skip to the content', `the skip link is first: ${first}`);
  await page.locator('.skip').focus();
  await press('Enter');
  await headingIs(given.org);
  await press('Shift+Tab');
  const visited = [
    ['Dashboards', 'Dashboards', '/dashboards'],
    ['Account', 'Your account', '/account'],
  ];
  for (const [text, heading, path] of visited) {
    await page.locator('.skip').focus();
    await tabTo(text);
    await press('Enter');
    await headingIs(heading);
    await arrived(path);
    check((await page.locator('.side [aria-current="page"]').textContent()) === text, `the navigation marks ${text}`);
  }
  await page.goBack();
  await headingIs('Dashboards');
  check((await page.locator('.trail').textContent()) === `${given.org}Dashboards`, 'the breadcrumbs name the page');
  check(await page.evaluate(() => globalThis.sameDocument), 'the document was not loaded again');
  await page.locator('.trail').getByRole('link', { name: given.org }).press('Enter');
  await headingIs(given.org);
  // The side bar stays collapsed over a reload.
  await page.getByRole('button', { name: 'Collapse the navigation' }).press('Enter');
  await page.reload();
  await page.getByRole('button', { name: 'Expand the navigation', expanded: false }).press('Enter');
  await page.getByRole('button', { name: 'Collapse the navigation', expanded: true }).waitFor();
}

/** A key by the guided dialog, whose snippet works as it is. */
async function keyFlow() {
  await palette('new key', 'New API key');
  const dialog = page.getByRole('dialog', { name: /API key/ });
  await dialog.waitFor();
  await press('ArrowDown', 'ArrowDown');
  await looks('key-purpose');
  await press('Enter');
  await page.waitForFunction(() => document.activeElement?.getAttribute('name') === 'name');
  check((await page.inputValue('dialog [name="name"]')) === 'script', 'the purpose proposes a name');
  await press('Enter');
  await dialog.getByRole('heading', { name: /step 3 of 3: expiry/ }).waitFor();
  await press('ArrowDown', 'Enter');
  await focusIs('API key created');
  await looks('key-made');
  const snippet = await dialog.locator('.snippet').nth(1).textContent();
  const [, key] = /Bearer (msk_\w{40,})'/.exec(snippet) ?? [];
  const [, url] = /'(http[^']+)'\n/.exec(snippet) ?? [];
  const sent = await page.evaluate(
    async ([to, secret]) => {
      const options = { method: 'POST', credentials: 'omit', headers: { Authorization: `Bearer ${secret}` } };
      return (await fetch(to, { ...options, body: 'my_first_metric{source="browser"} 42\n' })).status;
    },
    [url, key],
  );
  check([200, 204].includes(sent), `the key of the snippet writes a sample: ${sent} ${url}`);
  await tabTo('Done');
  await press('Enter');
  await page.locator('.key > summary').getByText('script').waitFor();
  check(await page.evaluate(() => document.activeElement !== document.body), 'the focus returns');
  const expiry = await page.locator('.key > summary').textContent();
  check(expiry.includes('expires') && expiry.includes('last used'), `the key expires and was used: ${expiry}`);
}

/** The palette: dashboards, metrics, recent entries; home knows what was seen. */
async function paletteFlow() {
  await palette('new dashboard', 'New dashboard');
  await arrived('/dashboard');
  await page.getByRole('heading', { name: 'New dashboard' }).waitFor();
  await page.locator('.trail [aria-current]').getByText('New dashboard').waitFor();
  const trail = await page.locator('.trail').textContent();
  check(trail === `${given.org}DashboardsNew dashboard`, `the breadcrumbs have all levels: ${trail}`);
  await palette('first', 'my_first_metric');
  await arrived('/explore');
  check(address().searchParams.get('expr') === 'my_first_metric', `the metric is queried: ${page.url()}`);
  await page.locator('#query').press('Control+Enter');
  await press('Control+k');
  await page.locator('[role="option"]').first().getByText('my_first_metric').waitFor();
  await looks('palette');
  await press('Escape');
  await page.locator('dialog.palette').waitFor({ state: 'detached' });
  await palette('home', 'Home');
  await page.locator('.tile').getByText('ago').waitFor();
  check((await page.locator('.tile dd').first().textContent()) === '1', 'the series are counted');
  await page.locator('.home-lists').getByRole('link', { name: 'New dashboard' }).waitFor();
  await page.locator('.home-lists').getByRole('link', { name: 'my_first_metric' }).waitFor();
  await looks('home');
}

/** A limit in GB is stored in bytes and shown in GB. */
async function limitFlow() {
  await page.goto(`${given.server}/organisation?org=${given.org}`);
  await page.getByRole('tab', { name: 'Members' }).focus();
  await press('ArrowRight', 'ArrowRight', 'ArrowRight', 'ArrowRight');
  await focusIs('Limits');
  check(address().searchParams.get('tab') === 'limits', 'the tab is part of the address');
  const disk = page.getByLabel('Disk', { exact: true });
  await disk.fill('1.5 GB');
  await press('Enter');
  await page.getByText('Saved.').waitFor();
  await page.reload();
  await disk.waitFor();
  check((await disk.inputValue()) === '1.5 GB', `the limit is shown in GB: ${await disk.inputValue()}`);
  await page.getByLabel('Used of Disk').waitFor();
  const usual = await page.getByLabel('Query timeout').getAttribute('placeholder');
  check(usual === 'Default: 30 seconds', `the default is shown: ${usual}`);
  await looks('limits');
  const stored = await page.evaluate(async (org) => {
    const path = new URL(`api/v1/orgs/${org}`, location.href).pathname;
    return (await (await fetch(path)).json()).settings.max_disk_bytes;
  }, given.org);
  check(stored === 1_500_000_000, `bytes are stored: ${stored}`);
}

/** Addresses that were the explore page before it moved. */
async function oldLinkFlow() {
  for (const search of [`?expr=up&range=6h`, `?org=${given.org}&expr=up&range=6h&tab=table`]) {
    loads = 0;
    await page.goto(`${given.server}/${search}`);
    await page.locator('#query').waitFor();
    await arrived('/explore');
    const { searchParams: parameters } = address();
    for (const [name, value] of new URLSearchParams(search))
      check(parameters.get(name) === value, `${name} is kept: ${page.url()}`);
    check((await page.inputValue('#query')) === 'up', 'the query is shown');
    check(loads === 1, `the document is loaded once: ${loads}`);
  }
}

/** Below 800 pixels the navigation opens over the page, and closes again. */
async function narrowFlow() {
  await page.setViewportSize({ width: 320, height: 740 });
  const menu = page.getByRole('button', { name: 'Menu', exact: true });
  await menu.press('Enter');
  await page.locator('.side').getByRole('link', { name: 'Home' }).waitFor();
  await page.evaluate(axe);
  await picture('menu-320');
  await press('Escape');
  await page.locator('.side').waitFor({ state: 'hidden' });
  const holder = await page.evaluate(() => document.activeElement?.getAttribute('aria-label'));
  check(holder === 'Menu', `the focus returns to the menu button: ${holder}`);
  await press('Enter');
  await tabTo('Organisation');
  await press('Enter');
  await headingIs(given.org);
  await page.locator('.side').waitFor({ state: 'hidden' });
  await page.setViewportSize({ width: 1200, height: 900 });
}

/** An organisation is deleted only with its short name, after the numbers of what is lost. */
async function deleteFlow() {
  const made = await page.evaluate(async () => {
    const path = new URL('api/v1/orgs', location.href).pathname;
    const body = JSON.stringify({ slug: 'doomed', name: 'Doomed' });
    return (await fetch(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body })).status;
  });
  check(made === 201, `the organisation is made: ${made}`);
  await page.goto(`${given.server}/organisation?org=doomed&tab=general`);
  const open = page.getByRole('button', { name: 'Delete organisation…' });
  await open.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Delete Doomed' });
  await dialog.getByText('0 dashboards').waitFor();
  await dialog.getByText('0 series').waitFor();
  await dialog.getByText('1 membership').waitFor();
  await looks('delete');
  await page.keyboard.type('acme');
  await press('Enter');
  await dialog.getByText('Type doomed exactly.').waitFor();
  await press('Escape');
  await focusIs('Delete organisation…');
  await press('Enter');
  await dialog.waitFor();
  await page.keyboard.type('doomed');
  await press('Enter');
  await page.getByText('Doomed was deleted.').waitFor();
  await page.locator('.tile').first().waitFor();
  check((await page.locator('#org option').allTextContents()).join() === given.org, 'the organisation is gone');
  await page.getByRole('button', { name: 'Dismiss' }).press('Enter');
  check((await page.locator('.toast').count()) === 0, 'the message is gone');
}

await run(async () => {
  await page.goto(`${given.server}/login`);
  await page.fill('[name="email"]', given.email);
  await page.fill('[name="password"]', given.password);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.menu');
}, [keyboardFlow, keyFlow, paletteFlow, limitFlow, oldLinkFlow, narrowFlow, deleteFlow]);
