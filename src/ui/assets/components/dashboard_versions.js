// The stored versions of a dashboard: compare two of them, and restore one.

import { h } from '../chart/dom.js';
import { isConflict, listVersions, readVersion, restoreVersion } from '../client/dashboards.js';
import { memberNames } from '../client/members.js';
import { describeChanges } from '../model/dashboard_diff.js';
import { errorText } from '../model/error_text.js';
import { lineDiff } from '../model/line_diff.js';
import { confirmed } from './dialog.js';
import { table, time } from './parts.js';
import { changeList } from './save_dashboard.js';

/**
 * @typedef {import('../client/dashboards.js').Stored} Stored
 * @typedef {import('../client/dashboards.js').Version} Version
 */

const SIGNS = { same: '  ', removed: '− ', added: '+ ', skipped: '' };

/**
 * @param {{org: string, stored: Stored, user: string, editable: boolean, changed: () => void}} options
 *   `changed`: another version is current
 */
export function versionsView({ org, stored, user, editable, changed }) {
  const alert = h('p', { class: 'alert', role: 'alert' });
  const place = h('div', { class: 'stack' }, h('p', { class: 'hint', text: 'Loading…' }));
  const result = h('div', { class: 'stack', 'aria-live': 'polite' });
  const from = h('select', { id: 'version-from' });
  const to = h('select', { id: 'version-to' });
  const compare = h(
    'div',
    { class: 'row compare', hidden: true },
    h('label', { class: 'row' }, h('span', { text: 'Compare' }), from),
    h('label', { class: 'row' }, h('span', { text: 'with' }), to),
  );
  let sequence = 0;
  const fail = (/** @type {unknown} */ error) => {
    alert.textContent = isConflict(error)
      ? 'The dashboard was changed meanwhile. Load the page again.'
      : errorText(error);
  };

  /** @param {number} old @param {number} now */
  async function show(old, now) {
    const turn = (sequence += 1);
    [from.value, to.value] = [String(old), String(now)];
    const [before, after] = await Promise.all([old, now].map((number) => readVersion(org, stored.uid, number)));
    if (turn !== sequence) return;
    alert.textContent = '';
    const words = describeChanges(before.dashboard, after.dashboard);
    result.replaceChildren(
      h('h2', { text: `From version ${old} to version ${now}` }),
      words.length === 0
        ? h('p', { class: 'hint', text: 'Both versions are the same.' })
        : changeList(words, `Changes from version ${old} to version ${now}`),
      ...jsonLines(before.dashboard, after.dashboard),
    );
  }

  const chosen = () => void show(Number(from.value), Number(to.value)).catch(fail);
  from.addEventListener('change', chosen);
  to.addEventListener('change', chosen);

  /** @param {number} version */
  async function restore(version) {
    const sure = await confirmed({
      heading: `Restore version ${version}?`,
      action: 'Restore',
      loss: `Version ${version} becomes the newest one. Version ${stored.version} stays in this list.`,
    });
    if (sure) await restoreVersion(org, stored.uid, version, stored.version).then(changed, fail);
  }

  /** @param {Version} one @param {Version | undefined} earlier */
  const tools = ({ version }, earlier) =>
    h(
      'div',
      { class: 'row' },
      earlier &&
        h('button', {
          type: 'button',
          text: 'Show changes',
          'aria-label': `Show changes of version ${version}`,
          on: {
            click: () =>
              show(earlier.version, version).then(() => result.scrollIntoView({ block: 'nearest' }), fail),
          },
        }),
      editable &&
        version !== stored.version &&
        h('button', {
          type: 'button',
          text: 'Restore',
          'aria-label': `Restore version ${version}`,
          on: { click: () => restore(version) },
        }),
    );

  Promise.all([listVersions(org, stored.uid), memberNames(org)]).then(([versions, names]) => {
    place.replaceChildren(
      table(
        ['Version', 'Saved', 'By', 'Message', ''],
        versions.map((one, at) => [
          one.version === stored.version ? `${one.version} (current)` : String(one.version),
          time(one.saved_at, ''),
          one.saved_by === user ? 'You' : (names.get(one.saved_by ?? '') ?? (one.saved_by ? 'A former member' : '')),
          one.message ?? '',
          tools(one, versions[at + 1]),
        ]),
        'Versions',
        'There are no versions.',
      ),
    );
    if (versions.length < 2) return;
    for (const select of [from, to])
      select.replaceChildren(
        ...versions.map(({ version }) => h('option', { value: String(version), text: `version ${version}` })),
      );
    [from.value, to.value] = [String(versions[1].version), String(versions[0].version)];
    compare.hidden = false;
  }, fail);
  const attributes = { class: 'card part versions', 'aria-label': 'Versions of the dashboard' };
  return h('section', attributes, alert, place, compare, result);
}

/** @param {unknown} before @param {unknown} after */
function jsonLines(before, after) {
  const lines = lineDiff(JSON.stringify(before, null, 2), JSON.stringify(after, null, 2));
  if (lines.length === 0) return [];
  const node = h(
    'details',
    { class: 'json-diff' },
    h('summary', { text: 'JSON differences' }),
    h(
      'pre',
      { class: 'snippet', tabindex: '0', role: 'region', 'aria-label': 'JSON differences' },
      lines.map(({ kind, text }) =>
        h('span', { class: `line ${kind}`, text: kind === 'skipped' ? `⋯ ${text}\n` : `${SIGNS[kind]}${text}\n` }),
      ),
    ),
  );
  return [node];
}
