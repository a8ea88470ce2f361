// The words for errors of embedded charts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError, problemOf } from '../../src/ui/assets/chart/api_error.js';
import { embedWords, warnOnce } from '../../src/ui/assets/chart/problems.js';

const place = { server: 'https://metrics.test', page: 'https://shop.test', org: 'acme' };
const words = (problem) => embedWords(new ApiError(problem), place);
const CODES = {
  no_credential: 0,
  origin_refused: 0,
  blocked_by_page: 0,
  local_network_denied: 0,
  wrong_src: 0,
  offline: 0,
  unreachable: 0,
  token_endpoint: 0,
  unreadable_answer: 0,
  token_expired: 401,
  token_invalid: 401,
  unauthenticated: 401,
  token_not_yet_valid: 401,
  org_mismatch: 403,
  embed_restricted: 403,
  not_found: 404,
  bad_expr: 400,
  validation_failed: 422,
  rate_limited: 429,
  at_capacity: 503,
  internal: 500,
  constructor: 0,
};

test('a visitor reads one or two short sentences without jargon, whatever happened', () => {
  for (const [code, status] of Object.entries(CODES)) {
    const { visitor } = words({ code, status, retryAfter: 12, detail: 'POST /orgs/{slug}/embed/introspect tells why' });
    assert.match(visitor, /^[A-Z][^.]*\.( [A-Z][^.]*\.)?$/, code);
    assert.ok(visitor.length < 120, code);
    assert.doesNotMatch(visitor, /token|CORS|introspect|origin|HTTP|\d{3}|_/i, code);
  }
});

test('what cannot help is not offered', () => {
  const never = ['no_credential', 'origin_refused', 'token_expired', 'token_invalid', 'org_mismatch', 'bad_expr'];
  for (const code of never) {
    assert.equal(words({ code, status: CODES[code] }).retry, 'never', code);
  }
  for (const code of ['offline', 'unreachable', 'rate_limited', 'at_capacity']) {
    assert.equal(words({ code, status: CODES[code] }).retry, 'self', code);
  }
  assert.equal(words({ code: 'internal', status: 500 }).retry, 'ask');
});

test('the visitor reads when the chart comes back, if the server says so', () => {
  assert.match(words({ status: 429, retryAfter: 12 }).visitor, /in 12 s\.$/);
  assert.match(words({ status: 503, retryAfter: 600 }).visitor, /in 10 minutes\.$/);
  assert.match(words({ status: 503 }).visitor, /by itself\.$/);
});

test('the hint names the server, the page and the organisation', () => {
  assert.match(words({ code: 'origin_refused' }).hint, /https:\/\/shop\.test/);
  assert.match(words({ code: 'blocked_by_page' }).hint, /https:\/\/metrics\.test/);
  assert.match(words({ code: 'token_invalid', status: 401 }).hint, /https:\/\/metrics\.test\/api\/v1\/orgs\/acme\//);
  for (const [code, status] of Object.entries(CODES)) {
    assert.doesNotMatch(words({ code, status }).hint, /SERVER|PAGE|ORG/, code);
  }
  // Text of a page is no pattern.
  assert.match(embedWords(new ApiError({ code: 'origin_refused' }), { ...place, page: '$&$1' }).hint, /\$&\$1/);
});

test('the console has each reason once, and at most a hundred', () => {
  const [{ warn }, lines] = [console, []];
  console.warn = (line) => lines.push(line);
  try {
    for (let round = 0; round < 3; round += 1) {
      warnOnce(Object.assign(new ApiError({ code: 'a', detail: 'Why.' }), { hint: 'Do this.' }), place.server);
    }
    assert.deepEqual(lines, ['metric-chart: a: Why. Do this.']);
    for (let at = 0; at < 500; at += 1) warnOnce(new ApiError({ code: 'b', detail: `${at}` }), place.server);
    assert.equal(lines.length, 100);
  } finally {
    console.warn = warn;
  }
});

test('a line of a stream has the members of an error body', () => {
  const line = { code: 'bad_expr', detail: '1:5: parse error', http_status: 400, status: 'error', id: '2' };
  const { code, status, message } = problemOf(line);
  assert.deepEqual([code, status, message], ['bad_expr', 400, '1:5: parse error']);
});
