// Drives Firefox over pages of another origin that embed a live chart and a dashboard, also in private mode:
//
//   node firefox_browser.mjs '{"module": ..., "firefox": ..., "profile": ..., "pictures": ..., "server": ...,
//     "link": ..., "org": ...}'
//
// `module` is a folder with puppeteer-core, which speaks WebDriver BiDi with `firefox`. `profile` is an empty folder,
// which the caller removes; `link` is a sign-in link of a demo.
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise.

import { mkdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { member } from './member.mjs';
import { check } from './scenario.mjs';

const given = JSON.parse(process.argv[2]);
const puppeteer = createRequire(join(given.module, '/'))('puppeteer-core');
const HOSTILE = '<img src=x onerror=alert(1)>';
const QUERY = 'sum by (route) (rate(shop_http_requests_total[5m]))';
const UID = 'firefox-flow';

const { signIn, api } = member(given);

const panel = (id, type, title, target, x) => ({
  id,
  type,
  title,
  gridPos: { x, y: 0, w: 12, h: 8 },
  targets: [{ refId: 'A', expr: QUERY, legendFormat: '{{route}}', ...target }],
});
const dashboard = {
  uid: UID,
  title: `Shop ${HOSTILE}`,
  schemaVersion: 39,
  time: { from: 'now-15m', to: 'now' },
  panels: [
    panel(1, 'timeseries', `Rate ${HOSTILE}`, {}, 0),
    panel(2, 'stat', 'Now', { expr: `sum(${QUERY})`, instant: true }, 12),
  ],
};

let secret = '';
const host = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, 'http://host');
  if (pathname === '/token') {
    const ms = { dashboard: { uid: UID }, endpoints: ['expr', 'dashboard'] };
    const { token } = await api('POST', '/embed/tokens', { ms }, { Authorization: `Bearer ${secret}` });
    response.writeHead(200, { 'Content-Type': 'application/json' });
    return response.end(JSON.stringify({ token }));
  }
  const source = ` org="${given.org}" token-endpoint="/token"`;
  const [element, script] =
    pathname === '/dashboard'
      ? [`<metric-dashboard uid="${UID}" live${source}></metric-dashboard>`, 'embed-dashboard.js']
      : [`<metric-chart expr="${QUERY}" range="2m" step="1" live${source}></metric-chart>`, 'embed.js'];
  const policy =
    `default-src 'none'; script-src ${given.server}; style-src 'self'; connect-src 'self' ${given.server}; ` +
    `img-src data:; base-uri 'none'; form-action 'none'`;
  response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8', 'Content-Security-Policy': policy });
  return response.end(
    '<!doctype html><html lang="en"><head><title>Host</title><link rel="icon" href="data:,"></head>' +
      `<body><main><h1>Host</h1>${element}</main>` +
      `<script type="module" src="${given.server}/${script}"></script></body></html>`,
  );
});

/** Waits until `read` returns something in the page that `holds` accepts, and returns it. */
async function until(page, read, holds, what) {
  let last;
  for (const end = Date.now() + 30_000; Date.now() < end; ) {
    last = await page.evaluate(read);
    if (holds(last)) return last;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`not so: ${what}: ${JSON.stringify(last)}`);
}

/** The state of the chart. */
const readChart = () => {
  const { state, drawn } = document.querySelector('metric-chart');
  const rows = drawn?.answer?.data.result ?? [];
  return { state, series: drawn?.series, last: Math.max(...rows.map(({ values }) => values.at(-1)?.[0] ?? 0)) };
};

/** What the dashboard shows. */
const readDashboard = () => {
  const root = document.querySelector('metric-dashboard').shadowRoot;
  const shown = document.querySelector('metric-dashboard').snapshot;
  return {
    text: root?.textContent ?? '',
    canvases: root?.querySelectorAll('canvas').length,
    images: root?.querySelectorAll('img').length,
    alerts: [...(root?.querySelectorAll('[role=alert]') ?? [])].map((one) => one.textContent).join(),
    answers: Object.keys(shown?.answers ?? {}).length,
  };
};

/** @param {boolean} isPrivate */
async function look(isPrivate, origin) {
  const name = isPrivate ? 'private' : 'plain';
  const userDataDir = join(given.profile, name);
  mkdirSync(userDataDir, { recursive: true });
  const browser = await puppeteer.launch({
    browser: 'firefox',
    executablePath: given.firefox,
    headless: true,
    // Firefox ESR does not know all commands that set a viewport.
    defaultViewport: null,
    args: ['--width=1000', '--height=800'],
    userDataDir,
    extraPrefsFirefox: { 'browser.privatebrowsing.autostart': isPrivate },
  });
  const complaints = [];
  try {
    const page = await browser.newPage();
    page.on('pageerror', (error) => complaints.push(`script error: ${error.message}`));
    page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
    page.on('dialog', (dialog) => complaints.push(`a dialog: ${dialog.message()}`) && dialog.dismiss());

    await page.goto(`${origin}/chart`);
    const first = await until(page, readChart, ({ state }) => state === 'drawn', 'the chart is drawn');
    check(first.series > 1, 'the chart has several series');
    await until(page, readChart, ({ last }) => last >= first.last + 2, 'the live stream adds points');
    await page.screenshot({ path: join(given.pictures, `firefox-${name}-chart.png`) });

    await page.goto(`${origin}/dashboard`);
    const isShown = ({ canvases, answers, text }) => canvases > 0 && answers === 2 && text.includes('Now');
    const shown = await until(page, readDashboard, isShown, 'both panels of the dashboard are drawn');
    check(shown.text.includes(`Rate ${HOSTILE}`) && shown.images === 0, 'markup in a title stays text');
    check(shown.alerts === '', `no panel has an error: ${shown.alerts}`);
    await page.screenshot({ path: join(given.pictures, `firefox-${name}-dashboard.png`) });
    check(complaints.length === 0, `Firefox has no complaints:\n  ${complaints.join('\n  ')}`);

    // Firefox has no file system of its origin in private windows.
    const hasFiles = await page.evaluate(() => navigator.storage.getDirectory().then(() => true, () => false));
    check(hasFiles !== isPrivate, `the window is ${isPrivate ? '' : 'not '}private`);
  } catch (error) {
    throw new Error([error.message, ...complaints].join('\n  '));
  } finally {
    await browser.close();
  }
}

const watchdog = setTimeout(() => {
  console.error('firefox: the scenario did not end within four minutes');
  process.exit(1);
}, 240_000);
try {
  mkdirSync(given.pictures, { recursive: true });
  await signIn();
  ({ secret } = await api('POST', '/api-keys', { name: 'firefox', scopes: ['embed'] }));
  await api('POST', '/dashboards', { dashboard });
  await new Promise((listening) => host.listen(0, '127.0.0.1', listening));
  const origin = `http://127.0.0.1:${host.address().port}`;
  for (const isPrivate of [false, true]) await look(isPrivate, origin);
} catch (error) {
  console.error(`firefox: ${error.stack ?? error}`);
  process.exit(1);
}
clearTimeout(watchdog);
console.log('firefox: everything held');
process.exit(0);
