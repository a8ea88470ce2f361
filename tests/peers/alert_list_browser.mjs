// Drives Chromium over <metric-alerts> on a page of another origin, which has a strict policy:
//
//   node alert_list_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ...,
//     "email": ..., "password": ..., "org": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core.
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise.

import { createServer } from 'node:http';
import { join } from 'node:path';
import { lossyProxy } from './lossy_proxy.mjs';
import { check, contentWidth, scenario } from './scenario.mjs';

const given = JSON.parse(process.argv[2]);
const { browser, page, axe, run } = await scenario('alert-list', given, { announced: ['/api/v1/auth/me'] });
const base = `/api/v1/orgs/${given.org}`;
/** The way of the other page to the server. It sees preflights, which the driver does not report. */
const proxy = await lossyProxy(given.server);

const HOSTILE = '<img src=x onerror=alert(1)>';
/** Two customers, with a firing and a pending alert each. */
const SAMPLES = 'x{customer="c1"} 3\nx{customer="c2"} 4\n';
const GROUP = `name: shop
interval: 1s
rules:
- alert: High
  expr: x > 1
  labels: {severity: page}
  annotations: {summary: 'Many requests ${HOSTILE}', secret: '{{ range query "x" }}{{ .Labels.customer }}{{ end }}'}
- alert: Slow
  expr: x > 2
  for: 1h
`;
/** What the tokens of the other page's own endpoint grant. */
let ms = {};
let signer = '';
/** The responses to requests of the list. @type {{status: number, body: string}[]} */
const answers = [];

/** A request of the signed-in page. Returns the JSON of the response. */
const send = (method, path, body, type = 'application/json') =>
  page.evaluate(
    async ([verb, url, sent, media]) => {
      const response = await fetch(url, { method: verb, headers: { 'content-type': media }, body: sent });
      if (!response.ok) throw new Error(`${verb} ${url}: ${response.status} ${await response.text()}`);
      const text = await response.text();
      return text ? JSON.parse(text) : null;
    },
    [method, `${base}${path}`, typeof body === 'string' ? body : JSON.stringify(body), type],
  );

const host = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, 'http://host');
  if (pathname === '/token') {
    const { token } = await send('POST', '/embed/tokens', { api_key_id: signer, ms });
    response.writeHead(200, { 'Content-Type': 'text/plain' });
    return response.end(token);
  }
  const policy =
    `default-src 'none'; script-src ${proxy.url}; style-src 'self'; connect-src 'self' ${proxy.url}; ` +
    `base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'`;
  const isStyle = pathname === '/styles.css';
  response.writeHead(200, {
    'Content-Type': isStyle ? 'text/css' : 'text/html; charset=utf-8',
    'Content-Security-Policy': policy,
  });
  if (isStyle) return response.end(':root { color-scheme: light dark; } body { margin: 16px; }');
  return response.end(
    '<!doctype html><html lang="en"><head><meta name="viewport" content="width=device-width"><title>Host</title>' +
      '<link rel="stylesheet" href="/styles.css"></head><body><main><h1>Host</h1>' +
      `<metric-alerts title="Alerts of the shop" org="${given.org}" refresh="5" token-endpoint="/token"></metric-alerts>` +
      `</main><script type="module" src="${proxy.url}/embed-alerts.js"></script></body></html>`,
  );
});
await new Promise((listening) => host.listen(0, '127.0.0.1', listening));
const origin = `http://127.0.0.1:${host.address().port}`;

const other = await browser.newPage();
other.setDefaultTimeout(20_000);
const complaints = [];
other.on('pageerror', (error) => complaints.push(`script error: ${error.message}`));
other.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
other.on('response', async (response) => {
  if (!new URL(response.url()).pathname.endsWith('/alerts') || response.request().method() !== 'GET') return;
  answers.push({ status: response.status(), body: response.status() === 200 ? await response.text() : '' });
});
const element = other.locator('metric-alerts');
const settled = (state) => other.locator(`metric-alerts[data-state="${state}"]`).waitFor();
const text = () => element.evaluate((node) => node.shadowRoot.querySelector('.frame').innerText);

async function start() {
  await page.goto(`${given.server}/login`);
  await page.fill('[name="email"]', given.email);
  await page.fill('[name="password"]', given.password);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.menu');
  await send('POST', '/import/prometheus', SAMPLES, 'text/plain');
  await send('PUT', '/rule-groups/shop', { yaml: GROUP });
  const policy = { alerts: { annotations: ['summary'] } };
  const key = await send('POST', '/api-keys', { name: 'website', scopes: ['embed'], embed: { policy } });
  signer = key.id;
  // The rules have been evaluated.
  for (let tries = 0; ; tries += 1) {
    const { counts } = await send('GET', '/alerts', undefined);
    if (counts.firing === 2 && counts.pending === 2) break;
    check(tries < 100, `the alerts begin: ${JSON.stringify(counts)}`);
    await page.waitForTimeout(200);
  }
}

/** Only the alerts of the token's customer are shown, and nothing else of them arrives at the page. */
async function listed() {
  ms = { match: ['customer="c1"'], alerts: { annotations: ['summary'] } };
  await other.goto(origin);
  await settled('drawn');
  const shown = await text();
  for (const part of [
    'Alerts of the shop',
    '1 firing, 1 pending',
    'High',
    'Slow',
    'customer: c1',
    'severity: page',
    HOSTILE,
  ]) {
    check(shown.includes(part), `${part} is shown: ${shown}`);
  }
  check(/for (less than )?1 min|for \d+ min/.test(shown), `the time since is shown: ${shown}`);
  check(answers.length > 0, 'the list was requested');
  for (const { body } of answers) {
    for (const part of ['c2', 'secret', 'expr', 'shop', 'x >', '"value"']) {
      check(!body.includes(part), `${part} does not arrive: ${body}`);
    }
  }
}

/** A refresh of a list without changes is one request, whose response has no body. */
async function refreshed() {
  const isUnchanged = (response) => response.url().includes('/alerts') && response.status() === 304;
  await other.waitForResponse(isUnchanged);
  proxy.requests.splice(0);
  for (let turn = 0; turn < 2; turn += 1) await other.waitForResponse(isUnchanged);
  const lines = proxy.requests.splice(0);
  const isList = (line) => line.startsWith('GET ') && line.includes('/alerts?');
  check(lines.length === 2 && lines.every(isList), `two refreshes without preflights: ${lines}`);
}

/** The look in both schemes and narrow, without violations of accessibility. */
async function looks() {
  for (const [scheme, width] of [
    ['light', 720],
    ['dark', 720],
    ['light', 320],
  ]) {
    await other.emulateMedia({ colorScheme: scheme });
    await other.setViewportSize({ width, height: 700 });
    const wide = await contentWidth(other);
    check(wide <= width, `nothing is wider than ${width}: ${wide}`);
    await other.evaluate(axe);
    const { violations } = await other.evaluate(() => globalThis.axe.run('metric-alerts'));
    const found = JSON.stringify(violations.map(({ id, nodes }) => [id, nodes[0].html]));
    check(violations.length === 0, `${scheme}, ${width}: axe-core finds nothing: ${found}`);
    await other.screenshot({ path: join(given.pictures, `alert-list-${scheme}-${width}.png`), fullPage: true });
  }
  await other.emulateMedia({ colorScheme: 'light' });
}

/** More alerts are shown by the keyboard, and filters are attributes and properties. */
async function used() {
  await element.evaluate((node) => (node.limit = 1));
  await element.getByText('Showing 1 of 2 alerts.').waitFor();
  await other.keyboard.press('Tab');
  const focused = await element.evaluate((node) => node.shadowRoot.activeElement?.textContent);
  check(focused === 'Show more', `the button has the focus: ${focused}`);
  await other.keyboard.press('Enter');
  await element.getByText('Slow').waitFor();
  await element.evaluate((node) => (node.alertState = 'pending'));
  await element.getByText('1 pending', { exact: true }).waitFor();
  check(!(await text()).includes('High'), 'only pending alerts are shown');
  await element.evaluate((node) => (node.match = '{customer="c2"}'));
  await settled('empty');
  check((await text()).includes('No pending alerts'), 'an empty list says so');
  check((await element.evaluate((node) => node.state)) === 'empty', 'the property state');
}

/** What a token does not grant leaves the screen, and the page learns why. */
async function refused() {
  check(complaints.length === 0, `the page has no complaints:\n  ${complaints.join('\n  ')}`);
  ms = { match: ['customer="c1"'] };
  await other.goto(origin);
  await settled('error');
  const shown = await text();
  check(shown.includes('This list is not available.') && !shown.includes('High'), `a sentence for visitors: ${shown}`);
  const detail = await element.evaluate(async (node) => {
    const next = new Promise((resolve) =>
      node.addEventListener('error', (event) => resolve(event.detail), { once: true }),
    );
    node.reload();
    const { code, status, hint } = await next;
    return { code, status, hint };
  });
  check(
    detail.code === 'embed_restricted' && detail.status === 403 && detail.hint.includes('alerts'),
    JSON.stringify(detail),
  );
  await other.screenshot({ path: join(given.pictures, 'alert-list-refused.png') });
}

await run(start, [listed, refreshed, looks, used, refused]);
