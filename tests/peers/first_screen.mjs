// The time from navigation to the first screen of a dashboard, in a running Chromium with an empty
// cache:
//
//   node first_screen.mjs '{"module": ..., "chromium": ..., "server": ..., "path": ..., "cookie": ...,
//     "rounds": ...}'
//
// `module` is a folder with playwright-core, `path` that of the dashboard, `cookie` a session as
// `NAME=VALUE`. The first screen ends with the frame in which each panel in sight is drawn. Prints
// a JSON object: the number of panels in sight, and the milliseconds of each round.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { START_MS, timedChromium } from './timed_chromium.mjs';

const given = JSON.parse(process.argv[2]);
const { chromium, options } = timedChromium(given);

/** Notes the time of the first frame in which each panel in sight is drawn, and their number. */
function watch() {
  const look = () => {
    const panels = [...document.querySelectorAll('.panel')].filter((panel) => {
      const { top, bottom } = panel.getBoundingClientRect();
      return bottom > 0 && top < innerHeight;
    });
    if (panels.length > 0 && panels.every((panel) => panel.dataset.state === 'drawn')) {
      globalThis.firstScreen = { ms: performance.now(), panels: panels.length };
    } else {
      requestAnimationFrame(look);
    }
  };
  requestAnimationFrame(look);
}

const folder = mkdtempSync(join(tmpdir(), 'promlet-first-screen-'));
const rounds = [];
let panels = 0;
for (let round = 0; round < given.rounds; round += 1) {
  const browser = await chromium.launchPersistentContext(join(folder, String(round)), {
    ...options,
    viewport: { width: 1200, height: 900 },
  });
  const [name, value] = given.cookie.split(/=(.*)/s);
  await browser.addCookies([{ name, value, url: given.server }]);
  const page = await browser.newPage();
  await page.addInitScript(watch);
  await page.waitForTimeout(START_MS);
  await page.goto(`${given.server}${given.path}`);
  const first = await (await page.waitForFunction(() => globalThis.firstScreen, null, { timeout: 60_000 })).jsonValue();
  rounds.push(first.ms);
  panels = first.panels;
  await browser.close();
}
rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
console.log(JSON.stringify({ panels, ms: rounds }));
