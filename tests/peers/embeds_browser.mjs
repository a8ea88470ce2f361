// Drives Chromium over the list of embeds, as the administrator of an organisation whose tokens other pages use:
//
//   node embeds_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ...,
//     "email": ..., "password": ..., "org": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core. This script sends the requests of the other pages
// itself, with their `Origin`.
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise.

import { check, scenario } from './scenario.mjs';

const given = JSON.parse(process.argv[2]);
const { page, checkLooks, run } = await scenario('embeds', given, { announced: ['/api/v1/auth/me'] });
const base = `/api/v1/orgs/${given.org}`;
const SHOP = 'https://shop.example';
const rows = '.embeds tbody tr';

const looks = (name) => checkLooks(`embeds-${name}`, { looks: [['light', null], ['dark', 320]] });
/** A request of the signed-in page. Returns the JSON of the response. */
const send = (method, path, body) =>
  page.evaluate(
    async ([verb, url, sent]) => {
      const options = { method: verb, headers: { 'content-type': 'application/json' }, body: JSON.stringify(sent) };
      const response = await fetch(url, options);
      if (!response.ok) throw new Error(`${verb} ${url}: ${response.status} ${await response.text()}`);
      return response.status === 204 ? null : response.json();
    },
    [method, path, body],
  );
/** A query of a page of another origin; returns the status. */
async function query(token, origin) {
  const headers = { authorization: `Bearer ${token}`, origin };
  return (await fetch(`${given.server}${base}/query/expr-instant?expr=up`, { headers })).status;
}
const row = (origin) => page.locator(rows, { hasText: origin });
/** Chooses a revocation in the dialog of a row. */
async function revoke(origin, choice) {
  await row(origin).getByRole('button', { name: /^Revoke/ }).click();
  const dialog = page.getByRole('dialog', { name: 'Revoke access' });
  await dialog.getByRole('radio', { name: choice }).check();
  await dialog.getByRole('button', { name: 'Revoke' }).click();
  await dialog.waitFor({ state: 'detached' });
}

async function start() {
  await page.goto(`${given.server}/login`);
  await page.fill('[name="email"]', given.email);
  await page.fill('[name="password"]', given.password);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.menu');
}

/** Without embeds, the tab leads to the dashboards. */
async function nothing() {
  await page.goto(`${given.server}/organisation?org=${given.org}&tab=embeds`);
  await page.getByRole('link', { name: 'Open dashboards' }).waitFor();
  await looks('empty');
}

/** Pages appear by themselves, with their counts and the budget of their key. */
async function listed() {
  const dashboard = { uid: 'node', title: 'Node <b>exporter</b>', panels: [] };
  await send('POST', `${base}/dashboards`, { dashboard });
  const key = await send('POST', `${base}/api-keys`, { name: 'website', scopes: ['embed'] });
  const ms = { endpoints: ['dashboard', 'expr'], dashboard: { uid: 'node' } };
  const mint = async (body) => (await send('POST', `${base}/embed/tokens`, { api_key_id: key.id, ...body })).token;
  const [board, plain] = [await mint({ ms, sub: 'ada' }), await mint({})];
  for (let n = 0; n < 3; n += 1) check((await query(board, SHOP)) === 200, 'the page may query');
  check((await query(plain, 'https://blog.example')) === 200, 'the other page may query');
  await row(SHOP).waitFor();
  const text = await row(SHOP).innerText();
  check(text.includes('Node <b>exporter</b>') && /\b3\b/.test(text), `title and requests are shown: ${text}`);
  check((await page.textContent('.embed-key')).includes('of 60 s used'), 'the budget of the key is shown');
  await looks('listed');
  return { board, plain, key };
}

/** The heading sorts, and a refresh keeps order and focus. */
async function sorted(state) {
  await page.getByRole('button', { name: 'Requests', exact: true }).focus();
  await page.keyboard.press('Enter');
  check((await page.locator(rows).first().innerText()).includes(SHOP), 'the page with most requests is first');
  const before = await page.locator('.embeds').elementHandle();
  await page.waitForFunction((old) => !old.isConnected, before);
  check((await page.locator(rows).first().innerText()).includes(SHOP), 'a refresh keeps the order');
  const focused = await page.evaluate(() => document.activeElement?.textContent);
  check(focused === 'Requests', `a refresh keeps the focus: ${focused}`);
  return state;
}

/** The dialog says in numbers what ends; an origin is blocked and unblocked. */
async function blocked({ board, plain, key }) {
  await row(SHOP).getByRole('button', { name: /^Revoke/ }).click();
  const text = await page.getByRole('dialog').innerText();
  check(text.includes('Ends 1 page with 1 viewer') && text.includes('Ends 2 pages'), `what ends is told: ${text}`);
  await looks('dialog');
  await page.keyboard.press('Escape');
  check((await query(board, SHOP)) === 200, 'Escape revokes nothing');
  await revoke(SHOP, /^Block/);
  await page.getByText('Blocked', { exact: true }).waitFor();
  check((await query(board, SHOP)) === 403, 'the origin is blocked');
  check((await query(plain, 'https://blog.example')) === 200, 'the other page still queries');
  await page.getByRole('button', { name: `Unblock ${SHOP}` }).click();
  await page.getByText('Blocked', { exact: true }).waitFor({ state: 'detached' });
  check((await query(board, SHOP)) === 200, 'the origin is unblocked');
  return { board, plain, key };
}

/** All tokens of a dashboard end, then all tokens of a key. */
async function revoked({ board, plain }) {
  await revoke(SHOP, /^Revoke all access to Node/);
  check((await query(board, SHOP)) === 401, 'the token of the dashboard ended');
  check((await query(plain, 'https://blog.example')) === 200, 'the other token still works');
  await revoke('https://blog.example', /^Revoke all tokens of website/);
  check((await query(plain, 'https://blog.example')) === 401, 'the tokens of the key ended');
}

await run(start, [nothing, listed, sorted, blocked, revoked]);
