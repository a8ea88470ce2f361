// How a chart sends its queries: with a token as a form to a URL that never changes, so that a
// browser needs no second preflight; with the session cookie in the URL.

import assert from 'node:assert/strict';
import { test } from 'node:test';

globalThis.document = Object.assign(new EventTarget(), { hidden: false, baseURI: 'http://own.test/page' });
globalThis.location = new URL('http://own.test/page');
globalThis.addEventListener = () => {};
globalThis.removeEventListener = () => {};

const { fetchAnswer } = await import('../../src/ui/assets/chart/request.js');
const { chartQuery } = await import('../../src/ui/assets/chart/query.js');
const { Loader } = await import('../../src/ui/assets/chart/loader.js');
const { follow } = await import('../../src/ui/assets/chart/follower.js');

const OTHER = 'http://other.test';
const ANSWER = { data: { resultType: 'matrix', result: [] } };
const element = (attributes) => ({ getAttribute: (name) => attributes[name] ?? null });
const query = (attributes, now) =>
  chartQuery(element({ org: 'a', expr: 'up{job="x&y"}', range: '30d', token: 't', ...attributes }), 800, OTHER, now);

/** Records each request as the browser would send it; `answer` returns its response. */
function record(answer = () => Response.json(ANSWER)) {
  const sent = [];
  globalThis.fetch = async (url, options) => {
    const request = new Request(url, { ...options, signal: null });
    const body = await request.text();
    sent.push({
      url: String(url),
      method: request.method,
      type: request.headers.get('Content-Type'),
      tag: request.headers.get('If-None-Match'),
      cache: options.cache,
      credentials: options.credentials,
      body,
    });
    return answer(String(url), body);
  };
  return sent;
}

test('a query with a token is a form, and the URLs of all its requests are the same', async () => {
  const sent = record();
  const loader = new Loader();
  for (const now of [1_700_000_123, 1_700_000_138, 1_700_100_007]) {
    assert.ok(await loader.load(query({}, now), false, () => {}));
  }
  assert.equal(sent.length, 6, 'grid and tail, three times');
  assert.deepEqual([...new Set(sent.map(({ url }) => url))], [`${OTHER}/api/v1/orgs/a/query/expr-range`]);
  for (const { method, type, cache, credentials } of sent) {
    assert.equal(method, 'POST');
    assert.match(type, /^application\/x-www-form-urlencoded\b/);
    // Chromium sends a preflight before each request with another mode.
    assert.deepEqual([cache, credentials], ['default', 'omit']);
  }
  const [grid, tail] = sent.map(({ body }) => Object.fromEntries(new URLSearchParams(body)));
  assert.deepEqual(tail, { expr: 'up{job="x&y"}', start: '1700000123', end: '1700000123', step: grid.step });
  assert.ok(Number(grid.start) < Number(grid.end) && Number(grid.end) < 1_700_000_123, JSON.stringify(grid));
});

test('a structured query is a form, too, with each of its matchers', async () => {
  const sent = record();
  const structured = query({ expr: '', metric: 'up', match: 'a="1", b!="2"', agg: 'sum', range: '5m' }, 1_700_000_123);
  await new Loader().load(structured, false, () => {});
  assert.deepEqual([sent.length, sent[0].url, sent[0].method], [1, `${OTHER}/api/v1/orgs/a/query/range`, 'POST']);
  assert.deepEqual(new URLSearchParams(sent[0].body).getAll('match'), ['a="1"', 'b!="2"']);
});

test('a query with the session cookie is in the URL', async () => {
  const sent = record();
  await new Loader().load(query({ token: '', src: 'http://own.test', range: '5m' }, 1_700_000_123), false, () => {});
  const [{ url, method, body, cache, credentials }] = sent;
  assert.deepEqual([sent.length, method, body, cache, credentials], [1, 'GET', '', 'no-store', 'same-origin']);
  assert.equal(new URL(url).searchParams.get('expr'), 'up{job="x&y"}');
});

test('parameters of the URL stay there with a token, and an ETag is sent with GET alone', async () => {
  const sent = record();
  const request = { base: OTHER, path: '/list', token: 't', tag: '"1"' };
  await fetchAnswer({ ...request, params: new URLSearchParams({ limit: '5' }) });
  await fetchAnswer({ ...request, form: new URLSearchParams({ limit: '5' }) });
  const [get, post] = sent;
  assert.deepEqual([get.url, get.method, get.tag, get.cache], [`${OTHER}/list?limit=5`, 'GET', '"1"', 'force-cache']);
  assert.deepEqual([post.url, post.method, post.tag, post.body], [`${OTHER}/list`, 'POST', null, 'limit=5']);
});

test('grid and newest point of an embedded expression are one request', async () => {
  const line = (id, value) => JSON.stringify({ id, status: 'success', data: { result: [value] }, stats: {} });
  const [done, refused] = ['{"done":true}', '{"id":"1","status":"error","http_status":422,"code":"too_much"}'];
  const replies = [[line('1', 'tail'), line('0', 'grid'), done], [line('0', 'tail'), done], [refused, line('0', ''), done]];
  const sent = record(() => new Response(`${replies.shift().join('\n')}\n`));
  const [{ now }, loader] = [Date, new Loader()];
  const long = (time) => query({ range: '30d' }, time);
  try {
    // A multiple of the step of two hours.
    Date.now = () => 1_700_006_500_000;
    assert.ok(await loader.load(long(1_700_006_500), false, () => {}, true));
    assert.deepEqual([loader.answer, loader.tail.matrix], [{ status: 'success', data: { result: ['grid'] }, stats: {} }, ['tail']]);
    assert.ok(await loader.load(long(1_700_006_515), true, () => {}, true));
    assert.deepEqual([loader.answer.data.result, loader.tail], [['grid'], { time: 1_700_006_515, matrix: ['tail'] }]);
    const again = loader.load(long(1_700_006_530), false, () => {}, true);
    await assert.rejects(again, { code: 'too_much', status: 422 });
  } finally {
    Date.now = now;
  }
  assert.deepEqual(new Set(sent.map(({ url, method }) => `${method} ${url}`)), new Set([`POST ${OTHER}/api/v1/orgs/a/query/batch`]));
  const queries = sent.map(({ body }) => JSON.parse(body).queries);
  assert.deepEqual(queries.map((all) => all.length), [2, 1, 2]);
  assert.deepEqual(queries[1], [
    { id: '0', type: 'range', expr: 'up{job="x&y"}', start: '1700006515', end: '1700006515', step: '7200' },
  ]);
});

test('a moment on the grid of long steps is queried by the same URL', async () => {
  const now = 1_700_006_400;
  const long = query({ range: '30d' }, now);
  assert.deepEqual([long.grid.step, long.grid.end, long.tailForm], [7200, now, null]);
  const grid = JSON.stringify({ id: '0', status: 'success', data: { result: ['grid'] }, stats: {} });
  const sent = record(() => new Response(`${grid}\n{"done":true}\n`));
  const loader = new Loader();
  assert.ok(await loader.load(long, false, () => {}, true));
  assert.deepEqual([loader.answer.data.result, loader.tail], [['grid'], null]);
  assert.deepEqual(sent.map(({ url }) => url), [`${OTHER}/api/v1/orgs/a/query/batch`]);
});

test('the steps that a stream left out are queried as a form to the same URL', async () => {
  const now = 1_700_000_123;
  const live = query({ range: '15m', step: '15' }, now);
  const start = live.grid.end - 30;
  const sent = record((url, body) => {
    if (!url.endsWith('/live')) return Response.json(ANSWER);
    const { id } = JSON.parse(body).queries[0];
    return new Response(`event: gap\ndata: ${JSON.stringify({ id, start, end: live.grid.end })}\n\n`);
  });
  const responses = new Loader();
  await responses.load(live, false, () => {});
  const changed = new Promise((resolve, reject) => {
    const end = follow(live, responses, {
      changed: () => resolve(end),
      reload: () => reject(new Error('it loads everything again')),
      failed: () => {},
      recovered: () => {},
    });
  });
  (await changed)();
  const queries = sent.filter(({ url }) => !url.endsWith('/live'));
  assert.deepEqual(new Set(queries.map(({ url, method }) => `${method} ${url}`)).size, 1);
  const [, filled] = queries.map(({ body }) => Object.fromEntries(new URLSearchParams(body)));
  assert.deepEqual([filled.start, filled.end], [String(start), String(live.grid.end)]);
  const [stream] = sent.filter(({ url }) => url.endsWith('/live'));
  assert.deepEqual([stream.method, stream.type, stream.cache], ['POST', 'application/json', 'default']);
});
