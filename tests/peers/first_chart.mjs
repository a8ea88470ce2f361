// The time to the first chart on a page of another origin, in a running Chromium:
//
//   node first_chart.mjs '{"module": ..., "chromium": ..., "server": ..., "org": ..., "token": ..., "series": ...,
//     "rounds": ..., "polled": ...}'
//
// `module` is a folder with playwright-core, `token` an embed token of `org`, `series` the number of lines of the
// chart. Each round has a cold view in a fresh context, and a warm view in the same context. If `polled` is true, it
// also has a cold view whose page the driver asks in each frame whether the chart is drawn; no other view is disturbed
// before it has come to rest. Ends with 1 if a view has no chart with that number of lines.
//
// Prints a JSON object. `views` has a list for each of `cold`, `warm` and `polled`, with the milliseconds since the
// page requested `embed.js`: `arrived` (the end of its response), `sent` (the query), `answered` (the end of its
// response) and `drawn` (the event `load`). `traffic` has the `requests`, preflights included, and the `bytes` of the
// server, heads included, of a cold and a warm view that are not timed, because they go through a proxy.

import { createServer } from 'node:http';
import { listening, lossyProxy } from './lossy_proxy.mjs';
import { check } from './scenario.mjs';
import { START_MS, timedChromium } from './timed_chromium.mjs';

const given = JSON.parse(process.argv[2]);
const { chromium, options } = timedChromium(given);

/** The time after navigation in which a page is not disturbed, in milliseconds. */
const REST_MS = 1_200;
/** The longest time that a chart may take beyond it. */
const DRAWN_MAX_MS = 30_000;
/** The pause after a view, in milliseconds. */
const PAUSE_MS = 300;

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Notes the time of the first event `load` of the chart, in the page. */
function listen() {
  globalThis.drawn = new Promise((resolve) => {
    const heard = ({ target }) => target.localName === 'metric-chart' && resolve(performance.now());
    document.addEventListener('load', heard, true);
  });
}

const chart = `<metric-chart org="${given.org}" expr="sum by (route) (rate(shop_http_requests_total[5m]))" range="1h"
  step="15" token="${given.token}"></metric-chart>`;
const site = createServer((request, response) => {
  const { searchParams } = new URL(request.url, 'http://site');
  response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' });
  response.end(
    `<!doctype html><html lang="en"><title>Site</title><link rel="icon" href="data:,"><script>(${listen})()</script>` +
      `${chart}<script type="module" src="${searchParams.get('server')}/embed.js"></script></html>`,
  );
});
const page = `http://127.0.0.1:${await listening(site)}/`;

/** Reads the state and the times of a view, in the page. @param {number} most milliseconds to wait for the chart */
async function read(most) {
  const drawnAt = await Promise.race([globalThis.drawn, new Promise((resolve) => setTimeout(resolve, most))]);
  const chart = document.querySelector('metric-chart');
  const resources = performance.getEntriesByType('resource');
  const script = resources.find(({ name }) => name === document.querySelector('script[src]').src);
  const query = resources.find(({ name }) => new URL(name).pathname.endsWith('/query/expr-range'));
  const since = (at) => at - script?.startTime;
  return {
    state: chart.dataset.state,
    series: chart.drawn?.series,
    points: chart.drawn?.points,
    times: {
      arrived: since(script?.responseEnd),
      sent: since(query?.startTime),
      answered: since(query?.responseEnd),
      drawn: since(drawnAt),
    },
  };
}

/** Opens the page once. Returns the number of points on the screen, and the times. */
async function view(context, server, isPolled = false) {
  const tab = await context.newPage();
  await tab.goto(`${page}?server=${encodeURIComponent(server)}`);
  if (isPolled) await tab.waitForFunction(() => document.querySelector('metric-chart').dataset.state === 'drawn');
  await wait(REST_MS);
  const { state, series, points, times } = await tab.evaluate(read, DRAWN_MAX_MS);
  check(state === 'drawn' && series === given.series, `${given.series} lines are drawn: ${state} with ${series}`);
  check(Object.values(times).every(Number.isFinite), `each time is known: ${JSON.stringify(times)}`);
  await tab.close();
  await wait(PAUSE_MS);
  return { points, times };
}

/** Runs views in a fresh context. */
async function fresh(browser, views) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 } });
  await views(context);
  await context.close();
}

const traffic = {};
/** @type {Record<string, object[]>} */
const views = { cold: [], warm: [], ...(given.polled && { polled: [] }) };
const proxy = await lossyProxy(given.server);
const browser = await chromium.launch(options);
await wait(START_MS);
await fresh(browser, async (context) => {
  for (const kind of ['cold', 'warm']) {
    [proxy.received, proxy.requests] = [0, []];
    const { points } = await view(context, proxy.url);
    check(points >= given.series * 240, `an hour of points is drawn: ${points}`);
    traffic[kind] = { requests: proxy.requests.length, bytes: proxy.received };
  }
});
for (let round = 0; round < given.rounds; round += 1) {
  await fresh(browser, async (context) => {
    for (const kind of ['cold', 'warm']) views[kind].push((await view(context, given.server)).times);
  });
  if (given.polled)
    await fresh(browser, async (context) => {
      views.polled.push((await view(context, given.server, true)).times);
    });
}
await browser.close();
proxy.close();
site.close();
console.log(JSON.stringify({ views, traffic }));
