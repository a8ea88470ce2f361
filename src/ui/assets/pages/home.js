// The first page of an organisation: the state of its data, dashboards, recent queries, shortcuts.

import { h } from '../chart/dom.js';
import { listDashboards } from '../client/dashboards.js';
import { isSignedOut, orgPath, pageUrl, readOrg, send } from '../client/server.js';
import { icon } from '../components/icons.js';
import { errorText } from '../model/error_text.js';
import { ageText, sizeText } from '../model/limit_units.js';
import { hasOwnMetrics } from '../model/metrics.js';
import { recent, seenDashboards } from '../model/recent.js';
import { permits } from '../model/routes.js';
import { recall } from '../model/storage.js';

/** Time between two looks at the state of the data, and between two updates of ages, in milliseconds. */
const STATE_MS = 15_000;
const AGE_MS = 1000;
/** The most metrics whose newest sample is looked up. */
const METRICS_MAX = 1000;
/** The most entries of one list. */
const SHOWN_MAX = 8;
/** A newest sample that is older counts as late, in seconds. */
const LATE_S = 300;
const OWN_HINT = 'Samples today do not include the metrics of this server itself.';

/**
 * @typedef {import('../client/dashboards.js').Entry} Entry
 * @typedef {{series: number, samples_today: number, bytes: number}} Usage
 */

/**
 * @param {{org: string, role: import('../client/types.js').Role, signedOut: () => void,
 *   membership: import('../client/types.js').OrgOfUser}} context
 */
export function homePage({ org, role, signedOut, membership }) {
  let stopped = false;
  let timer = 0;
  let ages = 0;
  /** Time of the newest sample in unix seconds; null before it is known, and without samples. @type {number|null} */
  let newest = null;
  /** @type {Usage|null} */
  let usage = null;
  /** Whether the metrics of the server itself may be among the stored ones. */
  let hasOwn = false;
  const page = (/** @type {string} */ path, /** @type {Object<string, string>} */ more = {}) =>
    pageUrl(path, { org, ...more });

  const alert = h('p', { class: 'alert', role: 'alert' });
  const state = h('section', { class: 'card state', 'aria-labelledby': 'state-title' });
  const boards = h('div', { class: 'home-lists' });
  const node = h(
    'main',
    { class: 'explore home' },
    h('h1', { text: membership.name || org }),
    alert,
    state,
    shortcuts(),
    boards,
  );

  function shortcuts() {
    const entries = [
      { text: 'Run a query', name: 'query', href: page('/explore') },
      { text: 'Add data', name: 'ingest', href: page('/ingest') },
      permits(role, 'editor') && {
        text: 'Import a dashboard',
        name: 'upload',
        href: page('/dashboards', { import: '' }),
      },
      permits(role, 'admin') && {
        text: 'Create an API key',
        name: 'key',
        href: page('/organisation', { tab: 'keys', new: '' }),
      },
    ];
    return h(
      'nav',
      { class: 'shortcuts', 'aria-label': 'Shortcuts' },
      entries.map((entry) => entry && h('a', { class: 'button', href: entry.href }, icon(entry.name), entry.text)),
    );
  }

  const tile = (/** @type {string} */ label, /** @type {string|Node} */ value) =>
    h('div', { class: 'tile' }, h('dt', { text: label }), h('dd', {}, value));

  const age = h('span');
  function showAge() {
    const seconds = newest === null ? NaN : Math.max(0, Date.now() / 1000 - newest);
    age.textContent = newest === null ? 'None in the last day' : ageText(seconds);
    age.classList.toggle('late', seconds > LATE_S);
  }

  function showState() {
    if (!usage) return;
    const { series, samples_today: today, bytes } = usage;
    const head = h('h2', { id: 'state-title', text: 'Data' });
    if (series === 0 && newest === null) {
      // The link that is there keeps the focus.
      if (!state.querySelector('a')) state.replaceChildren(
        head,
        h('p', {
          text: 'This organisation has no metrics yet. Send samples from Prometheus, OpenTelemetry or a script.',
        }),
        h('p', {}, h('a', { class: 'button primary', href: page('/ingest') }, icon('ingest'), 'Add data')),
      );
      return;
    }
    showAge();
    state.replaceChildren(
      head,
      h(
        'dl',
        { class: 'tiles' },
        tile('Active series', series.toLocaleString('en')),
        tile('Newest sample', age),
        tile('Samples today', today.toLocaleString('en')),
        tile('On disk', sizeText(bytes)),
      ),
      ...(hasOwn ? [h('p', { class: 'hint', text: OWN_HINT })] : []),
    );
  }

  async function look() {
    try {
      if (!document.hidden) {
        const [{ usage: used }, metrics] = await Promise.all([
          send('GET', orgPath(org)),
          readOrg(org, '/metrics', { limit: METRICS_MAX }),
        ]);
        if (stopped) return;
        usage = used;
        hasOwn = hasOwnMetrics(metrics.data);
        newest = metrics.data.reduce(
          (/** @type {number|null} */ last, /** @type {import('../client/types.js').Metric} */ { last_seen: seen }) =>
            typeof seen === 'number' && seen > (last ?? 0) ? seen : last,
          null,
        );
        alert.textContent = '';
        showState();
      }
    } catch (error) {
      fail(error);
    }
    if (!stopped) timer = setTimeout(look, STATE_MS);
  }

  /** @param {unknown} error */
  function fail(error) {
    if (stopped) return;
    if (isSignedOut(error)) signedOut();
    else alert.textContent = errorText(error);
  }

  /**
   * @param {string} heading
   * @param {string} name of the icon
   * @param {{href: string, text: string, about?: string, code?: boolean}[]} entries
   * @param {...import('../chart/dom.js').Child} empty
   */
  const list = (heading, name, entries, ...empty) =>
    h(
      'section',
      { class: 'card' },
      h('h2', {}, icon(name), heading),
      entries.length === 0
        ? h('p', { class: 'hint' }, empty)
        : h(
            'ul',
            {},
            entries
              .slice(0, SHOWN_MAX)
              .map(({ href, text, about, code }) =>
                h(
                  'li',
                  {},
                  h('a', { href, class: code ? 'code-link' : undefined, text, title: text }),
                  about && h('small', { class: 'hint', text: about }),
                ),
              ),
          ),
    );

  /** @param {Entry} entry */
  const link = ({ uid, title, folder }) => ({ href: page('/dashboard', { uid }), text: title || uid, about: folder });

  async function showLists() {
    const history = recall(`history.${org}`, /** @type {string[]} */ ([]));
    const queries = (Array.isArray(history) ? history : [])
      .filter((expr) => typeof expr === 'string')
      .reverse()
      .map((expr) => ({ href: page('/explore', { expr }), text: expr, code: true }));
    /** @type {Entry[]} */
    let all = [];
    try {
      all = await listDashboards(org, {});
    } catch (error) {
      fail(error);
    }
    if (stopped) return;
    const seen = recent(seenDashboards(org)).flatMap((uid) => all.filter((one) => one.uid === uid));
    const starred = all.filter((one) => one.starred);
    boards.replaceChildren(
      list('Starred dashboards', 'star', starred.map(link), 'Star a dashboard to find it here.'),
      list(
        'Recently viewed',
        'clock',
        seen.map(link),
        all.length === 0 ? 'There are no dashboards yet. ' : 'You have not opened a dashboard yet.',
        all.length === 0
          && permits(role, 'editor')
          && h('a', { href: page('/dashboards'), text: 'Add a built-in one' }),
      ),
      list('Recent queries', 'query', queries, 'Queries that you run in Explore are listed here.'),
    );
  }

  return {
    node,
    start() {
      ages = setInterval(showAge, AGE_MS);
      return Promise.all([look(), showLists()]);
    },
    stop() {
      stopped = true;
      clearTimeout(timer);
      clearInterval(ages);
    },
  };
}
