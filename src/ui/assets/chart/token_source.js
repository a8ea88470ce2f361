// Embed tokens and their renewal through an endpoint of the embedding page.

import { ApiError } from './api_error.js';

/** The longest token that the server accepts, in characters. */
const TOKEN_CHARS_MAX = 4096;
/** A token that is not expired is replaced at most this often, in milliseconds. */
const REPLACE_MS = 30_000;
/** The pause after a failed renewal of a token that is still valid, in milliseconds. */
const RETRY_MS = 10_000;

/**
 * The claims of a JWT, unverified: only the server decides whether they hold.
 * @param {string} token
 * @returns {{iat?: number, exp?: number, org?: string}}
 */
export function claims(token) {
  try {
    const part = token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/');
    return JSON.parse(atob(part)) ?? {};
  } catch {
    return {};
  }
}

/** @param {string} message @param {number} [status] @param {number} [retryAfter] */
const failure = (message, status = 0, retryAfter = 0) =>
  new ApiError({ code: 'token_endpoint', detail: message, status, retryAfter });

/**
 * An embed token and the endpoint of the next one. All charts of a page share one request to an
 * endpoint. The endpoint answers either the token as text or `{"token": "..."}`, as POST
 * .../embed/tokens does.
 */
export class TokenSource {
  /** @type {Map<string, TokenSource>} */
  static #shared = new Map();

  /** @param {string} endpoint a URL, relative to the page */
  static at(endpoint) {
    const url = new URL(endpoint, document.baseURI).href;
    const source = TokenSource.#shared.get(url) ?? new TokenSource(url);
    TokenSource.#shared.set(url, source);
    return source;
  }

  #endpoint;
  #token = '';
  /** `performance.now()` at which the token is renewed. */
  #renewAt = 0;
  /** `performance.now()` at which the last token arrived, and at which it expires. */
  #storedAt = -Infinity;
  #endsAt = Infinity;
  /** @type {Promise<string>|null} */
  #renewal = null;

  /** @param {string} endpoint an absolute URL */
  constructor(endpoint) {
    this.#endpoint = endpoint;
  }

  /** Milliseconds until the token is renewed; Infinity for a token without an end. */
  get renewsIn() {
    return Math.max(0, this.#renewAt - performance.now());
  }

  /**
   * Takes a token that came with the page, so that the first chart needs no round trip.
   * @param {string|undefined} token
   */
  offer(token) {
    if (token && !this.#token) this.#store(token);
  }

  /** @param {string} token */
  #store(token) {
    const { iat = NaN, exp = NaN } = claims(token);
    this.#token = token;
    // 80 % of the lifetime, counted from now: the visitor's clock may be wrong, but not its speed.
    const life = exp - iat;
    this.#storedAt = performance.now();
    this.#renewAt = life > 0 ? this.#storedAt + life * 800 : Infinity;
    this.#endsAt = life > 0 ? this.#storedAt + life * 1000 : Infinity;
  }

  /**
   * Whether another token may help after a refusal: of an expired token always, of one that was
   * revoked or is wrong twice a minute.
   * @param {ApiError} problem
   */
  mayReplace({ code, status }) {
    return code === 'token_expired' || (status === 401 && performance.now() - this.#storedAt >= REPLACE_MS);
  }

  /**
   * Returns a token for one request.
   * @param {string} refused the token that the server has just refused, or ''
   */
  async take(refused) {
    if (this.#token && this.#token !== refused && this.renewsIn > 0) return this.#token;
    this.#renewal ??= this.#renew().finally(() => {
      this.#renewal = null;
    });
    return this.#renewal.catch((error) => {
      // The old token is still valid for a fifth of its lifetime.
      const left = this.#endsAt - performance.now();
      if (!this.#token || this.#token === refused || left <= 0) throw error;
      this.#renewAt = performance.now() + Math.min(RETRY_MS, left);
      return this.#token;
    });
  }

  async #renew() {
    const response = await fetch(this.#endpoint, {
      cache: 'no-store',
      headers: { Accept: 'application/json, text/plain' },
    }).catch(() => {
      throw failure('The token endpoint of this page cannot be reached.');
    });
    if (!response.ok) {
      const wait = Number(response.headers.get('Retry-After')) || 0;
      throw failure(`The token endpoint answered ${response.status}.`, response.status, wait);
    }
    const token = readToken(await response.text());
    if (token === null) throw failure('The token endpoint did not answer with a token.', 422);
    this.#store(token);
    return token;
  }
}

/**
 * The token of a response: the text itself, or the member `token` of an object.
 * @param {string} body
 * @returns {string|null}
 */
export function readToken(body) {
  let token = body.trim();
  if (token.startsWith('{')) {
    try {
      token = JSON.parse(token).token;
    } catch {
      return null;
    }
  }
  if (typeof token !== 'string' || token.length > TOKEN_CHARS_MAX) return null;
  return /^[\w-]+\.[\w-]+\.[\w-]+$/.test(token) ? token : null;
}
