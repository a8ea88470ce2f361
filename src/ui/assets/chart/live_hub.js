// The live streams of a page: all queries with equal server, path and credential share one.
//
// A stream is a POST response of server-sent events (docs/specification.md C5). When queries come
// or go it is opened again with the new list, and resumes after the last point that all queries
// have. The same happens after a lost connection, a restart of the server, a renewal of the token,
// and when a hidden page becomes visible. So a query may get a point twice, and replaces it.

import { ApiError, problemOf, readError } from './api_error.js';
import { EventReader } from './event_reader.js';
import { answerOf, tokenSource } from './request.js';
import { reconnectPause } from './retry.js';

/** Queries that come within this time share one opening of the stream, in milliseconds. */
const JOIN_MS = 150;
/** Queries that go are left in the stream this long, in milliseconds. */
const LEAVE_MS = 10_000;
/** A page that is hidden for this long has no stream, in milliseconds. */
const HIDDEN_MS = 5000;
/** The server sends a comment every 15 s. A stream that is silent for longer is lost, in ms. */
const SILENCE_MS = 45_000;
/** The greatest delay of a timer, in milliseconds. */
const TIMER_MAX = 2 ** 31 - 1;

/**
 * @typedef {Object} StreamAddress
 * @property {string} base URL of the server, without a slash at its end
 * @property {string} path below it, such as `/api/v1/orgs/acme/query/live`
 * @property {string} [token]
 * @property {string} [tokenEndpoint]
 * @property {Object<string, any>} [body] members of the request beside `queries` and `since`
 *
 * @typedef {Object} LivePoints
 * @property {number} time unix seconds
 * @property {{resultType: string, result: any[]}} data
 * @property {string[]} [warnings]
 * @property {string[]} [infos]
 *
 * @typedef {Object} LiveSubscription
 * @property {Object<string, any>} query the members of the query except `id`
 * @property {number} since unix seconds; points after it are sent
 * @property {(points: LivePoints) => void} points of one step; a step may come twice
 * @property {(gap: {start: number, end: number}) => void} gap steps that are not sent, inclusive
 * @property {(problem: ApiError, isFinal: boolean) => void} failed a step without points, or the
 *   stream is lost; `isFinal`: it is not tried again, and the subscription is over
 * @property {() => void} [opened] the stream is open, for the first time or again
 *
 * @typedef {{id: string, text: string, query: Object<string, any>, since: number,
 *   subscriptions: Set<LiveSubscription>}} Entry
 */

/** @type {Map<string, LiveStream>} */
const streams = new Map();

/**
 * Subscribes to the points of a query. Returns the function that ends the subscription.
 * @param {StreamAddress} address
 * @param {LiveSubscription} subscription
 * @returns {() => void}
 */
export function subscribe(address, subscription) {
  const { base, path, token = '', tokenEndpoint = '', body = {} } = address;
  const key = JSON.stringify([base, path, tokenEndpoint || token, body]);
  const stream = streams.get(key) ?? new LiveStream(address, () => streams.delete(key));
  streams.set(key, stream);
  return stream.add(subscription);
}

/**
 * Whether a stream that failed with this error would fail again.
 * @param {ApiError} problem
 */
function isFinal({ code, status }) {
  if (status === 0) return !['offline', 'unreachable', 'token_endpoint'].includes(code);
  return status < 500 && status !== 408 && status !== 429;
}

/** One stream and its queries. */
class LiveStream {
  #address;
  #source;
  #forget;
  /** @type {Map<string, Entry>} */
  #entries = new Map();
  #lastId = 0;
  /** The request under way or the open stream. @type {AbortController|null} */
  #connection = null;
  #timer = 0;
  /** `performance.now()` at which the timer fires. */
  #timerAt = Infinity;
  #silence = 0;
  #hiding = 0;
  #failures = 0;
  #refused = '';

  /**
   * @param {StreamAddress} address
   * @param {() => void} forget called when the stream has ended
   */
  constructor(address, forget) {
    this.#address = address;
    this.#source = tokenSource(address);
    this.#forget = forget;
    document.addEventListener('visibilitychange', this.#seen);
    addEventListener('online', this.#online);
    addEventListener('pagehide', this.#pause);
    addEventListener('pageshow', this.#seen);
  }

  /**
   * @param {LiveSubscription} subscription
   * @returns {() => void}
   */
  add(subscription) {
    const { query, since } = subscription;
    const text = JSON.stringify(query);
    let entry = [...this.#entries.values()].find((known) => known.text === text);
    if (!entry) {
      this.#lastId += 1;
      entry = { id: String(this.#lastId), text, query, since, subscriptions: new Set() };
      this.#entries.set(entry.id, entry);
    }
    entry.since = Math.min(entry.since, since);
    entry.subscriptions.add(subscription);
    this.#schedule(JOIN_MS);
    const { id, subscriptions } = entry;
    return () => {
      subscriptions.delete(subscription);
      if (subscriptions.size > 0 || !this.#entries.delete(id)) return;
      this.#schedule(this.#entries.size > 0 ? LEAVE_MS : JOIN_MS);
    };
  }

  /**
   * Opens the stream after `ms`, unless that happens earlier.
   * @param {number} ms
   */
  #schedule(ms) {
    const at = performance.now() + Math.min(ms, TIMER_MAX);
    if (at >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    this.#timer = setTimeout(() => this.#open(), Math.min(ms, TIMER_MAX));
  }

  #unschedule() {
    clearTimeout(this.#timer);
    this.#timerAt = Infinity;
  }

  /** Closes the stream; it stays closed until something schedules it. */
  #pause = () => {
    this.#unschedule();
    clearTimeout(this.#silence);
    this.#connection?.abort();
    this.#connection = null;
  };

  #seen = () => {
    clearTimeout(this.#hiding);
    if (document.hidden) this.#hiding = setTimeout(this.#pause, HIDDEN_MS);
    else if (!this.#connection) this.#schedule(0);
  };

  #online = () => {
    if (this.#failures > 0) this.#schedule(0);
  };

  /** Ends the stream and all its subscriptions. */
  #end() {
    this.#pause();
    clearTimeout(this.#hiding);
    document.removeEventListener('visibilitychange', this.#seen);
    removeEventListener('online', this.#online);
    removeEventListener('pagehide', this.#pause);
    removeEventListener('pageshow', this.#seen);
    this.#entries.clear();
    this.#forget();
  }

  async #open() {
    this.#pause();
    if (this.#entries.size === 0) return this.#end();
    // `#seen` opens it when the page becomes visible.
    if (document.hidden) return;
    const connection = new AbortController();
    this.#connection = connection;
    let bearer = this.#address.token;
    try {
      if (this.#source) {
        bearer = await this.#source.take(this.#refused);
        if (connection.signal.aborted) return;
      }
      await this.#read(connection, bearer);
      throw new ApiError({ code: 'unreachable', detail: 'The live stream ended.' });
    } catch (error) {
      if (!connection.signal.aborted) this.#fail(error, bearer);
    }
  }

  /**
   * Opens a response and reads it to its end.
   * @param {AbortController} connection
   * @param {string|undefined} bearer
   */
  async #read({ signal }, bearer) {
    const entries = new Map(this.#entries);
    const queries = [...entries.values()].map(({ id, query }) => ({ id, ...query }));
    const since = Math.min(...[...entries.values()].map((entry) => entry.since));
    const { base, path, body } = this.#address;
    this.#hear();
    const response = await answerOf({ base, path, body: { ...body, queries, since }, signal }, bearer);
    if (!response.ok || !response.body) throw await readError(response);
    if (this.#source) this.#schedule(this.#source.renewsIn);
    this.#each(entries, ({ opened }) => opened?.());
    const [reader, decoder, events] = [response.body.getReader(), new TextDecoder(), new EventReader()];
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) return;
      this.#hear();
      for (const event of events.push(decoder.decode(value, { stream: true }))) {
        this.#take(entries, event);
        // A subscriber may have ended the stream.
        if (signal.aborted) return;
      }
    }
  }

  /** Restarts the clock of silence. */
  #hear() {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      this.#connection?.abort();
      this.#fail(new ApiError({ code: 'unreachable', detail: 'The live stream fell silent.' }), '');
    }, SILENCE_MS);
  }

  /**
   * @param {Map<string, Entry>} entries
   * @param {(subscription: LiveSubscription) => void} what
   */
  #each(entries, what) {
    for (const { subscriptions } of [...entries.values()]) for (const one of [...subscriptions]) what(one);
  }

  /**
   * @param {Map<string, Entry>} entries the queries of this response
   * @param {import('./event_reader.js').ServerEvent} event
   * @throws {ApiError} for the event `end`, and for data that is no object
   */
  #take(entries, { type, data, id }) {
    let body = null;
    try {
      body = JSON.parse(data);
    } catch {}
    if (!body || typeof body !== 'object') {
      throw new ApiError({ code: 'unreadable_answer', detail: 'The live stream is not readable.', status: 502 });
    }
    if (type === 'end') throw problemOf(body);
    [this.#failures, this.#refused] = [0, ''];
    const entry = entries.get(String(body.id));
    for (const one of [...(entry?.subscriptions ?? [])]) {
      if (type === 'points') one.points(body);
      else if (type === 'gap') one.gap({ start: Number(body.start), end: Number(body.end) });
      else if (type === 'error') one.failed(problemOf(body), false);
    }
    const time = id === null || id === '' ? NaN : Number(id) / 1000;
    if (time > 0) for (const known of entries.values()) known.since = Math.max(known.since, time);
  }

  /**
   * @param {unknown} error
   * @param {string|undefined} bearer that was sent
   */
  #fail(error, bearer) {
    // Any other error is that of a connection that broke while it was read.
    const detail = `The live stream of ${this.#address.base} was lost.`;
    const problem = error instanceof ApiError ? error : new ApiError({ code: 'unreachable', detail });
    this.#pause();
    this.#failures += 1;
    const renews = this.#source !== null && problem.status === 401;
    if (renews) this.#refused = bearer ?? '';
    const ends = isFinal(problem) && !renews;
    const entries = new Map(this.#entries);
    // The end of a token is no failure that a subscriber needs to know, unless the next one fails.
    const known = problem.code === 'token_expired' && renews && this.#failures === 1;
    if (ends) this.#end();
    else this.#schedule(known ? 0 : reconnectPause(this.#failures, problem.retryAfter, Math.random()) * 1000);
    if (!known) this.#each(entries, (one) => one.failed(problem, ends));
  }
}
