// Drives Chromium over pages of another origin that use the components of `examples/` with React and Vue, and both
// elements with tokens of two JWT libraries:
//
//   node wrappers_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ..., "link": ...,
//     "org": ..., "react": [...], "vue": ..., "jose": ..., "pyjwt": ...}'
//
// `link` is a sign-in link of an editor of a demo. `react` are folders with React and ReactDOM, each of one version;
// `vue`, `jose` and `pyjwt` are folders with these packages.
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { member } from './member.mjs';
import { check, scenario } from './scenario.mjs';

const given = JSON.parse(process.argv[2]);
const { browser, complaints, run } = await scenario('wrappers', given);
const { signIn, api } = member(given);
const { SignJWT } = await import(pathToFileURL(createRequire(join(given.jose, '/')).resolve('jose')).href);
const QUERY = 'sum by (route) (rate(shop_http_requests_total[5m]))';
const UID = 'wrapper-flow';
const example = (name) => readFileSync(new URL(`../../examples/${name}/MetricChart.js`, import.meta.url), 'utf8');

/** The key whose tokens the pages use. @type {{id: string, secret: string}} */
let key;
const claims = () => {
  const now = Math.floor(Date.now() / 1000);
  const ms = { dashboard: { uid: UID }, endpoints: ['expr', 'dashboard'] };
  return { aud: 'ms-embed', org: given.org, iat: now, exp: now + 600, ms };
};
/** Programs that sign a token, by the name of their library. */
const signers = {
  jose: () =>
    new SignJWT(claims())
      .setProtectedHeader({ alg: 'HS256', typ: 'JWT', kid: key.id })
      .sign(new TextEncoder().encode(key.secret)),
  pyjwt: () => {
    const program =
      'import json, jwt, sys; claims, kid, secret = map(json.loads, sys.argv[1:]); ' +
      'print(jwt.encode(claims, secret, algorithm="HS256", headers={"kid": kid}), end="")';
    const values = [claims(), key.id, key.secret].map((one) => JSON.stringify(one));
    return execFileSync('python3', ['-c', program, ...values], {
      env: { ...process.env, PYTHONPATH: given.pyjwt },
      encoding: 'utf8',
    });
  },
};

/**
 * An ES module with a CommonJS module, all that it requires, and some of its exports.
 * @param {string} folder with `node_modules`
 * @param {Object<string, string[]>} wanted the exports by module
 */
function bundle(folder, wanted) {
  const modules = new Map();
  const add = (file) => {
    if (modules.has(file)) return file;
    const text = readFileSync(file, 'utf8');
    modules.set(file, null);
    const { resolve } = createRequire(file);
    const required = [...text.matchAll(/require\(["']([^"']+)["']\)/g)].map(([, name]) => [name, add(resolve(name))]);
    modules.set(file, { text, required: Object.fromEntries(required) });
    return file;
  };
  const { resolve } = createRequire(join(folder, '/'));
  const exported = Object.entries(wanted).map(
    ([name, names]) => `export const { ${names.join(', ')} } = load(${JSON.stringify(add(resolve(name)))});`,
  );
  const list = [...modules].map(
    ([file, { text, required }]) =>
      `${JSON.stringify(file)}: [${JSON.stringify(required)}, (module, exports, require) => {\n${text}\n}]`,
  );
  return `const process = { env: { NODE_ENV: 'production' } };
const modules = { ${list.join(',\n')} };
const loaded = {};
function load(file) {
  if (loaded[file]) return loaded[file].exports;
  const module = (loaded[file] = { exports: {} });
  const [required, fill] = modules[file];
  fill(module, module.exports, (name) => load(required[name]));
  return module.exports;
}
${exported.join('\n')}
`;
}

/** The modules of the site. A page sets `show`, which renders the component with these properties, or nothing. */
const files = new Map();
const REACT = ['createElement', 'useEffect', 'useRef'];
for (const [at, folder] of given.react.entries()) {
  const { version } = createRequire(join(folder, '/'))('react/package.json');
  const isOld = Number(version.split('.')[0]) < 18;
  const dom = isOld ? { 'react-dom': ['render'] } : { 'react-dom/client': ['createRoot'] };
  files.set(`/react-${at}/react.js`, bundle(folder, { react: REACT, ...dom }));
  files.set(
    `/react-${at}/page.js`,
    `import { createElement${isOld ? ', render' : ', createRoot'} } from 'react';
import { MetricChart } from '../react/MetricChart.js';
const place = document.querySelector('main');
${isOld ? '' : 'const root = createRoot(place);'}
globalThis.show = (...all) => {
  const charts = all.map((own, key) => createElement(MetricChart, { key, ...own }));
  ${isOld ? "render(createElement('div', null, charts), place)" : 'root.render(charts)'};
};
`,
  );
}
files.set('/react/MetricChart.js', example('react'));
files.set('/vue/MetricChart.js', example('vue'));
files.set('/vue/vue.js', readFileSync(join(given.vue, 'node_modules/vue/dist/vue.esm-browser.prod.js'), 'utf8'));
files.set(
  '/vue/page.js',
  `import { createApp, h, shallowRef } from 'vue';
import { MetricChart } from '../vue/MetricChart.js';
const all = shallowRef([]);
createApp({ render: () => all.value.map((own, key) => h(MetricChart, { key, ...own })) }).mount('main');
globalThis.show = (...charts) => (all.value = charts);
`,
);

/** Which library signs the next tokens. */
let signer = 'jose';
const site = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, 'http://site');
  if (pathname === '/token') {
    response.writeHead(200, { 'Content-Type': 'application/json' });
    return response.end(JSON.stringify({ token: await signers[signer]() }));
  }
  if (files.has(pathname)) {
    response.writeHead(200, { 'Content-Type': 'text/javascript; charset=utf-8' });
    return response.end(files.get(pathname));
  }
  const name = pathname.slice(1);
  const source = ` org="${given.org}" token-endpoint="/token"`;
  const body =
    name === 'elements'
      ? `<main><metric-chart expr="${QUERY}"${source}></metric-chart>` +
        `<metric-dashboard uid="${UID}"${source}></metric-dashboard></main>` +
        `<script type="module" src="${given.server}/embed-dashboard.js"></script>`
      : `<main></main><script type="importmap">${JSON.stringify({
          imports: { react: `/${name}/react.js`, vue: '/vue/vue.js' },
        })}</script><script type="module" src="/${name}/page.js"></script>`;
  response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' });
  return response.end(
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Site</title><link rel="icon" href="data:,">' +
      `${body}</html>`,
  );
});
await new Promise((listening) => site.listen(0, '127.0.0.1', listening));
const origin = `http://127.0.0.1:${site.address().port}`;

async function start() {
  await signIn();
  key = await api('POST', '/api-keys', { name: 'wrappers', scopes: ['embed'] });
  const targets = [{ refId: 'A', expr: QUERY, legendFormat: '{{route}}' }];
  const panels = [{ id: 1, type: 'timeseries', title: 'Rate', gridPos: { x: 0, y: 0, w: 24, h: 8 }, targets }];
  await api('POST', '/dashboards', { dashboard: { uid: UID, title: 'Shop', time: { from: 'now-15m', to: 'now' }, panels } });
}

async function open(path) {
  const page = await browser.newPage();
  page.setDefaultTimeout(20_000);
  const streams = new Set();
  const scripts = [];
  page.on('pageerror', (error) => complaints.push(`${path}: ${error.stack}`));
  page.on('console', (message) => {
    // The browser itself reports the response to an expression that is wrong.
    const isRefusal = message.text().includes('400 (Bad Request)');
    if (message.type() === 'error' && !isRefusal) complaints.push(`${path}: ${message.text()}`);
  });
  page.on('request', (request) => {
    if (request.url().endsWith('/query/live')) streams.add(request);
    if (request.url().endsWith('/embed.js')) scripts.push(request.url());
  });
  for (const end of ['requestfinished', 'requestfailed']) page.on(end, (request) => streams.delete(request));
  await page.addInitScript(() => {
    globalThis.heard = [];
    /** Properties `onLoad`, `onTokenExpired` and so on, which collect the details of these events. */
    globalThis.listeners = (names) => {
      const property = (name) => name.replace(/(^|-)(.)/g, (_, _dash, letter) => letter.toUpperCase());
      const listener = (name) => (event) => globalThis.heard.push([name, event.detail]);
      return Object.fromEntries(names.map((name) => [`on${property(name)}`, listener(name)]));
    };
  });
  await page.goto(`${origin}/${path}`);
  return { page, streams, scripts };
}

/** Waits until each chart of the page is in a state. */
const state = (page, wanted) =>
  page.waitForFunction((name) => {
    const charts = [...document.querySelectorAll('metric-chart')];
    return charts.length > 0 && charts.every((chart) => chart.dataset.state === name);
  }, wanted);
const chart = (page, read) => page.evaluate(read);

/** The life of a component: mounted, changed, in error, unmounted. */
async function component(name) {
  signer = 'jose';
  const { page, streams, scripts } = await open(name);
  const NAMES = ['load', 'error', 'zoom', 'select', 'token-expired'];
  const own = { server: given.server, org: given.org, tokenEndpoint: '/token', range: '2m', step: 1, live: true };
  const show = (...all) =>
    page.evaluate(
      ([charts, names]) => globalThis.show(...charts.map((one) => ({ ...one, ...globalThis.listeners(names) }))),
      [all, NAMES],
    );
  await page.waitForFunction(() => globalThis.show);
  await show({ ...own, expr: QUERY, title: 'Requests', unit: 'bytes' }, { ...own, expr: `${QUERY} * 2` });
  await state(page, 'drawn');
  check(scripts.length === 1, `${name}: two components load the element once: ${scripts}`);
  const first = await chart(page, () => {
    const node = document.querySelector('metric-chart');
    const attributes = Object.fromEntries([...node.attributes].map(({ name: own, value }) => [own, value]));
    const loads = globalThis.heard.filter(([what]) => what === 'load').length;
    return { attributes, title: node.title, series: node.drawn.series, loads };
  });
  check(first.series > 1 && first.title === 'Requests', `${name}: the chart is drawn: ${JSON.stringify(first)}`);
  const { attributes } = first;
  const has = (wanted) => Object.entries(wanted).every(([own_, value]) => attributes[own_] === value);
  check(
    has({ 'token-endpoint': '/token', live: '', unit: 'bytes', step: '1' }),
    `${name}: properties are set before the element is defined: ${JSON.stringify(attributes)}`,
  );
  check(first.loads >= 2, `${name}: each chart reports its load: ${first.loads}`);
  for (let turn = 0; streams.size === 0 && turn < 100; turn += 1) await page.waitForTimeout(50);
  check(streams.size === 1, `${name}: both charts share a stream: ${streams.size}`);
  await page.screenshot({ path: join(given.pictures, `wrapper-${name}.png`) });

  await page.locator('metric-chart').first().click({ position: { x: 300, y: 150 } });
  await page.waitForFunction(() => heard.some(([what, detail]) => what === 'select' && detail.series.length > 1));

  // One chart remains, without title and stream, with another expression, and with other listeners.
  await page.evaluate(() => heard.splice(0));
  await show({ ...own, live: false, expr: 'sum(', unit: 'bytes' });
  await page.waitForFunction(() => heard.some(([what, detail]) => what === 'error' && detail.code === 'bad_expr'));
  check((await page.locator('metric-chart').count()) === 1, `${name}: a component that is gone takes its chart along`);
  const changed = await chart(page, () => {
    const node = document.querySelector('metric-chart');
    return [node.title, node.live, node.expr];
  });
  check(JSON.stringify(changed) === '["",false,"sum("]', `${name}: changed and removed properties: ${changed}`);
  await show({ ...own, expr: `sum(${QUERY})` });
  await state(page, 'drawn');
  const { series } = await chart(page, () => document.querySelector('metric-chart').drawn);
  check(series === 1, `${name}: it is drawn again`);
  await page.evaluate(() => document.querySelector('metric-chart').zoomTo({ start: 1000, end: 2000 }));
  check(
    await page.evaluate(() => heard.some(([what, detail]) => what === 'zoom' && detail.end === 2000)),
    `${name}: a zoom is reported`,
  );
  await show();
  await page.waitForFunction(() => !document.querySelector('metric-chart'));
  for (let turn = 0; streams.size > 0 && turn < 100; turn += 1) await page.waitForTimeout(50);
  check(streams.size === 0, `${name}: no stream outlives its component`);
  await page.close();
}

async function reactMountsChangesAndRemovesCharts() {
  for (const at of given.react.keys()) await component(`react-${at}`);
}

const vueMountsChangesAndRemovesCharts = () => component('vue');

async function tokensOfLibrariesShowChartsAndDashboards() {
  for (signer of Object.keys(signers)) {
    const { page } = await open('elements');
    await state(page, 'drawn');
    await page.waitForFunction(() =>
      document.querySelector('metric-dashboard').shadowRoot?.querySelector('.panel[data-state="drawn"] canvas'),
    );
    await page.screenshot({ path: join(given.pictures, `tokens-${signer}.png`) });
    await page.close();
  }
}

await run(start, [
  reactMountsChangesAndRemovesCharts,
  vueMountsChangesAndRemovesCharts,
  tokensOfLibrariesShowChartsAndDashboards,
]);
