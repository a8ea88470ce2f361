// <metric-alerts>: the pending and firing alerts of a promlet server on any page.
//
//   <script type="module" src="SERVER/embed-alerts.js"></script>
//   <metric-alerts org="acme" token-endpoint="/metrics-token"></metric-alerts>
//
// docs/guide/alerts.md lists the attributes, properties, events, CSS variables and parts; embed.d.ts
// has their types. `data-state` is idle, loading, drawn, empty or error.

import { AlertListView } from './alert_list/view.js';
import { ApiError } from './chart/api_error.js';
import { adoptProperties, defineProperties, propertiesOf } from './chart/properties.js';
import { fetchAnswer, isOwnOrigin } from './chart/request.js';

/**
 * @typedef {import('./alert_list/view.js').AlertPage} AlertPage
 * @typedef {import('./chart/request.js').DataRequest & {org: string, params: URLSearchParams}} AlertQuery
 */

/** The server's public URL: the folder of this file, without that of its version. */
const SERVER = new URL('.', import.meta.url).href.replace(/(\/assets\/[0-9a-f]{16})?\/$/, '');
/** Attributes that change the response. */
const QUERY_ATTRIBUTES = ['src', 'org', 'token', 'token-endpoint', 'alert-state', 'match', 'limit'];
const ATTRIBUTES = [...QUERY_ATTRIBUTES, 'title', 'refresh', 'theme'];
/** Properties that are no text. */
const KINDS = { numbers: ['limit', 'refresh'] };
/** Every property that mirrors an attribute, with its attribute. */
const PROPERTIES = propertiesOf(ATTRIBUTES);
/** Seconds between two requests: the default, the shortest and the longest. */
const REFRESH = 30;
const REFRESH_MIN = 5;
const REFRESH_MAX = 86_400;
/** The alerts that are listed without `limit`, and that each `Show more` adds. */
const LISTED = 100;
/** The most alerts of a response. */
const LISTED_MAX = 1000;
/** The greatest length of an attribute of the query, in characters. */
const ATTRIBUTE_MAX = 4096;
/** The greatest length of the heading, in characters. */
const TITLE_MAX = 200;
/** The time between two updates of how long alerts have been active, in milliseconds. */
const TICK_MS = 15_000;
/** Seconds until the next request after an error without the module that explains errors. */
const UNEXPLAINED_PAUSE = 15;
/** The words for an error without the module that explains errors, as without a network. */
const UNEXPLAINED = /** @type {import('./chart/problems.js').Words} */ ({
  visitor: 'This list is not available right now. It comes back by itself.',
  hint: '',
  retry: 'self',
});

class MetricAlerts extends HTMLElement {
  static observedAttributes = ATTRIBUTES;

  /** @type {AlertListView|null} */
  #view = null;
  #heading = '';
  /** The page that is shown. @type {AlertPage|null} */
  #data = null;
  /** Whether the page gave the data, so that nothing is requested. */
  #given = false;
  /** The request of `#data`, and the tag of its response. */
  #known = { identity: '', tag: '' };
  /** Alerts that the reader asked for beyond `limit`. */
  #extra = 0;
  /** Errors in a row that pass by themselves. */
  #failures = 0;
  /** @type {AbortController|null} */
  #request = null;
  #timer = 0;
  #ticks = 0;
  /** Whether a request became due while the page was hidden. */
  #due = false;
  #queued = false;
  #wake = () => {
    if (document.hidden) return;
    this.#view?.tick();
    if (this.#due) this.#load();
  };
  #online = () => {
    if (this.#failures > 0) this.#load();
  };

  connectedCallback() {
    adoptProperties(this, [...PROPERTIES.keys(), 'title', 'data']);
    this.#view ??= new AlertListView(this, {
      retry: () => this.reload(),
      more: () => {
        this.#extra += LISTED;
        this.#load();
      },
    });
    this.#view.heading = this.#heading;
    document.addEventListener('visibilitychange', this.#wake);
    addEventListener('online', this.#online);
    this.#ticks = setInterval(() => this.#view?.tick(), TICK_MS);
    this.#soon();
  }

  disconnectedCallback() {
    document.removeEventListener('visibilitychange', this.#wake);
    removeEventListener('online', this.#online);
    this.#request?.abort();
    clearInterval(this.#ticks);
    clearTimeout(this.#timer);
  }

  /**
   * @param {string} name
   * @param {string|null} before
   * @param {string|null} value
   */
  attributeChangedCallback(name, before, value) {
    if (name === 'title') {
      // The browser would show it as a tooltip over the whole list, so it is taken off.
      if (value === null) return;
      this.#heading = value.slice(0, TITLE_MAX);
      if (this.#view) this.#view.heading = this.#heading;
      this.removeAttribute('title');
    } else if (before === value || !this.#view) return;
    else if (name === 'refresh') this.#schedule();
    else if (QUERY_ATTRIBUTES.includes(name)) this.#soon();
  }

  /** The heading. */
  get title() {
    return this.#heading;
  }

  set title(text) {
    this.setAttribute('title', text ?? '');
  }

  /** The shown response; null without one. A page may set it to show data without a request. */
  get data() {
    return this.#data;
  }

  set data(page) {
    this.#given = Boolean(page);
    this.#request?.abort();
    this.#forget();
    this.#data = page || null;
    this.#soon();
  }

  /** One of idle, loading, drawn, empty and error. */
  get state() {
    return this.dataset.state ?? 'idle';
  }

  /** Requests again. Resolves once the result is on the screen or a newer request replaced it. */
  async reload() {
    await this.#load();
  }

  get #server() {
    return this.getAttribute('src')?.replace(/\/+$/, '') || SERVER;
  }

  /** Whether the list stands on a page of the server, and uses its session. */
  get #isOwn() {
    return !this.hasAttribute('token') && !this.hasAttribute('token-endpoint') && isOwnOrigin(this.#server);
  }

  get #limit() {
    const limit = parseInt(this.getAttribute('limit') ?? '', 10);
    return Math.min(Math.max(1, (limit || LISTED) + this.#extra), LISTED_MAX);
  }

  get #only() {
    const only = this.getAttribute('alert-state') ?? '';
    return ['firing', 'pending'].includes(only) ? only : '';
  }

  /** @returns {AlertQuery|null} null without an organisation */
  #query() {
    const read = (/** @type {string} */ name) => {
      const text = this.getAttribute(name)?.trim() ?? '';
      if (text.length <= ATTRIBUTE_MAX) return text;
      throw new ApiError({ code: 'attribute_too_long', detail: `${name} has more than ${ATTRIBUTE_MAX} characters.` });
    };
    const org = read('org');
    if (!org) return null;
    const params = new URLSearchParams({ limit: String(this.#limit) });
    for (const [name, parameter] of [
      ['alert-state', 'state'],
      ['match', 'match'],
    ]) {
      if (read(name)) params.set(parameter, read(name));
    }
    const path = `/api/v1/orgs/${encodeURIComponent(org)}/alerts`;
    const [token, tokenEndpoint] = [read('token') || undefined, read('token-endpoint') || undefined];
    return { base: this.#server, path, params, org, token, tokenEndpoint };
  }

  async #load() {
    clearTimeout(this.#timer);
    this.#due = false;
    this.#request?.abort();
    const view = this.#view;
    if (!view) return;
    const request = new AbortController();
    this.#request = request;
    /** @type {AlertQuery|null} */
    let query = null;
    try {
      if (this.#given) return this.#show(view);
      query = this.#query();
      if (!query) {
        this.#forget();
        return view.settle('idle');
      }
      const subject = `${query.base}${query.path}`;
      const identity = `${subject}?${query.params}`;
      // The list of another organisation would be wrong.
      if (!this.#known.identity.startsWith(`${subject}?`)) this.#forget();
      if (!this.#data) view.settle('loading');
      const tag = this.#known.identity === identity ? this.#known.tag : '';
      const { signal } = request;
      const response = await fetchAnswer({ ...query, tag, signal, isOnce: !this.#isOwn });
      const page = response.status === 304 ? this.#data : await response.json();
      if (signal.aborted) return;
      this.#failures = 0;
      const isNew = page !== this.#data || this.state === 'error';
      this.#data = page;
      this.#known = { identity, tag: response.headers.get('ETag') ?? '' };
      if (isNew) this.#show(view);
      this.#schedule();
    } catch (error) {
      if (request.signal.aborted) return;
      const detail = error instanceof Error ? error.message : String(error);
      await this.#fail(error instanceof ApiError ? error : new ApiError({ code: 'unreadable_answer', detail }), query);
    }
  }

  /** @param {AlertListView} view */
  #show(view) {
    if (!this.#data) return;
    view.show(this.#data, { only: this.#only, hasMore: !this.#given && this.#limit < LISTED_MAX });
    this.#emit('load', this.#data);
  }

  #forget() {
    this.#data = null;
    this.#known = { identity: '', tag: '' };
    this.#view?.forget();
  }

  /**
   * Shows an error and sends an event to the page.
   * @param {ApiError} error
   * @param {AlertQuery|null} query
   */
  async #fail(error, query) {
    const request = this.#request;
    let pause = UNEXPLAINED_PAUSE;
    let [problem, words] = [error, /** @type {import('./chart/problems.js').Words|null} */ (null)];
    if (!this.#isOwn) {
      words = UNEXPLAINED;
      const org = this.getAttribute('org') ?? '';
      const place = { server: this.#server, page: location.origin, org, element: 'metric-alerts' };
      const module = await import('./chart/later.js').catch(() => null);
      if (module) ({ problem, words } = await module.explain(error, query, place));
      pause = module?.reconnectPause(this.#failures + 1, problem.retryAfter, Math.random()) ?? pause;
      if (request !== this.#request || !this.isConnected) return;
    }
    // Alerts that the credential no longer grants must not stay on the screen.
    if ([401, 403, 404].includes(problem.status)) this.#forget();
    this.#view?.settle('error', problem, words);
    this.#emit('error', problem);
    if (problem.code === 'token_expired') this.#emit('token-expired', problem, { bubbles: true });
    if (words?.retry === 'never') return;
    if (words?.retry !== 'self') return this.#schedule();
    this.#failures += 1;
    this.#requestIn(pause);
  }

  /**
   * `load` and `error` do not bubble, like those of images: pages report errors of `window`.
   * @param {string} name
   * @param {any} detail
   * @param {{bubbles?: boolean}} [options]
   */
  #emit(name, detail, options) {
    this.dispatchEvent(new CustomEvent(name, { detail, composed: true, ...options }));
  }

  /** Several attributes that are set in a row make one request. */
  #soon() {
    if (this.#queued) return;
    this.#queued = true;
    queueMicrotask(() => {
      this.#queued = false;
      this.#extra = 0;
      if (this.isConnected) this.#load();
    });
  }

  /** Sets the clock of the next request. */
  #schedule() {
    clearTimeout(this.#timer);
    if (this.#given) return;
    const every = Number(this.getAttribute('refresh') ?? REFRESH);
    if (every > 0) this.#requestIn(Math.min(Math.max(REFRESH_MIN, every), REFRESH_MAX));
  }

  /** @param {number} seconds */
  #requestIn(seconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      // The page is hidden: request when it becomes visible.
      this.#due = document.hidden;
      if (!this.#due) this.#load();
    }, seconds * 1000);
  }
}

if (!customElements.get('metric-alerts')) {
  defineProperties(MetricAlerts.prototype, PROPERTIES, KINDS);
  customElements.define('metric-alerts', MetricAlerts);
}
