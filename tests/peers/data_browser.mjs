// Drives Chromium over the first minute of a new server, the way a person would:
//
//   node data_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core. The server has no account yet,
// or `email` and `password` sign in to an organisation `org` without samples.
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise. Any console error, policy violation,
// script error or request to another host is a failure, unless the flow announced it.

import { join } from 'node:path';
import { check, scenario } from './scenario.mjs';

const given = { org: 'acme', ...JSON.parse(process.argv[2]) };
const { page, announced, checkLooks, run } = await scenario('data', given, { announced: ['/api/v1/auth/me'] });
const looks = (name) => checkLooks(name, { looks: [['light', null], ['dark', null], ['light', 320]], fullPage: true });

const HOSTILE = '<img src=x onerror=alert(1)>';
const see = (text) => page.getByText(text).first().waitFor({ timeout: 10_000 });
const open = (path) => page.goto(`${given.server}${path}${path.includes('?') ? '&' : '?'}org=${given.org}`);

/** An empty server asks for its first account, and the empty organisation leads to Add data. */
async function accountFlow() {
  await page.goto(given.server);
  if (given.email) {
    await page.fill('[name="email"]', given.email);
    await page.fill('[name="password"]', given.password);
  } else {
    await page.fill('[name="name"]', 'Ada');
    await page.fill('[name="email"]', 'ada@example.com');
    await page.fill('[name="password"]', 'correct horse battery staple');
    await page.fill('[name="org"]', given.org);
  }
  await page.keyboard.press('Enter');
  await page.locator('main').getByRole('link', { name: 'Add data' }).first().click();
  await page.getByRole('heading', { name: 'Add data', exact: true }).waitFor();
  await see('Waiting for the first sample…');
}

/** A key is made with one click and is in all snippets; keys move between the tabs. */
async function keyFlow() {
  check((await page.locator('.snippet').first().textContent()).includes('YOUR_INGEST_KEY'), 'there is no key yet');
  await page.getByRole('button', { name: 'Create ingest key' }).click();
  await page.locator('.secret').waitFor();
  const secret = await page.locator('.secret').textContent();
  check(/^msk_\w{20,}$/.test(secret), `the secret is shown: ${secret.length} characters`);
  await page.screenshot({ path: join(given.pictures, 'add-data-key.png') });
  await page.getByRole('tab', { name: 'Prometheus' }).focus();
  for (const [key, name] of [
    ['ArrowRight', 'OpenTelemetry'],
    ['ArrowRight', 'Influx'],
    ['ArrowRight', 'curl'],
    ['ArrowRight', 'Scrape'],
    ['ArrowRight', 'Prometheus'],
    ['ArrowLeft', 'Scrape'],
    ['ArrowLeft', 'curl'],
  ]) {
    await page.keyboard.press(key);
    await page.getByRole('tab', { name, selected: true }).waitFor();
    // Nothing is sent for a scrape.
    if (name === 'Scrape') continue;
    for (const text of await page.locator('.snippet').allTextContents())
      check(text.includes(secret) && text.includes(`/orgs/${given.org}/`), `${name} has key and address: ${text}`);
  }
  await page.reload();
  await page.getByRole('tab', { name: 'curl', selected: true }).waitFor();
  check((await page.content()).includes(secret) === false, 'the secret is kept in the page only');
  await see('Waiting for the first sample…');
  return secret;
}

/** What the snippets send arrives, and what is refused is explained. */
async function arrivalFlow(secret) {
  const send = async (path, body) => {
    const response = await fetch(`${given.server}/api/v1/orgs/${given.org}${path}`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${secret}`, 'Content-Type': 'text/plain' },
      body,
    });
    return response.status;
  };
  const snippets = (await page.locator('.snippet').allTextContents()).join('\n');
  const [, text] = /printf '(temperature[^']*)\\n'/.exec(snippets);
  check((await send('/import', `${text}\n`)) === 200, 'the text of the snippet is accepted');
  const first = page.locator('.arrived', { hasText: /^First sample (just now|\d+ s ago), 1 series$/ });
  await first.waitFor({ timeout: 10_000 });
  await page.getByRole('link', { name: 'Open Explore' }).waitFor();
  const at = Date.now();
  const twice = (value) => `odd{name="${HOSTILE}"} ${value} ${at}\n`;
  check((await send('/import', twice(1))) === 200, 'a series with markup is accepted');
  check((await send('/import', twice(2))) === 400, 'another value at the same time is refused');
  await see('Refused since you opened this page');
  await see('Another value at the same time');
  await looks('add-data-arrived');
}

/** Demo data is stored once, and its dashboard opens with data. */
async function demoFlow() {
  await page.getByRole('button', { name: 'Load demo data' }).click();
  await page.waitForURL(/\/dashboard\?.*uid=promlet-shop/, { timeout: 30_000 });
  await page.getByRole('heading', { name: 'Demo shop' }).waitFor();
  await page.waitForFunction(() => document.querySelectorAll('.panel[data-state="drawn"]').length >= 8);
  check((await page.getByText('No data').count()) === 0, 'every panel in sight has data');
  await page.screenshot({ path: join(given.pictures, 'demo-dashboard.png') });
  await open('/ingest');
  announced.push('/demo-data');
  await page.getByRole('button', { name: 'Load demo data' }).click();
  await see('already has metrics whose names begin with shop_');
}

/** The cardinality view leads to the deletion, which shows what it deletes. */
async function seriesFlow() {
  await open('/series');
  await page.getByRole('button', { name: /shop_http_requests_total/ }).waitFor();
  await looks('series-list');
  await page.getByRole('tab', { name: 'Cardinality' }).click();
  await page.getByRole('link', { name: 'shop_http_request_duration_seconds_bucket' }).waitFor();
  await looks('series-cardinality');
  await page.getByRole('tab', { name: 'Refused samples' }).click();
  await see(HOSTILE);
  check((await page.locator('img[src="x"]').count()) === 0, 'markup in labels stays text');
  await looks('series-refused');
  await page.getByRole('tab', { name: 'Cardinality' }).click();
  await page.getByRole('button', { name: 'Delete… shop_http_requests_total', exact: true }).click();
  await see('45 series of 1 metric will be deleted.');
  check((await page.locator('.matched li').count()) === 45, 'the preview lists the series');
  await looks('series-delete');
  await page.getByRole('button', { name: 'Delete 45 series' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('button', { name: 'Delete 45 series' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete 45 series' }).click();
  await see('45 series of 1 metric deleted.');
  await page.getByRole('button', { name: 'Preview' }).click();
  await see('No series matches.');
  announced.push('match');
  await page.getByLabel('Series to delete').fill('up{');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('.series .alert')?.textContent);
}

await run(async () => {}, [accountFlow, keyFlow, arrivalFlow, demoFlow, seriesFlow]);
