// Drives Chromium over pages of another origin that embed live charts:
//
//   node live_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ..., "link": ...,
//     "org": ..., "before": ...}'
//
// `link` is a sign-in link of an editor; or `cookie` is one that is signed in. The server has the files of the version
// `before` as well. The pages load the element through a
// proxy, which loses connections on demand. Tokens are signed here, so that they end when a flow needs it.
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise.

import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import { join } from 'node:path';
import { listening, lossyProxy } from './lossy_proxy.mjs';
import { member } from './member.mjs';
import { check, contentWidth, scenario } from './scenario.mjs';

const given = JSON.parse(process.argv[2]);
const { browser, axe, complaints, run } = await scenario('embed_live', given);
const { signIn, api } = member(given);
const QUERY = 'sum by (route) (rate(shop_http_requests_total[5m]))';
const ATTRIBUTES = { org: given.org, expr: QUERY, range: '2m', step: '1' };
/** The request line of a chart's query, whose times are in the form. */
const QUERY_LINE = `POST /api/v1/orgs/${given.org}/query/expr-range`;
const HOSTILE = '<img src=x onerror=alert(1)>';

const proxy = await lossyProxy(given.server);

/** The embedding site: pages by path, and its endpoint of tokens. */
const site = { pages: new Map(), asked: [], token: () => '', status: 200, url: '' };
site.url = `http://127.0.0.1:${await listening(
  createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://site');
    if (pathname === '/token') {
      site.asked.push(performance.now());
      response.writeHead(site.status, { 'Content-Type': 'text/plain' });
      return response.end(site.status === 200 ? site.token() : '');
    }
    const { body = '', headers = {}, script = '' } = site.pages.get(pathname) ?? {};
    response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8', ...headers });
    response.end(
      '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">' +
        '<meta name="color-scheme" content="light dark">' +
        `<title>Site</title><link rel="icon" href="data:,"><main><h1>Site</h1>${body}</main>` +
        `<script type="module" src="${script}"></script></html>`,
    );
  }),
)}`;

const escape = (text) => text.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;');
const element = (attributes) => {
  const written = Object.entries(attributes).map(([name, value]) => `${name}="${escape(String(value))}"`);
  return `<metric-chart ${written.join(' ')}></metric-chart>`;
};

const newKey = (embed = {}) => api('POST', '/api-keys', { name: 'live', scopes: ['embed'], embed });

/** A token of a key that the server accepts for `left` more seconds: it tolerates 30 s. */
function sign(key, { left = 600, life = 900, org = given.org, ms } = {}) {
  const part = (object) => Buffer.from(JSON.stringify(object)).toString('base64url');
  const exp = Math.floor(Date.now() / 1000) - 30 + left;
  const claims = { aud: 'ms-embed', org, iat: exp - life, exp, ms };
  const text = `${part({ alg: 'HS256', typ: 'JWT', kid: key.id })}.${part(claims)}`;
  return `${text}.${createHmac('sha256', key.secret).update(text).digest('base64url')}`;
}
/** A token whose life begins now, so that the element asks for the next after 80 % of it. */
const fresh = (key, life) => sign(key, { left: life + 30, life });

/** Opens a page of the site. Returns it with what it wrote, its events and its requests to the server. */
async function open(body, headers, script = `${proxy.url}/embed.js`) {
  site.pages.set('/', { body, headers, script });
  const page = await browser.newPage();
  const seen = { page, warnings: [], streams: new Set(), opened: 0, requests: [] };
  page.on('pageerror', (error) => complaints.push(`script error: ${error.stack}`));
  page.on('console', (message) => {
    if (message.type() === 'warning') seen.warnings.push(message.text());
    if (message.text().startsWith('policy:')) complaints.push(message.text());
  });
  page.on('dialog', (dialog) => {
    complaints.push('a script opened a dialog');
    dialog.dismiss();
  });
  page.on('request', (request) => {
    const { origin, pathname } = new URL(request.url());
    if (origin !== proxy.url) return;
    seen.requests.push(pathname);
    if (!pathname.endsWith('/query/live')) return;
    seen.opened += 1;
    seen.streams.add(request);
  });
  for (const end of ['requestfinished', 'requestfailed']) page.on(end, (request) => seen.streams.delete(request));
  await page.addInitScript(() => {
    globalThis.heard = [];
    for (const name of ['load', 'error', 'zoom', 'select', 'token-expired']) {
      document.addEventListener(
        name,
        (event) => {
          if (event.target.localName !== 'metric-chart') return;
          const { code, message, hint, time, series } = event.detail ?? {};
          globalThis.heard.push({ name, code, message, hint, time, series: series?.length, at: performance.now() });
        },
        true,
      );
    }
    addEventListener('error', (event) => {
      if (event.target.localName === 'metric-chart') globalThis.heard.push({ name: 'error on window' });
    });
  });
  await page.goto(`${site.url}/`);
  return seen;
}
const state = (page, wanted, timeout = 15_000) =>
  page
    .waitForFunction(
      (name) => [...document.querySelectorAll('metric-chart')].every((chart) => chart.dataset.state === name),
      wanted,
      { timeout },
    )
    .catch(async () => {
      const found = await page.evaluate(() =>
        [...document.querySelectorAll('metric-chart')].map((one) => [
          one.dataset.state,
          one.shadowRoot?.querySelector('.state').textContent,
        ]),
      );
      throw new Error(`not so: all charts are ${wanted}: ${JSON.stringify(found)}`);
    });
const message = (page) =>
  page.evaluate(() => document.querySelector('metric-chart').shadowRoot.querySelector('.state').textContent);
const heard = (page, name) => page.evaluate((wanted) => globalThis.heard.filter((one) => one.name === wanted), name);
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
/** The times of the first series of the first chart, in seconds. */
const times = (page) =>
  page.evaluate(() => document.querySelector('metric-chart').data.data.result[0].values.map(([time]) => time));
function contiguous(list, what) {
  const steps = list.slice(1).map((time, index) => time - list[index]);
  const others = steps.filter((step) => step !== 1);
  check(list.length > 100 && others.length === 0, `${what}: each of ${list.length} steps is there once: ${others}`);
}
/** Waits until the first chart has points of `seconds` more. */
async function moves(page, seconds) {
  const [last] = (await times(page)).slice(-1);
  await page.waitForFunction(
    (end) => document.querySelector('metric-chart').data.query.end >= end,
    last + seconds,
    { timeout: 20_000 },
  );
}

async function theFirstChartHasAtMost25Kilobytes() {
  const key = await newKey();
  proxy.received = 0;
  const { page, requests } = await open(element({ ...ATTRIBUTES, range: '1h', step: '15', token: sign(key) }));
  await state(page, 'drawn');
  const { series, points } = await page.evaluate(() => document.querySelector('metric-chart').drawn);
  check(series === 5 && points >= 1200, `five lines of an hour: ${series} with ${points} points`);
  // Heads, and the preflight request that the list lacks, included.
  const bytes = proxy.received;
  const took = await page.evaluate(() => {
    const [script] = performance.getEntriesByName(document.querySelector('script').src);
    return globalThis.heard.find(({ name }) => name === 'load').at - script.startTime;
  });
  console.log(`live: the first chart has ${bytes} bytes, ${took.toFixed(0)} ms`);
  check(requests.length === 2 && bytes <= 25_000, `at most 25 kB: ${bytes} for ${requests}`);
  await page.close();
}

async function aChartOfAnotherOriginNeedsTwoRequests() {
  const key = await newKey();
  const attributes = { ...ATTRIBUTES, title: 'Requests', range: '1h', step: '15', token: sign(key) };
  const { page, requests } = await open(element(attributes));
  await state(page, 'drawn');
  check(requests.filter((path) => !path.startsWith('/api/')).join() === '/embed.js', `one file: ${requests}`);
  check(requests.length === 2, `one query: ${requests}`);
  check((await heard(page, 'load')).length === 1, 'the chart says that it has loaded');
  const box = await page.locator('metric-chart').boundingBox();
  await page.mouse.click(box.x + box.width / 2, box.y + 120);
  await page.waitForFunction(() =>
    globalThis.heard.some(({ name, series, time }) => name === 'select' && series > 1 && time > 1e9),
  );
  const more = requests.slice(2).filter((path) => !path.startsWith('/api/'));
  check(more.join() === '/chart/cursor.js', `the first event of a reader loads one more file: ${more}`);
  await page.evaluate(() => {
    const chart = document.querySelector('metric-chart');
    chart.addEventListener('zoom', (event) => event.preventDefault(), { once: true });
    chart.zoomTo({ start: 1, end: 2 });
    if (chart.start !== null) throw new Error('a prevented zoom changed the range');
    chart.range = '5m';
    if (chart.getAttribute('range') !== '5m' || chart.live !== false) throw new Error('properties mirror attributes');
  });
  await page.waitForFunction(() => document.querySelector('metric-chart').drawn.points < 200);
  await page.evaluate(() => {
    const times = [1000, 1010, 1020];
    document.querySelector('metric-chart').data = {
      data: { resultType: 'matrix', result: [{ metric: { a: 'b' }, values: times.map((time) => [time, '1']) }] },
      query: { start: 1000, end: 1020, step: 10 },
    };
  });
  await page.waitForFunction(() => document.querySelector('metric-chart').drawn.points === 3);
  await page.close();
}

/** A zoom ends at the range of the page, and only a zoom offers a way back. */
async function aZoomEndsAtTheRangeOfThePage() {
  const key = await newKey();
  const end = Math.floor(Date.now() / 1000);
  const fixed = { start: String(end - 1800), end: String(end) };
  for (const whole of [fixed, {}]) {
    const { page } = await open(element({ ...ATTRIBUTES, range: '30m', ...whole, token: sign(key) }));
    await state(page, 'drawn');
    const chart = page.locator('metric-chart');
    const range = async () => [await chart.getAttribute('start'), await chart.getAttribute('end')].join();
    const before = await range();
    const reset = page.getByRole('button', { name: 'Reset zoom' });
    check(!(await reset.isVisible()), 'a chart that was not zoomed has nothing to reset');
    for (const part of [
      { start: end - 1200, end: end - 600 },
      { start: end - 1000, end: end - 700 },
    ]) {
      await chart.evaluate((one, to) => one.zoomTo(to), part);
      check((await range()) === [part.start, part.end].join(), 'the chart shows the part');
    }
    await reset.click();
    check((await range()) === before, `the range of the page: ${await range()}`);
    await reset.waitFor({ state: 'hidden' });
    await chart.evaluate((one, to) => one.zoomTo(to), { start: end - 1200, end: end - 600 });
    await reset.waitFor();
    await chart.evaluate((one, to) => one.setAttribute('start', to), String(end - 1500));
    await reset.waitFor({ state: 'hidden' });
    await page.close();
  }
}

/** A page that prevents a zoom and sets the range itself is asked to end the zoom, too. */
async function aPageThatZoomsItselfIsAskedToReset() {
  const key = await newKey();
  const end = Math.floor(Date.now() / 1000);
  const { page } = await open(element({ ...ATTRIBUTES, range: '30m', token: sign(key) }));
  await state(page, 'drawn');
  const chart = page.locator('metric-chart');
  const reset = page.getByRole('button', { name: 'Reset zoom' });
  const asked = await chart.evaluateHandle((one) => {
    const details = [];
    one.addEventListener('zoom', (event) => {
      event.preventDefault();
      details.push(event.detail);
    });
    return details;
  });
  const part = { start: end - 1200, end: end - 600 };
  await chart.evaluate((one, to) => one.zoomTo(to), part);
  check((await chart.getAttribute('start')) === null, 'a zoom that was prevented changes nothing');
  check(!(await reset.isVisible()), 'and cannot be reset');
  await chart.evaluate((one, to) => Object.assign(one, to), part);
  await reset.waitFor();
  await chart.evaluate((one, to) => one.zoomTo(to), { start: end - 1000, end: end - 700 });
  await reset.click();
  await page.locator('metric-chart [role="slider"]').press('0');
  // The browser may report a key as pressed before the page has handled it.
  await page.waitForFunction((all) => all.length >= 4, asked);
  const details = await asked.jsonValue();
  check(details.length === 4 && details[2] === null && details[3] === null, `asked: ${JSON.stringify(details)}`);
  await page.close();
}

/** Asks for the explanation of the chart's middle by the pointer. */
async function point(page) {
  const box = await page.locator('metric-chart').boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + 120);
  await page.mouse.move(box.x + box.width / 2 + 5, box.y + 125);
}
const hasTip = (page) =>
  page.waitForFunction(() => document.querySelector('metric-chart').shadowRoot.querySelector('.tip')?.hidden === false);

async function aWarmViewIsOneRequest() {
  const key = await newKey();
  const attributes = { ...ATTRIBUTES, range: '1h', step: '15', token: sign(key) };
  const first = await open(element(attributes));
  await state(first.page, 'drawn');
  await point(first.page);
  await hasTip(first.page);
  await first.page.close();
  proxy.requests.splice(0);
  const { page } = await open(element(attributes));
  await state(page, 'drawn');
  await point(page);
  await hasTip(page);
  // The proxy gets each request of the browser, also preflights, which Playwright does not report.
  check(proxy.requests.join() === QUERY_LINE, `one query, no preflight and no file: ${proxy.requests}`);
  const took = await page.evaluate(() => {
    const [script] = performance.getEntriesByName(document.querySelector('script').src);
    return globalThis.heard.find(({ name }) => name === 'load').at - script.startTime;
  });
  console.log(`live: a warm chart takes ${took.toFixed(0)} ms with ${proxy.requests.length} request`);
  await page.close();
}

async function aRefreshIsOneRequest() {
  const key = await newKey();
  const { page } = await open(element({ ...ATTRIBUTES, refresh: '1', token: sign(key) }));
  await state(page, 'drawn');
  const known = (await heard(page, 'load')).length;
  proxy.requests.splice(0);
  await page.waitForFunction(
    (least) => globalThis.heard.filter(({ name }) => name === 'load').length >= least,
    known + 3,
  );
  const refreshes = proxy.requests.splice(0);
  check(refreshes.length >= 3 && refreshes.every((line) => line === QUERY_LINE), `no preflights: ${refreshes}`);
  // Another range of another expression has the same URL.
  await page.evaluate(async () => {
    const chart = document.querySelector('metric-chart');
    Object.assign(chart, { refresh: null, range: '5m', expr: 'vector(1)' });
    await chart.reload();
  });
  const others = proxy.requests.splice(0);
  check(others.length >= 1 && others.every((line) => line === QUERY_LINE), `still none: ${others}`);
  await page.close();
}

/** Steps of more than 15 s have a second query, for the newest point. */
async function aChartOfLongStepsIsOneRequest() {
  const key = await newKey();
  const attributes = { ...ATTRIBUTES, range: '6h', step: '60', token: sign(key) };
  const line = `POST /api/v1/orgs/${given.org}/query/batch`;
  const first = await open(element(attributes));
  await state(first.page, 'drawn');
  await first.page.close();
  proxy.requests.splice(0);
  const { page } = await open(element({ ...attributes, refresh: '1' }));
  await state(page, 'drawn');
  check(proxy.requests.join() === line, `one query, no preflight and no file: ${proxy.requests}`);
  await page.waitForFunction(() => globalThis.heard.filter(({ name }) => name === 'load').length > 3);
  const requests = proxy.requests.splice(0);
  check(requests.length >= 4 && requests.every((one) => one === line), `nor with a refresh: ${requests}`);
  const { series, points } = await page.evaluate(() => document.querySelector('metric-chart').drawn);
  const [end, time] = await page.evaluate(() => {
    const { query, data } = document.querySelector('metric-chart').data;
    return [query.end, data.result[0].values.at(-1)[0]];
  });
  check(series === 5 && points > 1500 && end === time, `the lines have all steps: ${series}, ${points}, ${end}, ${time}`);
  await page.close();
}

/**
 * A server before and after an upgrade. Its files are those of the server under test, with another version after
 * the upgrade; browsers get the element's file as if they had it for 5 minutes.
 * @param {string} [kept] the version of the element alone, whose further files are those that the server under test
 *   has of this version
 */
async function upgradedServer(kept) {
  const text = await (await fetch(`${given.server}/embed.js`)).text();
  const [, known] = /\?v=([0-9a-f]{8})/.exec(text);
  const seen = { version: known, before: known, requests: [], url: '', close: () => {} };
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, given.server);
    seen.requests.push(request.url);
    const wanted = url.searchParams.get('v');
    if (wanted && !kept) url.searchParams.set('v', wanted === seen.version ? known : '00000000');
    const cors = ['access-control-request-method', 'access-control-request-headers'];
    const names = ['authorization', 'content-type', 'origin', ...cors];
    const headers = Object.fromEntries(names.map((name) => [name, request.headers[name]]).filter(([, value]) => value));
    const form = request.method === 'POST' ? Buffer.concat(await request.toArray()) : undefined;
    const answer = await fetch(url, { method: request.method, headers, body: form });
    const own = Object.fromEntries(answer.headers);
    for (const name of ['content-encoding', 'content-length', 'transfer-encoding', 'connection', 'etag']) delete own[name];
    let body = Buffer.from(await answer.arrayBuffer());
    const isOther = kept ? url.pathname === '/embed.js' : url.pathname.endsWith('.js');
    if (isOther) body = Buffer.from(body.toString().replaceAll(known, kept ?? seen.version));
    response.writeHead(answer.status, { ...own, ...(url.pathname === '/embed.js' && { Age: '301' }) });
    response.end(body);
  });
  seen.url = `http://127.0.0.1:${await listening(server)}`;
  seen.close = () => server.close();
  return seen;
}

async function anUpgradeReachesTheViewAfterTheNextAndNoViewMixesVersions() {
  const key = await newKey();
  const server = await upgradedServer();
  const view = async () => {
    server.requests.splice(0);
    const { page } = await open(element({ ...ATTRIBUTES, token: sign(key) }), {}, `${server.url}/embed.js`);
    await state(page, 'drawn');
    return page;
  };
  const files = () => server.requests.filter((path) => !path.startsWith('/api/'));
  const first = await view();
  await point(first);
  await hasTip(first);
  check(files().join() === `/embed.js,/chart/cursor.js?v=${server.before}`, `a cold view: ${files()}`);
  await first.close();

  server.version = 'bbbbbbbb';
  const second = await view();
  await point(second);
  await hasTip(second);
  // The browser fetches the new file after it has used the old one.
  for (let turn = 0; files().length === 0 && turn < 100; turn += 1) await wait(50);
  check(files().join() === '/embed.js', `the old version works with its own files: ${files()}`);
  // A file of the old version that the browser does not have is missing: the chart is refreshed without a stream.
  await second.evaluate(() => document.querySelector('metric-chart').setAttribute('live', ''));
  for (let turn = 0; files().length < 2 && turn < 100; turn += 1) await wait(50);
  check(files()[1] === `/chart/later.js?v=${server.before}`, `the missing file is asked with its version: ${files()}`);
  await state(second, 'drawn');
  await second.close();

  const third = await view();
  await point(third);
  await hasTip(third);
  check(files().at(-1) === `/chart/cursor.js?v=${server.version}`, `the new version with its own files: ${files()}`);
  await third.close();
  server.close();
}

/** A browser has the element of the version before, and not yet its further files. */
async function anElementOfTheVersionBeforeHasItsTooltipAndItsStream() {
  const key = await newKey();
  const server = await upgradedServer(given.before);
  const { page } = await open(element({ ...ATTRIBUTES, token: sign(key) }), {}, `${server.url}/embed.js`);
  await state(page, 'drawn');
  await point(page);
  await hasTip(page);
  await page.evaluate(() => document.querySelector('metric-chart').setAttribute('live', ''));
  for (let turn = 0; !server.requests.some((path) => path.endsWith('/live')) && turn < 100; turn += 1) await wait(50);
  const files = server.requests.filter((path) => path.startsWith('/chart/'));
  const own = ['cursor', 'later'].map((name) => `/chart/${name}.js?v=${given.before}`);
  check(files.join() === own.join(), `its own files: ${files}`);
  check(server.requests.some((path) => path.endsWith('/live')), `a stream: ${server.requests}`);
  await page.close();
  server.close();
}

async function thirtyChartsShareOneConnection() {
  const key = await newKey();
  const token = sign(key);
  const charts = Array.from({ length: 30 }, (_, at) =>
    element({ ...ATTRIBUTES, expr: `${QUERY} + ${at % 20}`, live: '', token }),
  );
  const { page, streams } = await open(charts.join(''));
  await state(page, 'drawn');
  await moves(page, 3);
  check(streams.size === 1, `one connection: ${streams.size}`);
  const [stream] = streams;
  check(stream.postDataJSON().queries.length === 20, 'equal queries are asked once');
  const ends = await page.evaluate(() =>
    [...document.querySelectorAll('metric-chart')].map((chart) => chart.data.query.end),
  );
  check(Math.max(...ends) - Math.min(...ends) <= 1, `all charts move: ${ends}`);
  contiguous(await times(page), 'thirty charts');
  await page.evaluate(() => {
    for (const chart of [...document.querySelectorAll('metric-chart')]) chart.remove();
  });
  await wait(1000);
  check(streams.size === 0, 'without charts there is no stream');
  await page.close();
}

async function tokensAreRenewedWhileLive() {
  const key = await newKey();
  [site.asked, site.token] = [[], () => fresh(key, 8)];
  const seen = await open(element({ ...ATTRIBUTES, live: '', 'token-endpoint': '/token' }));
  const { page } = seen;
  await state(page, 'drawn');
  await wait(15_000);
  const asked = site.asked.length;
  check(asked >= 3 && asked <= 4, `a token of 8 s is replaced after 6.4 s: ${asked}`);
  check((await heard(page, 'error')).length === 0, 'a renewal is no error');
  await moves(page, 1);
  contiguous(await times(page), 'renewals');
  check(seen.streams.size === 1 && seen.opened >= 3, `a stream for each token, one remains: ${seen.opened}`);
  await page.close();
}

async function aFixedTokenEndsAndIsReplaced() {
  const key = await newKey();
  const { page, streams } = await open(element({ ...ATTRIBUTES, live: '', token: sign(key, { left: 5 }) }));
  await state(page, 'drawn');
  // Frames are late, so points still wait for one when the token expires.
  await page.evaluate(() => {
    globalThis.requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 1_500);
    globalThis.cancelAnimationFrame = clearTimeout;
  });
  await state(page, 'error');
  await wait(2_000);
  check((await heard(page, 'token-expired')).length === 1, 'the page learns that the token has expired');
  check(/expired/.test(await message(page)), `the last picture stays, with the reason: ${await message(page)}`);
  check((await page.evaluate(() => document.querySelector('metric-chart').drawn.points)) > 100, 'the picture stays');
  check(streams.size === 0, 'its stream has ended');
  await page.evaluate((token) => (document.querySelector('metric-chart').token = token), sign(key));
  await state(page, 'drawn');
  await moves(page, 2);
  contiguous(await times(page), 'another token');
  await page.close();
}

async function aLostServerComesBackWithoutAGap() {
  const key = await newKey();
  const { page, streams } = await open(element({ ...ATTRIBUTES, live: '', token: sign(key) }));
  await state(page, 'drawn');
  await moves(page, 2);
  proxy.lose(false);
  await moves(page, 3);
  check((await heard(page, 'error')).length === 0, 'a short loss is not reported');
  contiguous(await times(page), 'a short loss');
  proxy.lose(true);
  await state(page, 'error');
  const text = await message(page);
  check(/comes back by itself/.test(text), `the visitor reads that it comes back: ${text}`);
  const [error] = await heard(page, 'error');
  const isExplained = error.code === 'unreachable' && error.message.includes(proxy.url);
  check(isExplained, `the page learns why: ${JSON.stringify(error)}`);
  await page.screenshot({ path: join(given.pictures, 'embed-lost.png') });
  proxy.lose(false);
  await state(page, 'drawn', 40_000);
  await moves(page, 2);
  contiguous(await times(page), 'a long loss');
  check(streams.size === 1, 'one stream remains');
  await browser.setOffline(true);
  proxy.lose(false);
  await state(page, 'error');
  check(/offline/i.test(await message(page)), `offline: ${await message(page)}`);
  await browser.setOffline(false);
  await state(page, 'drawn', 40_000);
  await moves(page, 2);
  contiguous(await times(page), 'offline and back');
  await page.close();
}

async function aRevokedKeyEndsItsCharts() {
  const key = await newKey();
  const seen = await open(element({ ...ATTRIBUTES, live: '', title: 'Requests', token: sign(key) }));
  const { page } = seen;
  await state(page, 'drawn');
  await moves(page, 1);
  await api('DELETE', `/api-keys/${key.id}`);
  await state(page, 'error', 3000);
  check((await message(page)) === 'This chart is not available.', `a calm sentence: ${await message(page)}`);
  const [error] = await heard(page, 'error');
  const isExplained = error.code === 'token_invalid' && /introspect/.test(error.hint);
  check(isExplained, `the page learns what to do: ${JSON.stringify(error)}`);
  const warnings = seen.warnings.filter((text) => text.includes('token_invalid'));
  check(warnings.length === 1, `the console has it once: ${seen.warnings}`);
  const before = seen.requests.length;
  await wait(3000);
  check(seen.requests.length === before, 'nothing is asked again');
  await page.close();
}

/** What a visitor reads for an error, and what the author of the page learns. */
async function everyErrorHasItsWords() {
  const key = await newKey();
  const elsewhere = await newKey({ origins: ['https://elsewhere.example'] });
  const slow = await newKey({ rate_limit_rps: 1 });
  const [gone, narrow] = [sign(key, { left: -5 }), sign(key, { ms: { endpoints: ['metrics'] } })];
  const cases = [
    ['no_credential', {}, /not set up/, /token-endpoint/, false],
    ['origin_refused', { token: sign(elsewhere) }, /cannot be shown on this page/, /origins/, false],
    ['token_expired', { token: gone, refresh: 1 }, /expired. Reload the page/, /token-endpoint/, false],
    ['org_mismatch', { token: sign(key), org: 'acme' }, /not available/, /attribute org/, false],
    ['token_invalid', { token: `${sign(key)}x` }, /not available/, /introspect/, false],
    ['embed_restricted', { token: narrow }, /not available/, /ms of the token/, false],
    ['bad_expr', { token: sign(key), expr: 'sum(' }, /cannot be drawn/, /attributes/, false],
    ['token_endpoint', { 'token-endpoint': '/token' }, /sign in/, /token-endpoint/, true],
  ];
  site.status = 401;
  for (const [code, attributes, visitor, hint, hasButton] of cases) {
    const seen = await open(element({ ...ATTRIBUTES, ...attributes }));
    const { page } = seen;
    await state(page, 'error');
    await wait(code === 'token_expired' ? 2500 : 50);
    const [text, errors] = [await message(page), await heard(page, 'error')];
    check(visitor.test(text), `${code}: the visitor reads ${text}`);
    check(!/introspect|PromQL|token|CORS|401|403/.test(text), `${code}: the visitor reads no jargon: ${text}`);
    check(errors.length === 1 && errors[0].code === code, `${code}: one error: ${JSON.stringify(errors)}`);
    check(hint.test(errors[0].hint), `${code}: the hint says what to do: ${errors[0].hint}`);
    check((await heard(page, 'error on window')).length === 0, `${code}: it is no error of the window`);
    check((await heard(page, 'token-expired')).length === (code === 'token_expired' ? 1 : 0), `${code}: token-expired`);
    const warnings = seen.warnings.filter((line) => line.startsWith(`metric-chart: ${code}`));
    check(warnings.length === 1, `${code}: one warning: ${seen.warnings}`);
    const buttons = await page.locator('metric-chart .state button').count();
    check(buttons === (hasButton ? 1 : 0), `${code}: ${buttons} buttons`);
    const queries = seen.requests.filter((path) => path.startsWith('/api/'));
    check(code !== 'no_credential' || queries.length === 0, 'nothing is asked without a credential');
    for (const [scheme, width] of [['light', 320], ['dark', 900]]) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width, height: 500 });
      check((await contentWidth(page)) <= width, `${code}: nothing is wider than ${width} pixels`);
      await page.screenshot({ path: join(given.pictures, `embed-${code}-${scheme}-${width}.png`) });
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
      check(violations.length === 0, `${code}: axe-core finds nothing: ${violations.map(({ id }) => id)}`);
    }
    await page.close();
  }
  site.status = 200;
  // The new token of the page takes the error away.
  const seen = await open(element({ ...ATTRIBUTES, token: gone }));
  await state(seen.page, 'error');
  await seen.page.evaluate((token) => (document.querySelector('metric-chart').token = token), sign(key));
  await state(seen.page, 'drawn');
  await seen.page.close();
  // As if the visitor had refused the prompt for local networks; nothing listens on the port.
  const closed = createTcpServer();
  const src = `http://127.0.0.1:${await listening(closed)}`;
  closed.close();
  const local = await open('');
  await local.page.evaluate(
    ([all]) => {
      navigator.permissions.query = async ({ name }) => {
        if (name !== 'loopback-network') throw new TypeError('not known');
        return { state: 'denied' };
      };
      document.querySelector('main').append(Object.assign(document.createElement('metric-chart'), all));
    },
    [{ ...ATTRIBUTES, src, token: sign(key) }],
  );
  await state(local.page, 'error');
  const [refused] = await heard(local.page, 'error');
  check(refused.code === 'local_network_denied', `a refused prompt is named: ${JSON.stringify(refused)}`);
  await local.page.close();
  // A rate that is too low passes by itself.
  const token = sign(slow);
  const charts = [1, 2, 3, 4].map((factor) => element({ ...ATTRIBUTES, expr: `${QUERY} * ${factor}`, token }));
  const limited = await open(charts.join(''));
  await limited.page.waitForFunction(() => globalThis.heard.some((one) => one.code === 'rate_limited'));
  await state(limited.page, 'drawn', 60_000);
  await limited.page.close();
}

async function aStrictPolicyOfThePageIsEnough() {
  const key = await newKey();
  const [asks, types] = [`connect-src ${proxy.url};`, "require-trusted-types-for 'script'; trusted-types 'none'"];
  const policy = `default-src 'none'; script-src ${proxy.url}; ${asks} img-src data:; ${types}`;
  const attributes = { ...ATTRIBUTES, live: '', title: HOSTILE, legend: HOSTILE, token: sign(key) };
  const { page } = await open(element(attributes), { 'Content-Security-Policy': policy });
  await state(page, 'drawn');
  await moves(page, 2);
  const [colour, family] = await page.evaluate(() => {
    const style = getComputedStyle(document.querySelector('metric-chart').shadowRoot.querySelector('.legend'));
    return [style.display, style.fontSize];
  });
  check(colour === 'flex' && family === '13px', `the style sheet holds: ${colour} ${family}`);
  const box = await page.locator('metric-chart').boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + 150);
  await page.waitForFunction(() => !document.querySelector('metric-chart').shadowRoot.querySelector('.tip').hidden);
  await page.screenshot({ path: join(given.pictures, 'embed-strict.png') });
  await page.close();
  const closed = await open(element(attributes), { 'Content-Security-Policy': policy.replace(asks, '') });
  await state(closed.page, 'error');
  const [error] = await heard(closed.page, 'error');
  const isNamed = error.code === 'blocked_by_page' && error.hint.includes('connect-src');
  check(isNamed, `a policy that blocks is named: ${JSON.stringify(error)}`);
  complaints.splice(0, complaints.length, ...complaints.filter((text) => !text.includes('connect-src')));
  await closed.page.close();
}

async function aHostilePageGainsAndHangsNothing() {
  const key = await newKey();
  const long = 'x'.repeat(1 << 20);
  const { page } = await open('');
  await page.waitForFunction(() => customElements.get('metric-chart'));
  const cases = [
    { title: long, legend: `{{route}}${long}`, unit: long },
    { range: '1e99' },
    { range: '9'.repeat(400) },
    { range: `${'9'.repeat(300)}y` },
    { step: '0.000000001' },
    { step: '9'.repeat(30), range: '1h' },
    { refresh: 'NaN', live: '' },
    { start: '-1', end: 'Infinity' },
    { start: '1', end: '99999999999999' },
    { expr: long },
    { expr: '', metric: 'up', match: `"${'\\"'.repeat(1 << 19)}` },
    { src: 'http://[' },
    { src: 'javascript:alert(1)' },
    { org: '../../auth' },
    { 'token-endpoint': 'http://[' },
  ];
  for (const attributes of cases) {
    const begin = Date.now();
    const what = JSON.stringify(attributes).slice(0, 60);
    await page.evaluate(
      ([all]) => {
        const chart = document.createElement('metric-chart');
        for (const [name, value] of Object.entries(all)) chart.setAttribute(name, value);
        document.querySelector('main').replaceChildren(chart);
      },
      [{ ...ATTRIBUTES, token: sign(key), ...attributes }],
    );
    await page
      .waitForFunction(() => ['drawn', 'empty', 'error'].includes(document.querySelector('metric-chart').dataset.state))
      .catch(() => check(false, `${what}: the chart settles`));
    check(Date.now() - begin < 5000, `${what}: ${Date.now() - begin} ms`);
    const wide = await contentWidth(page);
    check(wide <= page.viewportSize().width, `${what}: nothing is wider than the page: ${wide}`);
  }
  // No width, no height.
  await page.evaluate(
    ([all]) => {
      const chart = Object.assign(document.createElement('metric-chart'), all);
      chart.style.cssText = 'display: block; width: 0; height: 0; overflow: hidden';
      document.querySelector('main').replaceChildren(chart);
    },
    [{ ...ATTRIBUTES, token: sign(key) }],
  );
  await state(page, 'drawn');
  // Prototypes of the page: the element sends its token to the server alone, and no cookie.
  const second = await open('');
  const sent = [];
  second.page.on('request', (request) => {
    if (request.headers().authorization) sent.push(new URL(request.url()).origin);
  });
  await second.page.evaluate(
    ([all]) => {
      for (const [prototype, name] of [
        [Array.prototype, 'map'],
        [Array.prototype, 'filter'],
        [String.prototype, 'replace'],
        [Map.prototype, 'get'],
        [Promise.prototype, 'then'],
      ]) {
        const own = prototype[name];
        prototype[name] = function replaced(...arguments_) {
          return own.apply(this, arguments_);
        };
      }
      Object.prototype.credentials = 'include';
      const chart = Object.assign(document.createElement('metric-chart'), all);
      document.querySelector('main').replaceChildren(chart);
    },
    [{ ...ATTRIBUTES, token: sign(key) }],
  );
  await state(second.page, 'drawn');
  check(sent.length > 0 && sent.every((origin) => origin === proxy.url), `the token goes to the server alone: ${sent}`);
  // Another version of the element, and properties that were set before it was defined.
  await second.page.evaluate((url) => import(`${url}/embed.js?2`), proxy.url);
  await second.page.close();
  await page.close();
}

await run(signIn, [
  theFirstChartHasAtMost25Kilobytes,
  aChartOfAnotherOriginNeedsTwoRequests,
  aZoomEndsAtTheRangeOfThePage,
  aPageThatZoomsItselfIsAskedToReset,
  aWarmViewIsOneRequest,
  aRefreshIsOneRequest,
  aChartOfLongStepsIsOneRequest,
  anUpgradeReachesTheViewAfterTheNextAndNoViewMixesVersions,
  anElementOfTheVersionBeforeHasItsTooltipAndItsStream,
  everyErrorHasItsWords,
  aStrictPolicyOfThePageIsEnough,
  aHostilePageGainsAndHangsNothing,
  thirtyChartsShareOneConnection,
  tokensAreRenewedWhileLive,
  aRevokedKeyEndsItsCharts,
  aFixedTokenEndsAndIsReplaced,
  aLostServerComesBackWithoutAGap,
]);
