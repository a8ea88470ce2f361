// Drives Chromium over targets, alerts, rules and notifications of a real server:
//
//   node alerting_server_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ...,
//     "email": ..., "password": ..., "org": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core. The organisation has no samples and no rules.
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise.

import { check, scenario } from './scenario.mjs';

const given = JSON.parse(process.argv[2]);
const { page, announced, checkLooks, run } = await scenario('alerting-server', given, { announced: ['/api/v1/auth/me'] });
const looks = (name) =>
  checkLooks(`alerting-server-${name}`, {
    looks: [['light', null], ['dark', null], ['light', 320]], fullPage: true, settle: 200,
  });
const open = (path) => page.goto(`${given.server}${path}${path.includes('?') ? '&' : '?'}org=${given.org}`);
const see = (text, timeout = 10_000) => page.getByText(text).first().waitFor({ timeout });
const toasted = (text) => page.locator('.toast', { hasText: text }).waitFor();

/** A group whose alert fires at once, whose other alert is pending, and whose recording rule is chained. */
const GROUP = `name: always
interval: 1s
rules:
  - record: always:one
    expr: vector(1)
  - alert: Fires
    expr: vector(7) > 1
    labels:
      severity: page
    annotations:
      summary: The value is {{ $value }}
  - alert: Waits
    expr: vector(1)
    for: 1h
`;

async function start() {
  await page.goto(`${given.server}/login`);
  await page.fill('[name="email"]', given.email);
  await page.fill('[name="password"]', given.password);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.menu');
}

/** The server scrapes nothing, or itself. */
async function targetsFlow() {
  await open('/targets');
  await page.getByText(/Nothing is scraped yet|\d+ targets? in \d+ pools?/).first().waitFor();
  check((await page.locator('.tab-panel > .alert').allTextContents()).join('') === '', 'there is no error');
  await looks('targets');
}

/** A group is written, refused with its place, previewed and saved. */
async function rulesFlow() {
  await open('/rules');
  await page.getByRole('button', { name: 'New group' }).click();
  const text = page.getByLabel('YAML');
  announced.push('/rule-groups/', '/rules/preview');
  await text.fill(GROUP.replace('for: 1h', 'fro: 1h'));
  await page.getByRole('button', { name: 'Go to line 14, column 5' }).waitFor();
  await page.getByRole('button', { name: 'Save' }).click();
  await see('fro');
  await see('Not saved yet.');
  await text.fill(GROUP);
  await page.locator('metric-chart[data-state="drawn"]').waitFor();
  await see('over the last day. About 1 series, 0 samples');
  await looks('editor');
  await page.getByRole('button', { name: 'Save' }).click();
  await toasted('always was saved.');
  // Its recording rule is backfilled.
  await page.locator('.toast').getByRole('button', { name: 'Backfill…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Backfill always:one' });
  await dialog.getByLabel('Range').selectOption('Last day');
  await dialog.getByText(/^86,40\d steps, one every 1s. About 86,40\d samples will be written. About \d series/).waitFor();
  await dialog.getByRole('button', { name: 'Start backfill' }).click();
  await dialog.getByText(/^The backfill is complete\. 86,40\d samples are stored\.$/).waitFor({ timeout: 60_000 });
  await looks('backfill');
  await dialog.getByRole('button', { name: 'Close' }).click();
  await page.getByRole('button', { name: '‹ All groups' }).click();
  await see('3 rules');
  await page.locator('.rules-list .badge', { hasText: 'firing' }).waitFor({ timeout: 30_000 });
  await page.locator('.rules-list .badge', { hasText: 'pending' }).waitFor();
  await looks('rules');
}

/** The alerts are listed with their past, and one is silenced and acknowledged. */
async function alertsFlow() {
  await open('/alerts');
  const firing = page.locator('section', { has: page.getByRole('heading', { name: 'Firing' }) });
  await firing.getByText('Fires').click();
  await see('The value is 7');
  await page.locator('.lane-bar .firing').first().waitFor();
  await firing.getByRole('button', { name: 'Acknowledge' }).click();
  await firing.getByText('acknowledged by').waitFor();
  await firing.getByRole('button', { name: 'Withdraw acknowledgement' }).click();
  await firing.getByText('acknowledged by').waitFor({ state: 'detached' });
  await firing.getByRole('button', { name: 'Silence…' }).click();
  const dialog = page.getByRole('dialog', { name: 'New silence' });
  await dialog.getByLabel('Comment').fill('A test');
  await dialog.getByRole('button', { name: 'Silence' }).click();
  await toasted('The silence was created.');
  await firing.getByText('silenced until').waitFor();
  await looks('alerts');
  await page.getByRole('tab', { name: 'Silences' }).click();
  await page.getByRole('row', { name: /A test/ }).getByRole('button', { name: 'End now' }).click();
  await see('1 expired silence');
  await looks('silences');
}

/** A document with a wrong field is refused with its path; a right one is stored and tested. */
async function notificationsFlow() {
  await open('/organisation?tab=notifications');
  await see('There are no receivers yet.');
  await looks('notifications');
  const text = page.getByLabel('Document');
  const document = {
    route: { receiver: 'hook' },
    receivers: [{ name: 'hook', webhook_configs: [{ url: 'https://hooks.example/alerts' }] }],
  };
  announced.push('/notifications');
  await text.fill(JSON.stringify({ ...document, recievers: [] }));
  await page.getByRole('button', { name: 'Save' }).click();
  await page.locator('.field-errors', { hasText: 'recievers' }).waitFor();
  await text.fill(JSON.stringify(document));
  await page.getByRole('button', { name: 'Save' }).click();
  await see('Saved.');
  await page.getByRole('button', { name: 'Test hook' }).click();
  await page.getByRole('row', { name: /^webhook/ }).waitFor({ timeout: 30_000 });
  await looks('notifications-tested');
}

/** A changed group has a history, from which the older text is restored. */
async function historyFlow() {
  await open('/rules?group=always');
  const text = page.getByLabel('YAML');
  await text.fill(GROUP.replace('vector(7)', 'vector(8)'));
  await page.getByRole('button', { name: 'Save' }).click();
  await toasted('always was saved.');
  await page.getByText('History', { exact: true }).click();
  await page.getByRole('button', { name: 'Show version 1' }).click();
  await page.getByRole('region', { name: 'Text of version 1' }).getByText('vector(7)').waitFor();
  await looks('history');
  await page.getByRole('button', { name: 'Restore version 1' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Restore' }).click();
  await page.getByRole('button', { name: 'Restore version 2' }).waitFor();
  check((await text.inputValue()) === GROUP, 'the older text is stored');
}

/** The group is deleted, and its alerts with it. */
async function removalFlow() {
  await open('/rules?group=always');
  await page.getByRole('button', { name: 'Delete group…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete group' }).click();
  await toasted('always was deleted.');
  await see('There are no rules yet.');
}

await run(start, [targetsFlow, rulesFlow, alertsFlow, notificationsFlow, historyFlow, removalFlow]);
