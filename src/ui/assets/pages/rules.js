// The page Rules: groups with their health, and the editor of one.

import { h } from '../chart/dom.js';
import { formatValue } from '../chart/scale.js';
import { bareName, listGroups, readGroup, readRules } from '../client/alerting.js';
import { isMissing, isSignedOut, pageUrl } from '../client/server.js';
import { signButton, textButton } from '../components/buttons.js';
import { groupEditor } from '../components/group_editor.js';
import { openMenu } from '../components/popup.js';
import { ago, cutText, filterBar, live, liveList, nextId, setText, stateBadge } from '../components/live.js';
import { toast } from '../components/toast.js';
import { formatDuration } from '../model/duration.js';
import { errorText } from '../model/error_text.js';
import { counted, hasWords } from '../model/metrics.js';
import { permits } from '../model/routes.js';
import { isRecording, rulesOf } from '../model/rule_text.js';

/**
 * @typedef {import('../client/alerting.js').Group} Group
 * @typedef {import('../client/alerting.js').Rule} Rule
 * @typedef {import('../client/alerting.js').StoredGroup} StoredGroup
 * @typedef {{key: string, name: string, stored: StoredGroup|undefined, group: Group|undefined}} Entry
 */

/** The time between two refreshes. */
const EVERY = '10s';
/** The most groups that are listed. */
const GROUPS_MAX = 200;
/** The most rules of a group that are listed, by whether there are many rules in all. */
const ROWS = { few: 100, many: 10 };
/** A list of more rules than this is one of many. */
const FEW_RULES = 1000;

/** @param {Rule} rule */
const isFailing = ({ health, lastError }) => health === 'err' || Boolean(lastError);

/**
 * The menu of a recording rule.
 * @param {string} name
 * @param {() => unknown} backfill
 */
function ruleMenu(name, backfill) {
  const button = signButton(`Actions on ${name}`, '⋯', () => open());
  button.setAttribute('aria-haspopup', 'true');
  button.setAttribute('aria-expanded', 'false');
  const open = () =>
    openMenu(button, [
      textButton(
        'Backfill…',
        () => {
          button.focus();
          void backfill();
        },
        { 'data-closes': true },
      ),
    ]);
  return h('div', { class: 'anchor' }, button);
}

/**
 * @param {Rule} first
 * @param {((rule: Rule) => unknown)|false} backfill opens the dialog; false: the rule cannot be backfilled here
 */
function ruleRow(first, backfill) {
  const badge = stateBadge();
  const when = h('small', { class: 'hint' });
  const problem = h('p', { class: 'alert' });
  return {
    node: h(
      'li',
      {},
      h(
        'div',
        { class: 'row spread' },
        h('div', { class: 'row' }, h('strong', { text: first.name }), badge.node, when),
        backfill && first.type === 'recording' && ruleMenu(first.name, () => backfill(first)),
      ),
      h('code', { text: first.query }),
      problem,
    ),
    /** @param {Rule} rule */
    update(rule) {
      const state = rule.health === 'ok' ? (rule.state ?? 'recorded') : 'not evaluated yet';
      badge.set(isFailing(rule) ? 'failed' : state);
      const last = ago(rule.lastEvaluation);
      setText(when, last ? `${last}, took ${formatValue(rule.evaluationTime, 'seconds')}` : '');
      setText(problem, rule.lastError ?? '');
    },
  };
}

/**
 * Opens the dialog for a rule of a stored group.
 * @param {StoredGroup} stored
 * @param {Rule} rule
 * @param {{org: string, signedOut: () => void}} options
 */
async function backfillRule({ yaml, name }, rule, { org, signedOut }) {
  const rules = rulesOf(yaml).filter((one) => one.name === rule.name && isRecording(one));
  if (rules.length === 0) return toast(`The text of ${rule.name} is not found: open the group ${name}.`);
  const { openBackfill } = await import('../components/backfill_dialog.js');
  await openBackfill({ org, yaml, rules, signedOut });
}

/**
 * @param {string} org
 * @param {Entry} first
 * @param {{open: (name: string) => void, rows: () => number, backfill: ((stored: StoredGroup, rule: Rule) => unknown)
 *   |false}} options `rows`: how many rules are listed; `backfill` is false for accounts that may not
 */
function groupCard(org, first, { open, rows, backfill }) {
  let current = first;
  const badge = stateBadge();
  const about = h('p', { class: 'hint' });
  const list = h('ul', { class: 'rules-list' });
  const more = h('p', { class: 'hint' });
  const id = nextId();
  const show = liveList(
    list,
    (/** @type {Rule} */ rule) => JSON.stringify([rule.name, rule.query, rule.labels, rule.duration]),
    (rule) => ruleRow(rule, backfill && ((one) => current.stored && backfill(current.stored, one))),
  );
  const link = h('a', {
    class: 'button',
    href: pageUrl('/rules', { org, group: first.name }),
    'aria-describedby': id,
    text: 'Open',
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
      more,
    ),
    /** @param {Entry} entry */
    update(entry) {
      current = entry;
      const { stored, group } = entry;
      const rules = group?.rules ?? [];
      const failing = rules.filter(isFailing).length;
      badge.set(
        failing ? 'failed' : 'ok',
        failing ? `${failing} of ${rules.length} failed` : counted(rules.length, 'rule'),
      );
      badge.node.hidden = !group;
      const last = ago(group?.lastEvaluation);
      const parts = [
        stored?.source === 'api' ? 'Stored here' : `File ${group?.file ?? ''}`.trim(),
        group && `every ${formatDuration(group.interval)}`,
        last && `evaluated ${last}`,
        group && last && `took ${formatValue(group.evaluationTime, 'seconds')}`,
        !group && 'not evaluated yet',
      ];
      setText(about, parts.filter(Boolean).join(' · '));
      const listed = rows();
      // If not all rules are listed, failing ones come first.
      const order =
        rules.length > listed ? [...rules].sort((one, other) => +isFailing(other) - +isFailing(one)) : rules;
      show(order.slice(0, listed));
      setText(more, rules.length > listed ? `${counted(rules.length - listed, 'more rule')}: open the group.` : '');
    },
  };
}

/** @param {Entry} entry @param {string} text */
const passes = ({ name, group }, text) => {
  const all = [name, ...(group?.rules ?? []).map((rule) => `${rule.name} ${rule.query} ${rule.lastError ?? ''}`)];
  return hasWords(all.join('\n'), text);
};

/**
 * Whether a group of the rules API is a stored one.
 * @param {StoredGroup} stored
 * @param {{name: string, file: string}} group
 */
const isOf = (stored, { name, file }) =>
  bareName(stored) === name && (stored.source === 'api' ? file : file.split('/').pop()) === stored.namespace;

/**
 * Reads a group by the name that paths have, or by the name and the file that its rules have.
 * @param {string} org
 * @param {string} name
 * @param {string|null} file null: `name` is that of paths
 */
async function groupOf(org, name, file) {
  const found = file !== null && (await listGroups(org)).find((stored) => isOf(stored, { name, file }));
  return found || readGroup(org, name);
}

/**
 * Groups of several files may have the same name.
 * @param {StoredGroup[]} stored
 * @param {Group[]} groups
 * @returns {Entry[]} in order of their names
 */
function entriesOf(stored, groups) {
  const left = new Set(stored);
  const found = groups.map((group) => {
    const one = stored.find((candidate) => isOf(candidate, group));
    if (one) left.delete(one);
    return { key: `${group.name} ${group.file}`, name: one?.name ?? group.name, stored: one, group };
  });
  const waiting = [...left].map((one) => ({ key: one.name, name: one.name, stored: one, group: undefined }));
  return [...found, ...waiting].sort((one, other) => (one.key < other.key ? -1 : 1));
}

/**
 * The list of groups.
 * @param {{org: string, edits: boolean, signedOut: () => void, open: (name: string) => void,
 *   create: () => void}} options
 */
function groupList({ org, edits, signedOut, open, create }) {
  /** @type {Entry[]} */
  let entries = [];
  /** @type {StoredGroup[]|null} */
  let stored = null;
  const place = h('div', { class: 'stack' });
  const none = h('p', { class: 'hint' });
  const backfill =
    edits && ((/** @type {StoredGroup} */ of, /** @type {Rule} */ rule) => backfillRule(of, rule, { org, signedOut }));
  const rows = () => {
    const all = entries.reduce((sum, { group }) => sum + (group?.rules.length ?? 0), 0);
    return all > FEW_RULES ? ROWS.many : ROWS.few;
  };
  const show = liveList(
    place,
    (/** @type {Entry} */ { key }) => key,
    (entry) => groupCard(org, entry, { open, rows, backfill }),
  );
  const filter = filterBar({
    label: 'Filter by group, rule, expression or error',
    states: [
      { id: '', text: 'All' },
      { id: 'failed', text: 'Failed' },
    ],
    change: () => update(),
  });
  const hasFailed = (/** @type {Entry} */ { group }) => Boolean(group?.rules.some(isFailing));
  const update = () => {
    const shown = entries
      .filter((entry) => passes(entry, filter.text()))
      .filter((entry) => filter.state() === '' || hasFailed(entry));
    filter.count({ '': entries.length, failed: entries.filter(hasFailed).length });
    filter.node.style.visibility = entries.length ? '' : 'hidden';
    show(shown.slice(0, GROUPS_MAX));
    const cut = cutText(GROUPS_MAX, shown.length, 'group');
    setText(none, shown.length ? cut : entries.length ? 'No group passes the filter.' : 'There are no rules yet.');
  };
  filter.node.style.visibility = 'hidden';
  const refreshing = live({
    every: EVERY,
    signedOut,
    load: async (signal) => {
      const groups = await readRules(org, {}, signal);
      // The texts of all groups are read again only if there are others.
      const isSame = stored?.length === groups.length && groups.every((one) => stored?.some((own) => isOf(own, one)));
      return { groups, stored: isSame && stored ? stored : await listGroups(org, signal) };
    },
    show(loaded) {
      stored = loaded.stored;
      entries = entriesOf(stored, loaded.groups);
      update();
    },
  });
  void refreshing.refresh();
  const button = textButton('New group', create, { class: 'primary' });
  const head = h('div', { class: 'row spread' }, filter.node, edits && button);
  return { node: h('div', { class: 'stack' }, head, ...refreshing.nodes, none, place), stop: refreshing.stop };
}

/**
 * @param {{org: string, role: import('../client/types.js').Role, signedOut: () => void}} options
 * @returns {{node: HTMLElement, start: () => void, stop: () => void}}
 */
export function rulesPage({ org, role, signedOut }) {
  const edits = permits(role, 'editor');
  const place = h('div', { class: 'stack' });
  const title = h('h1', { tabindex: '-1', text: 'Rules' });
  const leave = () => go({});
  const back = textButton('‹ All groups', leave, { class: 'plain' });
  const node = h('main', { class: 'explore cabinet alerting' }, h('div', { class: 'page-head' }, title, back), place);
  let stop = () => {};
  let turn = 0;

  /** @param {Record<string, string>} parameters */
  function go(parameters) {
    history.pushState(null, '', pageUrl('/rules', { org, ...parameters }));
    void show();
    title.focus();
  }
  /** @param {StoredGroup|null} stored */
  const edit = (stored) => {
    const editor = groupEditor({
      org,
      edits,
      stored,
      rule: new URLSearchParams(location.search).get('rule') ?? '',
      signedOut,
      leave,
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
        org,
        edits,
        signedOut,
        open: (group) => go({ group }),
        create: () => go({ new: '1' }),
      });
      place.replaceChildren(list.node);
      stop = list.stop;
      return;
    }
    place.replaceChildren(h('p', { class: 'hint', role: 'status', text: 'Loading…' }));
    try {
      const stored = await groupOf(org, name, parameters.get('file'));
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
