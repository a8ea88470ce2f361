// The page Targets: the scraped targets, with errors, labels and the steps of relabelling.

import { h } from '../chart/dom.js';
import { formatValue } from '../chart/scale.js';
import { readPools, readSteps, readTargets } from '../client/alerting.js';
import { orgPath, pageUrl } from '../client/server.js';
import { textButton } from '../components/buttons.js';
import { ago, chips, filterBar, live, liveList, nextId, setText, stateBadge, unfolding } from '../components/live.js';
import { card } from '../components/parts.js';
import { scrapeConfig } from '../components/scrape_config.js';
import { addressTabs } from '../components/tabs.js';
import { errorText } from '../model/error_text.js';
import { counted } from '../model/metrics.js';
import { mayConfigureScraping } from '../model/routes.js';
import { labelChanges, poolsOf, ruleLines } from '../model/targets.js';

/**
 * @typedef {import('../model/targets.js').Target} Target
 * @typedef {import('../model/targets.js').Dropped} Dropped
 * @typedef {import('../model/targets.js').Pool} Pool
 * @typedef {import('../model/targets.js').Change} Change
 */

/** The time between two refreshes. */
const EVERY = '10s';
/** Rows of a pool that are shown at first. */
const ROWS = 200;

const EXAMPLE = `scrape_configs:
  - job_name: node
    scrape_interval: 15s
    static_configs:
      - targets: ['localhost:9100']
`;

const STATES = [
  { id: '', text: 'All' },
  { id: 'down', text: 'Down' },
  { id: 'unknown', text: 'Unknown' },
  { id: 'up', text: 'Up' },
];

/**
 * The text of the page while no target is scraped.
 * @param {string} org
 * @param {boolean} configures whether the person may use the tab Configuration
 */
const howTo = (org, configures) =>
  h(
    'section',
    { class: 'card part', 'aria-labelledby': 'scrape-title' },
    h('h2', { id: 'scrape-title', text: 'Nothing is scraped yet' }),
    configures
      ? h(
          'p',
          {},
          'This server can collect metrics by itself. Write the targets in the format of Prometheus on the tab ',
          h('a', { href: pageUrl('/targets', { org, tab: 'configuration' }), text: 'Configuration' }),
          ', or into a file:',
        )
      : h('p', {
          text: 'This server can collect metrics by itself. Write the targets into a file in the format of Prometheus:',
        }),
    h('pre', { class: 'snippet', tabindex: '0', role: 'group', 'aria-label': 'Example of a file', text: EXAMPLE }),
    h('p', { text: 'Start the server with the file. A prometheus.yml that you have works as it is.' }),
    h('pre', {
      class: 'snippet',
      tabindex: '0',
      role: 'group',
      'aria-label': 'Command',
      text: 'promlet serve --scrape-config scrape.yml',
    }),
  );

/** @param {Change} change */
const changeRow = ({ name, before, after }) =>
  h(
    'li',
    {},
    h('code', { text: name }),
    before !== undefined && h('del', { text: before || '""' }),
    after === undefined ? h('span', { class: 'hint', text: 'removed' }) : h('ins', { text: after || '""' }),
  );

/**
 * A button that shows the labels after each step of relabelling, and how the last ones differ from the first.
 * @param {string} org
 * @param {string} pool
 * @param {Record<string, string>} discovered
 */
function steps(org, pool, discovered) {
  const place = h('ol', { class: 'steps-list' });
  const alert = h('p', { class: 'alert', role: 'alert' });
  const button = textButton('Show relabelling steps', async () => {
    button.disabled = true;
    alert.textContent = '';
    try {
      const all = await readSteps(org, pool, discovered);
      let before = discovered;
      place.replaceChildren(
        ...all.map(({ rule, output, keep }) => {
          const changes = labelChanges(before, keep ? output : before);
          before = output;
          return h(
            'li',
            {},
            h('pre', { class: 'snippet', tabindex: '0', role: 'group', 'aria-label': 'Rule', text: ruleLines(rule) }),
            keep && changes.length === 0 && h('p', { class: 'hint', text: 'This step changes nothing.' }),
            !keep && h('p', { class: 'alert', text: 'This step drops the target.' }),
            changes.length > 0 && h('ul', { class: 'changes' }, changes.map(changeRow)),
          );
        }),
      );
      if (all.length === 0) place.replaceWith(h('p', { class: 'hint', text: 'The pool has no relabel_configs.' }));
      button.remove();
    } catch (error) {
      alert.textContent = errorText(error);
      button.disabled = false;
    }
  });
  return [button, alert, place];
}

/** @param {string} text @param {Record<string, string>} labels */
const labelled = (text, labels) => h('div', { class: 'labels' }, h('h3', { text }), chips(labels));

/** @param {string} org @param {Target} first */
function targetRow(org, first) {
  const badge = stateBadge();
  const when = h('small', { class: 'hint' });
  const problem = h('p', { class: 'alert row-error' });
  const node = unfolding(
    h('summary', {}, h('strong', { class: 'address', text: first.scrapeUrl }), badge.node, when),
    () => [
      labelled('Labels', first.labels),
      labelled('Discovered labels, before relabelling', first.discoveredLabels),
      ...steps(org, first.scrapePool, first.discoveredLabels),
    ],
  );
  return {
    node: h('div', { class: 'target' }, node, problem),
    /** @param {Target} target */
    update(target) {
      badge.set(target.health);
      const last = ago(target.lastScrape);
      const took = `took ${formatValue(target.lastScrapeDuration, 'seconds')}`;
      const every = target.scrapeInterval ? ` · every ${target.scrapeInterval}` : '';
      setText(when, last ? `scraped ${last} · ${took}${every}` : `not scraped yet${every}`);
      setText(problem, target.lastError);
    },
  };
}

/** @param {string} org @param {string} pool @param {Dropped} dropped */
const droppedRow = (org, pool, { discoveredLabels: labels }) =>
  unfolding(h('summary', {}, h('span', { class: 'address', text: labels.__address__ ?? 'A target' })), () => [
    labelled('Discovered labels', labels),
    ...steps(org, pool, labels),
  ]);

/** @param {string} org @param {Pool} first */
function poolCard(org, first) {
  const badge = stateBadge();
  const list = h('div', { class: 'stack targets' });
  const none = h('p', { class: 'hint' });
  let shown = ROWS;
  /** @type {Pool} */
  let pool = first;
  const more = textButton('Show all targets', () => {
    shown = Infinity;
    update(pool);
  });
  const show = liveList(
    list,
    (/** @type {Target} */ target) => JSON.stringify([target.scrapeUrl, target.labels, target.discoveredLabels]),
    (target) => targetRow(org, target),
  );
  const droppedTitle = h('summary');
  const dropped = h('details', {}, droppedTitle);
  const fillDropped = () => {
    const rows = pool.dropped.slice(0, ROWS);
    const left = pool.droppedCount - rows.length;
    dropped.replaceChildren(
      droppedTitle,
      h(
        'div',
        { class: 'stack' },
        rows.map((one) => droppedRow(org, pool.name, one)),
        left > 0 && h('p', { class: 'hint', text: `${counted(left, 'more dropped target')} not listed.` }),
      ),
    );
  };
  // The list is filled only when it is unfolded, so that its rows do not move under the pointer.
  dropped.addEventListener('toggle', () => {
    if (dropped.open) fillDropped();
  });
  const id = nextId();
  const node = h(
    'section',
    { class: 'card part', 'aria-labelledby': id },
    h('div', { class: 'row' }, h('h2', { id, text: first.name }), badge.node),
    none,
    list,
    h('div', { class: 'row' }, more),
    dropped,
  );
  /** @param {Pool} next */
  function update(next) {
    pool = next;
    badge.set(pool.up < pool.total ? 'down' : pool.total ? 'up' : 'unknown', `${pool.up} of ${pool.total} up`);
    setText(none, pool.targets.length ? '' : pool.total ? 'No target passes the filter.' : 'No targets.');
    show(pool.targets.slice(0, shown));
    more.hidden = pool.targets.length <= shown;
    dropped.hidden = pool.droppedCount === 0;
    setText(droppedTitle, `${counted(pool.droppedCount, 'target')} dropped by relabelling`);
  }
  return { node, update };
}

/**
 * @param {{org: string, role: import('../client/types.js').Role, me: import('../client/types.js').Me,
 *   signedOut: () => void}} context
 * @returns {{node: HTMLElement, start: () => void, stop: () => void}}
 */
export function targetsPage({ org, role, me, signedOut }) {
  /** @type {{data: any, names: string[]}|null} */
  let loaded = null;
  const pools = h('div', { class: 'stack' });
  const total = h('p', { class: 'hint' });
  const configures = mayConfigureScraping(me, role);
  const empty = howTo(org, configures);
  empty.hidden = true;
  const showPools = liveList(
    pools,
    (/** @type {Pool} */ { name }) => name,
    (pool) => poolCard(org, pool),
  );
  const filter = filterBar({ label: 'Filter by address, label or error', states: STATES, change: () => show() });
  filter.node.hidden = true;

  function show() {
    if (!loaded) return;
    const { data, names } = loaded;
    /** @type {Target[]} */
    const active = data.activeTargets ?? [];
    const all = poolsOf(data, names, { text: filter.text(), health: filter.state() });
    const isFiltered = Boolean(filter.text() || filter.state());
    const counts = Object.fromEntries(
      ['up', 'down', 'unknown'].map((id) => [id, active.filter(({ health }) => health === id).length]),
    );
    filter.count({ ...counts, '': active.length });
    empty.hidden = all.length > 0;
    filter.node.hidden = all.length === 0;
    const seen = isFiltered ? all.filter(({ targets }) => targets.length > 0) : all;
    showPools(seen);
    const text = `${counted(active.length, 'target')} in ${counted(all.length, 'pool')}`;
    setText(total, all.length === 0 ? '' : seen.length === 0 ? `${text}; none passes the filter.` : `${text}.`);
  }
  const refreshing = live({
    every: EVERY,
    signedOut,
    load: async (signal) => {
      const [data, names] = await Promise.all([readTargets(org, signal), readPools(org, signal)]);
      return { data, names };
    },
    show(next) {
      loaded = next;
      show();
    },
  });
  const shown = [...refreshing.nodes, filter.node, empty, pools];
  const configuration = () =>
    card({
      heading: 'Configuration of this organisation',
      intro: 'Jobs in the format of scrape_configs in Prometheus. They are scraped in addition to those in the file of the server.',
      fill: (part) => scrapeConfig({ base: orgPath(org), example: EXAMPLE }, part),
      signedOut,
    });
  const tabs =
    configures &&
    addressTabs('Targets', [
      { id: 'targets', text: 'Targets', panel: () => shown },
      { id: 'configuration', text: 'Configuration', panel: () => [configuration()] },
    ]);
  const node = h(
    'main',
    { class: 'explore cabinet alerting' },
    h('div', { class: 'page-head' }, h('h1', { text: 'Targets' }), total),
    ...(tabs ? [tabs.node] : shown),
  );
  return {
    node,
    start: () => void refreshing.refresh(),
    stop() {
      if (tabs) tabs.stop();
      refreshing.stop();
    },
  };
}
