// The versions of a rule group: shows the text of one, and restores it.

import { h } from '../chart/dom.js';
import { isConflict, listGroupVersions, readGroupVersion } from '../client/alerting.js';
import { memberNames } from '../client/members.js';
import { isSignedOut } from '../client/server.js';
import { errorText } from '../model/error_text.js';
import { textButton } from './buttons.js';
import { time } from './parts.js';

/**
 * @typedef {import('../client/alerting.js').StoredGroup} StoredGroup
 * @typedef {import('../client/alerting.js').GroupVersion} GroupVersion
 */

/**
 * The list is read when it is unfolded.
 * @param {{org: string, group: () => StoredGroup|null, restore?: (version: number, yaml: string) => Promise<void>,
 *   signedOut: () => void}} options `restore` stores a text as the newest version; without it, texts are only shown
 */
export function groupVersions({ org, group, restore, signedOut }) {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const list = h('ul', { class: 'rules-list', 'aria-label': 'Versions' });
  const shown = h('div', { class: 'stack', 'aria-live': 'polite' });
  let sequence = 0;
  const fail = (/** @type {unknown} */ error) => {
    if (isSignedOut(error)) return signedOut();
    alert.textContent = isConflict(error) ? 'This version is no longer stored.' : errorText(error);
  };
  /** @param {GroupVersion} one @returns {Promise<string>} */
  const read = ({ version }) => readGroupVersion(org, group()?.name ?? '', version);

  /** @param {GroupVersion} one */
  async function show(one) {
    const turn = (sequence += 1);
    const yaml = await read(one);
    if (turn !== sequence) return;
    alert.textContent = '';
    const name = `Text of version ${one.version}`;
    shown.replaceChildren(
      h('h3', { text: name }),
      h('pre', { class: 'snippet', tabindex: '0', role: 'region', 'aria-label': name, text: yaml }),
    );
    shown.scrollIntoView({ block: 'nearest' });
  }

  /** @param {GroupVersion} one @param {Map<string, string>} names of the members */
  const row = (one, names) =>
    h(
      'li',
      {},
      h(
        'div',
        { class: 'row spread' },
        h('strong', { text: `Version ${one.version}` }),
        h(
          'div',
          { class: 'row' },
          textButton('Show', () => void show(one).catch(fail), { 'aria-label': `Show version ${one.version}` }),
          restore &&
            one.valid_until !== null &&
            textButton('Restore', () => void read(one).then((yaml) => restore(one.version, yaml)).catch(fail), {
              'aria-label': `Restore version ${one.version}`,
            }),
        ),
      ),
      h(
        'p',
        { class: 'hint' },
        time(one.valid_from),
        ' to ',
        time(one.valid_until, 'now'),
        `, by ${one.updated_by ? (names.get(one.updated_by) ?? 'a former member') : 'an API key'}`,
      ),
    );

  async function load() {
    const name = group()?.name;
    if (!name || !node.open) return;
    const [versions, names] = await Promise.all([listGroupVersions(org, name), memberNames(org)]);
    alert.textContent = '';
    list.replaceChildren(...versions.map((one) => row(one, names)));
  }
  const refresh = () => void load().catch(fail);
  const node = h(
    'details',
    { on: { toggle: refresh } },
    h('summary', { text: 'History' }),
    h('div', { class: 'stack' }, alert, list, shown),
  );
  return {
    node,
    /** Reads the list again after a change of the group. */
    refresh() {
      node.hidden = !group() || group()?.source === 'file';
      shown.replaceChildren();
      refresh();
    },
  };
}
