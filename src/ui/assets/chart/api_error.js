// Errors of requests: the server's answer, or the reason why there is none.

/**
 * An error response of the server (docs/specification.md B2), or the lack of a response.
 * @typedef {{field: string, message?: string}} FieldError
 */
export class ApiError extends Error {
  /** Advice for the author of the page; '' for errors that name it themselves. */
  hint = '';

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
 * The error that a problem body describes, or a line of a stream with the same members.
 * @param {any} body an object
 * @param {{status?: number, requestId?: string, retryAfter?: number}} [known] of the response
 */
export function problemOf(body, { status = Number(body.http_status) || 0, requestId = '', retryAfter = 0 } = {}) {
  return new ApiError({
    status,
    code: body.code,
    detail: body.detail ?? body.error ?? body.title ?? `The server answered ${status}.`,
    requestId: body.request_id ?? requestId,
    fields: Array.isArray(body.errors) ? body.errors : [],
    retryAfter,
    body,
  });
}

/**
 * Reads a problem body; a proxy's HTML page or an empty body still becomes a sentence.
 * @param {Response} response
 */
export async function readError(response) {
  const { status, headers } = response;
  return problemOf((await response.json().catch(() => null)) ?? {}, {
    status,
    requestId: headers.get('X-Request-Id') ?? '',
    retryAfter: Number(headers.get('Retry-After')) || 0,
  });
}
