// Compares the script time of our charts with that of uPlot in the same browser run. Started by
// tests/peers_uplot.rs:
//
//   node uplot.mjs '{"module": ..., "chromium": ..., "uplot": ..., "pictures": ...}'
//
// `uplot` and `module` are folders with the package in their node_modules. All charts have the same
// series, width, height of the plot and pixel ratio, with axes, cursor and legend as each draws them
// without settings. The panel has frames and uPlot columns of the same values. For <metric-chart> both
// begin with the parsed answer of the server, so both turn it into columns. The two take turns; the
// table has medians of `ROUNDS` turns. The goal is a ratio of 1.0. On a busy machine one measurement can
// be far off, so a chart with a ratio above `BOUND` is measured again; the script exits with 1 if a ratio
// is above it in each of `ATTEMPTS` measurements.

import { mkdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const given = JSON.parse(process.argv[2]);
const { chromium } = createRequire(join(given.module, '/'))('playwright-core');
const ROUNDS = given.rounds ?? 15;
const BOUND = 1.5;
const ATTEMPTS = 5;
const ASSETS = fileURLToPath(new URL('../../src/ui/assets', import.meta.url));
const HERE = fileURLToPath(new URL('.', import.meta.url));
const PEER = join(given.uplot, 'node_modules/uplot/dist');
const TYPES = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.css': 'text/css', '.html': 'text/html' };
const PAGE = `<!doctype html><meta charset="utf-8"><title>Charts</title>
<link rel="stylesheet" href="/uplot/uPlot.min.css"><link rel="stylesheet" href="/ui/app.css">
<link rel="stylesheet" href="/ui/panels.css"><link rel="stylesheet" href="/ui/cabinet.css">
<script type="module" src="/here/uplot_page.mjs"></script>`;

const server = createServer((request, response) => {
  const path = new URL(request.url, 'http://x').pathname;
  const folders = { '/ui/': ASSETS, '/uplot/': PEER, '/here/': HERE };
  const prefix = Object.keys(folders).find((one) => path.startsWith(one));
  const body = prefix ? readFileSync(join(folders[prefix], path.slice(prefix.length))) : PAGE;
  // An isolated page has a clock of five microseconds.
  response.writeHead(200, {
    'Content-Type': TYPES[extname(path)] ?? 'text/html',
    'Cross-Origin-Opener-Policy': 'same-origin',
    'Cross-Origin-Embedder-Policy': 'require-corp',
  }).end(body);
});
await new Promise((listening) => { server.listen(0, '127.0.0.1', listening); });
const address = `http://127.0.0.1:${server.address().port}/`;
const browser = await chromium.launch({
  executablePath: given.chromium,
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', ...(given.flags ?? [])],
});
const complaints = [];

/** A page with the charts' modules loaded and none of their functions called. */
async function open() {
  const context = await browser.newContext({ viewport: { width: 1000, height: 1400 }, deviceScaleFactor: 1 });
  const page = await context.newPage();
  page.on('pageerror', (error) => complaints.push(error.stack ?? String(error)));
  await page.goto(address);
  await page.waitForFunction(() => 'prepare' in globalThis);
  const call = (expression) => page.evaluate(expression);
  /** Milliseconds of script that an operation takes. */
  const measured = (whose, action) => call(`run('${whose}', '${action}')`);
  return { page, call, measured, close: () => context.close() };
}

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
/** The measurement with the lowest ratio of each name. */
const rows = new Map();
function report(name, ours, peer, idle) {
  const of = (list) => Math.max(0.001, median(list) - median(idle));
  const row = { name, script: of(ours), peerScript: of(peer), ratio: of(ours) / of(peer) };
  if (!(rows.get(name)?.ratio <= row.ratio)) rows.set(name, row);
}
const slowRows = () => [...rows.values()].filter(({ ratio }) => !(ratio <= BOUND));
/** Runs `measure`, and again while it reports a row above the bound. */
async function repeated(measure) {
  const before = new Set(slowRows());
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    await measure();
    if (slowRows().every((row) => before.has(row))) return;
  }
}

/** All operations of a warm page. */
async function warm(kind, series, points) {
  const session = await open();
  const results = new Map();
  const note = (action, whose, value) => {
    const key = `${action} ${whose}`;
    results.set(key, [...(results.get(key) ?? []), value]);
  };
  const actions = ['resize', 'hover', 'hide', 'new data', ...(kind === 'panel' ? ['zoom'] : [])];
  // The first turns are not counted: the compiler is still at work.
  for (let round = -3; round < ROUNDS; round += 1) {
    await session.call(`prepare('${kind}', ${series}, ${points})`);
    const turns = round % 2 ? ['ours', 'peer'] : ['peer', 'ours'];
    for (const action of ['nothing', 'first', ...actions]) {
      for (const whose of turns) {
        const value = await session.measured(whose, action);
        if (round >= 0) note(action, whose, value);
      }
    }
    if (round === 0) {
      mkdirSync(given.pictures, { recursive: true });
      await session.page.screenshot({ path: join(given.pictures, `uplot-${kind}-${series}.png`), fullPage: true });
    }
  }
  const idle = [...results.get('nothing ours'), ...results.get('nothing peer')];
  for (const action of ['first', ...actions]) {
    const [ours, peer] = ['ours', 'peer'].map((whose) => results.get(`${action} ${whose}`));
    report(`${kind}, ${series} x ${points}: ${action}`, ours, peer, idle);
  }
  await session.close();
}

/** The first drawing of a page. */
async function cold(kind, series, points) {
  const [ours, peer, idle] = [[], [], []];
  for (let round = 0; round < 2 * ROUNDS; round += 1) {
    const session = await open();
    await session.call(`prepare('${kind}', ${series}, ${points})`);
    const whose = round % 2 ? 'ours' : 'peer';
    idle.push(await session.measured(whose, 'nothing'));
    (round % 2 ? ours : peer).push(await session.measured(whose, 'first'));
    await session.close();
  }
  report(`${kind}, ${series * points} points cold`, ours, peer, idle);
}

try {
  for (const kind of given.kinds ?? ['embed', 'panel']) {
    for (const series of given.series ?? [50, 200]) await repeated(() => warm(kind, series, 1000));
    await repeated(() => cold(kind, 50, 3333));
  }
} finally {
  await browser.close();
  server.close();
}
const wide = Math.max(...[...rows.keys()].map((name) => name.length));
console.log(`${'milliseconds of script'.padEnd(wide)}    ours   uPlot   ratio`);
for (const { name, script, peerScript, ratio } of rows.values()) {
  const cells = [script.toFixed(2).padStart(8), peerScript.toFixed(2).padStart(8), ratio.toFixed(2).padStart(8)];
  console.log(`${name.padEnd(wide)}${cells.join('')}`);
}
const slow = slowRows().map(({ name, ratio }) => `${name}: ${ratio.toFixed(2)}`);
if (complaints.length > 0) slow.push(...complaints.slice(0, 5));
if (slow.length > 0) {
  console.error(`slower than ${BOUND} times uPlot, or failed:\n${slow.join('\n')}`);
  process.exitCode = 1;
}
