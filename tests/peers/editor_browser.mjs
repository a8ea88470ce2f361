// Drives Chromium over the editing of dashboards the way a person would:
//
//   node editor_browser.mjs '{"module": ..., "axe": ..., "chromium": ..., "pictures": ..., "server": ...,
//     "link": ..., "org": ...}'
//
// `module` and `axe` are folders with playwright-core and axe-core, `link` is a sign-in link. The organisation has the
// metrics of the demo.
//
// Ends with 0 when everything held; says what did not, and ends with 1, otherwise. Any console error, policy violation,
// script error or request to another host is a failure, unless the flow announced it.

import { join } from 'node:path';
import { check, scenario } from './scenario.mjs';

const given = JSON.parse(process.argv[2]);
const { page, complaints, announced, checkLooks, run } = await scenario('editor', given, {
  announced: ['/api/v1/auth/me'],
});
// Leaving with unsaved changes asks; the flow leaves.
page.on('dialog', (dialog) =>
  dialog.type() === 'beforeunload'
    ? dialog.accept()
    : (complaints.push(`a script opened a dialog: ${dialog.message()}`), dialog.dismiss()),
);

const HOSTILE = '<img src=x onerror=alert(1)>';
const TITLE = `Edited ${HOSTILE}`;
const button = (name) => page.getByRole('button', { name, exact: true });
const dialog = page.getByRole('dialog');
const panel = (title) => page.locator('.panel', { has: page.locator('.panel-title', { hasText: title }) });
const status = page.locator('.edit-bar [aria-live]');

/** The places of all panels and rows, as `title x,y wxh` with x and y from 0. */
const places = () =>
  page.$$eval('.panel-grid > [data-key]', (nodes) =>
    nodes.map((node) => {
      const [x, y, w, h] = ['x', 'y', 'w', 'h'].map((name) => Number(node.style.getPropertyValue(`--${name}`)));
      const title = node.querySelector('.panel-title, h2 button')?.textContent.replace(/^[▸▾]/u, '');
      return `${title} ${x - 1},${y - 1} ${w}x${h}`;
    }),
  );
async function expectPlaces(wanted, what) {
  const sorted = [...wanted].sort().join('; ');
  const deadline = Date.now() + 5000;
  let found = '';
  while (Date.now() < deadline) {
    found = (await places()).sort().join('; ');
    if (found === sorted) return;
    await page.waitForTimeout(30);
  }
  throw new Error(`not so: ${what}: ${found} instead of ${sorted}`);
}

const looks = (name, { dark = true } = {}) =>
  checkLooks(name, { looks: [['light', null], ...(dark ? [['dark', null]] : []), ['light', 320]], settle: 80 });

/** Sends a request of the API with the session of the page. */
const api = (method, path, body, headers = {}) =>
  page.evaluate(
    async ([verb, below, text, more]) => {
      const answer = await fetch(`/api/v1/orgs/${below}`, {
        method: verb,
        headers: { 'Content-Type': 'application/json', ...more },
        body: text ?? undefined,
      });
      return { status: answer.status, body: answer.status === 204 ? null : await answer.json() };
    },
    [method, `${given.org}/dashboards${path}`, body && JSON.stringify(body), headers],
  );

const uidOf = () => new URL(page.url()).searchParams.get('uid');
let edited = '';

async function createFlow() {
  await page.goto(`${given.server}/dashboards?org=${given.org}`);
  await button('New dashboard').click();
  await dialog.getByLabel('Title').fill(TITLE);
  await dialog.getByLabel('Folder').fill('Edits');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await page.locator('.edit-bar').waitFor();
  edited = uidOf();
  check((await page.locator('h1').textContent()) === TITLE, 'the title is shown as it is');
  // The first editor arrives after the page has been left for the grid again: the grid stays.
  let arrive = () => {};
  const late = new Promise((resolve) => (arrive = resolve));
  await page.route('**/app.editor.js', (route) => late.then(() => route.continue()), { times: 1 });
  for (const [kind, title] of [
    ['Time series', 'New panel 0,0 12x8'],
    ['Stat', 'New panel 12,0 6x6'],
  ]) {
    await button('Add').click();
    await button(kind).click();
    await page.waitForFunction(() => new URLSearchParams(location.search).has('editPanel'));
    // Back leaves the editor of the new panel.
    await page.goBack();
    await page.locator('.panel-grid.editing').waitFor();
    check((await places()).includes(title), `a new ${kind} has a place: ${await places()}`);
    if (kind !== 'Time series') continue;
    const arrived = page.waitForResponse((response) => response.url().endsWith('/app.editor.js'));
    arrive();
    await (await arrived).finished();
    await page.waitForTimeout(300);
    check(await page.locator('.panel-grid.editing').isVisible(), 'an editor that arrives late is not shown');
  }
  // The JSON of the document is editable as well.
  await page.getByRole('link', { name: 'JSON' }).click();
  const area = page.getByLabel('JSON of the dashboard');
  const json = JSON.parse(await area.inputValue());
  Object.assign(json.panels[0], { title: `Requests ${HOSTILE}` });
  json.panels[0].targets = [{ refId: 'A', expr: 'sum by (route) (rate(shop_http_requests_total[5m]))' }];
  Object.assign(json.panels[1], { title: 'Answer', own: { kept: true } });
  json.panels[1].targets = [{ refId: 'A', expr: 'vector(42)', instant: true }];
  await area.fill(JSON.stringify(json));
  await button('Apply').click();
  await panel('Answer').and(page.locator('[data-state="drawn"]')).waitFor();
  check((await page.locator('img[src="x"]').count()) === 0, 'markup in titles stays text');
}

async function mouseFlow() {
  const drag = async (from, dx, dy, end = 'up') => {
    await page.mouse.move(from.x, from.y);
    await page.mouse.down();
    await page.mouse.move(from.x + dx / 2, from.y + dy / 2, { steps: 3 });
    await page.mouse.move(from.x + dx, from.y + dy, { steps: 3 });
    if (end === 'escape') await page.keyboard.press('Escape');
    await page.mouse.up();
  };
  const head = async () => {
    const { x, y } = await panel('Answer').boundingBox();
    return { x: x + 30, y: y + 14 };
  };
  const before = await places();
  await drag(await head(), -300, 60, 'escape');
  await expectPlaces(before, 'Escape cancels a drag');
  // To the left edge, over the upper half of the chart: the chart gives way.
  await drag(await head(), -600, 40);
  await expectPlaces([`Requests ${HOSTILE} 0,6 12x8`, 'Answer 0,0 6x6'], 'a panel is moved by its title');
  const { x, y, width, height } = await panel('Answer').boundingBox();
  // It is six columns wide, and the shell decides how wide a column is.
  await drag({ x: x + width - 5, y: y + height - 5 }, width / 2, -76);
  await expectPlaces([`Requests ${HOSTILE} 0,4 12x8`, 'Answer 0,0 9x4'], 'a panel is resized by its corner');
  await panel('Answer').and(page.locator('[data-state="drawn"]')).waitFor();
}

async function keyboardFlow() {
  await panel('Answer').focus();
  await page.keyboard.press('ArrowRight');
  await expectPlaces([`Requests ${HOSTILE} 0,4 12x8`, 'Answer 1,0 9x4'], 'the arrow keys move');
  check((await status.textContent()) === 'Column 2, line 1.', `a move is announced: ${await status.textContent()}`);
  await page.keyboard.press('Shift+ArrowLeft');
  await page.keyboard.press('Shift+ArrowDown');
  await expectPlaces([`Requests ${HOSTILE} 0,5 12x8`, 'Answer 1,0 8x5'], 'Shift and the arrow keys resize');
  await page.keyboard.press('ArrowDown');
  await expectPlaces([`Requests ${HOSTILE} 0,0 12x8`, 'Answer 1,8 8x5'], 'an arrow key swaps two neighbours');
  check(await panel('Answer').evaluate((node) => node === document.activeElement), 'the moved panel keeps the focus');
  await page.keyboard.press('d');
  await expectPlaces(
    [`Requests ${HOSTILE} 0,0 12x8`, 'Answer 1,8 8x5', 'Answer 9,8 8x5'],
    'a copy is beside the panel, and has the focus',
  );
  await page.keyboard.press('Delete');
  await page.getByText('Removed the panel “Answer”.').waitFor();
  await expectPlaces([`Requests ${HOSTILE} 0,0 12x8`, 'Answer 1,8 8x5'], 'Delete removes the focused panel');
  await page.locator('.edit-notice').getByRole('button', { name: 'Undo' }).click();
  await page.keyboard.press('Control+z');
  await expectPlaces([`Requests ${HOSTILE} 0,0 12x8`, 'Answer 1,8 8x5'], 'two steps are undone');
  await page.keyboard.press('Control+z');
  await expectPlaces([`Requests ${HOSTILE} 0,5 12x8`, 'Answer 1,0 8x5'], 'consecutive moves are one step');
  await page.keyboard.press('Control+Shift+z');
  await expectPlaces([`Requests ${HOSTILE} 0,0 12x8`, 'Answer 1,8 8x5'], 'a step is made again');
  await button('Add').click();
  await button('Row').click();
  await expectPlaces([`Requests ${HOSTILE} 0,0 12x8`, 'Answer 1,8 8x5', 'New row 0,13 24x1'], 'a row is added');
  await looks('editor-grid');
}

async function draftFlow() {
  await page.getByText('Draft kept at').waitFor();
  await page.reload();
  const bar = page.getByRole('region', { name: 'Draft' });
  await bar.getByText('You have unsaved changes from').waitFor();
  await page.getByText('This dashboard has no panels.').waitFor();
  await looks('editor-draft', { dark: false });
  await bar.getByRole('button', { name: 'Resume' }).click();
  const resumed = [`Requests ${HOSTILE} 0,0 12x8`, 'Answer 1,8 8x5', 'New row 0,13 24x1'];
  await expectPlaces(resumed, 'the draft is resumed');
  // A tab of edit mode is no view of the stored dashboard.
  await page.getByRole('link', { name: 'Variables' }).click();
  await page.getByRole('heading', { name: 'Variables' }).waitFor();
  await page.reload();
  await page.getByText('This dashboard has no panels.').waitFor();
  await bar.getByRole('button', { name: 'Resume' }).click();
  await expectPlaces(resumed, 'the draft is resumed after a reload of its variables');
}

async function settingsFlow() {
  await button('Settings').click();
  await dialog.getByLabel('From').fill('rubbish');
  await dialog.getByRole('button', { name: 'Apply' }).click();
  await dialog.getByText('write times such as now-6h').waitFor();
  await dialog.getByLabel('From').fill('now-1h');
  await dialog.getByLabel('Tags').fill('one, two');
  await dialog.getByText('Links (0)').click();
  await dialog.getByRole('button', { name: 'Add link' }).click();
  await dialog.locator('.entry').getByLabel('Title').fill(`Docs ${HOSTILE}`);
  await dialog.getByLabel('Address').fill('https://docs.example/?from=${__from}');
  await dialog.getByRole('button', { name: 'Add link' }).click();
  await dialog.getByLabel('Kind').nth(1).selectOption('Dashboards with tags');
  await dialog.locator('.entry').nth(1).getByLabel('Title').fill('Others');
  await dialog.locator('.entry').nth(1).getByLabel('Tags').fill('one, one ,two');
  await dialog.getByRole('button', { name: 'Add link' }).click();
  await looks('editor-settings', { dark: false });
  await dialog.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('Last 1 hour').waitFor();
  await page.locator('.dash-links-bar').getByRole('link', { name: `Docs ${HOSTILE}` }).waitFor();
  await page.locator('.dash-links-bar').getByRole('button', { name: 'Others' }).waitFor();
}

async function saveFlow() {
  await button('Save').click();
  await dialog.getByText('Added the panel “Answer”.').waitFor();
  await dialog.getByText('Changed the tags, time range and links of the dashboard.').waitFor();
  await dialog.getByLabel('Message').fill(`First ${HOSTILE}`);
  await looks('editor-save', { dark: false });
  await dialog.getByRole('button', { name: 'Save', exact: true }).click();
  await button('Edit').waitFor();
  const { body } = await api('GET', `/${edited}`);
  check(body.version === 2 && body.folder === 'Edits', `a version is stored: ${body.version} in ${body.folder}`);
  check(body.dashboard.panels.find(({ title }) => title === 'Answer').own.kept, 'unknown members stay');
  const [link, menu, ...others] = body.dashboard.links;
  check(link.url === 'https://docs.example/?from=${__from}' && JSON.stringify(menu.tags) === '["one","two"]' &&
    others.length === 0, `the links are stored, without one to nowhere: ${JSON.stringify(body.dashboard.links)}`);
  check((await page.evaluate(() => Object.keys(localStorage).filter((key) => key.includes('draft')).length)) === 0,
    'no draft stays');
}

async function conflictFlow() {
  await button('Edit').click();
  await panel('Answer').and(page.locator('[tabindex="0"]')).focus();
  await page.keyboard.press('ArrowRight');
  const { body } = await api('GET', `/${edited}`);
  const theirs = { ...body.dashboard, tags: ['theirs'] };
  const other = await api('PUT', `/${edited}`, { dashboard: theirs }, { 'If-Match': '"2"' });
  check(other.status === 200, `the other save succeeds: ${other.status}`);
  announced.push(`/dashboards/${edited}`);
  await button('Save').click();
  await dialog.getByRole('button', { name: 'Save', exact: true }).click();
  await dialog.getByText('Version 3 was saved since you began with version 2').waitFor();
  await dialog.getByRole('button', { name: 'See their changes' }).click();
  await dialog.getByText('Changed the tags of the dashboard.').waitFor();
  await looks('editor-conflict');
  await dialog.getByRole('button', { name: 'Save as a copy' }).click();
  await page.getByRole('heading', { name: `${TITLE} (copy)` }).waitFor();
  check(uidOf() !== edited, 'the copy is another dashboard');
}

async function versionsFlow() {
  await page.goto(`${given.server}/dashboard?org=${given.org}&uid=${edited}&tab=versions`);
  await page.getByRole('button', { name: 'Show changes of version 3' }).click();
  await page.getByText('Changed the tags of the dashboard.').waitFor();
  await page.getByText('JSON differences').click();
  await page.locator('.json-diff .added', { hasText: '"theirs"' }).waitFor();
  await page.selectOption('#version-from', '1');
  await page.getByText('Added the panel “Answer”.').waitFor();
  await looks('editor-versions', { dark: false });
  await page.getByRole('button', { name: 'Restore version 2' }).click();
  await dialog.getByRole('button', { name: 'Restore' }).click();
  await page.getByText('4 (current)').waitFor();
  check((await api('GET', `/${edited}`)).body.tags.join() === 'one,two', 'version 2 is restored');
}

async function copyFlow() {
  await page.goto(`${given.server}/dashboard?org=${given.org}&uid=${edited}&edit`);
  await panel('Answer').hover();
  await panel('Answer').getByRole('button', { name: 'Menu of the panel' }).click();
  await button('Copy').click();
  await page.getByText('Copied the panel “Answer”.').waitFor();
  const made = await api('POST', '', { dashboard: { uid: 'paste-here', title: 'Other', rows: [
    { title: 'Old', panels: [{ id: 1, type: 'text', title: 'Words', span: 12 }] }] } });
  check(made.status === 201, `another dashboard is there: ${made.status}`);
  await page.goto(`${given.server}/dashboard?org=${given.org}&uid=paste-here`);
  await button('Edit').click();
  await page.getByText('rows of an old version').waitFor();
  await button('Add').click();
  await button('Paste “Answer”').click();
  await panel('Answer').and(page.locator('[data-state="drawn"]')).waitFor();
  await button('Exit').click();
  await dialog.getByRole('button', { name: 'Discard the changes' }).click();
  await button('Edit').waitFor();
  await panel('Answer').waitFor({ state: 'detached' });
}

async function menuFlow() {
  await page.goto(`${given.server}/dashboard?org=${given.org}&uid=${edited}`);
  await panel('Answer').hover();
  await panel('Answer').getByRole('button', { name: 'Menu of the panel' }).click();
  await page.locator('.popup').getByRole('link', { name: 'Edit', exact: true }).click();
  await page.locator('.panel-editor .editor-title').getByText('Answer', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Back to dashboard' }).click();
  await page.locator('.panel-grid.editing').waitFor();
  await button('Exit').click();
  await button('Edit').waitFor();
}

await run(async () => {
  await page.goto(given.link);
  await page.waitForFunction(() => !location.pathname.startsWith('/api'));
}, [createFlow, mouseFlow, keyboardFlow, draftFlow, settingsFlow, saveFlow, conflictFlow, versionsFlow, copyFlow,
  menuFlow]);
