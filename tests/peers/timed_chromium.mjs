// A Chromium whose pages are timed.

import { createRequire } from 'node:module';
import { join } from 'node:path';

/** The time in which a started browser comes to rest, in milliseconds. Its start takes both cores. */
export const START_MS = 3_000;

/**
 * The driver and the options of a start.
 * @param {{module: string, chromium: string}} given `module` is a folder with playwright-core, `chromium` the program
 */
export function timedChromium({ module, chromium: executablePath }) {
  const { chromium } = createRequire(join(module, '/'))('playwright-core');
  const args = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'];
  return { chromium, options: { executablePath, headless: true, args } };
}
