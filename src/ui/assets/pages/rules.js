// The page Rules: groups with their health, and the editor of one.

import { h } from '../chart/dom.js';
import { formatValue } from '../chart/scale.js';
import { isSignedOut, listGroups, readGroup, readRules } from '../client/alerting.js';
import { isMissing } from '../client/embed.js';
import { pageUrl } from '../client/server.js';
import { groupEditor } from '../components/group_editor.js';
import { ago, filterBar, live, liveList, setText, stateBadge } from '../components/live.js';
import { formatDuration } from '../model/duration.js';
import { errorText } from '../model/error_text.js';
import { counted } from '../model/metrics.js';
import { permits } from '../model/routes.js';

/**
 * @typedef {import('../client/alerting.js').Group} Group
 * @typedef {import('../client/alerting.js').Rule} Rule
 * @typedef {import('../client/alerting.js').StoredGroup} StoredGroup
 * @typedef {{name: string, stored: StoredGroup|undefined, group: Group|undefined}} Entry
 */

/** The time between two refreshes. */
const EVERY = '10s';

/** @param {Rule} rule */
const isFailing = ({ health, lastError }) => health === 'err' || Boolean(lastError);

/** @param {Rule} first */
function ruleRow(first) {
  const badge = stateBadge();
  const when = h('small', { class: 'hint' });
  const problem = h('p', { class: 'alert' });
  return {
    node: h(
      'li',
      {},
      h('div', { class: 'row' }, h('strong', { text: first.name }), badge.node, when),
      h('code', { text: first.query }),
      problem,
    ),
    /** @param {Rule} rule */
    update(rule) {
      badge.set(isFailing(rule) ? 'failed' : rule.health === 'ok' ? (rule.state ?? 'recording') : 'unknown',
        isFailing(rule) ? 'failed' : rule.health === 'ok' ? (rule.state ?? 'recorded') : 'not evaluated yet');
      const last = ago(rule.lastEvaluation);
      setText(when, last ? `${last}, took ${formatValue(rule.evaluationTime, 'seconds')}` : '');
      setText(problem, rule.lastError ?? '');
    },
  };
}

/** @param {string} org @param {Entry} first @param {(name: string) => void} open */
function groupCard(org, first, open) {
  const badge = stateBadge();
  const about = h('p', { class: 'hint' });
  const list = h('ul', { class: 'rules-list' });
  const id = `group-${first.name}`;
  const show = liveList(list, (/** @type {Rule} */ rule) =>
    JSON.stringify([rule.name, rule.query, rule.labels]), ruleRow);
  const link = h('a', {
    class: 'button', href: pageUrl('/rules', { org, group: first.name }), 'aria-describedby': id, text: 'Open',
  });
  link.addEventListener('click', (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    open(first.name);
  });
  return {
    node: h(
      'section',
      { class: 'card part', 'aria-labelledby': id },
      h(
        'div',
        { class: 'row spread' },
        h('div', { class: 'row' }, h('h2', { id, text: first.name }), badge.node),
        link,
      ),
      about,
      list,
    ),
    /** @param {Entry} entry */
    update({ stored, group }) {
      const rules = group?.rules ?? [];
      const failing = rules.filter(isFailing).length;
      badge.set(failing ? 'failed' : 'ok', failing ? `${failing} of ${rules.length} failed` : counted(rules.length, 'rule'));
      badge.node.hidden = !group;
      const parts = [
        stored?.source === 'api' ? 'Stored here' : `File ${group?.file ?? ''}`.trim(),
        group && `every ${formatDuration(group.interval)}`,
        group && ago(group.lastEvaluation) && `evaluated ${ago(group.lastEvaluation)}`,
        group && ago(group.lastEvaluation) && `took ${formatValue(group.evaluationTime, 'seconds')}`,
        !group && 'not evaluated yet',
      ];
      setText(about, parts.filter(Boolean).join(' · '));
      show(rules);
    },
  };
}

/** @param {Entry} entry @param {string} text */
const passes = ({ name, group }, text) => {
  const all = [name, ...(group?.rules ?? []).map((rule) => `${rule.name} ${rule.query} ${rule.lastError ?? ''}`)];
  return text.toLowerCase().split(/\s+/).every((word) => all.join('\n').toLowerCase().includes(word));
};

/** @param {StoredGroup[]} stored @param {Group[]} groups @returns {Entry[]} in order of their names */
function entriesOf(stored, groups) {
  const byName = new Map(groups.map((group) => [group.name, group]));
  const known = new Map(stored.map((one) => [one.name, one]));
  return [...new Set([...known.keys(), ...byName.keys()])]
    .sort()
    .map((name) => ({ name, stored: known.get(name), group: byName.get(name) }));
}

/**
 * The list of groups.
 * @param {{org: string, edits: boolean, signedOut: () => void, open: (name: string) => void, create: () => void}} options
 */
function groupList({ org, edits, signedOut, open, create }) {
  /** @type {Entry[]} */
  let entries = [];
  const place = h('div', { class: 'stack' });
  const none = h('p', { class: 'hint' });
  const show = liveList(place, (/** @type {Entry} */ { name }) => name, (entry) => groupCard(org, entry, open));
  const filter = filterBar({
    label: 'Filter by group, rule, expression or error',
    states: [{ id: '', text: 'All' }, { id: 'failed', text: 'Failed' }],
    change: () => update(),
  });
  const hasFailed = (/** @type {Entry} */ { group }) => Boolean(group?.rules.some(isFailing));
  const update = () => {
    const shown = entries
      .filter((entry) => passes(entry, filter.text()))
      .filter((entry) => filter.state() === '' || hasFailed(entry));
    filter.count({ '': entries.length, failed: entries.filter(hasFailed).length });
    filter.node.hidden = entries.length === 0;
    show(shown);
    setText(none, shown.length ? '' : entries.length ? 'No group passes the filter.' : 'There are no rules yet.');
  };
  filter.node.hidden = true;
  const refreshing = live({
    every: EVERY,
    signedOut,
    load: (signal) => Promise.all([listGroups(org, signal), readRules(org, {}, signal)]),
    show([stored, groups]) {
      entries = entriesOf(stored, groups);
      update();
    },
  });
  void refreshing.refresh();
  const button = h('button', { type: 'button', class: 'primary', text: 'New group', on: { click: create } });
  const head = h('div', { class: 'row spread' }, filter.node, edits && button);
  return { node: h('div', { class: 'stack' }, ...refreshing.nodes, head, none, place), stop: refreshing.stop };
}

/**
 * @param {{org: string, role: import('../client/types.js').Role, signedOut: () => void}} options
 * @returns {{node: HTMLElement, start: () => void, stop: () => void}}
 */
export function rulesPage({ org, role, signedOut }) {
  const edits = permits(role, 'editor');
  const place = h('div', { class: 'stack' });
  const title = h('h1', { tabindex: '-1', text: 'Rules' });
  const back = h('button', { type: 'button', class: 'plain', text: '‹ All groups', on: { click: () => go({}) } });
  const node = h('main', { class: 'explore cabinet alerting' }, h('div', { class: 'page-head' }, title, back), place);
  let stop = () => {};
  let turn = 0;

  /** @param {Record<string, string>} parameters */
  function go(parameters) {
    history.pushState(null, '', pageUrl('/rules', { org, ...parameters }));
    void show();
    title.focus();
  }
  const leave = () => go({});
  /** @param {StoredGroup|null} stored */
  const edit = (stored) => {
    const editor = groupEditor({
      org, edits, stored, signedOut, leave,
      renamed: (name) => history.replaceState(null, '', pageUrl('/rules', { org, group: name })),
    });
    place.replaceChildren(editor.node);
    stop = editor.stop;
  };
  async function show() {
    stop();
    stop = () => {};
    turn += 1;
    const own = turn;
    const parameters = new URLSearchParams(location.search);
    const name = parameters.get('group');
    back.hidden = name === null && !parameters.has('new');
    if (parameters.has('new') && edits) return edit(null);
    if (name === null) {
      const list = groupList({
        org, edits, signedOut, open: (group) => go({ group }), create: () => go({ new: '1' }),
      });
      place.replaceChildren(list.node);
      stop = list.stop;
      return;
    }
    place.replaceChildren(h('p', { class: 'hint', role: 'status', text: 'Loading…' }));
    try {
      const stored = await readGroup(org, name);
      if (own === turn) edit(stored);
    } catch (error) {
      if (own !== turn) return;
      if (isSignedOut(error)) return signedOut();
      const text = isMissing(error) ? `There is no group ${name}. It may have been deleted.` : errorText(error);
      place.replaceChildren(h('p', { class: 'alert', role: 'alert', text }));
    }
  }
  const moved = () => void show();
  addEventListener('popstate', moved);
  return {
    node,
    start: moved,
    stop() {
      turn += 1;
      removeEventListener('popstate', moved);
      stop();
    },
  };
}
