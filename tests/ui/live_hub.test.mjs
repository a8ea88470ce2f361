// The live streams of a page: one connection, its queries, and how it resumes.

import assert from 'node:assert/strict';
import { test } from 'node:test';

/** The clock of the page, which moves only when a test moves it. */
const clock = {
  now: 0,
  timers: new Map(),
  /** Fires the timer that is due first. Returns false if there is none within `ms`. */
  step(ms = Infinity) {
    const [first] = [...this.timers].sort(([, a], [, b]) => a.at - b.at);
    if (!first || first[1].at > this.now + ms) return false;
    const [id, { at, run }] = first;
    this.timers.delete(id);
    this.now = Math.max(this.now, at);
    run();
    return true;
  },
  /** Lets `ms` pass. */
  async pass(ms) {
    const end = this.now + ms;
    for (await settle(); this.step(end - this.now); await settle());
    this.now = end;
  },
};
let lastTimer = 0;
globalThis.setTimeout = (run, ms = 0) => {
  lastTimer += 1;
  clock.timers.set(lastTimer, { at: clock.now + Math.max(0, ms), run });
  return lastTimer;
};
globalThis.clearTimeout = (id) => clock.timers.delete(id);
Object.defineProperty(performance, 'now', { value: () => clock.now });

/** Lets promises and streams go on, as far as they wait for no timer. */
async function settle() {
  for (let round = 0; round < 20; round += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** What a page has. */
const page = new EventTarget();
globalThis.document = Object.assign(new EventTarget(), { hidden: false, baseURI: 'http://page.test/' });
globalThis.location = new URL('http://page.test/');
globalThis.addEventListener = page.addEventListener.bind(page);
globalThis.removeEventListener = page.removeEventListener.bind(page);

const { subscribe } = await import('../../src/ui/assets/chart/live_hub.js');
const { reconnectPause } = await import('../../src/ui/assets/chart/retry.js');

const token = (life, name) => {
  const part = (object) => Buffer.from(JSON.stringify(object)).toString('base64url');
  return `${part({ alg: 'HS256' })}.${part({ iat: 1000, exp: 1000 + life })}.${name}`;
};

/** A server: each request to a stream is kept with the functions that answer it. */
class Server {
  requests = [];
  tokens = [];
  constructor() {
    globalThis.fetch = (url, options) => this.#answer(String(url), options);
  }

  async #answer(url, options) {
    if (url.endsWith('/token')) return new Response(this.tokens.shift() ?? '', { status: 200 });
    const text = new TextEncoder();
    const request = { url, headers: options.headers, body: JSON.parse(options.body), aborted: false };
    options.signal.addEventListener('abort', () => (request.aborted = true));
    return new Promise((resolve, reject) => {
      request.refuse = (status, body, headers = {}) => resolve(Response.json(body, { status, headers }));
      request.lose = () => reject(new TypeError('Failed to fetch'));
      request.open = () => {
        let controller;
        const stream = new ReadableStream({ start: (given) => (controller = given) });
        options.signal.addEventListener('abort', () => {
          try {
            controller.error(options.signal.reason);
          } catch {}
        });
        request.send = (type, data, id) =>
          controller.enqueue(
            text.encode(`${id ? `id: ${id}\n` : ''}event: ${type}\ndata: ${JSON.stringify(data)}\n\n`),
          );
        request.close = () => controller.close();
        resolve(new Response(stream));
      };
      this.requests.push(request);
    });
  }

  /** The next request to a stream; time passes until there is one. */
  async next() {
    for (let steps = 0; steps < 100; steps += 1) {
      await settle();
      const request = this.requests.find(({ taken }) => !taken);
      if (request) return Object.assign(request, { taken: true });
      assert.ok(clock.step(), 'nothing is planned any more');
    }
    throw new Error('no request comes');
  }
}

const listener = (query, since, log) => ({
  query,
  since,
  points: ({ time }) => log.push(`points ${time}`),
  gap: ({ start, end }) => log.push(`gap ${start} ${end}`),
  failed: ({ code }, isFinal) => log.push(`${isFinal ? 'ended' : 'failed'} ${code}`),
  opened: () => log.push('opened'),
});
const address = (name, more = {}) => ({ base: 'http://page.test', path: `/live/${name}`, ...more });

test('thirty queries share one connection, and equal queries one entry', async () => {
  const server = new Server();
  const logs = Array.from({ length: 30 }, () => []);
  const ends = logs.map((log, at) =>
    subscribe(address('many'), listener({ expr: `up${at % 20}`, step: 15 }, 1000, log)),
  );
  const stream = await server.next();
  await settle();
  assert.equal(server.requests.length, 1);
  assert.equal(stream.body.queries.length, 20);
  assert.equal(stream.body.since, 1000);
  stream.open();
  await settle();
  stream.send('points', { id: stream.body.queries[0].id, time: 1005 }, '1005000');
  await settle();
  assert.deepEqual(
    logs.map((log) => log.join()),
    logs.map((_, at) => (at % 20 === 0 ? 'opened,points 1005' : 'opened')),
  );
  for (const end of ends) end();
  await clock.pass(250);
  assert.ok(stream.aborted, 'the last query closes the stream');
});

test('a query that joins opens the stream again from the point that all queries have', async () => {
  const server = new Server();
  const [first, second] = [[], []];
  const ends = [subscribe(address('join', { body: { variables: { a: ['b'] } } }), listener({ panel: 1 }, 1000, first))];
  const one = await server.next();
  assert.deepEqual(one.body.variables, { a: ['b'] });
  one.open();
  await settle();
  one.send('points', { id: one.body.queries[0].id, time: 1030 }, '1030000');
  await settle();
  ends.push(subscribe(address('join', { body: { variables: { a: ['b'] } } }), listener({ panel: 2 }, 1015, second)));
  const two = await server.next();
  assert.ok(one.aborted);
  assert.deepEqual([two.body.queries.length, two.body.since], [2, 1015]);
  for (const end of ends) end();
});

test('an equal query that joins with an earlier point gets the points after it', async () => {
  const server = new Server();
  const [first, second] = [[], []];
  const ends = [subscribe(address('equal'), listener({ expr: 'up' }, 1000, first))];
  (await server.next()).open();
  ends.push(subscribe(address('equal'), listener({ expr: 'up' }, 900, second)));
  const two = await server.next();
  assert.deepEqual([two.body.queries.length, two.body.since], [1, 900]);
  for (const end of ends) end();
});

test('after a lost connection the stream resumes after the last complete point', async () => {
  const server = new Server();
  const log = [];
  const end = subscribe(address('lost'), listener({ expr: 'up' }, 1000, log));
  const one = await server.next();
  one.open();
  await settle();
  const { id } = one.body.queries[0];
  one.send('points', { id, time: 1015 }, '1015000');
  one.send('points', { id, time: 1030 });
  await settle();
  one.close();
  const two = await server.next();
  assert.equal(two.body.since, 1015, 'the step of 1030 was not complete');
  two.lose();
  const three = await server.next();
  three.open();
  await settle();
  three.send('gap', { id, start: 1030, end: 1090 }, '1090000');
  three.send('error', { id, code: 'query_timeout', http_status: 503 });
  three.send('end', { code: 'shutting_down', http_status: 503 });
  const four = await server.next();
  assert.equal(four.body.since, 1090);
  end();
  assert.deepEqual(log, [
    'opened',
    'points 1015',
    'points 1030',
    'failed unreachable',
    'failed unreachable',
    'opened',
    'gap 1030 1090',
    'failed query_timeout',
    'failed shutting_down',
  ]);
});

test('an expired token is replaced without a failure, and a fixed one ends the stream', async () => {
  const server = new Server();
  const [log, fixed] = [[], []];
  const [old, young] = [token(600, 'old'), token(600, 'young')];
  server.tokens = [young];
  const end = subscribe(address('renewed', { token: old, tokenEndpoint: '/token' }), listener({ expr: 'up' }, 1, log));
  const one = await server.next();
  assert.equal(one.headers.Authorization, `Bearer ${old}`);
  one.open();
  await settle();
  one.send('end', { code: 'token_expired', http_status: 401 });
  const two = await server.next();
  assert.equal(two.headers.Authorization, `Bearer ${young}`);
  end();
  assert.deepEqual(log, ['opened']);
  subscribe(address('fixed', { token: old }), listener({ expr: 'up' }, 1, fixed));
  (await server.next()).refuse(401, { code: 'token_expired' });
  await settle();
  assert.deepEqual(fixed, ['ended token_expired']);
});

test('a token is replaced at 80 % of its life, while the stream is open', async () => {
  const server = new Server();
  server.tokens = [token(600, 'next')];
  const begin = clock.now;
  const end = subscribe(
    address('life', { token: token(1, 'short'), tokenEndpoint: '/token?life' }),
    listener({ expr: 'up' }, 1, []),
  );
  globalThis.fetch = ((inner) => (url, options) => inner(String(url).replace('?life', ''), options))(globalThis.fetch);
  const one = await server.next();
  one.open();
  const two = await server.next();
  const after = clock.now - begin;
  assert.equal(Math.round(after), 800);
  assert.ok(two.headers.Authorization.endsWith('.next'));
  end();
});

test('a refusal that would come again is not tried again; one that passes is, after Retry-After', async () => {
  for (const status of [400, 403, 404]) {
    const server = new Server();
    const log = [];
    subscribe(address(`status${status}`), listener({ expr: 'up' }, 1, log));
    (await server.next()).refuse(status, { code: `c${status}` });
    await clock.pass(600_000);
    assert.deepEqual(log, [`ended c${status}`]);
    assert.equal(server.requests.length, 1);
  }
  const server = new Server();
  const log = [];
  const end = subscribe(address('limited'), listener({ expr: 'up' }, 1, log));
  (await server.next()).refuse(429, { code: 'rate_limited' }, { 'Retry-After': '1' });
  const begin = clock.now;
  await server.next();
  assert.ok(clock.now - begin >= 1000);
  assert.deepEqual(log, ['failed rate_limited']);
  end();
});

test('a hidden page has no stream, and resumes when it is visible', async () => {
  const server = new Server();
  const log = [];
  const end = subscribe(address('hidden'), listener({ expr: 'up' }, 1000, log));
  const one = await server.next();
  one.open();
  await settle();
  one.send('points', { id: one.body.queries[0].id, time: 1015 }, '1015000');
  await settle();
  page.dispatchEvent(new Event('pagehide'));
  assert.ok(one.aborted);
  await settle();
  assert.equal(server.requests.length, 1);
  page.dispatchEvent(new Event('pageshow'));
  const two = await server.next();
  assert.equal(two.body.since, 1015);
  end();
  assert.deepEqual(log, ['opened', 'points 1015']);
});

test('pauses grow to 30 s, differ between pages, and are never shorter than the server asks', () => {
  for (const random of [0, 0.5, 0.999]) {
    let last = 0;
    for (let failures = 1; failures < 2000; failures += 1) {
      const pause = reconnectPause(failures, 0, random);
      assert.ok(pause >= last && pause >= 0.5 && pause <= 30);
      last = pause;
    }
    assert.ok(reconnectPause(3, 12, random) >= 12);
  }
  assert.ok(reconnectPause(1, 0, 0) < reconnectPause(1, 0, 0.9));
});
