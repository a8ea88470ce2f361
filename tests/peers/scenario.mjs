// A Chromium for one scenario: a page, what it must not do, and the end of the process.
//
// Any console error, policy violation, script error or request to another host fails the scenario, unless it
// announced a part of the address.

import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** @param {boolean} holds @param {string} what */
export function check(holds, what) {
  if (!holds) throw new Error(`not so: ${what}`);
}

/**
 * Waits until a page has drawn what it shows now.
 * @param {any} page
 */
export function twoFrames(page) {
  return page.evaluate(async () => {
    for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
  });
}

/**
 * The width that the content of a page needs, in CSS pixels, once observers of sizes have followed a change of the
 * window.
 * @param {any} page
 */
export async function contentWidth(page) {
  await twoFrames(page);
  return page.evaluate(() => document.documentElement.scrollWidth);
}

/** A violation that axe-core found, with its first nodes and what is wrong with each. */
function complaintOf({ id, nodes }) {
  const about = ({ target, any, all, none }) =>
    `${target.join(' ')} ${[...any, ...all, ...none].map(({ message }) => message).join(', ')}`;
  return `${id}: ${nodes.slice(0, 3).map(about).join('; ')}`;
}

/**
 * Starts a browser.
 * @param {string} name of the scenario
 * @param {any} given the arguments of the script: `module` and `axe` are folders with playwright-core and
 *   axe-core, `chromium` is the program, `pictures` the folder of pictures, `server` the URL; `times` prints the time
 *   of each flow
 * @param {{announced?: string[], context?: any}} [options] `announced`: parts of addresses whose failures are
 *   expected; `context`: options of the browser
 */
export async function scenario(name, given, { announced = [], context = {} } = {}) {
  const resolve = (folder) => createRequire(join(folder, '/'));
  const { chromium } = resolve(given.module)('playwright-core');
  const axe = readFileSync(resolve(given.axe ?? given.module).resolve('axe-core/axe.min.js'), 'utf8');
  const folder = mkdtempSync(join(tmpdir(), `promlet-${name}-`));
  const fail = (error) => {
    console.error(`${name}: ${error.stack ?? error}`);
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    process.exit(1);
  };
  const watchdog = setTimeout(() => fail(new Error('the scenario did not end within four minutes')), 240_000);
  mkdirSync(given.pictures, { recursive: true });
  const browser = await chromium
    .launchPersistentContext(join(folder, 'profile'), {
      executablePath: given.chromium,
      headless: true,
      viewport: { width: 1200, height: 900 },
      colorScheme: 'light',
      reducedMotion: 'reduce',
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
      ],
      ...context,
    })
    .catch(fail);
  /** @type {string[]} */
  const complaints = [];
  await browser.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) =>
      console.error(`policy: ${event.violatedDirective} blocked ${event.blockedURI}`),
    );
  });
  const page = await browser.newPage();
  page.setDefaultTimeout(20_000);
  page.on('pageerror', (error) => complaints.push(`script error: ${error.stack}`));
  page.on('console', (message) => {
    const at = message.location().url;
    if (message.type() === 'error' && !announced.some((piece) => at.includes(piece)))
      complaints.push(`console: ${message.text()} (${at})`);
  });
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== new URL(given.server).origin && !request.url().startsWith('blob:'))
      complaints.push(`another host: ${request.url()}`);
  });

  /**
   * Checks the page in several looks: nothing is wider than the window, and axe-core finds nothing. Takes a picture of
   * each. Afterwards the page has its size again, and is light.
   * @param {string} name of the pictures, and of the page in messages
   * @param {{looks: [scheme: 'light' | 'dark', width: number | null][], height?: number, settle?: number,
   *   fullPage?: boolean, also?: (where: string) => Promise<void>}} how a `width` of null is that of the page; `settle`:
   *   milliseconds to wait in each look; `also` checks more
   */
  async function checkLooks(name, { looks, height = 900, settle = 0, fullPage = false, also = async () => {} }) {
    const size = page.viewportSize();
    await page.evaluate(axe);
    for (const [scheme, own] of looks) {
      const width = own ?? size.width;
      const where = `${name}, ${scheme}, ${width} pixels`;
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width, height });
      await page.waitForTimeout(settle);
      const wide = await contentWidth(page);
      check(wide <= width, `${where}: nothing is wider than the window: ${wide}`);
      await also(where);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
      const found = violations.map(complaintOf).join('\n  ');
      check(violations.length === 0, `${where}: axe-core finds nothing:\n  ${found}`);
      await page.screenshot({ path: join(given.pictures, `${name}-${scheme}-${width}.png`), fullPage });
    }
    await page.emulateMedia({ colorScheme: 'light' });
    await page.setViewportSize(size);
  }

  /**
   * Runs the flows one after the other, each with the result of an earlier one, and ends the process.
   * @param {() => Promise<void>} start @param {((result: any) => Promise<any>)[]} flows
   */
  async function run(start, flows) {
    try {
      await start();
      let result;
      for (const flow of flows) {
        const began = Date.now();
        const own = await flow(result).catch(async (error) => {
          await page.screenshot({ path: join(given.pictures, `${name}-failed-${flow.name}.png`), fullPage: true });
          const body = (await page.textContent('body')).slice(0, 2000);
          throw new Error(`${flow.name}: ${error.message}\n${page.url()}\n${body}\n${complaints.join('\n')}`);
        });
        result = own ?? result;
        if (given.times) console.log(`${name}: ${flow.name} took ${Date.now() - began} ms`);
      }
      check(complaints.length === 0, `the browser has no complaints:\n  ${complaints.join('\n  ')}`);
    } catch (error) {
      await browser.close();
      fail(error);
    }
    clearTimeout(watchdog);
    await browser.close();
    rmSync(folder, { recursive: true, force: true });
    console.log(`${name}: everything held`);
    process.exit(0);
  }
  return { browser, page, axe, complaints, announced, checkLooks, run };
}
