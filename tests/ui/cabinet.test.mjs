// The pure parts of the cabinet: routes, fuzzy search, limits in human units, audit log, snippets.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ORG_ACTIONS, SERVER_ACTIONS, actionText, actorText, auditCsv } from '../../src/ui/assets/model/audit.js';
import { bestMatches, fuzzyScore } from '../../src/ui/assets/model/fuzzy.js';
import { PURPOSES, keySnippets } from '../../src/ui/assets/model/snippets.js';
import { ageText, limitText, parseLimit, sizeText } from '../../src/ui/assets/model/limit_units.js';
import { ROUTES, currentPath, navigationOf, permits, routeAt, trailOf } from '../../src/ui/assets/model/routes.js';
import { cpuMs } from './cpu_time.mjs';

/** A generator of numbers from 0 inclusive to 1 exclusive (mulberry32). */
function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

const ASSETS = new URL('../../src/ui/assets/', import.meta.url);

test('every route is a path of the server, and its module exports its page', () => {
  const server = readFileSync(new URL('../mod.rs', ASSETS), 'utf8').match(/"index\.html" => \[(.*)\]/)[1];
  for (const { path, module, page } of ROUTES) {
    assert.ok(server.includes(`"${path}"`), path);
    const source = readFileSync(new URL(`pages/${module}`, ASSETS), 'utf8');
    assert.match(source, new RegExp(`export function ${page}\\(`), path);
  }
});

test('a slash at the end of a path does not count, and unknown paths have no route', () => {
  assert.equal(routeAt('')?.path, '/');
  assert.equal(routeAt('/')?.path, '/');
  assert.equal(routeAt('/dashboards/')?.path, '/dashboards');
  for (const path of ['/login', '/docs', '/metrics', '/dashboards/x', '/constructor']) {
    assert.equal(routeAt(path), undefined, path);
  }
});

test('old addresses of the explore page lead there, and no other address does', () => {
  assert.equal(currentPath('/', '?expr=up'), '/explore');
  assert.equal(currentPath('', '?org=a&expr=up&range=6h'), '/explore');
  assert.equal(currentPath('/', '?org=a'), '/');
  assert.equal(currentPath('/dashboards', '?expr=up'), '/dashboards');
});

test('a role has the rights of the roles below it', () => {
  assert.ok(permits('owner', 'viewer') && permits('admin', 'admin') && !permits('editor', 'admin'));
  assert.deepEqual(
    navigationOf('viewer').map(({ title }) => title),
    ['Home', 'Explore', 'Dashboards', 'Metrics', 'Targets', 'Alerts', 'Rules', 'Ingest', 'Organisation', 'Account'],
  );
  assert.deepEqual(
    trailOf(routeAt('/dashboard')).map(({ path }) => path),
    ['/dashboards', '/dashboard'],
  );
});

test('fuzzy search finds parts of words in any order, and starts of words first', () => {
  const best = (query, texts) => bestMatches(texts.map((text) => ({ id: text, text })), query, [], 9).map(({ id }) => id);
  assert.deepEqual(best('mem', ['system', 'host_memory', 'memory']), ['memory', 'host_memory']);
  assert.deepEqual(best('full node', ['Node Exporter Full', 'Node', 'Full']), ['Node Exporter Full']);
  assert.deepEqual(best('nef', ['Node Exporter Full', 'Benefit']), ['Benefit', 'Node Exporter Full']);
  assert.equal(fuzzyScore('abcdefghijklmnop', 'aeimp'), null, 'letters scattered over a word are chance');
  assert.equal(fuzzyScore('anything', ''), -0.8);
});

test('entries that were used recently are first without a query, and among equal matches', () => {
  const entries = ['a one', 'b one', 'c one', 'd two'].map((text) => ({ id: text, text }));
  const ids = (query, recent) => bestMatches(entries, query, recent, 3).map(({ id }) => id);
  assert.deepEqual(ids('', ['d two', 'b one']), ['d two', 'b one', 'a one']);
  assert.deepEqual(ids('one', ['c one']), ['c one', 'a one', 'b one']);
  assert.deepEqual(ids('two', ['c one']), ['d two']);
});

test('a search over long texts ends soon', () => {
  const entries = Array.from({ length: 5000 }, (_, at) => ({ id: String(at), text: 'a'.repeat(1000) }));
  const took = cpuMs(() => bestMatches(entries, `${'a'.repeat(99)}b`, [], 10));
  assert.ok(took < 2000, `${took} ms`);
});

test('limits are shown in units that people use', () => {
  const cases = [
    [20e9, 'bytes', '20 GB'],
    [1.5e9, 'bytes', '1.5 GB'],
    [1.536e9, 'bytes', '1.536 GB'],
    [2 ** 30, 'bytes', '1 GiB'],
    [4096, 'bytes', '4 KiB'],
    [0, 'bytes', '0 B'],
    [1, 'days', '1 day'],
    [90, 'days', '90 days'],
    [30, 'seconds', '30 seconds'],
    [5400, 'seconds', '90 minutes'],
    [7200, 'seconds', '2 hours'],
    [10_000_000, 'count', '10,000,000'],
    ['none', 'count', 'no limit'],
    [null, 'days', ''],
  ];
  for (const [limit, kind, text] of cases) assert.equal(limitText(limit, kind), text);
  assert.deepEqual([246_608, 999, 1.234e12].map(sizeText), ['247 kB', '999 B', '1.23 TB']);
  assert.deepEqual([0.2, 2.9, 61, 7300, 90_000, 200_000].map(ageText), ['just now', '2 s ago', '1 min ago', '2 h ago', '1 day ago', '2 days ago']);
});

test('limits are read with and without separators, spaces and capitals', () => {
  const cases = [
    ['20 GB', 'bytes', 20e9],
    ['0.1gb', 'bytes', 1e8],
    ['1 GiB', 'bytes', 2 ** 30],
    ['1,000 MB', 'bytes', 1e9],
    ['30', 'days', 30],
    ['48 hours', 'days', 2],
    ['90 m', 'seconds', 5400],
    ['2 d', 'seconds', 172_800],
    ['20,000', 'count', 20_000],
    ['No limit', 'count', 'none'],
    ['none', 'bytes', 'none'],
    ['  ', 'bytes', null],
  ];
  for (const [text, kind, limit] of cases) assert.equal(parseLimit(text, kind), limit, text);
});

test('a text that is no limit is refused with an example', () => {
  for (const [text, kind] of [['5', 'bytes'], ['a lot', 'bytes'], ['1.5', 'count'], ['-1', 'count'], ['1 hour', 'days'], ['3 GB', 'seconds'], ['1e9', 'count'], ['9'.repeat(30), 'count']]) {
    assert.throws(() => parseLimit(text, kind), /^Error: Enter /, `${text} ${kind}`);
  }
});

test('a limit that was typed is shown so that it is read back as the same number', () => {
  const seed = 20_261_126;
  const next = random(seed);
  const units = { bytes: ['MB', 'GB', 'TB', 'KiB', 'MiB', 'GiB'], days: ['days'], seconds: ['s', 'minutes', 'hours', 'days'], count: [''] };
  for (let round = 0; round < 3000; round += 1) {
    for (const kind of Object.keys(units)) {
      const text = `${Math.ceil(next() * 999)} ${units[kind][Math.floor(next() * units[kind].length)]}`.trim();
      const limit = parseLimit(text, kind);
      assert.equal(parseLimit(limitText(limit, kind), kind), limit, `seed ${seed}: ${text} as ${limitText(limit, kind)}`);
    }
  }
});

test('every action of the audit log that the server writes has words', () => {
  const actions = ['org.created', 'key.revoked', 'login.ok', 'settings.changed', 'dashboard.restored'];
  for (const action of actions) assert.doesNotMatch(actionText(action), /[._]/, action);
  assert.equal(actionText('rules.group_added'), 'Rules group added');
  assert.equal(actionText('constructor'), 'Constructor');
  for (const [filter] of [...ORG_ACTIONS, ...SERVER_ACTIONS]) assert.match(filter, /^[a-z_]+\.\*$/);
});

test('the CSV of the audit log quotes separators and runs no formula in a spreadsheet', () => {
  const entry = {
    at: '2026-11-26T14:43:35Z',
    action: 'key.created',
    target: '=HYPERLINK("x")',
    ip: null,
    actor: { type: 'user', email: 'a@example.com' },
    meta: { detail: 'one, "two"\nthree' },
  };
  assert.equal(
    auditCsv([entry]),
    'time,person,action,target,detail,address\r\n' +
      '2026-11-26T14:43:35Z,a@example.com,key.created,"\'=HYPERLINK(""x"")","one, ""two""\nthree",\r\n',
  );
  assert.equal(actorText({ ...entry, actor: { type: 'user', email: null, id: 'usr_1' } }), 'Deleted account');
  assert.equal(actorText({ ...entry, actor: { type: 'system', email: null, id: null } }), 'Server');
});

test('every purpose of a key has a snippet of its own, first, with the secret filled in', () => {
  for (const { id, scopes } of PURPOSES) {
    const snippets = keySnippets({ base: 'https://m.example/api/v1/orgs/a', key: 'msk_secret', scopes, purpose: id });
    assert.equal(snippets[0].id, id);
    for (const { text } of snippets) assert.ok(text.includes('msk_secret') && text.includes('/api/v1/orgs/a'), text);
  }
  const both = keySnippets({ base: 'b', key: 's', scopes: ['read'], purpose: 'prometheus' });
  assert.deepEqual(
    both.map(({ id }) => id),
    ['read', 'query'],
    'snippets need a permission that the key has',
  );
});
