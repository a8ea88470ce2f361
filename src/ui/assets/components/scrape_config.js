// The scrape configuration of an organisation that the API stores, beside the file of the server.

import { h } from '../chart/dom.js';
import { isMissing, isSignedOut, send } from '../client/server.js';
import { counted } from '../model/metrics.js';
import { table } from './parts.js';
import { errorPlace, yamlEditor } from './yaml_editor.js';

/**
 * @typedef {import('./parts.js').Part} Part
 * @typedef {{title: string, targets: number, error: string|null}} Discovery
 * @typedef {{name: string, targets: number, dropped: number, invalid: number, duplicates: number,
 *   failure: string|null, discoveries: Discovery[]}} Job
 * @typedef {{text: string|null, problem: string|null, notices: string[], jobs: Job[]}} Stored
 */

/** @param {Job[]} jobs */
const jobTable = (jobs) =>
  table(
    ['Job', 'Targets', 'Dropped', 'Problems'],
    jobs.map(({ name, targets, dropped, invalid, duplicates, failure, discoveries }) => [
      name,
      String(targets),
      String(dropped),
      [
        failure,
        invalid > 0 && `${counted(invalid, 'target')} with wrong labels`,
        duplicates > 0 && counted(duplicates, 'duplicate target'),
        ...discoveries.map(({ title, error }) => error && `${title}: ${error}`),
      ]
        .filter(Boolean)
        .map((text) => h('p', { class: 'alert', text: String(text) })),
    ]),
    'Jobs',
  );

/**
 * @param {{base: string, example: string}} context `base` is the organisation's path
 * @param {Part} part
 */
export async function scrapeConfig({ base, example }, part) {
  const path = `${base}/scrape-config`;
  /** @type {Stored|null} */
  const stored = await send('GET', path).catch((error) => {
    if (isMissing(error)) return null;
    throw error;
  });
  const status = h('p', { class: 'hint', role: 'status' });
  const editor = yamlEditor({
    label: 'YAML',
    value: stored ? (stored.text ?? '') : example,
    edited: () => {
      editor.mark(null);
      status.textContent = 'Not saved yet.';
    },
    moved: () => {},
  });
  const save = part.button('Save', async () => {
    status.textContent = 'Saving…';
    try {
      await send('PUT', path, { text: editor.input.value });
    } catch (error) {
      status.textContent = 'Not saved yet.';
      if (isSignedOut(error)) throw error;
      editor.mark(errorPlace(error));
      return;
    }
    await part.reload(h('p', { class: 'notice', role: 'status', text: 'Saved. The targets are scraped now.' }));
  });
  save.classList.add('primary');
  const remove = part.button(
    'Remove',
    async () => {
      await send('DELETE', path);
      await part.reload(
        h('p', { class: 'notice', role: 'status', text: 'Removed. Nothing of it is scraped any more.' }),
      );
    },
    {
      heading: 'Remove the configuration',
      loss: 'Its targets are not scraped any more. Their samples stay.',
      action: 'Remove configuration',
    },
  );
  return [
    stored?.problem && h('p', { class: 'alert', role: 'alert', text: stored.problem }),
    stored &&
      stored.text === null &&
      !stored.problem &&
      h('p', { class: 'hint', text: 'A configuration is stored. Its secrets cannot be hidden, so it is not shown.' }),
    stored &&
      stored.notices.length > 0 &&
      h(
        'ul',
        { class: 'warnings' },
        stored.notices.map((text) => h('li', { text })),
      ),
    stored && jobTable(stored.jobs),
    editor.node,
    h('p', { class: 'hint', text: 'Replace <secret> by the secret itself: secrets are never shown again.' }),
    h('div', { class: 'row' }, save, stored && remove, status),
  ];
}
