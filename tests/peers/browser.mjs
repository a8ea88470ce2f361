// Drives Chromium over promlet's pages the way a person would. Started by tests/peers_browser.rs:
//
//   node browser.mjs SCENARIO '{"module": ..., "chromium": ..., "pictures": ..., ...}'
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise. Besides what a scenario
// checks, any console error, policy violation, script error or failed request is a failure, unless the scenario
// announced it.

import { createHmac } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { check, contentWidth, twoFrames } from './scenario.mjs';

const [scenario, json] = process.argv.slice(2);
const given = JSON.parse(json);
const { chromium } = createRequire(join(given.module, '/'))('playwright-core');
/** axe-core, which runs inside the pages. */
const axe = readFileSync(createRequire(join(given.axe, '/')).resolve('axe-core/axe.min.js'), 'utf8');
/** A scenario that takes longer hangs. */
const watchdog = setTimeout(() => fail(new Error('the scenario did not end within four minutes')), 240_000);
const QUERY = 'sum by (route) (rate(shop_http_requests_total[5m]))';

const profile = mkdtempSync(join(tmpdir(), 'promlet-browser-'));

function fail(error) {
  console.error(`${scenario}: ${error.stack ?? error}`);
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  process.exit(1);
}

mkdirSync(given.pictures, { recursive: true });
const browser = await chromium.launchPersistentContext(profile, {
  executablePath: given.chromium,
  headless: true,
  viewport: { width: 1200, height: 900 },
  colorScheme: 'light',
  reducedMotion: 'reduce',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', ...(given.flags ?? [])],
  ignoreHTTPSErrors: given.tls === true,
}).catch(fail);

const complaints = [];
/** Failures of requests that the scenario is about to provoke: pieces of their addresses. */
const announced = [];
/** Other origins that a scenario makes up. */
const strangers = [];
const expected = (address) => announced.some((piece) => address.includes(piece));
await browser.addInitScript(() => {
  addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} blocked ${event.blockedURI}`));
});
function watch(page) {
  page.on('pageerror', (error) => complaints.push(`script error: ${error.message}`));
  page.on('console', (message) => {
    if (message.type() === 'error' && !expected(message.location().url)) complaints.push(`console: ${message.text()} (${message.location().url})`);
  });
  page.on('requestfailed', (request) => {
    // A newer question overtakes an older one; that is how it should be.
    if (request.failure()?.errorText !== 'net::ERR_ABORTED') complaints.push(`request: ${request.url()} ${request.failure()?.errorText}`);
  });
  page.on('request', (request) => {
    const { origin } = new URL(request.url());
    if (![given.server, given.embed, ...strangers].includes(origin) && origin !== 'null') complaints.push(`a request to a stranger: ${request.url()}`);
  });
  return page;
}

/** A page of another origin on this machine: `pages` by path. */
async function stranger(pages) {
  const server = createServer((request, response) => {
    const html = pages[new URL(request.url, 'http://x').pathname];
    response.writeHead(html === undefined ? 404 : 200, { 'Content-Type': 'text/html; charset=utf-8' });
    response.end(html ?? 'no such page');
  });
  await new Promise((listening) => { server.listen(0, '127.0.0.1', listening); });
  server.unref();
  const { port } = server.address();
  for (const host of ['127.0.0.1', 'localhost']) strangers.push(`http://${host}:${port}`);
  return port;
}

const on = (host, port = new URL(given.server).port) => `${new URL(given.server).protocol}//${host}:${port}`;

async function signIn(page, base) {
  await page.goto(`${base}/login`);
  await page.fill('[name="email"]', given.email);
  await page.fill('[name="password"]', given.password);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.menu');
}

const picture = (page, name) => page.screenshot({ path: join(given.pictures, `${name}.png`), fullPage: true });
const settled = (page) => page.waitForFunction(() => ['drawn', 'empty', 'error'].includes(document.querySelector('metric-chart')?.dataset.state));

/** What the chart says about itself, and whether its canvas really holds lines in several colours. */
function chart(page) {
  return page.evaluate(() => {
    const element = document.querySelector('metric-chart');
    const canvas = element.shadowRoot.querySelector('canvas');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const colours = new Map();
    for (let at = 0; at < data.length; at += 4) {
      const spread = Math.max(data[at], data[at + 1], data[at + 2]) - Math.min(data[at], data[at + 1], data[at + 2]);
      if (data[at + 3] > 250 && spread > 60) {
        const key = `${data[at]},${data[at + 1]},${data[at + 2]}`;
        colours.set(key, (colours.get(key) ?? 0) + 1);
      }
    }
    const { series, points } = element.drawn;
    return {
      state: element.state,
      series,
      points,
      colours: [...colours.values()].filter((pixels) => pixels > 100).length,
      message: element.shadowRoot.querySelector('.state').textContent,
      heard: element.shadowRoot.querySelector('[role="slider"]').getAttribute('aria-valuetext'),
      rows: element.shadowRoot.querySelectorAll('tbody tr').length,
    };
  });
}

async function drawn(page, where) {
  await settled(page);
  const seen = await chart(page);
  check(seen.state === 'drawn', `${where}: the chart has drawn: ${JSON.stringify(seen)}`);
  check(seen.series >= 2 && seen.points > 50 && seen.colours >= 2, `${where}: several lines are on the canvas: ${JSON.stringify(seen)}`);
  check(seen.rows === seen.series, `${where}: the table for screen readers has a row for each: ${JSON.stringify(seen)}`);
  return seen;
}

/** axe-core finds nothing wrong on the page as it is. */
async function accessible(page, name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
  const found = violations.map(({ id, help, nodes }) => `${id} (${help}): ${nodes.slice(0, 3).map((node) => `${node.target.join(' ')} ${node.any.concat(node.all, node.none).map(({ message }) => message).join(', ')}`).join('; ')}`);
  check(found.length === 0, `${name}: axe-core finds nothing:\n  ${found.join('\n  ')}`);
}

/** Checks axe-core and the width of the page in light and dark, wide and at 320 pixels, and takes two pictures. */
async function everyLook(page, name) {
  const size = page.viewportSize();
  await page.emulateMedia({ colorScheme: 'light' });
  await accessible(page, `${name}, light`);
  await picture(page, `${name}-light`);
  await page.emulateMedia({ colorScheme: 'dark' });
  await accessible(page, `${name}, dark`);
  await page.setViewportSize({ width: 320, height: 740 });
  const wide = await contentWidth(page);
  check(wide <= 320, `${name}: nothing is wider than 320 pixels: ${wide}`);
  const wider = await page.evaluate(() => [...document.querySelectorAll('.card')].filter((card) => card.checkVisibility() && card.scrollWidth > card.clientWidth).map((card) => `${card.querySelector('h1, h2')?.textContent}: ${card.scrollWidth} of ${card.clientWidth}`));
  check(wider.length === 0, `${name}: no card is narrower than its content: ${wider}`);
  await accessible(page, `${name}, dark, 320 pixels`);
  await picture(page, `${name}-dark`);
  await page.emulateMedia({ colorScheme: 'light' });
  await accessible(page, `${name}, light, 320 pixels`);
  await page.setViewportSize(size);
}

/** Every heading, label and text is there, and `everyLook` holds. */
async function looks(page, name) {
  // `autofocus` takes effect when the browser draws.
  await twoFrames(page);
  const wrong = await page.evaluate(() => {
    const all = [];
    const seen = (node) => node.checkVisibility?.() ?? true;
    if ([...document.querySelectorAll('h1')].filter(seen).length !== 1) all.push('there is not one heading');
    for (const input of [...document.querySelectorAll('input:not([type=hidden]), select, textarea')].filter(seen)) {
      if (!input.labels?.length && !input.getAttribute('aria-label')) all.push(`no label: ${input.outerHTML}`);
    }
    for (const button of [...document.querySelectorAll('button, a')].filter(seen)) {
      if (!button.textContent.trim() && !button.getAttribute('aria-label')) all.push(`no words: ${button.outerHTML}`);
    }
    if (document.activeElement === document.body && document.querySelector('input:not([type=hidden]), .primary')) all.push('nothing has the focus');
    if (!document.title.includes('promlet') || document.title === 'promlet') all.push(`the title does not name the page: ${document.title}`);
    return all;
  });
  check(wrong.length === 0, `${name}: ${wrong.join('; ')}`);
  await everyLook(page, name);
}

/** Waits for words, and says what stood there instead. */
async function shown(page, selector, words) {
  const found = page.waitForFunction(([selector, words]) => document.querySelector(selector)?.textContent.includes(words), [selector, words], { timeout: 10_000 });
  await found.catch(async () => { throw new Error(`not so: ${selector} says ${words}: ${await page.textContent('body')}`); });
}

/** The code of a secret (RFC 6238), `ahead` steps from now. */
function totp(secret, ahead = 0) {
  const bits = [...secret].map((letter) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(letter).toString(2).padStart(5, '0')).join('');
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => parseInt(byte, 2)));
  const step = Buffer.alloc(8);
  step.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000) + ahead));
  const digest = createHmac('sha1', key).update(step).digest();
  const at = digest.at(-1) & 15;
  return String((digest.readUInt32BE(at) & 0x7fffffff) % 1_000_000).padStart(6, '0');
}

/** A button that copies a text. */
async function copies(page, place, label, pattern) {
  await browser.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(given.server).origin });
  await place.getByRole('button', { name: label }).click();
  await place.getByRole('button', { name: label.replace('Copy', 'Copied') }).waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  check(pattern.test(copied), `${label}: ${copied}`);
}

/** Success and failure of the forms of an account. */
async function accountForms(page, part, tab) {
  await tab('Profile');
  const profile = part('Profile');
  await profile.getByRole('button', { name: 'Save' }).click();
  await profile.locator('.success:has-text("Saved.")').waitFor();
  check(await profile.locator('.alert').first().textContent() === '', 'a success is no alert');
  await tab('Security');
  announced.push('/auth/password/change');
  const password = part('Password');
  await password.locator('[name="current_password"]').fill('not my password');
  await password.locator('[name="new_password"]').fill('a long enough passphrase');
  await password.getByRole('button', { name: 'Change password' }).click();
  await password.locator('.alert:has-text("The current password is wrong.")').waitFor();
}

const scenarios = {
  /** What mailed links and invitations lead to, whole and void; what signing in says when it does not work. */
  async people() {
    announced.push('/api/v1/auth/');
    const page = watch(await browser.newPage());
    const api = (method, path, body) => page.evaluate(async ([method, path, body]) => {
      const response = await fetch(`/api/v1${path}`, { method, headers: body ? { 'Content-Type': 'application/json' } : {}, body: body && JSON.stringify(body) });
      return response.status === 204 ? null : response.json();
    }, [method, path, body]);
    const open = async (path) => { await page.goto('about:blank'); await page.goto(`${given.server}${path}`); };
    await open('/login');
    await page.waitForSelector('[name="password"]');
    await looks(page, 'people-sign-in');
    await page.click('text=Forgot your password?');
    await shown(page, '.alert', 'e-mail address first');
    await page.fill('[name="email"]', 'nobody@example.com');
    await page.click('text=Forgot your password?');
    await shown(page, '.notice', 'on the way');
    await looks(page, 'people-forgot');
    for (let failed = 0; failed < 6; failed += 1) {
      await page.fill('[name="password"]', `wrong ${failed}`);
      const answered = page.waitForResponse((response) => response.url().endsWith('/auth/login'));
      await page.keyboard.press('Enter');
      await answered;
    }
    await shown(page, '.alert', 'Try again in');
    await looks(page, 'people-throttled');
    await open('/login?error=link_invalid');
    await shown(page, '.alert', 'used already');
    await looks(page, 'people-void-link');

    await open(given.links.reset);
    await page.waitForSelector('[name="password"]');
    check(!page.url().includes('rst_'), `the token leaves the address: ${page.url()}`);
    await looks(page, 'people-reset');
    await page.fill('[name="password"]', 'password1');
    await page.keyboard.press('Enter');
    await shown(page, '.alert', '');
    await page.waitForFunction(() => document.querySelector('.alert').textContent !== '');
    await looks(page, 'people-reset-weak');
    await page.fill('[name="password"]', given.password);
    await page.keyboard.press('Enter');
    await page.waitForSelector('[name="email"], h1:has-text("Password set")');
    await looks(page, 'people-reset-done');
    await open('/login/reset#token=rst_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA');
    await page.fill('[name="password"]', given.password);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.alert').textContent !== '');
    await looks(page, 'people-reset-void');

    await open(given.links.signup);
    await page.waitForSelector('[name="password"]');
    await looks(page, 'people-sign-up');
    await open('/login/email#token=eml_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA');
    await page.click('.primary');
    await page.waitForFunction(() => document.querySelector('.alert').textContent !== '');
    await looks(page, 'people-address-void');

    await open(given.links.invite);
    await page.waitForSelector('[name="password"]');
    await looks(page, 'people-invitation');
    await open('/invite#token=ivt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA');
    await page.waitForSelector('.primary');
    await looks(page, 'people-invitation-void');

    await signIn(page, given.server);
    await open(given.links.invite);
    await shown(page, '.intro', 'You are invited');
    await looks(page, 'people-invitation-other');
    // Before the second factor: turning that on ends the other session, and with it the change of address that it began.
    await open(given.links.email);
    await page.waitForSelector('.primary');
    await looks(page, 'people-address');
    await page.click('.primary');
    await page.waitForSelector('h1:has-text("Address changed")');
    await looks(page, 'people-address-changed');
    const { secret } = await api('POST', '/auth/2fa/enroll');
    await api('POST', '/auth/2fa/confirm', { code: totp(secret, -1) });
    await api('POST', '/auth/logout');
    await open('/login');
    await page.fill('[name="email"]', given.changed);
    await page.fill('[name="password"]', given.password);
    await page.keyboard.press('Enter');
    await page.waitForSelector('[name="code"]');
    await looks(page, 'people-code');
    await page.fill('[name="code"]', '000000');
    await page.keyboard.press('Enter');
    await shown(page, '.alert', 'tries left');
    await looks(page, 'people-code-wrong');
    await page.click('text=Use a recovery code');
    await page.waitForSelector('[name="recovery_code"]');
    await looks(page, 'people-recovery');
    await page.click('text=Use the app instead');
    await page.fill('[name="code"]', totp(secret));
    await page.keyboard.press('Enter');
    await page.waitForSelector('.menu');
    announced.push('/no/such/page');
    await open('/no/such/page');
    await looks(page, 'people-nowhere');
  },

  /** The page of a mailed sign-in link, where mail goes to a mail server: it works without scripts. */
  async mailed_link() {
    announced.push('/auth/magic-link/verify');
    const page = watch(await browser.newPage());
    await page.goto(`${given.server}${given.link}`);
    await looks(page, 'mailed-link');
    await page.fill('[name="email"]', 'somebody@example.com');
    await page.keyboard.press('Enter');
    await shown(page, '.alert', 'not sent to this address');
    await looks(page, 'mailed-link-wrong');
  },

  /** The sign-in link that the demo prints, and everything on the explore page. */
  async explore() {
    const page = watch(await browser.newPage());
    await page.goto(given.link);
    await page.waitForSelector('.metrics li');
    check(new URL(page.url()).pathname === '/explore', `the link leads to the page: ${page.url()}`);
    check(await page.locator('.metrics li').count() > 10, 'the demo has metrics to choose from');
    await drawn(page, 'the first look');
    await everyLook(page, 'first');

    await page.fill('#query', '');
    await page.locator('#query').pressSequentially('sum by (route) (rate(shop_http_req', { delay: 15 });
    await page.waitForSelector('.options li');
    await accessible(page, 'suggestions');
    await picture(page, 'suggestions');
    const offered = await page.locator('.options .what').allTextContents();
    check(offered.includes('shop_http_requests_total'), `names are suggested while typing: ${offered}`);
    await page.fill('#query', QUERY);
    await page.keyboard.press('Control+Enter');
    await drawn(page, 'explore');
    check(/\d series · [\d,]+ samples · [\d.]+ ms/.test(await page.textContent('.stats')), 'the query\'s cost is shown');
    const box = await page.locator('metric-chart').boundingBox();
    await page.mouse.move(box.x + box.width * 0.6, box.y + box.height * 0.35);
    await page.waitForFunction(() => document.querySelector('metric-chart').shadowRoot.querySelectorAll('.tip .row').length > 1);
    await picture(page, 'chart');
    await page.focus('metric-chart [role="slider"]');
    const before = (await chart(page)).heard;
    for (let press = 0; press < 3; press += 1) await page.keyboard.press('ArrowLeft');
    check((await chart(page)).heard !== before, 'the arrow keys move the cursor');

    await page.click('#tab-table');
    await page.waitForSelector('table.result tbody tr');
    check(await page.locator('table.result tbody tr').count() >= 2, 'the table has rows');
    await everyLook(page, 'table');
    const shared = page.url();
    await page.click('#tab-chart');

    announced.push('expr=rate');
    await page.fill('#query', 'rate(shop_http_requests_total[5m]');
    await page.keyboard.press('Control+Enter');
    await page.waitForFunction(() => document.querySelector('metric-chart').dataset.state === 'error');
    const wrong = await chart(page);
    check(wrong.message.includes('bad_expr'), `a wrong query says so in place: ${wrong.message}`);
    await everyLook(page, 'error');

    const other = watch(await browser.newPage());
    await other.emulateMedia({ colorScheme: 'dark' });
    await other.goto(shared);
    await other.waitForSelector('table.result tbody tr');
    check(await other.inputValue('#query') === QUERY, 'a shared address opens the same query');
    await other.click('#tab-chart');
    await drawn(other, 'dark');
    await everyLook(other, 'chart');
    await other.emulateMedia({ colorScheme: 'dark' });
    await other.setViewportSize({ width: 320, height: 720 });
    await other.waitForTimeout(300);
    const wide = await contentWidth(other);
    check(wide <= 320, `nothing sticks out at 320 pixels: ${wide}`);
    await picture(other, 'narrow');

    announced.push('/api/v1/auth/me');
    await other.click('.menu summary');
    await other.click('text=Sign out');
    await other.waitForSelector('[name="password"]');
    await picture(other, 'sign-in');
  },

  /** What a trial in a browser found wrong on the explore page. */
  async trial() {
    const page = watch(await browser.newPage());
    const open = async (parameters) => {
      await page.goto(`${given.server}/?${new URLSearchParams(parameters)}`);
      await page.waitForSelector('.menu');
    };
    const query = (text) => page.locator('#query').fill(text);
    const draft = () => page.inputValue('#query');
    await page.goto(given.link);
    await page.waitForSelector('.metrics li');
    // Metrics that the demo does not have: a single old sample, a single new one, infinities.
    const now = Date.now();
    const old = now - 3 * 86_400_000;
    const write = (text) => page.evaluate(async (text) => {
      const key = await (await fetch('/api/v1/orgs/demo/api-keys', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{"name":"trial","scopes":["ingest"]}' })).json();
      const response = await fetch('/api/v1/orgs/demo/import', { method: 'POST', credentials: 'omit', headers: { Authorization: `Bearer ${key.secret}`, 'Content-Type': 'text/plain' }, body: text });
      return `${response.status} ${await response.text()}`;
    }, text);
    const listed = await page.locator('.metrics li').count();
    const written = await write(`old_metric 1 ${old}\nnew_metric 2 ${now}\ninfinite_metric +Inf ${now - 30_000}\ninfinite_metric +Inf ${now}\n`);
    check(written.startsWith('204') || written.startsWith('200'), `the samples are stored: ${written}`);

    // The list of metrics updates itself.
    await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
    await page.waitForFunction((before) => document.querySelectorAll('.metrics li').length === before + 3, listed);
    // One entry a histogram; the filter searches names, types and help in any case of letters.
    const names = await page.locator('.metrics .name').allTextContents();
    check(names.includes('shop_http_request_duration_seconds') && !names.some((name) => /_(bucket|sum)$/.test(name)), `a histogram is one entry: ${names}`);
    await page.fill('#metric-filter', 'MEMORY in USE');
    await page.waitForFunction(() => document.querySelector('.metrics').childElementCount === 1);
    check(await page.textContent('.browser [role="status"]') === '1 metric', `one metric is counted: ${await page.textContent('.browser [role="status"]')}`);
    // A query made by a metric's entry is in the history.
    await page.locator('.metrics button').click();
    await settled(page);
    const card = await draft();
    await query('');
    await page.keyboard.press('ArrowUp');
    check(await draft() === card, `the history has ${card}: ${await draft()}`);

    // The newest sample is part of every range, at long steps too.
    for (const range of ['30d', '7d', '1d']) {
      await open({ org: 'demo', expr: 'new_metric', range });
      await page.waitForFunction(() => document.querySelector('metric-chart')?.dataset.state === 'drawn');
    }
    check((await chart(page)).points >= 1, 'one sample is drawn');
    // Old data: the newest sample is offered.
    await open({ org: 'demo', expr: 'old_metric', range: '1h' });
    await page.getByText('Go to the newest sample').click();
    await page.waitForFunction(() => document.querySelector('metric-chart')?.dataset.state === 'drawn');
    // While a fixed range is shown, it is named, and the refresh says that it is paused.
    check(await page.locator('.fixed').isVisible() && await page.inputValue('#refresh') === 'paused', 'the range is named and the refresh is paused');
    check(await page.locator('[name="range"]:checked').count() === 0, 'no relative range is chosen');
    await everyLook(page, 'fixed-range');
    await page.getByText('Back to the last 1h').click();
    await page.getByText('Go to the newest sample').waitFor();
    // A range that has the newest sample already is not offered.
    await open({ org: 'demo', expr: 'new_metric offset 400d', range: '1h' });
    await page.getByText('the expression has no result in it').waitFor();
    check(await page.getByText('Go to the newest sample').count() === 0, 'the same range is not offered again');
    // Infinities are named.
    await open({ org: 'demo', expr: 'infinite_metric', range: '15m' });
    await settled(page);
    check((await chart(page)).message.includes('Every value is infinite'), `infinities are named: ${(await chart(page)).message}`);
    // The evaluator's infos.
    const info = 'rate(host_memory_used_bytes[5m])';
    await open({ org: 'demo', expr: info, range: '15m' });
    await page.waitForFunction(() => /counter/.test(document.querySelector('metric-chart').shadowRoot.querySelector('.frame').textContent));
    await page.click('#tab-table');
    await shown(page, '.warnings', 'counter');

    // An organisation that is not there is named, and no other one is queried.
    const queried = [];
    page.on('request', (request) => queried.push(request.url()));
    await open({ org: 'nosuch', expr: 'up' });
    await shown(page, 'h1', 'not a member of nosuch');
    check(!queried.some((url) => url.includes('/query/')), `nothing is queried: ${queried}`);
    await everyLook(page, 'no-such-organisation');

    // The arrow keys move through the ranges and keep the focus.
    await open({ org: 'demo', expr: QUERY, range: '1h' });
    await settled(page);
    await page.focus('[name="range"][value="1h"]');
    for (let press = 0; press < 2; press += 1) await page.keyboard.press('ArrowRight');
    const focused = await page.evaluate(() => document.activeElement?.value);
    check(focused === '6h' && page.url().includes('range=6h'), `two arrow keys lead to 6h: ${focused} ${page.url()}`);
    // A query that was edited but not run survives: a click runs it, a reload keeps it.
    await query('host_load1');
    await page.locator('[name="range"][value="1h"]').click();
    check(await draft() === 'host_load1' && page.url().includes('expr=host_load1'), `a click on a range runs the edited query: ${page.url()}`);
    await query('host_load5');
    await page.click('#tab-table');
    await page.waitForSelector('table.result tbody tr');
    check(page.url().includes('expr=host_load5'), `a click on a tab runs the edited query: ${page.url()}`);
    await query('host_load15 + ');
    await page.reload();
    await page.waitForSelector('.menu');
    await page.waitForFunction(() => document.querySelector('#query')?.value === 'host_load15 +' || document.querySelector('#query')?.value === 'host_load15 + ');

    // A table goes on refreshing after the page was hidden.
    await open({ org: 'demo', expr: 'host_load1', tab: 'table' });
    await page.selectOption('#refresh', '5');
    await page.waitForSelector('table.result tbody tr');
    const hide = (hidden) => page.evaluate((hidden) => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
    await hide(true);
    await page.waitForTimeout(6_000);
    const instants = () => queried.filter((url) => url.includes('/query/expr-instant')).length;
    const before = instants();
    await hide(false);
    await page.waitForTimeout(500);
    check(instants() === before + 1, `the table is loaded when the page is visible again: ${instants()} of ${before + 1}`);
    await page.waitForTimeout(5_500);
    check(instants() >= before + 2, 'and goes on refreshing');

    // Completion: labels inside by(), on() and matchers without a name; Ctrl+Z undoes it.
    await page.click('#tab-chart');
    const typed = async (text, wanted) => {
      await query('');
      await page.locator('#query').pressSequentially(text);
      await page.waitForFunction((wanted) => [...document.querySelectorAll('.options .what')].some((node) => node.textContent === wanted), wanted);
    };
    await typed('sum(rate(shop_http_requests_total[5m])) by (rou', 'route');
    await page.keyboard.press('Tab');
    check((await draft()).endsWith('by (route'), `Tab completes the label: ${await draft()}`);
    await page.keyboard.press('Control+z');
    check((await draft()).endsWith('by (rou'), `Ctrl+Z undoes the completion: ${await draft()}`);
    await typed('shop_queue_depth * on (que', 'queue');
    await typed('{rou', 'route');
    await query('');
    await page.keyboard.press('Escape');

    // The account menu closes on a click elsewhere, so that Run can be reached.
    await query(QUERY);
    await page.click('.menu summary');
    check(await page.locator('.menu[open]').count() === 1, 'the menu is open');
    await page.locator('.browser h2').click();
    check(await page.locator('.menu[open]').count() === 0, 'the menu is closed');
    await page.click('.run');
    await settled(page);
    // Cached results have no samples to count.
    await open({ org: 'demo', expr: QUERY, range: '1h', start: Math.floor(now / 1000) - 7200, end: Math.floor(now / 1000) - 3600 });
    await settled(page);
    await page.click('.run');
    await page.waitForTimeout(300);
    check(!/\b0 samples/.test(await page.textContent('.stats')), `no "0 samples": ${await page.textContent('.stats')}`);
    // Zoom by keyboard.
    await open({ org: 'demo', expr: QUERY, range: '1h' });
    await settled(page);
    await page.focus('metric-chart [role="slider"]');
    await page.keyboard.press('+');
    await page.waitForFunction(() => new URLSearchParams(location.search).has('start'));
    await settled(page);
    await page.focus('metric-chart [role="slider"]');
    await page.keyboard.press('0');
    await page.waitForFunction(() => !new URLSearchParams(location.search).has('start'));

    // The session ends while a query is being edited: it is there after the next sign-in.
    await settled(page);
    await query('host_load1 * 2');
    await page.route('**/query/**', (route) => route.fulfill({ status: 401, contentType: 'application/problem+json', body: '{"code":"session_invalid","status":401}' }));
    await page.route('**/auth/me', (route) => route.fulfill({ status: 401, contentType: 'application/problem+json', body: '{"code":"session_invalid","status":401}' }));
    announced.push('/query/', '/auth/me');
    await page.evaluate(() => document.querySelector('metric-chart').reload());
    await page.waitForSelector('[name="password"]');
    await page.unroute('**/query/**');
    await page.unroute('**/auth/me');
    await page.reload();
    await page.waitForSelector('.menu');
    check(await draft() === 'host_load1 * 2', `the draft is there after the sign-in: ${await draft()}`);

    // A page may set display and height of the element.
    const plot = await page.evaluate(() => {
      const element = document.querySelector('metric-chart');
      element.style.setProperty('display', 'block');
      element.style.setProperty('height', '300px');
      return element.shadowRoot.querySelector('.plot').clientHeight;
    });
    check(plot >= 200, `the plot fills the element: ${plot}`);
  },

  /** The page of another origin, with a token and no cookie. */
  async embed() {
    const page = watch(await browser.newPage());
    check(new URL(given.embed).origin !== new URL(given.server).origin, 'the example is another origin');
    await page.goto(given.embed);
    await drawn(page, 'embed');
    check((await browser.cookies()).length === 0, 'no cookie is needed');
    await everyLook(page, 'embed');
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.waitForTimeout(300);
    await drawn(page, 'embed, dark');
    await accessible(page, 'embed, dark');
  },

  /** The pure functions below the pages, in the browser that runs them. */
  async modules() {
    announced.push('/api/v1/auth/me');
    const page = watch(await browser.newPage());
    await page.goto(`${given.server}/login`);
    // The server has bundles alone.
    const sources = new URL('../../src/ui/assets/', import.meta.url);
    await page.route('**/sources/**', (route) => {
      const path = fileURLToPath(new URL(new URL(route.request().url()).pathname.slice('/sources/'.length), sources));
      return route.fulfill({ path, contentType: 'text/javascript' });
    });
    const results = await page.evaluate(async () => {
      const { formatValue, niceStep, parseDuration, timeTicks, valueAxis } = await import('/sources/chart/scale.js');
      const { formatDuration } = await import('/sources/model/duration.js');
      const { columns } = await import('/sources/chart/columns.js');
      const { fullName } = await import('/sources/chart/scale.js');
      const { splitMatchers } = await import('/sources/chart/query.js');
      const { atCaret, firstQuery, unitOf } = await import('/sources/model/promql.js');
      const caret = (text) => { const found = atCaret(text); return found && [found.kind, found.word, found.metric, found.label].filter(Boolean).join(' '); };
      const grid = columns([{ metric: { job: 'a' }, values: [[100, '1'], [120, '+Inf'], [130, 'NaN']] }, { metric: { job: 'b' }, values: [] }], { start: 100, end: 130, step: 10 });
      return [
        [parseDuration('1h30m'), 5400], [parseDuration('90'), 90], [parseDuration('0s'), null], [parseDuration('-5m'), null], [parseDuration('5 m'), null],
        [formatDuration(5400), '1h30m'], [niceStep(3600, 400), 10], [niceStep(30 * 86400, 400), 7200],
        [formatValue(0), '0'], [formatValue(1234.5), '1235'], [formatValue(12345), '12.35k'], [formatValue(1500, '', 500), '1.5k'], [formatValue(NaN), 'NaN'],
        [formatValue(-Infinity, 'bytes'), '-Inf'], [formatValue(1536, 'bytes/s'), '1.5 KiB/s'], [formatValue(0.0123, 'seconds'), '12.3 ms'], [formatValue(0.125, 'percent'), '12.5 %'],
        [valueAxis(3, 97, 5).ticks.join(), '0,20,40,60,80,100'], [valueAxis(NaN, NaN, 5).ticks.length > 1, true], [valueAxis(100, 101, 5).low, 100],
        [timeTicks(0, 3600, 8).length <= 9, true],
        [JSON.stringify(splitMatchers('a="x, y", b=~"c|d"')), '["a=\\"x, y\\"","b=~\\"c|d\\""]'],
        [grid.series.map(({ name }) => name).join(), 'a,b'], [grid.series[0].present, 2], [grid.series[0].high, 1], [String(grid.series[0].values), '1,NaN,Infinity,NaN'],
        [fullName({ __name__: 'up', job: 'a"b' }), 'up{job="a\\"b"}'],
        [caret('sum(ra'), 'name ra'], [caret('rate(x[5m'), 'duration 5m'], [caret('x{'), 'label x'], [caret('x{a="b", c'), 'label c x'], [caret('x{a=~"b|c'), 'value c x a'], [caret('"x'), null],
        [unitOf('sum(rate(a_bytes_total{x="/"}[5m]))'), 'bytes/s'], [unitOf('a_bytes / b_bytes'), ''], [unitOf('histogram_quantile(0.9, rate(a_seconds_bucket[5m]))'), 'seconds'],
        [firstQuery({ name: 'a_total', type: 'counter' }), 'rate(a_total[5m])'], [firstQuery({ name: 'up', type: 'gauge' }), 'up'], [firstQuery({ name: 'a b', type: 'gauge' }), '{__name__="a b"}'],
      ];
    });
    results.forEach(([found, wanted], at) => check(found === wanted, `case ${at}: ${JSON.stringify(found)} should be ${JSON.stringify(wanted)}`));
  },

  /** The page of the API: complete, searchable, usable, on wide and narrow screens, light and dark. */
  async docs() {
    announced.push('/api/v1/auth/me');
    const page = watch(await browser.newPage());
    await page.goto(`${given.server}/docs`);
    await page.waitForSelector('.operation');
    const document = await (await fetch(`${given.server}/api/v1/openapi.json`)).json();
    const count = Object.values(document.paths).reduce((sum, path) => sum + Object.keys(path).length, 0);
    check(await page.locator('.operation').count() === count, `all ${count} operations are listed`);
    await everyLook(page, 'docs');
    await page.keyboard.press('/');
    await page.keyboard.type('rotate');
    check(await page.locator('.operation:visible').count() === 1, 'the search finds the one');
    await page.locator('.operation:visible summary').click();
    await page.waitForSelector('.try');
    const text = await page.locator('.operation:visible').innerText();
    for (const words of ['overlap_s', 'reauth_required', 'admin', 'curl -X POST']) check(text.includes(words), `${words} is shown: ${text}`);
    await picture(page, 'docs-operation');
    await page.fill('#search', 'version uptime');
    await page.locator('.operation:visible summary').click();
    await page.locator('.operation:visible .try button.primary').click();
    await page.waitForFunction(() => document.querySelector('.reply .shape')?.textContent.includes('"uptime_s"'));
    await page.fill('#search', 'no such thing at all');
    check(await page.locator('.docs .quiet').isVisible(), 'nothing is found, and it says so');
    // A field in the path and one in the query become the curl line and the request.
    await page.goto(`${given.server}/docs#get_orgs_slug_query_expr_instant`);
    await page.waitForSelector('#get_orgs_slug_query_expr_instant .try');
    const requests = [];
    page.on('request', (request) => requests.push(request.url()));
    await page.locator('#get_orgs_slug_query_expr_instant .try button.primary').click();
    await shown(page, '#get_orgs_slug_query_expr_instant .reply', 'Enter slug first');
    check(!requests.some((url) => url.includes('%7B')), `an empty part of the path is not sent: ${requests}`);
    await everyLook(page, 'docs-operation-open');
    await page.fill('#get_orgs_slug_query_expr_instant-slug', 'a b/c');
    await page.fill('#get_orgs_slug_query_expr_instant-expr', "up{a='1'}");
    const curl = await page.locator('#get_orgs_slug_query_expr_instant .curl .shape').innerText();
    check(curl.includes('/orgs/a%20b%2Fc/query/expr-instant?expr=up%7Ba%3D'), `fields are encoded: ${curl}`);
    announced.push('/orgs/a%20b');
    await page.locator('#get_orgs_slug_query_expr_instant .try button.primary').click();
    await page.waitForFunction(() => document.querySelector('#get_orgs_slug_query_expr_instant .status')?.textContent.startsWith('401'));
    await page.emulateMedia({ colorScheme: 'dark' });
    await picture(page, 'docs-response');
    await page.setViewportSize({ width: 390, height: 844 });
    const wide = await contentWidth(page);
    check(wide <= 390, `nothing is wider than a narrow screen: ${wide}`);
    await page.screenshot({ path: join(given.pictures, 'docs-narrow.png') });
  },

  /** F11: the browser sends the cookie to every port of localhost; the server tells the pages apart. */
  async csrf() {
    const base = on('localhost');
    strangers.push(base);
    announced.push('/api/v1/');
    const form = (path, fields) => `<form id="f" method="post" action="${base}${path}" target="out" enctype="text/plain">${fields}</form><iframe name="out"></iframe><script>f.submit()</script>`;
    const port = await stranger({
      '/form': form('/api/v1/auth/logout', ''),
      '/json': form('/api/v1/orgs', `<input name='{"slug":"evil-form","x":"' value='"}'>`),
      '/fetch': '<p>fetch</p>',
    });
    const mine = watch(await browser.newPage());
    await signIn(mine, base);
    const session = async () => (await browser.cookies(base)).find(({ name }) => name === 'ms_session')?.value;
    const before = await session();
    check(before?.startsWith('ses_'), 'signed in');
    const evil = await browser.newPage();
    const answers = [];
    evil.on('response', (response) => { if (response.url().startsWith(base)) answers.push([response.request().method(), new URL(response.url()).pathname, response.status()]); });
    const sent = [];
    evil.on('request', (request) => { if (request.method() === 'POST' && request.url().startsWith(base)) sent.push(request.allHeaders().then(({ cookie }) => cookie ?? '', () => '')); });
    for (const path of ['/form', '/json']) {
      await evil.goto(`http://localhost:${port}${path}`);
      await evil.waitForTimeout(300);
    }
    await evil.goto(`http://localhost:${port}/fetch`);
    await evil.evaluate(async ([base, email, password]) => {
      const all = ['/api/v1/auth/logout', '/api/v1/orgs', '/api/v1/auth/sessions', '/auth/login'];
      for (const path of all) {
        await fetch(`${base}${path}`, { method: 'POST', mode: 'no-cors', credentials: 'include', body: JSON.stringify({ slug: 'evil-fetch', email, password }) }).catch(() => null);
        await fetch(`${base}${path}`, { method: 'POST', credentials: 'include', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ slug: 'evil-cors', email, password }) }).catch(() => null);
        await fetch(`${base}${path}`, { method: 'DELETE', credentials: 'include' }).catch(() => null);
      }
    }, [base, given.email, given.password]);
    const cookies = (await Promise.all(sent)).filter((cookie) => cookie.includes(`ms_session=${before}`));
    check(cookies.length >= 2, `the browser did send the cookie along, so something had to refuse: ${cookies.length} of ${sent.length}`);
    const posts = answers.filter(([method]) => method !== 'OPTIONS');
    check(posts.length >= 5 && posts.every(([, , status]) => status === 403), `every one was refused: ${JSON.stringify(posts)}`);
    check(await session() === before, 'the session is the same');
    await mine.reload();
    await mine.waitForSelector('.menu');
    // What can be read: nothing, for lack of CORS.
    const read = await evil.evaluate((base) => fetch(`${base}/api/v1/auth/me`, { credentials: 'include' }).then((response) => response.text(), () => 'unreadable'), base);
    check(read === 'unreadable', `another origin reads nothing: ${read}`);
  },

  /** F12: what another port can plant. Of `localhost` it is everything, the session itself first; of a name of ours nothing. */
  async planted() {
    const plant = (domain) => `<p>planted</p><script>for (const name of ['ms_session', 'ms_oauth', 'ms_ml']) document.cookie = name + '=${given.attacker}; path=/${domain}'</script>`;
    const port = await stranger({ '/plant': plant(''), '/wide': plant('; domain=localhost') });
    const own = on('metrics.localhost');
    strangers.push(`http://evil.localhost:${port}`, on('localhost'), own);
    announced.push('/api/v1/auth/me', '/favicon.ico');
    const page = watch(await browser.newPage());
    for (const host of ['localhost', 'evil.localhost']) {
      for (const path of ['/plant', '/wide']) {
        await page.goto(`http://${host}:${port}${path}`);
        await page.waitForSelector('p');
      }
    }
    const me = async (base) => (await page.goto(`${base}/api/v1/auth/me`)).status();
    check(await me(on('localhost')) === 200, 'on localhost a page on another port can plant its own session in a browser');
    const known = (await browser.cookies(own)).filter(({ name }) => name.includes('ms_'));
    check(known.length === 0, `a name of ours has none of them: ${JSON.stringify(known)}`);
    check(await me(own) === 401, 'and no session is accepted there');
  },

  /** F13: a page whose name was made to point here speaks to us as its own origin. */
  async rebinding() {
    const evil = on('evil.example');
    strangers.push(evil);
    announced.push('evil.example');
    const page = watch(await browser.newPage());
    for (const path of ['/', '/metrics', '/healthz', '/api/v1/auth/config', '/docs', '/app.js']) {
      const response = await page.goto(`${evil}${path}`);
      check(response.status() === 421, `${path}: ${response.status()}`);
      const text = await response.text();
      check(!text.includes('promlet_') && !text.includes('needs_setup'), `${path} says nothing: ${text}`);
    }
    const tried = await page.evaluate(async ([email, password]) => {
      const response = await fetch('/api/v1/auth/login', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ email, password }) });
      return response.status;
    }, [given.email, given.password]);
    check(tried === 421, `not even the right password: ${tried}`);
  },

  /** F14: a frame of another origin stays empty. */
  async framing() {
    const base = on('localhost');
    strangers.push(base);
    announced.push('/');
    const frames = ['/', '/login', '/docs', '/setup', '/api/v1/auth/magic-link/verify?token=x'];
    const port = await stranger({ '/frames': frames.map((path) => `<iframe src="${base}${path}"></iframe>`).join('') });
    const mine = watch(await browser.newPage());
    await signIn(mine, base);
    const evil = await browser.newPage();
    await evil.goto(`http://localhost:${port}/frames`);
    await evil.waitForTimeout(500);
    const seen = evil.frames().slice(1).map((frame) => frame.url());
    check(seen.length === frames.length, `there are ${frames.length} frames: ${seen}`);
    check(seen.slice(0, 4).every((url) => url.startsWith('chrome-error:')), `none shows a page: ${seen}`);
    for (const frame of evil.frames().slice(1)) {
      check(!(await frame.content().catch(() => '')).includes('promlet</'), 'no words of ours');
    }
  },

  /** F60: the page of a public link is framed by the origins of the link, all other pages by none. */
  async shared() {
    const base = on('localhost');
    strangers.push(base);
    announced.push('/api/v1/auth/me');
    const frames = {};
    const port = await stranger(frames);
    const [listed, other] = [`http://localhost:${port}`, `http://127.0.0.1:${port}`];
    const mine = watch(await browser.newPage());
    await signIn(mine, base);
    const links = await mine.evaluate(async ([org, origins]) => {
      const send = async (method, path, body) => {
        const headers = { 'Content-Type': 'application/json' };
        const response = await fetch(`/api/v1/orgs/${org}${path}`, { method, headers, body: JSON.stringify(body) });
        if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
        return response.json();
      };
      await send('PATCH', '', { settings: { public_links: true } });
      await send('POST', '/dashboards', { dashboard: { uid: 'shared', title: 'Shared' } });
      const link = async (body) => (await send('POST', '/dashboards/shared/links', body)).url;
      return [await link({ origins }), await link({}), await link({ origins: [] })];
    }, [given.org, [listed]]);
    const [one, any, none] = links.map((url) => base + new URL(url).pathname + new URL(url).search);
    const pages = [one, any, none, `${base}/share?link=mpl_wrong`, `${base}/frame?token=wrong`, `${base}/`];
    frames['/frames'] = pages.map((url) => `<iframe src="${url}"></iframe>`).join('');
    for (const [origin, shown] of [[listed, [one, any]], [other, [any]]]) {
      const page = await browser.newPage();
      await page.goto(`${origin}/frames`);
      await page.waitForTimeout(1000);
      const seen = page.frames().slice(1);
      check(seen.length === pages.length, `there are ${pages.length} frames: ${seen.length}`);
      for (const [at, frame] of seen.entries()) {
        const url = frame.url();
        check(shown.includes(pages[at]) ? url === pages[at] : url.startsWith('chrome-error:'), `${origin} frames ${pages[at]}: ${url}`);
        if (!shown.includes(pages[at])) continue;
        const meta = await frame.locator('meta[name="promlet-dashboard"]').getAttribute('content');
        check(meta === 'shared', `the page names its dashboard: ${meta}`);
      }
      await page.close();
    }
    // Neither the address nor its secret is sent on, and no cookie of the page exists.
    const direct = await browser.newPage();
    const requests = [];
    direct.on('request', (request) => requests.push(request));
    const response = await direct.goto(one);
    await direct.waitForTimeout(500);
    const headers = await response.allHeaders();
    check(headers['set-cookie'] === undefined, 'the page sets no cookie');
    for (const request of requests.slice(1)) {
      const sent = await request.allHeaders();
      check(!sent.referer, `no address is sent on: ${request.url()} ${sent.referer}`);
      check(!request.url().includes('mpl_'), `the secret is in no other address: ${request.url()}`);
    }
    check(requests.length > 1, 'the page loads files');
  },

  /** F48: label values that are markup, wherever the pages show them. */
  async markup() {
    const page = watch(await browser.newPage());
    announced.push('/api/v1/auth/me', 'expr=%3Cimg');
    let asked = false;
    page.on('dialog', (dialog) => { asked = true; dialog.dismiss(); });
    await signIn(page, given.server);
    await page.click('.side >> text=Explore');
    await page.waitForSelector('.metrics li');
    for (const expr of ['markup', 'other']) {
      await page.goto(`${given.server}/?${new URLSearchParams({ org: given.org, expr, tab: 'table' })}`);
      await page.waitForSelector('.result table tbody tr');
      await page.click('#tab-chart');
      await settled(page);
    }
    await page.goto(`${given.server}/?${new URLSearchParams({ org: given.org, expr: given.markup })}`);
    await page.waitForSelector('.refused, .alert, metric-chart[data-state="error"]');
    const images = await page.evaluate(() => [...document.querySelectorAll('img')].map((image) => image.getAttribute('src')));
    check(!asked && !images.includes('x'), `nothing became markup: ${images}`);
    await picture(page, 'markup');
  },

  /** Behind a proxy that ends TLS and puts everything below a path. */
  async below() {
    const base = given.server;
    const prefix = new URL(base).pathname;
    announced.push('/api/v1/auth/me');
    const page = await browser.newPage();
    const outside = [];
    page.on('request', (request) => { if (!new URL(request.url()).pathname.startsWith(`${prefix}/`)) outside.push(request.url()); });
    page.on('pageerror', (error) => complaints.push(`script error: ${error.message}`));
    await page.goto(`${base}/`);
    await page.fill('[name="email"]', given.email);
    await page.fill('[name="password"]', given.password);
    await page.keyboard.press('Enter');
    await page.waitForSelector('.menu');
    check(page.url().startsWith(`${base}/`), `the page stays below: ${page.url()}`);
    const cookie = (await browser.cookies()).find(({ name }) => name === 'ms_session');
    check(cookie?.path === prefix && cookie.secure && cookie.httpOnly, `the cookie is for this part of the host: ${JSON.stringify(cookie)}`);
    await picture(page, 'below');
    await page.goto(`${base}/docs`);
    await page.waitForSelector('.operation');
    check((await page.locator('.brand').getAttribute('href')) === `${prefix}/`, 'links stay below');
    await page.goto(`${base}/`);
    await page.click('.menu summary');
    await page.click('text=Sign out');
    await page.waitForSelector('[name="password"]');
    check(page.url() === `${base}/login`, `signed out: ${page.url()}`);
    check(outside.length === 0, `nothing was asked outside: ${outside}`);
  },

  /** An empty server: the first account, how to add data, signing out and in. */
  async first_run() {
    const page = watch(await browser.newPage());
    announced.push('/api/v1/auth/me', '/api/v1/auth/login');
    await page.goto(given.server);
    await page.waitForSelector('[name="slug"]');
    await everyLook(page, 'setup');
    await page.fill('[name="name"]', 'Ada');
    await page.fill('[name="email"]', 'ada@example.com');
    await page.fill('[name="password"]', 'correct horse battery staple');
    await page.fill('[name="org"]', 'Acme Works');
    check(await page.inputValue('[name="slug"]') === 'acme-works', 'the short name follows the name');
    await page.click('text=Create account');
    // The first page of an empty organisation leads to what comes next; Explore says how to send data, too.
    await page.waitForSelector('.state a:has-text("Add data")');
    await looks(page, 'home-empty');
    await page.click('.side >> text=Explore');
    await page.waitForSelector('.add-data');
    await everyLook(page, 'no-metrics');
    await page.click('.add-data >> text=Add data');
    await page.click('text=Create ingest key');
    await page.waitForFunction(() => /credentials: msk_\w{20,}/.test(document.querySelector('.snippet').textContent));
    await copies(page, page.locator('.block').first(), 'Copy prometheus.yml', /credentials: msk_/);
    await everyLook(page, 'add-data');
    await page.click('.menu summary');
    await page.click('text=Sign out');
    await page.fill('[name="email"]', 'ada@example.com');
    await page.fill('[name="password"]', 'wrong');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.alert').textContent !== '');
    await picture(page, 'sign-in-refused');
    await page.fill('[name="password"]', 'correct horse battery staple');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.state a:has-text("Add data")');
  },

  /** What a person does with account and organisation, without a line of curl. */
  async cabinet() {
    const page = watch(await browser.newPage());
    page.on('dialog', (dialog) => dialog.accept());
    announced.push('/api/v1/auth/me');
    await signIn(page, given.server);
    await page.click('.menu summary');
    await page.click('.menu >> text=Your account');
    await page.getByRole('tab', { name: 'Profile' }).waitFor();
    await page.locator('section.part [name="new_email"]').waitFor();
    await looks(page, 'account');
    const tab = (name) => page.getByRole('tab', { name, exact: true }).click();
    await tab('Security');
    await shown(page, 'main', '(this session)');
    await shown(page, 'main', 'Off: a password');
    await looks(page, 'account-security');
    const part = (heading) => page.locator(`section.part:has(h2:text-is("${heading}"))`);
    const factor = part('Second factor');
    await factor.getByText('Set up').click();
    await page.waitForSelector('canvas.qr');
    const inks = await page.evaluate(() => {
      const canvas = document.querySelector('canvas.qr');
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return new Set(data.filter((value, at) => at % 4 === 0)).size;
    });
    check(inks === 2, `the QR code is black and white: ${inks} colours`);
    const secret = await factor.locator('.snippet').textContent();
    await factor.locator('[name="code"]').fill(totp(secret));
    await factor.getByText('Turn on').click();
    await shown(page, 'main', 'Recovery codes, shown only now');
    const [code] = (await factor.locator('.snippet').textContent()).split('\n');
    await copies(page, factor, 'Copy recovery codes', /^\S+\n\S+/);
    await everyLook(page, 'account-factor');
    await factor.locator('[name="given"]').fill(code);
    await factor.locator('[name="password"]').fill(given.password);
    await factor.getByText('Turn off').click();
    await shown(page, 'main', 'Off: a password');
    await accountForms(page, part, tab);
    const sessions = part('Sessions');
    check(await sessions.getByText('(this session)').count() === 1, 'the session of this browser is marked');
    await tab('Linked sign-ins');
    await shown(page, 'main', 'This server has no providers.');
    await looks(page, 'account-sign-ins');
    await tab('Server');
    await part('Server audit log, last 90 days').getByText('Signed in', { exact: true }).first().waitFor();
    check(await part('Accounts of this server').getByText(given.email).count() === 1, 'who administers the server sees its accounts');
    await looks(page, 'account-server');

    await page.click('.menu summary');
    await page.click('.menu >> text=Organisation');
    await shown(page, 'main', 'Your role is owner');
    await part('Members').getByText(given.email).waitFor();
    await looks(page, 'organisation');
    await tab('Audit log');
    await part('Audit log, last 90 days').getByText('Organisation created').waitFor();
    await looks(page, 'organisation-audit');
    await tab('Members');
    const invites = part('Invitations');
    await invites.locator('[name="email"]').fill('bea@example.com');
    await invites.locator('[name="role"]').selectOption('editor');
    await invites.getByRole('button', { name: 'Invite' }).click();
    await shown(page, 'main', '/invite#token=ivt_');
    await copies(page, invites, 'Copy invitation link', /\/invite#token=ivt_/);
    await invites.getByText('Withdraw').click();
    await shown(page, 'main', 'No open invitations');
    await tab('API keys');
    const keys = part('API keys');
    await keys.getByText('No keys.').waitFor();
    await looks(page, 'organisation-keys');
    await keys.getByRole('button', { name: 'New API key' }).click();
    const dialog = page.locator('dialog');
    await dialog.getByLabel('Charts on a web site').check();
    await everyLook(page, 'organisation-key-purpose');
    await dialog.getByRole('button', { name: 'Next' }).click();
    check(await dialog.locator('[name="name"]').inputValue() === 'website' && await dialog.locator('[name="embed"]').isChecked(), 'the purpose fills in name and permissions');
    for (const scope of ['read', 'ingest']) await dialog.locator(`[name="${scope}"]`).check();
    await dialog.locator('summary:has-text("Rate limits")').click();
    await dialog.locator('[name="read_rps"]').fill('250');
    await dialog.locator('[name="samples"]').fill('50,000');
    await dialog.getByText('Embed tokens: signature and permissions').click();
    await dialog.locator('[name="match"]').fill('tenant="a"');
    await dialog.locator('[name="max_lookback_s"]').fill('a week');
    await dialog.getByRole('button', { name: 'Next' }).click();
    await shown(page, 'dialog', 'Oldest data: enter a duration such as');
    await dialog.locator('[name="max_lookback_s"]').fill('7d');
    await everyLook(page, 'organisation-new-key');
    await dialog.getByRole('button', { name: 'Next' }).click();
    await dialog.getByLabel('Never').waitFor();
    await everyLook(page, 'organisation-key-expiry');
    await dialog.getByRole('button', { name: 'Create key' }).click();
    await shown(page, 'dialog', 'Secret of website');
    check(/msk_\w{60,}/.test(await dialog.locator('.notice .snippet').textContent()), 'the secret is shown');
    await copies(page, dialog, 'Copy secret', /^msk_\w{60,}$/);
    await dialog.locator('.segments label', { hasText: 'Embed token' }).click();
    await copies(page, dialog, 'Copy Embed token', /Bearer msk_\w{60,}'[^]*embed\/tokens/);
    await everyLook(page, 'organisation-key-made');
    await dialog.getByRole('button', { name: 'Done' }).click();
    await keys.locator('summary:has-text("website")').click();
    const stored = async () => {
      const answer = await page.evaluate((org) => fetch(`/api/v1/orgs/${org}/api-keys`).then((response) => response.json()), given.org);
      return answer.data.find(({ name }) => name.startsWith('website'));
    };
    const key = keys.locator('.key');
    // Once it is stored the card is reloaded, with every key closed.
    const saves = async () => {
      const answered = page.waitForResponse((response) => response.request().method() === 'PATCH');
      await key.getByRole('button', { name: 'Save' }).click();
      check((await answered).status() === 200, 'it is stored');
      await page.waitForFunction(() => !document.querySelector('.key[open]'));
      await shown(page, 'main', 'Saved.');
    };
    check(await key.locator('[name="match"]').inputValue() === 'tenant="a"' && await key.locator('[name="max_lookback_s"]').inputValue() === '7d', 'the policy is there to be changed');
    const made = await stored();
    check(made.embed.policy.max_lookback_s === 604_800, 'and is what was asked for');
    const limits = { read: made.read, ingest: made.ingest, tokens: made.embed.rate_limit_rps };
    check(limits.read.rate_limit_rps === 250 && limits.ingest.samples_per_s === 50_000, `the limits are those of the form: ${JSON.stringify(limits)}`);
    check(limits.ingest.rate_limit_rps === 100 && limits.tokens === 100, `and the defaults where it was left empty: ${JSON.stringify(limits)}`);
    check(await key.locator('[name="read_rps"]').inputValue() === '250' && await key.locator('[name="samples"]').inputValue() === '50,000', 'and are there to be changed');
    await looks(page, 'organisation-key');
    await key.getByText('Mint an embed token').click();
    await key.locator('[name="lifetime"]').fill('10m');
    await key.getByText('Mint token').click();
    await copies(page, key, 'Copy Embed token', /^eyJ[\w-]+\.[\w-]+\.[\w-]+$/);
    await copies(page, key, 'Copy HTML snippet', /<metric-chart\s+org="\w+"[^]*token="eyJ/);
    await looks(page, 'organisation-embed-token');
    // The form: restrictions, origins, another scope.
    await key.locator('[name="metrics"]').fill('http_*\nup');
    await key.locator('[name="ask_expr"]').uncheck();
    await key.locator('[name="origins"]').fill('https://app.example.com');
    await key.locator('[name="ingest"]').check();
    await saves();
    const restricted = (await stored()).embed;
    check(restricted.policy.endpoints.join() === 'metrics,labels,range,instant,dashboard,alerts' && restricted.policy.metrics.join() === 'http_*,up' && restricted.origins.join() === 'https://app.example.com', `the form is what is stored: ${JSON.stringify(restricted)}`);
    // What it writes; an emptied list permits nothing until it is changed.
    await keys.locator('summary:has-text("website")').click();
    await key.locator('[name="labels"]').fill('source=laptop\nplace = cellar = 1');
    await key.locator('[name="metrics"]').fill('');
    await saves();
    const writes = await stored();
    check(writes.ingest.labels.source === 'laptop' && writes.ingest.labels.place === 'cellar = 1', `labels: ${JSON.stringify(writes.ingest)}`);
    check(writes.embed.policy.metrics?.length === 0, `nothing is listed, so nothing is let through: ${JSON.stringify(writes.embed.policy)}`);
    await keys.locator('summary:has-text("website")').click();
    check(!(await key.locator('[name="any_metrics"]').isChecked()), 'and the form says so');
    await picture(page, 'organisation-key-form');
    // The same as JSON, with what is wrong in it told, and saved in place of the fields.
    await key.getByText('As JSON').click();
    const json = key.locator('[name="json"]');
    const whole = JSON.parse(await json.inputValue());
    await json.fill(JSON.stringify({ ...whole, embed: { ...whole.embed, policy: { matchs: [] } } }));
    announced.push('/api-keys/');
    await key.getByRole('button', { name: 'Save' }).click();
    await shown(page, 'main', 'matchs');
    await json.fill(JSON.stringify({ ...whole, name: 'website too', embed: { ...whole.embed, policy: { ...whole.embed.policy, metrics: null } } }));
    await saves();
    await shown(page, 'main', 'website too');
    check((await stored()).embed.policy.metrics === null, 'any metric again');
    await keys.locator('summary:has-text("website")').click();
    // As if the login were older than a quarter of an hour: the server's word for it, once.
    announced.push('/rotate');
    await page.route('**/rotate', (route) => route.fulfill({
      status: 403, contentType: 'application/problem+json', body: JSON.stringify({ code: 'reauth_required', detail: 'log in again to do this', status: 403 }),
    }), { times: 1 });
    await keys.getByText('Rotate').click();
    await shown(page, 'dialog', 'older than fifteen minutes');
    check(await page.getByRole('button', { name: 'Sign out and sign in again' }).isVisible(), 'a new sign-in is offered to people who do not know the password');
    await picture(page, 'organisation-is-it-you');
    await page.fill('dialog [name="password"]', given.password);
    await page.click('dialog >> text=Continue');
    await shown(page, 'main', 'New secret of website');
    await keys.locator('summary:has-text("website")').click();
    await keys.getByText('Delete').click();
    await shown(page, 'dialog', 'stop working at once');
    await accessible(page, 'a confirmation');
    await page.keyboard.press('Escape');
    check(await keys.locator('.key').count() === 1, 'Escape deletes nothing');
    await keys.getByText('Delete').click();
    await page.click('dialog >> text=Delete key');
    await keys.getByText('No keys.').waitFor();
    await tab('Limits');
    const retention = part('Limits').getByLabel('Retention', { exact: true });
    await retention.fill('a month');
    await part('Limits').getByRole('button', { name: 'Save limits' }).click();
    await shown(page, 'main', 'Retention: Enter a number of days such as 30');
    await retention.fill('30 days');
    await looks(page, 'organisation-limits');
    await part('Limits').getByRole('button', { name: 'Save limits' }).click();
    await part('Limits').getByText('Saved.').waitFor();
    // The log follows the page without a reload.
    await tab('Audit log');
    await shown(page, 'main', 'Limits or name changed');
    await page.reload();
    await shown(page, 'main', 'Limits or name changed');
    await part('Audit log, last 90 days').getByLabel('Action').selectOption('key.*');
    await part('Audit log, last 90 days').getByText('API key rotated').waitFor();
    await part('Audit log, last 90 days').getByText('Limits or name changed').first().waitFor({ state: 'detached' });
    await tab('Limits');
    await part('Limits').getByText('Query timeout').waitFor();
    check(await retention.inputValue() === '30 days', 'the retention is kept');
    await tab('General');
    await part('General').getByText('Short name').waitFor();
    await looks(page, 'organisation-general');
  },
};

try {
  check(scenarios[scenario], 'there is such a scenario');
  await scenarios[scenario]();
  check(complaints.length === 0, `the browser has nothing to complain about:\n  ${complaints.join('\n  ')}`);
} catch (error) {
  for (const page of browser.pages()) await picture(page, `failed-${scenario}`).catch(() => null);
  if (complaints.length) console.error(`the browser's complaints:\n  ${complaints.join('\n  ')}`);
  await browser.close();
  fail(error);
}
clearTimeout(watchdog);
await browser.close();
rmSync(profile, { recursive: true, force: true });
console.log(`${scenario}: held; pictures are in ${given.pictures}`);
