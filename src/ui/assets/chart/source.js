// Asking a promlet server: credentials, renewal of embed tokens, waiting when it says so, refusals.

/** The longest Retry-After that is honoured, in seconds. */
const WAIT_MAX = 60;
const TRIES_MAX = 4;

/** The text of the server's refusal, if any (docs/specification.md B2). */
export class Refusal extends Error {
  constructor({ status = 0, code = '', detail = '', requestId = '', fields = [], retryAfter = 0, body = {} }) {
    super(detail || code || `HTTP ${status}`);
    Object.assign(this, { status, code, detail: this.message, requestId, fields, retryAfter, body });
  }
}

/** Reads a problem body; a proxy's HTML page or an empty body still becomes a sentence. */
export async function refusal(response) {
  const body = await response.json().catch(() => ({}));
  return new Refusal({
    status: response.status,
    code: body.code,
    detail: body.detail ?? body.error ?? body.title ?? `The server answered ${response.status}.`,
    requestId: body.request_id ?? response.headers.get('X-Request-Id') ?? '',
    fields: Array.isArray(body.errors) ? body.errors : [],
    retryAfter: Number(response.headers.get('Retry-After')) || 0,
    body,
  });
}

/** What a JWT says about its own life, unverified: only the server's opinion counts. */
function claims(token) {
  try {
    const part = token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/');
    return JSON.parse(atob(part));
  } catch {
    return {};
  }
}

/**
 * A token and where to get the next one. One endpoint is asked once for all charts of a page.
 * It answers either the token as text or `{"token": "..."}`, as POST .../embed/tokens does.
 */
class TokenSource {
  /** @type {Map<string, TokenSource>} */
  static #shared = new Map();

  static at(endpoint) {
    if (!TokenSource.#shared.has(endpoint)) TokenSource.#shared.set(endpoint, new TokenSource(endpoint));
    return TokenSource.#shared.get(endpoint);
  }

  #endpoint;
  #token = '';
  #renewAt = 0;
  #asking = null;

  constructor(endpoint) {
    this.#endpoint = endpoint;
  }

  /** Takes a token that came with the page, so that the first chart needs no round trip. */
  offer(token) {
    if (token && !this.#token) this.#hold(token);
  }

  #hold(token) {
    const { iat, exp } = claims(token);
    this.#token = token;
    // 80 % of the life, counted from now: the visitor's clock may be wrong, its speed is not.
    const life = exp - iat;
    this.#renewAt = life > 0 ? performance.now() + life * 800 : Infinity;
  }

  /** A token for one request; `spent` is the one the server has just refused. */
  async take(spent) {
    if (this.#token && this.#token !== spent && performance.now() < this.#renewAt) return this.#token;
    this.#asking ??= this.#renew().finally(() => { this.#asking = null; });
    return this.#asking;
  }

  async #renew() {
    const response = await fetch(this.#endpoint, { cache: 'no-store', headers: { Accept: 'application/json, text/plain' } })
      .catch(() => { throw new Refusal({ code: 'token_endpoint', detail: 'The token endpoint of this page cannot be reached.' }); });
    if (!response.ok) {
      throw new Refusal({ status: response.status, code: 'token_endpoint', detail: `The token endpoint answered ${response.status}.` });
    }
    const text = (await response.text()).trim();
    const token = text.startsWith('{') ? JSON.parse(text).token : text;
    if (typeof token !== 'string' || token.split('.').length !== 3) {
      throw new Refusal({ code: 'token_endpoint', detail: 'The token endpoint did not answer with a token.' });
    }
    this.#hold(token);
    return token;
  }
}

/** Waits, or stops waiting at once when the request is no longer wanted. */
function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener('abort', () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

/**
 * A data endpoint's answer as JSON.
 * @param {{base: string, path: string, params: URLSearchParams, token?: string, tokenEndpoint?: string,
 *   signal?: AbortSignal}} question `token` or `tokenEndpoint` make it an embed request; otherwise the cookie counts
 */
export async function ask({ base, path, params, token, tokenEndpoint, signal }) {
  const source = tokenEndpoint ? TokenSource.at(new URL(tokenEndpoint, document.baseURI).href) : null;
  source?.offer(token);
  let spent = '';
  let renewed = false;
  for (let attempt = 1; ; attempt += 1) {
    const bearer = source ? await source.take(spent) : token;
    const response = await fetch(`${base}${path}?${params}`, {
      signal,
      cache: 'no-store',
      credentials: bearer ? 'omit' : 'same-origin',
      headers: bearer ? { Authorization: `Bearer ${bearer}` } : {},
    }).catch((error) => {
      if (error.name === 'AbortError') throw error;
      throw new Refusal({ code: 'unreachable', detail: `No answer from ${base}.` });
    });
    if (response.ok) return response.json();
    const problem = await refusal(response);
    if (problem.code === 'token_expired' && source && !renewed) {
      [spent, renewed] = [bearer, true];
      continue;
    }
    // 429 and busy responses carry Retry-After; a timed-out query would time out again. Jitter spreads the retries.
    const wait = problem.retryAfter || (problem.status === 429 ? 1 : 0);
    if (![429, 503].includes(problem.status) || wait === 0 || wait > WAIT_MAX || attempt >= TRIES_MAX) throw problem;
    await pause(wait + Math.random() * 0.5, signal);
  }
}
