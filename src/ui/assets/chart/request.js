// Requests to a promlet server: credentials, renewal of embed tokens, retries, errors.

/** The longest Retry-After that is honoured, in seconds. */
const WAIT_MAX = 60;
const TRIES_MAX = 4;

/**
 * An error response of the server (docs/specification.md B2), or the lack of a response.
 * @typedef {{field: string, message?: string}} FieldError
 */
export class ApiError extends Error {
  /**
   * @param {{status?: number, code?: string, detail?: string, requestId?: string,
   *   fields?: FieldError[], retryAfter?: number, body?: any}} problem `retryAfter` in seconds, 0
   *   without one
   */
  constructor({ status = 0, code = '', detail = '', requestId = '', fields = [], retryAfter = 0, body = {} }) {
    super(detail || code || `HTTP ${status}`);
    this.status = status;
    this.code = code;
    this.detail = this.message;
    this.requestId = requestId;
    this.fields = fields;
    this.retryAfter = retryAfter;
    this.body = body;
  }
}

/**
 * Reads a problem body; a proxy's HTML page or an empty body still becomes a sentence.
 * @param {Response} response
 */
export async function readError(response) {
  const body = await response.json().catch(() => ({}));
  return new ApiError({
    status: response.status,
    code: body.code,
    detail: body.detail ?? body.error ?? body.title ?? `The server answered ${response.status}.`,
    requestId: body.request_id ?? response.headers.get('X-Request-Id') ?? '',
    fields: Array.isArray(body.errors) ? body.errors : [],
    retryAfter: Number(response.headers.get('Retry-After')) || 0,
    body,
  });
}

/**
 * The claims of a JWT, unverified: only the server decides whether they hold.
 * @param {string} token
 * @returns {{iat?: number, exp?: number}}
 */
function claims(token) {
  try {
    const part = token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/');
    return JSON.parse(atob(part));
  } catch {
    return {};
  }
}

/**
 * An embed token and the endpoint of the next one. All charts of a page share one request to an
 * endpoint. The endpoint answers either the token as text or `{"token": "..."}`, as POST
 * .../embed/tokens does.
 */
class TokenSource {
  /** @type {Map<string, TokenSource>} */
  static #shared = new Map();

  /** @param {string} endpoint an absolute URL */
  static at(endpoint) {
    const source = TokenSource.#shared.get(endpoint) ?? new TokenSource(endpoint);
    TokenSource.#shared.set(endpoint, source);
    return source;
  }

  #endpoint;
  #token = '';
  /** `performance.now()` at which the token is renewed. */
  #renewAt = 0;
  /** @type {Promise<string>|null} */
  #renewal = null;

  /** @param {string} endpoint */
  constructor(endpoint) {
    this.#endpoint = endpoint;
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
    this.#renewAt = life > 0 ? performance.now() + life * 800 : Infinity;
  }

  /**
   * Returns a token for one request.
   * @param {string} refused the token that the server has just refused, or ''
   */
  async take(refused) {
    if (this.#token && this.#token !== refused && performance.now() < this.#renewAt) return this.#token;
    this.#renewal ??= this.#renew().finally(() => {
      this.#renewal = null;
    });
    return this.#renewal;
  }

  async #renew() {
    const response = await fetch(this.#endpoint, {
      cache: 'no-store',
      headers: { Accept: 'application/json, text/plain' },
    }).catch(() => {
      throw new ApiError({ code: 'token_endpoint', detail: 'The token endpoint of this page cannot be reached.' });
    });
    if (!response.ok) {
      throw new ApiError({
        status: response.status,
        code: 'token_endpoint',
        detail: `The token endpoint answered ${response.status}.`,
      });
    }
    const text = (await response.text()).trim();
    const token = text.startsWith('{') ? JSON.parse(text).token : text;
    if (typeof token !== 'string' || token.split('.').length !== 3) {
      throw new ApiError({ code: 'token_endpoint', detail: 'The token endpoint did not answer with a token.' });
    }
    this.#store(token);
    return token;
  }
}

/**
 * Resolves after `seconds`; rejects at once when the request is aborted.
 * @param {number} seconds
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener(
      'abort',
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });
}

/**
 * Waits as long as a refused request asks for. Throws the error where a retry would not help: 429 and
 * busy responses carry Retry-After, but a timed-out query would time out again.
 * @param {unknown} error
 * @param {number} attempt the number of requests so far
 * @param {AbortSignal} [signal]
 */
export async function waitToRetry(error, attempt, signal) {
  if (!(error instanceof ApiError) || ![429, 503].includes(error.status) || attempt >= TRIES_MAX) throw error;
  const wait = error.retryAfter || (error.status === 429 ? 1 : 0);
  if (wait === 0 || wait > WAIT_MAX) throw error;
  // Jitter spreads the retries.
  await pause(wait + Math.random() * 0.5, signal);
}

/**
 * @typedef {{base: string, path: string, params?: URLSearchParams, body?: any, token?: string,
 *   tokenEndpoint?: string, signal?: AbortSignal}} DataRequest `token` or `tokenEndpoint` make it an
 *   embed request; otherwise the session cookie is sent. `body` is sent as JSON with POST.
 */

/**
 * Returns the JSON of a data endpoint.
 * @param {DataRequest} request
 * @returns {Promise<any>}
 */
export const fetchData = async (request) => (await fetchAnswer(request)).json();

/**
 * Returns the response of a data endpoint; retries where the server asks for it with Retry-After.
 * @param {DataRequest} request
 * @returns {Promise<Response>}
 */
export async function fetchAnswer({ base, path, params, body, token, tokenEndpoint, signal }) {
  const source = tokenEndpoint ? TokenSource.at(new URL(tokenEndpoint, document.baseURI).href) : null;
  source?.offer(token);
  let refused = '';
  let renewed = false;
  for (let attempt = 1; ; attempt += 1) {
    const bearer = source ? await source.take(refused) : token;
    const response = await fetch(`${base}${path}${params ? `?${params}` : ''}`, {
      method: body === undefined ? 'GET' : 'POST',
      signal,
      cache: 'no-store',
      credentials: bearer ? 'omit' : 'same-origin',
      headers: {
        ...(bearer && { Authorization: `Bearer ${bearer}` }),
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    }).catch((error) => {
      if (error.name === 'AbortError') throw error;
      throw new ApiError({ code: 'unreachable', detail: `No answer from ${base}.` });
    });
    if (response.ok) return response;
    const problem = await readError(response);
    if (problem.code === 'token_expired' && source && !renewed) {
      [refused, renewed] = [bearer ?? '', true];
      continue;
    }
    await waitToRetry(problem, attempt, signal);
  }
}
