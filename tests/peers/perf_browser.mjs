// Drives Chromium over a dashboard that refreshes itself: ad hoc filters, the time zone, the shared
// tooltip, and refreshes that ask for new steps only.
//
//   node perf_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ..., "link": ...,
//     "org": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core; `link` is a sign-in link of a demo.
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise.

import { join } from 'node:path';
import { check, scenario } from './scenario.mjs';

const given = JSON.parse(process.argv[2]);
const { page, axe, run } = await scenario('live', given, { context: { timezoneId: 'America/New_York' } });
/** Queries of all batches with their times. */
const asked = [];
page.on('request', (request) => {
  if (!request.url().endsWith('/query/batch')) return;
  const { start, end, queries } = JSON.parse(request.postData());
  asked.push(...queries.map((query) => ({ start, end, ...query })));
});

const panel = (id, title, x, more) => ({
  id,
  type: 'timeseries',
  title,
  gridPos: { x, y: 0, w: 12, h: 8 },
  options: { legend: {}, tooltip: { mode: 'multi' } },
  targets: [{ refId: 'A', legendFormat: '{{route}}', ...more }],
});
const dashboard = {
  uid: 'live-flow',
  title: 'Live',
  schemaVersion: 39,
  timezone: 'Asia/Kolkata',
  graphTooltip: 2,
  refresh: '5s',
  time: { from: 'now-1h', to: 'now' },
  templating: {
    list: [{ name: 'Filters', type: 'adhoc', filters: [{ key: 'route', operator: '=~', value: '/|/cart' }] }],
  },
  panels: [
    panel(1, 'Rate', 0, { expr: 'sum by (route) (rate(shop_http_requests_total[5m]))' }),
    panel(2, 'Total', 12, { expr: 'sum by (route) (shop_http_requests_total)' }),
  ],
};

/** Waits until a query with this text has been asked. Returns the newest. */
async function query(text) {
  for (let turn = 0; turn < 100; turn += 1) {
    const found = asked.findLast(({ expr }) => expr.includes(text));
    if (found) return found;
    await page.waitForTimeout(100);
  }
  throw new Error(`no query with ${text}, but ${JSON.stringify(asked.map(({ expr }) => expr))}`);
}

async function refreshFlow() {
  const rate = () => asked.filter(({ expr }) => expr.includes('rate(shop_http_requests_total{route=~"/|/cart"}[5m])'));
  await page.waitForFunction(() => document.querySelectorAll('.panel[data-state="drawn"]').length === 2);
  const [whole] = rate();
  check(whole && whole.end - whole.start >= 3600, `the first request has the whole range: ${JSON.stringify(whole)}`);
  for (let turn = 0; rate().length < 2 && turn < 100; turn += 1) await page.waitForTimeout(100);
  const part = rate()[1];
  check(part && part.end - part.start <= 4 * part.step + 10, `a refresh asks for new steps: ${JSON.stringify(part)}`);
}

async function hoverFlow() {
  const plots = page.locator('.plot-cursor');
  const box = await plots.first().boundingBox();
  await page.mouse.move(box.x + box.width / 3, box.y + box.height / 2);
  const tips = page.locator('.plot-tip:visible');
  await tips.nth(1).waitFor();
  const [own, other] = await tips.locator('.when').allTextContents();
  const format = new Intl.DateTimeFormat('en', { timeZone: 'Asia/Kolkata', hour: '2-digit', hourCycle: 'h23' });
  const clock = (time) => format.format(time);
  const hours = [clock(Date.now() - 3_600_000), clock(Date.now())];
  check(hours.some((hour) => own.includes(` ${hour}:`)), `${own} is in the zone of the dashboard`);
  check(own === other, `both panels show the same time: ${own}, ${other}`);
  await page.screenshot({ path: join(given.pictures, 'live-tooltip.png') });
  await page.mouse.move(5, 5);
  await tips.first().waitFor({ state: 'detached' });
}

async function filterFlow() {
  await page.getByRole('button', { name: 'Add a filter to Filters' }).press('Enter');
  await page.keyboard.type('code');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  await page.waitForFunction(() => document.querySelector('datalist[id$="-values"]')?.childElementCount > 1);
  await page.keyboard.type('503');
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  check(violations.length === 0, JSON.stringify(violations.map(({ id, nodes }) => [id, nodes[0].html])));
  await page.screenshot({ path: join(given.pictures, 'live-filter.png') });
  await page.keyboard.press('Enter');
  await query('rate(shop_http_requests_total{route=~"/|/cart", code="503"}[5m])');
  check(page.url().includes(encodeURIComponent('code|=|503')), `the address has the filter: ${page.url()}`);
  await page.getByRole('button', { name: 'Remove route =~ /|/cart' }).click();
  await query('rate(shop_http_requests_total{code="503"}[5m])');
}

await run(async () => {
  await page.goto(given.link);
  await page.waitForSelector('main');
  const created = await page.evaluate(
    async ([path, body]) => {
      const options = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body };
      return (await fetch(path, options)).status;
    },
    [`${given.server}/api/v1/orgs/${given.org}/dashboards`, JSON.stringify({ dashboard })],
  );
  check(created === 201, `the dashboard is saved: ${created}`);
  await page.goto(`${given.server}/dashboard?org=${given.org}&uid=${dashboard.uid}`);
}, [refreshFlow, hoverFlow, filterFlow]);
