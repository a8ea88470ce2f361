// The page Alerts: alerting rules by state with their alerts, and silences.

import { parseValue } from '../chart/columns.js';
import { h } from '../chart/dom.js';
import { formatMoment, formatValue, niceStep, parseDuration } from '../chart/scale.js';
import { acknowledge, listSilences, readHandling, readMatrix, readRules } from '../client/alerting.js';
import { isSignedOut, pageUrl } from '../client/server.js';
import { alertChart, rangeChoice } from '../components/alert_chart.js';
import {
  ago,
  chips,
  cutText,
  filterBar,
  live,
  liveList,
  refill,
  setText,
  stateBadge,
  unfolding,
} from '../components/live.js';
import { actionButton } from '../components/parts.js';
import { silenceDialog, silenceList } from '../components/silences.js';
import { addressTabs } from '../components/tabs.js';
import { toast } from '../components/toast.js';
import { STATES, fingerprint, matches, matchersOf, transitionsOf } from '../model/alerting.js';
import { formatDuration } from '../model/duration.js';
import { errorText } from '../model/error_text.js';
import { counted, hasWords } from '../model/metrics.js';
import { permits } from '../model/routes.js';

/**
 * @typedef {import('../client/alerting.js').Rule} Rule
 * @typedef {import('../client/alerting.js').ActiveAlert} ActiveAlert
 * @typedef {import('../client/alerting.js').Silence} Silence
 * @typedef {{group: string, file: string, rule: Rule}} Entry
 * @typedef {import('../client/alerting.js').Handling} Handling
 * @typedef {{org: string, edits: boolean, signedOut: () => void, silences: () => Silence[],
 *   handling: (fingerprint: string) => Handling|undefined,
 *   labels: () => Record<string, string>[], refresh: () => void, open: Set<string>}} Context `open`: the
 *   rules that are unfolded
 */

/** The time between two refreshes. */
const EVERY = '10s';
/** Points of a chart. */
const POINTS = 400;
/** The most rules of a state that are listed. */
const RULES_MAX = 200;
/** The most alerts of a rule that are listed. */
const ALERTS_MAX = 200;

/** The key that distinguishes rules. @param {Entry} entry */
const entryKey = ({ group, file, rule }) =>
  JSON.stringify([group, file, rule.name, rule.query, rule.labels, rule.duration]);

/** The chart of a rule's expression with the states that its alerts had. @param {Context} context @param {Rule} rule */
function history({ org, signedOut }, rule) {
  const chart = alertChart({ label: `Expression of ${rule.name}` });
  const alert = h('p', { class: 'alert', role: 'alert' });
  /** @type {AbortController|null} */
  let request = null;
  const load = async (/** @type {string} */ range) => {
    request?.abort();
    const { signal } = (request = new AbortController());
    const seconds = parseDuration(range) ?? 3600;
    const step = niceStep(seconds, POINTS);
    // The last step is now: an alert that has just begun is shown.
    const end = Math.floor(Date.now() / 1000);
    const grid = { start: end - Math.floor(seconds / step) * step, end, step };
    try {
      const selector = `ALERTS{alertname=${JSON.stringify(rule.name)}}`;
      const [series, states] = await Promise.all([
        readMatrix(org, rule.query, grid, signal),
        readMatrix(org, selector, grid, signal),
      ]);
      alert.textContent = '';
      chart.show({ series, transitions: transitionsOf(states, grid), grid });
    } catch (error) {
      if (signal.aborted) return;
      if (isSignedOut(error)) signedOut();
      else alert.textContent = errorText(error);
    }
  };
  void load('6h');
  return [h('div', { class: 'row' }, rangeChoice('6h', load)), alert, chart.node];
}

/** @param {Context} context @param {ActiveAlert} first */
function alertRow(context, first) {
  const { org, edits, signedOut } = context;
  const badge = stateBadge();
  const marks = h('span', { class: 'chips' });
  const value = h('strong', { class: 'amount' });
  const since = h('small', { class: 'hint' });
  const notes = h('dl', { class: 'facts' });
  const alert = h('p', { class: 'alert', role: 'alert' });
  const id = fingerprint(first.labels);
  const button = (/** @type {string} */ text, /** @type {() => Promise<void>} */ action) =>
    actionButton(text, action, { alert, signedOut });
  const silence = button('Silence…', async () => {
    const made = await silenceDialog({ org, matchers: matchersOf(first.labels), alerts: context.labels });
    if (!made) return;
    toast('The silence was created.');
    context.refresh();
  });
  let isAcknowledged = false;
  const handle = button('Acknowledge', async () => {
    await acknowledge(org, id, !isAcknowledged);
    toast(isAcknowledged ? 'The acknowledgement was withdrawn.' : 'The alert was acknowledged.');
    context.refresh();
  });
  const node = h(
    'li',
    {},
    h('div', { class: 'row' }, badge.node, marks, value, since),
    chips(first.labels, ['alertname']),
    notes,
    edits && h('div', { class: 'row' }, silence, handle),
    alert,
  );
  return {
    node,
    /** @param {ActiveAlert} now */
    update({ labels, annotations = {}, state, activeAt, value: text }) {
      badge.set(state);
      const { acknowledgedBy = null, isInhibited = false } = context.handling(id) ?? {};
      const by = context
        .silences()
        .find((one) => one.state === 'active' && matches(one.matchers, labels));
      isAcknowledged = acknowledgedBy !== null;
      // Only a firing alert can be acknowledged.
      handle.hidden = state !== 'firing';
      const words = [
        by && `silenced until ${formatMoment(Date.parse(by.endsAt) / 1000)}`,
        isAcknowledged && `acknowledged by ${acknowledgedBy}`,
        isInhibited && 'held back by another alert',
      ].filter(Boolean);
      refill(marks, words, () => words.map((word) => h('span', { class: 'badge', text: String(word) })));
      setText(handle, isAcknowledged ? 'Withdraw acknowledgement' : 'Acknowledge');
      setText(value, formatValue(parseValue(text)));
      setText(since, `since ${formatMoment(Date.parse(activeAt) / 1000)}, ${ago(activeAt)}`);
      refill(notes, annotations, () =>
        Object.entries(annotations).flatMap(([name, note]) => [h('dt', { text: name }), h('dd', { text: note })]),
      );
    },
  };
}

/** @param {Context} context @param {Entry} first */
function ruleRow(context, first) {
  const { rule } = first;
  const badge = stateBadge();
  const many = h('small', { class: 'hint' });
  const problem = h('p', { class: 'alert row-error' });
  const list = h('ul', { class: 'alerts-list' });
  const more = h('p', { class: 'hint' });
  const show = liveList(
    list,
    (/** @type {ActiveAlert} */ { labels }) => JSON.stringify(labels),
    (alert) => alertRow(context, alert),
  );
  /** @type {Rule} */
  let now = rule;
  const showAlerts = () => {
    const all = now.alerts ?? [];
    show(all.slice(0, ALERTS_MAX));
    setText(more, cutText(ALERTS_MAX, all.length, 'alert'));
  };
  const { duration = 0, keepFiringFor = 0, labels = {} } = rule;
  const conditions = [
    duration > 0 && `for ${formatDuration(duration)}`,
    keepFiringFor > 0 && `keeps firing for ${formatDuration(keepFiringFor)}`,
  ].filter(Boolean);
  const details = unfolding(
    h(
      'summary',
      {},
      h('strong', { text: rule.name }),
      badge.node,
      many,
      h('small', { class: 'hint', text: first.group }),
    ),
    () => {
      showAlerts();
      return [
        h('pre', { class: 'snippet', tabindex: '0', role: 'group', 'aria-label': 'Expression', text: rule.query }),
        h(
          'div',
          { class: 'row' },
          conditions.length > 0 && h('span', { class: 'hint', text: conditions.join(', ') }),
          chips(labels),
          h('a', { href: pageUrl('/explore', { org: context.org, expr: rule.query }), text: 'Open in Explore' }),
          h('a', {
            href: pageUrl('/rules', { org: context.org, group: first.group, file: first.file, rule: rule.name }),
            text: 'Open the rule',
          }),
        ),
        ...history(context, rule),
        list,
        more,
      ];
    },
  );
  const key = entryKey(first);
  // A rule whose state changes has a row elsewhere, which is unfolded as well.
  details.open = context.open.has(key);
  details.addEventListener('toggle', () => context.open[details.open ? 'add' : 'delete'](key));
  return {
    node: h('div', {}, details, problem),
    /** @param {Entry} entry */
    update(entry) {
      now = entry.rule;
      const alerts = now.alerts ?? [];
      badge.set(now.health === 'unknown' ? 'not evaluated yet' : stateOf(entry));
      setText(many, alerts.length ? counted(alerts.length, 'alert') : '');
      setText(problem, now.lastError ? `The last evaluation failed: ${now.lastError}` : '');
      if (details.open) showAlerts();
    },
  };
}

/** A rule that was never evaluated counts as inactive. @param {Entry} entry */
const stateOf = ({ rule }) => STATES.find((state) => state === rule.state) ?? 'inactive';

const TITLES = { firing: 'Firing', pending: 'Pending', inactive: 'Inactive' };

/** @param {Entry} entry @param {string} text */
const passes = ({ group, rule }, text) => {
  const all = [group, rule.name, rule.query, rule.labels, rule.alerts?.map(({ labels }) => labels)];
  return hasWords(JSON.stringify(all), text);
};

/**
 * The list of rules by state.
 * @param {Context} context
 * @param {() => Entry[]|null} entries null before the first answer
 */
function overview(context, entries) {
  const empty = h(
    'section',
    { class: 'card part' },
    h('p', { text: 'There are no alerting rules. A rule states when something needs attention.' }),
    h(
      'div',
      { class: 'row' },
      h('a', { class: 'button', href: pageUrl('/rules', { org: context.org }), text: 'Open Rules' }),
    ),
  );
  const filter = filterBar({
    label: 'Filter by rule, group or label',
    states: [{ id: '', text: 'All' }, ...STATES.map((id) => ({ id, text: TITLES[id] }))],
    change: () => show(),
  });
  const sections = STATES.map((state) => {
    const place = h('div', { class: 'stack' });
    const id = `state-${state}`;
    const more = h('p', { class: 'hint' });
    const heading = h('h2', { id, text: TITLES[state] });
    const node = h('section', { class: 'card part', 'aria-labelledby': id }, heading, place, more);
    const list = liveList(place, entryKey, (entry) => ruleRow(context, entry));
    return { state, node, list, more };
  });
  const none = h('p', { class: 'hint', text: 'No rule passes the filter.' });
  function show() {
    const all = entries();
    empty.hidden = all === null || all.length > 0;
    filter.node.hidden = !all?.length;
    const counts = Object.fromEntries(
      STATES.map((id) => [id, (all ?? []).filter((one) => stateOf(one) === id).length]),
    );
    filter.count({ ...counts, '': all?.length ?? 0 });
    const passed = (all ?? []).filter((one) => passes(one, filter.text()));
    let shown = 0;
    for (const { state, node, list, more } of sections) {
      const wanted = !filter.state() || filter.state() === state;
      const own = wanted ? passed.filter((one) => stateOf(one) === state) : [];
      list(own.slice(0, RULES_MAX));
      setText(more, cutText(RULES_MAX, own.length, 'rule'));
      node.hidden = own.length === 0;
      shown += own.length;
    }
    none.hidden = !all?.length || shown > 0;
  }
  show();
  return { nodes: [filter.node, empty, none, ...sections.map(({ node }) => node)], show };
}

/**
 * @param {{org: string, role: import('../client/types.js').Role, signedOut: () => void}} options
 * @returns {{node: HTMLElement, start: () => void, stop: () => void}}
 */
export function alertsPage({ org, role, signedOut }) {
  /** @type {Entry[]|null} */
  let entries = null;
  /** @type {Silence[]} */
  let silences = [];
  /** @type {Map<string, Handling>} */
  let handling = new Map();
  const quiet = h('p', { class: 'hint', role: 'status' });
  const labels = () => (entries ?? []).flatMap(({ rule }) => rule.alerts?.map((alert) => alert.labels) ?? []);
  const edits = permits(role, 'editor');
  const refresh = () => void refreshing.refresh();
  /** @type {Context} */
  const context = {
    org,
    edits,
    signedOut,
    silences: () => silences,
    handling: (id) => handling.get(id),
    labels,
    refresh,
    open: new Set(),
  };
  const list = overview(context, () => entries);
  const refreshing = live({
    every: EVERY,
    signedOut,
    load: async (signal) => {
      // Without silences and acknowledgements, the alerts are shown nevertheless.
      const known = Promise.all([listSilences(org, signal), readHandling(org, signal)]).catch((error) => {
        if (isSignedOut(error) || signal.aborted) throw error;
        return errorText(error);
      });
      return Promise.all([readRules(org, { type: 'alert' }, signal), known]);
    },
    show([groups, known]) {
      entries = groups.flatMap(({ name, file, rules }) => rules.map((rule) => ({ group: name, file, rule })));
      const isKnown = typeof known !== 'string';
      setText(quiet, isKnown ? '' : `Silences and acknowledgements cannot be read: ${known}`);
      if (isKnown) [silences, handling] = known;
      list.show();
    },
  });
  const tabs = addressTabs('Alerts', [
    { id: 'alerts', text: 'Alerts', panel: () => [...refreshing.nodes, quiet, ...list.nodes] },
    {
      id: 'silences',
      text: 'Silences',
      panel: () => [silenceList({ org, edits, signedOut, alerts: labels, changed: refresh })],
    },
  ]);
  const node = h('main', { class: 'explore cabinet alerting' }, h('h1', { text: 'Alerts' }), tabs.node);
  return {
    node,
    start: refresh,
    stop() {
      tabs.stop();
      refreshing.stop();
    },
  };
}
