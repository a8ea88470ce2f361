// Drives Chromium over targets, alerts, rules and notifications:
//
//   node alerting_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ...,
//     "email": ..., "password": ..., "org": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core. The server serves pages and session; what these
// pages ask is answered by alerting_answers.mjs, so that every state can be looked at.
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise.

import { FIRING, HOSTILE, cannedAnswers } from './alerting_answers.mjs';
import { check, scenario } from './scenario.mjs';

const given = JSON.parse(process.argv[2]);
const announced = ['/api/v1/auth/me', '/rules/preview', '/rules/backfill', '/rule-groups/', '/notifications', '/targets', '/scrape_pools', '/scrape-config'];
const { page, checkLooks, run } = await scenario('alerting', given, { announced });
const canned = cannedAnswers();
/** Requests that wait until they are let go. @type {{part: string, go: () => void}[]} */
const held = [];
let holding = '';

await page.route('**/api/v1/orgs/**', async (route) => {
  const request = route.request();
  const url = new URL(request.url());
  const body = request.postData() ? request.postDataJSON() : undefined;
  const found = canned.answer(request.method(), url.pathname, url.searchParams, body, await request.allHeaders());
  if (!found) return route.continue();
  if (holding && request.url().includes(holding) && request.method() === 'POST')
    await new Promise((go) => held.push({ part: JSON.stringify(body), go }));
  const { status = 200, headers = {} } = found;
  const type = found.text ? 'application/yaml' : status < 400 ? 'application/json' : 'application/problem+json';
  const text = status === 204 ? undefined : (found.text ?? JSON.stringify(found.body));
  await route.fulfill({ status, headers: { 'Content-Type': type, ...headers }, body: text }).catch(() => null);
});

const looks = (name, options) =>
  checkLooks(`alerting-${name}`, { looks: [['light', null], ['dark', null], ['light', 320]], fullPage: true, ...options });
const open = (path) => page.goto(`${given.server}${path}${path.includes('?') ? '&' : '?'}org=${given.org}`);
const see = (text) => page.getByText(text).first().waitFor({ timeout: 10_000 });
const drawn = () => page.locator('metric-chart[data-state="drawn"]').first().waitFor();
const noMarkup = async () => check((await page.locator('img[src="x"]').count()) === 0, 'markup stays text');
const toasted = (text) => page.locator('.toast', { hasText: text }).waitFor();

/** How much the page has moved by itself since it was loaded, as browsers score it. */
const shift = () => page.evaluate(() => globalThis.shifted);
async function still(name) {
  const score = await shift();
  check(score < 0.02, `${name} does not jump: ${score}`);
}

async function start() {
  await page.addInitScript(() => {
    globalThis.shifted = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) if (!entry.hadRecentInput) globalThis.shifted += entry.value;
    }).observe({ type: 'layout-shift', buffered: true });
  });
  await page.goto(`${given.server}/login`);
  await page.fill('[name="email"]', given.email);
  await page.fill('[name="password"]', given.password);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.menu');
}

/** Without targets the page says how to get some. */
async function emptyFlow() {
  canned.state.isEmpty = true;
  await open('/targets');
  await see('promlet serve --scrape-config');
  await looks('targets-empty');
  await open('/alerts');
  await see('There are no alerting rules.');
  await looks('alerts-empty');
  await open('/rules');
  await see('There are no rules yet.');
  await looks('rules-empty');
  canned.state.isEmpty = false;
}

/** Targets with their errors in full, filters, and the steps of relabelling, by keyboard. */
async function targetsFlow() {
  await open('/targets');
  await see('1 of 3 up');
  await still('targets');
  const error = await page.locator('.row-error').filter({ hasText: 'line 17' }).textContent();
  check(error.includes(HOSTILE) && error.endsWith('expected a number'), `the error is shown in full: ${error}`);
  await noMarkup();
  await looks('targets');
  const row = page.locator('.target', { hasText: 'db-9101' }).locator('summary');
  await row.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Show relabelling steps' }).waitFor();
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await see('This step changes nothing.');
  await page.getByText('41 targets dropped').click();
  await page.getByText('test-1:9100').first().click();
  await page.getByRole('button', { name: 'Show relabelling steps' }).last().click();
  await see('This step drops the target.');
  await looks('targets-steps');
  // A refresh leaves what is unfolded.
  const refreshed = page.waitForResponse(/targets\?state=any/, { timeout: 20_000 });
  await refreshed;
  check(await page.locator('.target details[open]').count() === 1, 'the target stays unfolded');
  await page.getByRole('searchbox').fill('9102');
  await page.locator('.target').nth(1).waitFor({ state: 'detached' });
  check(await page.locator('.target').count() === 1, 'the filter leaves one target');
  await page.getByRole('searchbox').fill('nothing has this');
  await see('none passes the filter');
  await page.getByRole('searchbox').fill('');
  await page.getByRole('radio', { name: 'Up 2' }).focus();
  await page.keyboard.press('Space');
  await page.waitForFunction(() => document.querySelectorAll('.target').length === 2);
  canned.state.fails = true;
  await page.locator('.alert', { hasText: 'The disk is full' }).waitFor({ timeout: 20_000 });
  check(await page.locator('.target').count() === 2, 'what was known stays');
  canned.state.fails = false;
  await page.waitForFunction(() => !document.querySelector('.tab-panel > .alert')?.textContent, null, { timeout: 20_000 });
}

/** The configuration of the organisation: wrong texts are placed, and a stored one is shown with its jobs. */
async function scrapeConfigFlow() {
  await open('/targets');
  await page.getByRole('tab', { name: 'Configuration' }).click();
  const text = page.getByLabel('YAML');
  const example = await text.inputValue();
  await text.fill(example.replace('job_name', 'job_nam'));
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('button', { name: 'Go to line 2, column 5' }).waitFor();
  await see('Not saved yet.');
  check(canned.state.scraping === null, 'nothing was saved');
  await text.fill(example);
  await page.getByRole('button', { name: 'Save' }).click();
  await see('Saved. The targets are scraped now.');
  await see('targets.json: no such file');
  await looks('scrape-config');
  await page.getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove configuration' }).click();
  await see('Removed. Nothing of it is scraped any more.');
  check(canned.state.scraping === null, 'it is removed');
}

/** Alerts by state with the graph and transitions; one is acknowledged and silenced. */
async function alertsFlow() {
  await open('/alerts');
  const firing = page.locator('section', { has: page.getByRole('heading', { name: 'Firing' }) });
  await firing.getByText('HighLoad').waitFor();
  await still('alerts');
  await firing.getByText('HighLoad').click();
  await drawn();
  await see('6 transitions');
  check(await firing.locator('.lane-bar .firing').count() > 0, 'the lanes show when it fired');
  await noMarkup();
  await looks('alerts', { settle: 200 });
  await page.getByText('6 transitions').click();
  check(await page.locator('[aria-label="Transitions"] tbody tr').count() === 6, 'each transition has a row');
  await firing.getByRole('button', { name: 'Acknowledge' }).first().click();
  await toasted('The alert was acknowledged.');
  const [handled] = canned.state.acknowledged;
  check(handled === FIRING, `the server knows the alert: ${handled}`);
  await firing.getByText('acknowledged by ada@example.com').waitFor();
  await firing.getByRole('button', { name: 'Silence…' }).first().click();
  const dialog = page.getByRole('dialog', { name: 'New silence' });
  check((await dialog.getByLabel('Matchers').inputValue()).includes('instance="db-1:9100"'), 'the labels are proposed');
  await dialog.getByText('Matches 1 alert that is active now.').waitFor();
  await looks('silence', { fullPage: false });
  await dialog.getByRole('button', { name: 'Silence' }).click();
  await dialog.locator('.alert', { hasText: 'Comment' }).waitFor();
  await dialog.getByLabel('Comment').fill('Being replaced');
  await dialog.getByLabel('Matchers').fill('severity=page');
  await dialog.getByRole('button', { name: 'Silence' }).click();
  await dialog.locator('.alert', { hasText: 'This is none: severity=page' }).waitFor();
  await dialog.getByLabel('Matchers').fill('instance=~"db-1:.*"');
  await dialog.getByRole('button', { name: 'Silence' }).click();
  await toasted('The silence was created.');
  await firing.locator('.badge', { hasText: 'silenced until' }).first().waitFor();
  const [made] = canned.state.silences.slice(-1);
  check(made.comment === 'Being replaced' && made.matchers[0].isRegex, `the silence is stored: ${JSON.stringify(made)}`);
  check(Math.abs(Date.parse(made.endsAt) - Date.now() - 7_200_000) < 60_000, `it lasts two hours: ${made.endsAt}`);
  await firing.getByRole('link', { name: 'Open the rule' }).click();
  await page.getByRole('heading', { name: 'Preview of HighLoad' }).waitFor();
  await page.goBack();
  // The rules of a group do not have its name in paths: the namespace may precede it.
  await page.getByText('QueueStuck').click();
  await page.locator('details[open]', { hasText: 'QueueStuck' }).getByRole('link', { name: 'Open the rule' }).click();
  await page.getByRole('heading', { name: 'Preview of QueueStuck' }).waitFor();
  await page.getByRole('heading', { name: 'shop/queue' }).waitFor();
  await page.goBack();
  await page.getByRole('tab', { name: 'Silences' }).click();
  await page.getByText('1 expired silence').click();
  await looks('silences');
  await page.getByRole('row', { name: /Being replaced/ }).getByRole('button', { name: 'End now' }).click();
  await toasted('The silence has ended.');
  await see('2 expired silences');
}

/** The caret goes behind a part of the text. */
const caretAfter = (part) =>
  page.getByLabel('YAML').evaluate((node, text) => {
    const at = node.value.indexOf(text) + text.length;
    node.focus();
    node.setSelectionRange(at, at);
    node.dispatchEvent(new KeyboardEvent('keyup', { key: 'ArrowRight', bubbles: true }));
  }, part);

/** Groups with their health; a rule is previewed while it is typed, wrong texts are placed, and the group is saved. */
async function rulesFlow() {
  await open('/rules');
  await see('1 of 2 failed');
  await still('rules');
  await see('many-to-one matching must be explicit');
  await looks('rules');
  await page.getByRole('region', { name: 'hosts' }).getByRole('link', { name: 'Open' }).click();
  await page.getByRole('heading', { name: 'Preview of HighLoad' }).waitFor();
  await drawn();
  await see('1 alert would have fired, 1 more only pending over the last day.');
  await see('7 transitions');
  await looks('editor', { settle: 200 });
  check(await page.getByRole('button', { name: 'Save' }).isDisabled(), 'nothing is to be saved');
  // What is drawn is that of the newest text, in whichever order the answers come.
  holding = '/rules/preview';
  await caretAfter('node_load1 > 4');
  await page.keyboard.type('0');
  await page.waitForFunction(() => document.querySelector('.rule-editor')?.textContent.includes('Computing'));
  await caretAfter('up == 0');
  await page.getByRole('heading', { name: 'Preview of InstanceDown' }).waitFor();
  for (let turn = 0; held.length < 2 && turn < 100; turn += 1) await page.waitForTimeout(50);
  check(held.length === 2 && held[1].part.includes('up == 0'), 'each text was asked for');
  for (const { go } of held.splice(0).reverse()) go();
  holding = '';
  await see('2 series over the last day. About 2 series, 40 samples, 1.25 KiB an evaluation.');
  await page.waitForTimeout(200);
  await see('No transitions');
  await page.getByLabel('YAML').fill(`name: hosts\nrules:\n  - alert: HighLoad\n    expr: node_load1 > (\n    fro: 10m\n`);
  await page.getByRole('button', { name: 'Go to line 4, column 13' }).click();
  const place = await page.getByLabel('YAML').evaluate((node) => node.value.slice(0, node.selectionStart).split('\n').length);
  check(place === 4, `the caret is at the error: ${place}`);
  await looks('editor-error', { settle: 200 });
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('button', { name: 'Go to line 5, column 5' }).waitFor();
  await see('Unknown key fro; did you mean for?');
  await see('Not saved yet.');
  check(canned.state.groups.get('hosts').version === 3, 'nothing was saved');
  // The text survives a visit to another page.
  await page.getByRole('button', { name: '‹ All groups' }).click();
  await page.getByRole('region', { name: 'hosts' }).getByRole('link', { name: 'Open' }).click();
  await see('Your text from before is shown. It is not saved yet.');
  await page.getByRole('button', { name: 'Discard changes' }).click();
  await caretAfter('node_load1 > ');
  await page.keyboard.type('1');
  // Somebody else saves in the meantime.
  Object.assign(canned.state.groups.get('hosts'), { version: 4 });
  // A group that cannot be read is not a deleted one.
  canned.state.fails = true;
  await page.getByRole('button', { name: 'Save' }).click();
  await see('The disk is full.');
  check((await page.getByText('was deleted in the meantime').count()) === 0, 'nothing is said of a deletion');
  canned.state.fails = false;
  await page.getByRole('button', { name: 'Save' }).click();
  await see('was stored by somebody else in the meantime');
  await looks('editor-conflict', { settle: 200 });
  await page.getByRole('button', { name: 'Save mine over it' }).click();
  await toasted('hosts was saved.');
  await caretAfter('node_load1 > 14');
  await page.keyboard.type('.5');
  await page.keyboard.press('Control+s');
  await page.waitForFunction(() => document.querySelectorAll('.toast').length === 2);
  check(canned.state.groups.get('hosts').yaml.includes('node_load1 > 14.5'), 'the text is stored');
  await page.waitForFunction(() => document.querySelector('.rule-editor .primary')?.disabled);
}

/** The versions of a group are listed, shown and restored. */
async function versionsFlow() {
  const { version, yaml } = canned.state.groups.get('hosts');
  await open('/rules?group=hosts');
  await page.getByText('History', { exact: true }).focus();
  await page.keyboard.press('Enter');
  const row = (number) =>
    page.getByRole('listitem').filter({ has: page.getByText(`Version ${number}`, { exact: true }) });
  await row(version).getByText('by a former member').waitFor();
  check((await row(version).getByRole('button').allTextContents()).join() === 'Show', 'the current one is not restored');
  await row(version - 1).getByRole('button', { name: 'Show' }).click();
  const shown = page.getByRole('region', { name: `Text of version ${version - 1}` });
  await shown.getByText('node_load1 > 14').waitFor();
  await looks('editor-history', { settle: 200 });
  await page.getByLabel('YAML').fill('name: hosts\n');
  await row(version - 1).getByRole('button', { name: 'Restore' }).click();
  await page.getByRole('dialog').getByText('Your text, which is not saved, is lost.').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Restore' }).click();
  await toasted('hosts was saved.');
  await row(version + 1).waitFor();
  const restored = canned.state.groups.get('hosts');
  check(restored.version === version + 1 && restored.yaml !== yaml, 'the older text is the newest version');
  check((await page.getByLabel('YAML').inputValue()) === restored.yaml, 'the editor shows it');
}

/** A recording rule is backfilled from its menu by keyboard; a step that fails is skipped, and a backfill is stopped. */
async function backfillFlow() {
  await open('/rules');
  const menu = page.getByRole('button', { name: 'Actions on job:up:sum' });
  await menu.waitFor();
  check((await page.getByRole('button', { name: /^Actions on/ }).count()) === 1, 'only recording rules have the menu');
  await menu.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Backfill…' }).waitFor();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Backfill job:up:sum' });
  await dialog.getByText(/^10,08\d steps, one every 1m. About 20,1\d\d samples will be written. About 2 series/).waitFor();
  await looks('backfill', { fullPage: false });
  const range = dialog.getByLabel('Range');
  await range.selectOption('Own start and end');
  await dialog.getByLabel('From').fill('yesterday');
  await dialog.getByText('Write times such as').waitFor();
  check(await dialog.getByRole('button', { name: 'Start backfill' }).isDisabled(), 'a wrong time starts nothing');
  await dialog.getByLabel('From').fill('now-2h');
  await dialog.getByLabel('To').fill('now+1h');
  await dialog.getByText('The end must not be in the future.').waitFor();
  await looks('backfill-own', { fullPage: false });
  await dialog.getByLabel('To').fill('now');
  await dialog.getByText(/^12\d steps/).waitFor();
  holding = '/rules/backfill';
  canned.state.failsToBackfill = true;
  await dialog.getByRole('button', { name: 'Start backfill' }).click();
  await dialog.getByText('Backfilling job:up:sum…').waitFor();
  for (let turn = 0; held.length < 1 && turn < 100; turn += 1) await page.waitForTimeout(50);
  held.splice(0).forEach(({ go }) => go());
  await dialog.getByText(/^Reached .* 2[45] %. \d+ samples are stored\.$/).waitFor();
  check((await page.evaluate(() => document.activeElement?.textContent)) === 'Stop', 'the focus is on Stop');
  await looks('backfill-running', { fullPage: false });
  holding = '';
  held.splice(0).forEach(({ go }) => go());
  const failed = dialog.getByRole('alert').filter({ hasText: 'failed: Found duplicate series' });
  await failed.waitFor();
  await noMarkup();
  await looks('backfill-failed', { fullPage: false });
  const requests = canned.state.backfills.length;
  await dialog.getByRole('button', { name: /^Continue from/ }).click();
  for (let turn = 0; canned.state.backfills.length === requests && turn < 100; turn += 1) await page.waitForTimeout(50);
  await failed.waitFor();
  canned.state.failsToBackfill = false;
  await dialog.getByRole('button', { name: 'Skip this step' }).click();
  await dialog.getByText(/^The backfill is complete\. \d+ samples are stored, 3 were refused\.$/).waitFor();
  await looks('backfill-done', { fullPage: false });
  const { backfills } = canned.state;
  check(backfills.every(({ yaml }) => yaml === 'record: job:up:sum\nexpr: sum by (job) (up)\n'), 'the rule is sent');
  const starts = backfills.map(({ start }) => start);
  check(starts.at(-2) - starts.at(-3) === 60 || starts.at(-1) - starts.at(-2) === 60 || starts.some((at, n) => at - starts[n - 1] === 60),
    `one step is skipped: ${starts}`);
  await page.keyboard.press('Enter');
  await dialog.waitFor({ state: 'detached' });
  check(await menu.evaluate((node) => node === document.activeElement), 'the focus returns to the menu');
  // A backfill that runs ends with its dialog.
  canned.state.backfills = [];
  await menu.click();
  await page.getByRole('button', { name: 'Backfill…' }).click();
  holding = '/rules/backfill';
  await dialog.getByRole('button', { name: 'Start backfill' }).click();
  await dialog.getByRole('button', { name: 'Stop' }).click();
  await dialog.getByText(/^The backfill was stopped at/).waitFor();
  await dialog.getByRole('button', { name: /^Continue from/ }).click();
  await dialog.getByText('Backfilling job:up:sum…').waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  await toasted('The backfill was stopped at');
  holding = '';
  held.splice(0).forEach(({ go }) => go());
  // A saved recording rule is offered.
  await open('/rules?group=hosts');
  await page.getByLabel('YAML').fill(`name: hosts\nrules:\n  - record: one\n    expr: up\n  - record: two\n    expr: up\n`);
  await page.getByRole('button', { name: 'Save' }).click();
  await page.locator('.toast', { hasText: 'hosts was saved.' }).getByRole('button', { name: 'Backfill…' }).click();
  const both = page.getByRole('dialog', { name: 'Backfill a recording rule' });
  await both.getByLabel('Rule').selectOption('two');
  await looks('backfill-rules', { fullPage: false });
  canned.state.backfills = [];
  await both.getByRole('button', { name: 'Start backfill' }).click();
  await both.getByText('The backfill is complete.').waitFor();
  check(canned.state.backfills[0].yaml.startsWith('record: two'), 'the chosen rule is sent');
  await both.getByRole('button', { name: 'Close' }).click();
  check(await page.getByLabel('YAML').evaluate((node) => node === document.activeElement), 'the focus is in the text');
}

/** A group of a file is read only; a new group is created and deleted. */
async function groupsFlow() {
  await open('/rules?group=disk');
  await see('This group is in a file of the server.');
  await drawn();
  await still('the editor');
  check(await page.getByLabel('YAML, read-only').getAttribute('readonly') !== null, 'the text cannot be changed');
  await looks('editor-file', { settle: 200 });
  await open('/rules?group=nowhere');
  await see('There is no group nowhere.');
  await page.getByRole('button', { name: '‹ All groups' }).click();
  await page.getByRole('button', { name: 'New group' }).click();
  await page.getByLabel('YAML').waitFor();
  await page.getByRole('button', { name: 'Save' }).click();
  await toasted('example was saved.');
  check(new URL(page.url()).searchParams.get('group') === 'example', `the address names the group: ${page.url()}`);
  await page.getByRole('button', { name: 'Delete group…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete group' }).click();
  await toasted('example was deleted.');
  check(!canned.state.groups.has('example'), 'the group is deleted');
}

/** The document of notifications is changed and tested; wrong fields are named. */
async function notificationsFlow() {
  await open('/organisation?tab=notifications');
  await see('The receiver answered 500.');
  await looks('notifications');
  await page.getByRole('button', { name: 'Test on-call' }).click();
  await page.getByRole('row', { name: /mail.a@example.com .*Delivered/ }).waitFor();
  await looks('notifications-tested');
  check(canned.state.tested.join() === 'on-call', 'the test was asked for');
  const text = page.getByLabel('Document');
  const before = await text.inputValue();
  await text.fill('{"recievers": []}');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.locator('.field-errors', { hasText: 'did you mean receivers?' }).waitFor();
  await text.fill('{');
  await page.getByRole('button', { name: 'Save' }).click();
  await see('This is no JSON');
  await text.fill(before.replaceAll('on-call', 'night'));
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('button', { name: 'Test night' }).waitFor();
  await see('Saved.');
}

await run(start, [emptyFlow, targetsFlow, scrapeConfigFlow, alertsFlow, rulesFlow, versionsFlow, backfillFlow, groupsFlow, notificationsFlow]);
