// The list of embeds: its order, its texts, and what a revocation ends.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  EMBED_COLUMNS, budgetText, canBlock, credentialText, dashboardText, endingPages, endingText, evaluationText,
  hasCredential, originText, shortCount, sortPages,
} from '../../src/ui/assets/model/embeds.js';

/** @typedef {import('../../src/ui/assets/model/embeds.js').EmbedPage} EmbedPage */

/** @param {Partial<EmbedPage>} changes @returns {EmbedPage} */
const page = (changes) => ({
  api_key: { id: 'ak_a', name: 'website' },
  public_link: null,
  origin: 'https://a.example',
  blocked: false,
  dashboard: null,
  viewers: 1,
  streams: 0,
  requests: 1,
  refused: 0,
  query_seconds: 0,
  samples: 0,
  first_seen_at: '2026-11-26T10:00:00Z',
  last_seen_at: '2026-11-26T10:00:00Z',
  ...changes,
});
const node = { uid: 'node', title: 'Node' };
const other = { id: 'ak_b', name: 'app' };

test('numbers are ordered by value and texts by the text that is shown', () => {
  const pages = [page({ requests: 9 }), page({ requests: 100 }), page({ requests: 20 })];
  const requests = sortPages(pages, { by: 'requests', descending: true }).map((one) => one.requests);
  assert.deepEqual(requests, [100, 20, 9]);
  assert.deepEqual(pages.map((one) => one.requests), [9, 100, 20], 'the list itself is not changed');
  const origins = [page({ origin: null }), page({ origin: 'https://z.example' }), page({ origin: 'http://b' })];
  const texts = sortPages(origins, { by: 'origin', descending: false }).map((one) => originText(one));
  assert.deepEqual(texts, ['http://b', 'https://z.example', 'Servers']);
  const times = [page({ last_seen_at: '2026-11-26T10:00:01Z' }), page({ last_seen_at: '2026-11-26T10:00:02Z' })];
  assert.equal(sortPages(times, { by: 'last_seen_at', descending: true })[0], times[1]);
  for (const { id } of EMBED_COLUMNS) assert.equal(sortPages(pages, { by: id, descending: false }).length, 3, id);
});

test('a revocation ends exactly the pages of its origin and key, its dashboard, or its key', () => {
  const first = page({ dashboard: node, viewers: 30, streams: 4 });
  const pages = [
    first,
    page({ dashboard: null }),
    page({ origin: 'https://b.example', dashboard: node }),
    page({ api_key: other, dashboard: node }),
    page({ api_key: other }),
    page({ api_key: null, public_link: { id: 'pl_a', name: 'mail' }, origin: null, dashboard: node }),
  ];
  const ends = (/** @type {'origin'|'dashboard'|'credential'} */ what) =>
    endingPages(pages, first, what).map((one) => pages.indexOf(one));
  assert.deepEqual([ends('origin'), ends('dashboard'), ends('credential')], [[0, 1], [0, 2, 3, 5], [0, 1, 2]]);
  assert.deepEqual(endingPages(pages, pages[1], 'dashboard'), [], 'a page without a dashboard names none');
  assert.equal(endingText(endingPages(pages, first, 'origin')), '2 pages with 31 viewers and 4 live streams');
  assert.equal(endingText([page({})]), '1 page with 1 viewer');
});

test('only the origin of a web page that is not blocked yet can be blocked', () => {
  const web = ['https://a.example', 'http://127.0.0.1:8000'];
  for (const origin of web) assert.equal(canBlock(page({ origin })), true, origin);
  const others = [null, 'null', 'invalid', 'file://', 'javascript://x'];
  for (const origin of others) assert.equal(canBlock(page({ origin })), false, String(origin));
  const link = { id: 'pl_a', name: 'mail' };
  const gone = { id: 'ak_x', name: null };
  for (const changes of [{ blocked: true }, { api_key: gone }, { api_key: null, public_link: link }])
    assert.equal(canBlock(page(changes)), false, JSON.stringify(changes));
});

test('a deleted key or dashboard is named by its id', () => {
  const gone = page({ api_key: { id: 'ak_x', name: null } });
  assert.deepEqual([credentialText(gone), hasCredential(gone)], ['Deleted (ak_x)', false]);
  const link = page({ api_key: null, public_link: { id: 'pl_a', name: '' }, origin: null });
  assert.deepEqual([credentialText(link), hasCredential(link)], ['Unnamed link', true]);
  assert.equal(originText(link), 'Shared page');
  assert.equal(dashboardText(page({ dashboard: { uid: 'u', title: null } })), 'Deleted (u)');
  assert.equal(dashboardText(page({ dashboard: node })), 'Node');
  assert.equal(dashboardText(page({})), '');
});

test('a budget is told in the unit of its setting', () => {
  const key = { id: 'ak_a', name: 'website', query_seconds_last_minute: 60.44, blocked_origins: [] };
  assert.equal(budgetText({ ...key, query_seconds_per_minute: 1200 }), '60.4 of 1,200 s used');
  assert.equal(budgetText({ ...key, query_seconds_per_minute: null }), '1.01 min used, no limit');
  assert.deepEqual([999, 1_234, 987_654_321].map(shortCount), ['999', '1.23K', '988M']);
});

test('evaluation times have three significant digits in one unit', () => {
  const texts = [0, 0.0004, 0.82, 1.234, 59.96, 61, 3600, 86_400].map(evaluationText);
  assert.deepEqual(texts, ['0 ms', '0.4 ms', '820 ms', '1.23 s', '60 s', '1.02 min', '1 h', '24 h']);
});
