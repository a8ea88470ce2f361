// Drives Chromium over <metric-dashboard> on a page of another origin, which has a strict policy and hostile styles.
//
//   node embedded_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ...,
//     "link": ..., "org": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core; `link` is a sign-in link of a demo.
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise.

import { createServer } from 'node:http';
import { join } from 'node:path';
import { check, scenario } from './scenario.mjs';

const given = JSON.parse(process.argv[2]);
const { browser, page, axe, run } = await scenario('embedded', given);

const HOSTILE = '<img src=x onerror=alert(1)>';
const at = (x, y, w, h) => ({ x, y, w, h });
const query = (expr, more = {}) => ({ refId: 'A', expr, legendFormat: '{{route}}', ...more });
const RATE =
  'sum by (route) (rate(shop_http_requests_total{instance=~"$instance", route=~"$route"}[$__rate_interval]))';
const dashboard = {
  uid: 'embedded-flow',
  title: `Shop ${HOSTILE}`,
  schemaVersion: 39,
  time: { from: 'now-1h', to: 'now' },
  graphTooltip: 1,
  templating: {
    list: [
      {
        name: 'route',
        type: 'query',
        query: 'label_values(shop_http_requests_total, route)',
        multi: true,
        includeAll: true,
        current: { text: ['All'], value: ['$__all'] },
      },
      {
        name: 'instance',
        type: 'query',
        query: 'label_values(shop_http_requests_total, instance)',
        multi: true,
        includeAll: true,
        current: { text: ['All'], value: ['$__all'] },
      },
      { name: 'factor', type: 'custom', query: '1,2', current: { text: '2', value: '2' } },
      { name: 'filters', type: 'adhoc', filters: [] },
    ],
  },
  annotations: {
    list: [
      { name: 'Annotations & Alerts', builtIn: 1, type: 'dashboard' },
      { name: `Always ${HOSTILE}`, iconColor: 'red', expr: 'sum(shop_http_requests_total) > 0' },
    ],
  },
  panels: [
    {
      id: 1,
      type: 'timeseries',
      title: `Rate × $factor ${HOSTILE}`,
      gridPos: at(0, 0, 12, 8),
      options: { legend: { displayMode: 'table', calcs: ['mean'] } },
      targets: [query(`${RATE} * $factor`)],
    },
    {
      id: 2,
      type: 'timeseries',
      title: 'Rate',
      gridPos: at(12, 0, 12, 8),
      options: { legend: {} },
      targets: [query(RATE)],
    },
    { id: 3, type: 'stat', title: 'Now', gridPos: at(0, 8, 6, 4), targets: [query(`sum(${RATE})`, { instant: true })] },
    {
      id: 4,
      type: 'table',
      title: 'Table',
      gridPos: at(6, 8, 10, 4),
      targets: [query(RATE, { instant: true, format: 'table' })],
    },
    {
      id: 5,
      type: 'text',
      title: '',
      gridPos: at(16, 8, 8, 4),
      options: { mode: 'markdown', content: `# Words\n${HOSTILE} [bad](javascript:alert(1)) **$route**` },
    },
    { id: 6, type: 'piechart', title: 'Shares', gridPos: at(0, 12, 8, 6), targets: [query(RATE, { instant: true })] },
  ],
};
const PANELS = dashboard.panels.length;
/** What the page of another origin does to every element, the dashboard included. */
const STYLES = '* { display: block !important; color: red !important; letter-spacing: 5px !important; }';

/** Requests of the other page to the server: their paths with their bodies. */
const asked = [];
let tokens = 0;
let secret = '';
/** The claims of the tokens that the other page's own endpoint returns. */
let grant = {};

const api = async (method, path, body, headers = {}) => {
  const answer = await fetch(`${given.server}/api/v1/orgs/${given.org}${path}`, {
    method,
    headers: { 'Content-Type': 'application/json', ...headers },
    body: body && JSON.stringify(body),
  });
  check(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer.status === 204 ? null : answer.json();
};

const host = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, 'http://host');
  if (pathname === '/token') {
    tokens += 1;
    const { token } = await api(
      'POST',
      '/embed/tokens',
      { ms: { dashboard: grant } },
      { Authorization: `Bearer ${secret}` },
    );
    response.writeHead(200, { 'Content-Type': 'application/json' });
    return response.end(JSON.stringify({ token }));
  }
  if (pathname === '/styles.css') {
    response.writeHead(200, { 'Content-Type': 'text/css' });
    return response.end(STYLES);
  }
  const policy =
    `default-src 'none'; script-src ${given.server}; style-src 'self'; connect-src 'self' ${given.server}; ` +
    `base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'`;
  response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8', 'Content-Security-Policy': policy });
  return response.end(
    '<!doctype html><html lang="en"><head><title>Host</title><link rel="stylesheet" href="/styles.css"></head>' +
      `<body><main><h1>Host</h1><metric-dashboard org="${given.org}" uid="${dashboard.uid}" token-endpoint="/token">` +
      '</metric-dashboard></main>' +
      `<script type="module" src="${given.server}/embed-dashboard.js"></script></body></html>`,
  );
});
await new Promise((listening) => host.listen(0, '127.0.0.1', listening));
const origin = `http://127.0.0.1:${host.address().port}`;

const other = await browser.newPage();
const complaints = [];
other.on('pageerror', (error) => complaints.push(`script error: ${error.message}`));
other.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
other.on('dialog', (dialog) => {
  complaints.push(`a script opened a dialog: ${dialog.message()}`);
  dialog.dismiss();
});
other.on('request', (request) => {
  const url = new URL(request.url());
  if (url.origin === origin) return;
  check(url.origin === new URL(given.server).origin, `only the server is asked, not ${url}`);
  if (request.method() !== 'OPTIONS') asked.push({ path: url.pathname, body: JSON.parse(request.postData() ?? '{}') });
});

const element = other.locator('metric-dashboard').first();
const drawn = (count) =>
  other.waitForFunction(
    (wanted) =>
      document.querySelector('metric-dashboard').shadowRoot?.querySelectorAll('.panel[data-state="drawn"]').length >=
      wanted,
    count,
  );
const bodies = (end) => asked.filter(({ path }) => path.endsWith(`/${end}`)).map(({ body }) => body);

async function start() {
  await page.goto(given.link);
  await page.goto(`${given.server}/dashboards`);
  const made = await page.evaluate(
    async ({ org, document }) => {
      const post = async (path, body) => {
        const headers = { 'Content-Type': 'application/json' };
        const answer = await fetch(`/api/v1/orgs/${org}${path}`, {
          method: 'POST',
          headers,
          body: JSON.stringify(body),
        });
        return { status: answer.status, body: await answer.json() };
      };
      const key = { name: 'embedded', scopes: ['embed'], embed: { origins: ['*'] } };
      return { stored: await post('/dashboards', { dashboard: document }), key: await post('/api-keys', key) };
    },
    { org: given.org, document: dashboard },
  );
  check(made.stored.status === 201, `the dashboard is stored: ${JSON.stringify(made.stored.body)}`);
  check(made.key.status === 201, `the key is made: ${JSON.stringify(made.key.body)}`);
  secret = made.key.body.secret;
}

async function drawFlow() {
  grant = { uid: dashboard.uid, open: ['route'] };
  await other.goto(origin);
  await drawn(PANELS);
  check(tokens === 1, `one token is asked, not ${tokens}`);
  const annotated = bodies('data').flatMap(({ queries }) => queries.filter(({ annotation }) => annotation === 1));
  check(annotated.length > 0 && annotated.every(({ panel }) => panel === undefined), 'the annotation is asked by its place');
  check((await element.locator('h1').textContent()) === dashboard.title, 'the title is a text');
  check(
    await element.locator('.panel-title', { hasText: `Rate × 2 ${HOSTILE}` }).isVisible(),
    'a fixed value is in a title',
  );
  check(
    await element.locator('.prose', { hasText: `${HOSTILE} [bad](javascript:alert(1)) All` }).isVisible(),
    'texts stay texts',
  );
  const names = await element.locator('.variable').evaluateAll((all) => all.map((one) => one.dataset.variable));
  check(JSON.stringify(names) === '["route"]', `only open variables have controls, not ${names}`);
  const inside = await element
    .locator('.panel-title')
    .first()
    .evaluate((node) => {
      const { color, letterSpacing } = getComputedStyle(node);
      return { color, letterSpacing, grid: getComputedStyle(node.getRootNode().querySelector('.panel-grid')).display };
    });
  check(
    inside.letterSpacing === 'normal' && inside.color !== 'rgb(255, 0, 0)' && inside.grid === 'grid',
    `styles of the page stay outside: ${JSON.stringify(inside)}`,
  );
  check(!asked.some(({ body }) => JSON.stringify(body).includes('shop_http')), 'no request contains an expression');
  await other.evaluate(axe);
  const { violations } = await other.evaluate(() => window.axe.run('metric-dashboard'));
  check(
    violations.length === 0,
    `axe has no complaints: ${JSON.stringify(violations.map(({ id, nodes }) => [id, nodes[0].html]))}`,
  );
  for (const width of [1200, 700, 320]) {
    await other.setViewportSize({ width, height: 900 });
    await other.screenshot({ path: join(given.pictures, `embedded-${width}.png`), fullPage: true });
  }
  await other.setViewportSize({ width: 1200, height: 900 });
}

async function variableFlow() {
  await element.evaluate((node) => node.setAttribute('var-route', '/cart'));
  await other.waitForFunction(() =>
    document.querySelector('metric-dashboard').shadowRoot.querySelector('.prose').textContent.includes('/cart'),
  );
  const last = bodies('data').at(-1);
  check(
    JSON.stringify(last.variables) === '{"route":["/cart"]}',
    `the value is sent: ${JSON.stringify(last.variables)}`,
  );
  await element.locator('#variable-route').click();
  await element.locator('.variable-options label', { hasText: '/checkout' }).click();
  await element.getByRole('button', { name: 'Apply' }).click();
  await other.waitForFunction(() =>
    document
      .querySelector('metric-dashboard')
      .shadowRoot.querySelector('.prose')
      .textContent.includes('/cart + /checkout'),
  );
}

async function zoomFlow() {
  await other.evaluate(() => {
    window.zooms = [];
    document.addEventListener('zoom', (event) => {
      window.zooms.push(event.detail);
      if (window.zooms.length === 1) event.preventDefault();
    });
    document.addEventListener('select', (event) => {
      window.selected = event.detail;
    });
  });
  const plot = element.locator('.plot-cursor').first();
  const drag = async () => {
    const { x, y, width, height } = await plot.boundingBox();
    await other.mouse.move(x + width * 0.5, y + height / 2);
    await other.mouse.down();
    await other.mouse.move(x + width * 0.8, y + height / 2, { steps: 4 });
    await other.mouse.up();
  };
  const before = await element.locator('.time-button').textContent();
  await drag();
  check((await element.locator('.time-button').textContent()) === before, 'a listener prevents the first zoom');
  await drag();
  await element.getByRole('button', { name: 'Reset zoom' }).click();
  const zooms = await other.evaluate(() => window.zooms);
  check(
    zooms.length === 3 && zooms[1].end - zooms[1].start > 300 && zooms[2] === null,
    `zooms: ${JSON.stringify(zooms)}`,
  );
  await plot.click();
  const selected = await other.evaluate(() => window.selected);
  check(
    selected.panel === 1 && selected.nearest.labels.route.startsWith('/'),
    `a selection: ${JSON.stringify(selected)}`,
  );
}

async function aloneFlow() {
  const panel = element.locator('.panel').nth(1);
  await panel.hover();
  await panel.locator('.panel-menu').click();
  await element.getByRole('button', { name: 'View alone' }).click();
  await element.locator('.panel-grid.single').waitFor();
  check((await element.locator('.panel').count()) === 1, 'one panel is shown alone');
  const only = element.locator('.panel');
  await only.hover();
  await only.locator('.panel-menu').click();
  await element.getByRole('button', { name: 'Back to the dashboard' }).click();
  await drawn(PANELS);
}

async function liveFlow() {
  const newest = () =>
    element.evaluate((node) =>
      Math.max(...node.snapshot.answers['1:A:range'].data.result.map(({ values }) => values.at(-1)[0])),
    );
  const before = asked.length;
  await element.evaluate((node) => {
    node.setAttribute('from', 'now-5m');
    node.setAttribute('live', '');
  });
  for (let turn = 0; bodies('live').length === 0 && turn < 100; turn += 1) await other.waitForTimeout(100);
  const { variables, queries } = bodies('live')[0];
  check(
    JSON.stringify(variables) === '{"route":["/cart","/checkout"]}',
    `values of the stream: ${JSON.stringify(variables)}`,
  );
  check(
    queries.every(({ panel }) => panel === 1 || panel === 2),
    `range queries are live: ${JSON.stringify(queries)}`,
  );
  const first = await newest();
  for (let turn = 0; (await newest()) === first; turn += 1) {
    check(turn < 400, 'a point arrives within 40 s');
    await other.waitForTimeout(100);
  }
  const ranges = asked
    .slice(before)
    .filter(({ path }) => path.endsWith('/data'))
    .flatMap(({ body }) => body.queries.filter(({ type, panel }) => type === 'range' && panel !== undefined));
  check(ranges.length === 2, `live queries are asked once: ${ranges.length}`);
  await element.evaluate((node) => node.removeAttribute('live'));
}

async function snapshotFlow() {
  const stored = await element.evaluate((node) => JSON.stringify(node.snapshot));
  check(!stored.includes('shop_http_requests_total{'), 'a snapshot has no expression');
  // The live dashboard may just have asked: its requests are noticed before this one ends.
  await other.evaluate(async () => {
    document.querySelector('metric-dashboard').remove();
    await (await fetch(location.href)).text();
  });
  const before = asked.length;
  await other.evaluate((text) => {
    const copy = document.createElement('metric-dashboard');
    copy.snapshot = JSON.parse(text);
    document.querySelector('main').append(copy);
  }, stored);
  await drawn(PANELS);
  await element.getByRole('button', { name: /Mean/ }).first().waitFor();
  check(asked.length === before, `a snapshot asks nothing: ${JSON.stringify(asked.slice(before))}`);
  check((await element.locator('.time-control, .variable').count()) === 0, 'a snapshot has no controls');
}

async function filterFlow() {
  grant = { uid: dashboard.uid, open: ['route', 'filters'] };
  await other.goto(origin);
  await drawn(PANELS);
  await element.getByRole('button', { name: 'Add a filter to filters' }).click();
  const form = element.getByRole('dialog', { name: 'Filter' });
  await form.getByLabel('Label').fill('route');
  await form.getByLabel('Label').press('Tab');
  const options = () => form.locator('datalist').nth(1).locator('option').evaluateAll((all) => all.map(({ value }) => value));
  for (let turn = 0; !(await options()).includes('/cart') && turn < 50; turn += 1) await other.waitForTimeout(50);
  check((await options()).includes('/cart'), 'values of the shown results are suggested');
  await form.getByLabel('Value').fill('/cart');
  await form.getByRole('button', { name: 'Apply' }).click();
  await element.getByRole('button', { name: 'route = /cart', exact: true }).waitFor();
  for (let turn = 0; bodies('data').at(-1).variables.filters?.length !== 1 && turn < 50; turn += 1)
    await other.waitForTimeout(50);
  check(
    JSON.stringify(bodies('data').at(-1).variables.filters) === '["route|=|/cart"]',
    `the filter is sent: ${JSON.stringify(bodies('data').at(-1).variables)}`,
  );
  const legend = element.locator('.panel').first().locator('.legend-table tbody tr');
  for (let turn = 0; (await legend.count()) !== 1 && turn < 100; turn += 1) await other.waitForTimeout(50);
  check((await legend.count()) === 1, 'only the filtered series is drawn');
  await element.getByRole('button', { name: 'Remove route = /cart' }).click();
  for (let turn = 0; (await legend.count()) === 1 && turn < 100; turn += 1) await other.waitForTimeout(50);
  check((await legend.count()) > 1, 'without the filter all series are drawn');
}

async function lockedFlow() {
  const series = (
    await api('GET', `/query/expr-instant?expr=${encodeURIComponent('shop_http_requests_total')}`, undefined, {
      Cookie: (await browser.cookies()).map(({ name, value }) => `${name}=${value}`).join('; '),
    })
  ).data.result;
  const [
    {
      metric: { instance },
    },
  ] = series;
  grant = { uid: dashboard.uid, locked: { instance }, open: { route: ['/cart', '/checkout'] } };
  await other.goto(origin);
  await drawn(PANELS);
  const rows = await element.locator('.panel').first().locator('.legend-table tbody tr').count();
  check(rows === 2, `only the allowed values are drawn, not ${rows}`);
  await element.locator('#variable-route').or(element.locator('.variable select')).first().waitFor();
}

async function refusedFlow() {
  complaints.length = 0;
  await other.evaluate(() => {
    window.problems = [];
    document.addEventListener(
      'error',
      (event) => event instanceof CustomEvent && window.problems.push(event.detail),
      true,
    );
    const bad = document.createElement('metric-dashboard');
    const known = document.querySelector('metric-dashboard');
    for (const name of ['org', 'token-endpoint']) bad.setAttribute(name, known.getAttribute(name));
    bad.setAttribute('uid', 'promlet-shop');
    known.replaceWith(bad);
  });
  await element.locator('.message').waitFor();
  check(
    (await element.locator('.message').textContent()) === 'This dashboard is not available.',
    'a visitor reads one calm sentence',
  );
  await other.waitForFunction(() => window.problems.length > 0);
  const [{ code }] = await other.evaluate(() => window.problems);
  check(code === 'embed_restricted', `the page learns the reason, not ${code}`);
  // The browser writes the refused request itself.
  check(
    complaints.every((text) => text.includes('403')),
    `no other complaint: ${complaints}`,
  );
  complaints.length = 0;
}

async function calmFlow() {
  check(complaints.length === 0, `the other page has no complaints:\n  ${complaints.join('\n  ')}`);
}

await run(start, [
  drawFlow,
  variableFlow,
  zoomFlow,
  aloneFlow,
  liveFlow,
  snapshotFlow,
  filterFlow,
  calmFlow,
  lockedFlow,
  refusedFlow,
]);
