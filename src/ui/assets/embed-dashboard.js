// <metric-dashboard>: a dashboard of a promlet server on any page. Defines <metric-chart>, too.
//
//   <script type="module" src="SERVER/embed-dashboard.js"></script>
//   <metric-dashboard org="acme" uid="node" token-endpoint="/metrics-token"></metric-dashboard>
//
// docs/guide/embed-dashboards.md lists the attributes, the property `snapshot`, events, CSS variables and parts.

import { DashboardView } from './embedded/dashboard.js';
import { sheets } from './embedded/sheets.js';
import { readSnapshot, serverSource, snapshotSource } from './embedded/source.js';

/** The server's public URL: the folder of this file, without that of its version. */
const SERVER = new URL('.', import.meta.url).href.replace(/(\/assets\/[0-9a-f]{16})?\/$/, '');
/** The pause before <metric-chart> is loaded where a browser does not tell that it is idle, in milliseconds. */
const CHART_MS = 2000;
/** Attributes that say which dashboard is shown, and with which right. */
const SUBJECT = new Set(['org', 'uid', 'src', 'link', 'token-endpoint']);
/** Attributes that select the shown parts, besides those of variables. */
const SHOWN = new Set(['panel', 'from', 'to', 'refresh', 'live', 'hide']);

class MetricDashboard extends HTMLElement {
  /** @type {DashboardView | null} */
  #view = null;
  /** @type {import('./embedded/source.js').Snapshot | null} */
  #snapshot = null;
  #root = this.attachShadow({ mode: 'open' });
  /** Its colour is that of the scheme in use. */
  #probe = document.createElement('i');
  #scheme = matchMedia('(prefers-color-scheme: dark)');
  #redraw = () => this.#view?.redraw();
  #observer = new MutationObserver((changes) =>
    this.#changed(new Set(changes.map((change) => change.attributeName ?? ''))),
  );

  connectedCallback() {
    // A property that was set before the element was defined hides that of the class.
    if (Object.hasOwn(this, 'snapshot')) {
      this.#snapshot = readSnapshot(this.snapshot);
      delete (/** @type {any} */ (this).snapshot);
    }
    this.#observer.observe(this, { attributes: true });
    this.#scheme.addEventListener('change', this.#redraw);
    this.#start();
  }

  disconnectedCallback() {
    this.#observer.disconnect();
    this.#scheme.removeEventListener('change', this.#redraw);
    this.#view?.stop();
    this.#view = null;
  }

  /** The shown dashboard with its data, for another element. */
  get snapshot() {
    return this.#snapshot ?? this.#view?.take() ?? null;
  }

  set snapshot(value) {
    this.#snapshot = readSnapshot(value);
    if (this.isConnected) this.#start();
  }

  /** Asks for new data. */
  reload() {
    this.#view?.refresh();
  }

  async #start() {
    this.#view?.stop();
    this.#view = null;
    const [org, uid] = [this.#read('org'), this.#read('uid')];
    if (!this.#snapshot && !(org && uid)) return;
    const source = this.#snapshot
      ? snapshotSource(this.#snapshot)
      : serverSource({ org, uid, credential: () => this.#credential() });
    const view = new DashboardView(
      {
        read: (name) => this.#read(name),
        has: (name) => this.hasAttribute(name),
        attributes: () => this.attributes,
        // Pages listen to every `load` and `error` on the window, so these do not bubble.
        emit: (name, detail, cancelable = false) => {
          const bubbles = !['load', 'error'].includes(name);
          return this.dispatchEvent(new CustomEvent(name, { detail, cancelable, bubbles, composed: true }));
        },
        theme: () => (getComputedStyle(this.#probe).color === 'rgb(0, 0, 0)' ? 'light' : 'dark'),
      },
      source,
      this.#snapshot,
    );
    this.#view = view;
    this.#root.adoptedStyleSheets = await sheets();
    if (this.#view !== view) return;
    this.#probe.className = 'probe';
    this.#probe.hidden = true;
    view.node.append(this.#probe);
    this.#root.replaceChildren(view.node);
    view.load();
  }

  /** @param {string} name */
  #read(name) {
    return this.getAttribute(name)?.trim() ?? '';
  }

  #credential() {
    return {
      base: this.#read('src').replace(/\/+$/, '') || SERVER,
      token: this.#read('link') || this.#read('token'),
      tokenEndpoint: this.#read('token-endpoint'),
    };
  }

  /** @param {Set<string>} names of attributes */
  #changed(names) {
    if ([...names].some((name) => SUBJECT.has(name))) this.#start();
    else if (names.has('token')) this.#view?.renewed();
    if ([...names].some((name) => SHOWN.has(name) || name.startsWith('var-'))) {
      this.#view?.changed(names);
    } else if (names.has('theme')) this.#redraw();
  }
}

if (!customElements.get('metric-dashboard')) customElements.define('metric-dashboard', MetricDashboard);

/** Defines <metric-chart>, too: at once for a page that has one, or else when the browser has nothing to do. */
const defineChart = () => import('./embed.js').catch(() => {});
if (document.querySelector('metric-chart')) defineChart();
else if ('requestIdleCallback' in window) requestIdleCallback(defineChart);
else setTimeout(defineChart, CHART_MS);
