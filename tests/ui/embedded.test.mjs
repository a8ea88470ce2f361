// What <metric-dashboard> makes of the answers of a server, of attributes, and of addresses of shared pages.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { rangeSeconds } from '../../src/ui/assets/embedded/live.js';
import { readSnapshot, snapshotAnswers, snapshotSource } from '../../src/ui/assets/embedded/source.js';
import { Variables } from '../../src/ui/assets/embedded/variables.js';
import {
  allowedOptions,
  attributeValues,
  boundedRange,
  readView,
  sentValues,
  snapshotKey,
  suggestedFilters,
  visitorVariables,
  writeAnnotationReference,
  writeReference,
} from '../../src/ui/assets/embedded/view.js';
import { wordsFor } from '../../src/ui/assets/embedded/words.js';
import { ApiError } from '../../src/ui/assets/chart/api_error.js';
import { annotationQueries } from '../../src/ui/assets/model/annotations.js';
import { currentPanel, needsConversion } from '../../src/ui/assets/model/current_panel.js';
import { readWith } from '../../src/ui/assets/model/dashboard_reader.js';
import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { planPanel } from '../../src/ui/assets/model/panel_queries.js';
import { frameAttributes, refusalText, renewedToken } from '../../src/ui/assets/model/shared_page.js';

const RANGE = { from: 0, to: 3_600_000, raw: { from: 'now-1h', to: 'now' } };
const variables = (list) => readDashboard({ title: 't', panels: [], templating: { list } }).dashboard.variables;
const query = (name, more = {}) => ({ name, type: 'query', current: {}, ...more });
const view = (access, more = {}) => readView({ uid: 'u', dashboard: {}, variables: access, ...more });

/** Resolves variables with answers by name; records what was asked. */
async function resolved(list, access, answers, { attributes = [], choice } = {}) {
  const asked = [];
  const own = new Variables({
    options: async (name, others) => {
      asked.push([name, others]);
      return typeof answers[name] === 'function' ? answers[name](others) : answers[name];
    },
  });
  const read = view(access).access;
  own.adopt(visitorVariables(variables(list), read), read, null);
  own.setAttributes(attributes);
  await own.resolve({ range: RANGE });
  if (choice) {
    own.choose(...choice);
    await own.resolve({ range: RANGE });
  }
  return { values: own.values(), asked, sent: sentValues(own.selections, read) };
}

test('an answer of any shape is a view that opens nothing', () => {
  for (const answer of [null, [], 'x', { variables: [] }, { variables: { a: null, b: { access: 'all' }, c: 4 } }]) {
    const { access, longest, leastStep, document } = readView(answer);
    assert.deepEqual(
      [...access.values()].filter((one) => one.access === 'open'),
      [],
      JSON.stringify(answer),
    );
    assert.deepEqual([longest, leastStep, document], [Infinity, 0, {}]);
  }
  const { access } = readView(JSON.parse('{"variables":{"__proto__":{"access":"open","values":null}}}'));
  assert.equal(access.get('__proto__').access, 'open');
  assert.equal({}.access, undefined);
});

test('locked and fixed variables have the values of the answer, no control, and are not sent', async () => {
  const list = [
    query('tenant', { current: { text: 'saved', value: 'saved' } }),
    { name: 'n', type: 'custom', query: '1,2' },
  ];
  const access = { tenant: { access: 'locked', value: ['a', 'b'] }, n: { access: 'fixed', value: ['2'] } };
  const { values, asked, sent } = await resolved(
    list,
    access,
    {},
    {
      attributes: [
        { name: 'var-tenant', value: 'c' },
        { name: 'var-n', value: '1' },
      ],
    },
  );
  assert.deepEqual(values, { tenant: ['a', 'b'], n: ['2'] });
  assert.deepEqual([asked, { ...sent }], [[], {}]);
  const shown = visitorVariables(variables(list), view(access).access);
  assert.ok(shown.every(({ hide }) => hide === 2));
});

test('an open variable with a list offers that list only, and All stands for it', async () => {
  const list = [query('route', { multi: true, includeAll: true, current: { text: ['All'], value: ['$__all'] } })];
  const { sent, values } = await resolved(
    list,
    { route: { access: 'open', values: ['/a', '/b'] } },
    { route: ['/b', '/c', '/a'] },
  );
  assert.deepEqual({ ...sent }, { route: ['$__all'] });
  assert.deepEqual(values, { route: ['$__all'] });
  assert.deepEqual(allowedOptions(['/b', '/c', { text: 'A', value: '/a' }], { access: 'open', values: ['/a', '/b'] }), [
    '/b',
    { text: 'A', value: '/a' },
  ]);
  assert.deepEqual(allowedOptions(['/x'], { access: 'open', values: ['/a'] }), ['/a']);
  const custom = visitorVariables(
    variables([{ name: 'c', type: 'custom', query: 'One : 1, Two : 2, 3' }]),
    view({ c: { access: 'open', values: ['2'] } }).access,
  );
  assert.deepEqual(JSON.parse(custom[0].query), [{ text: 'Two', value: '2' }]);
});

test('a variable that depends on another one is asked again once that one is known', async () => {
  const list = [query('region'), query('host')];
  const open = { access: 'open', values: null };
  const answers = { region: ['eu', 'us'], host: ({ region }) => (region ? [`${region[0]}-1`] : ['any']) };
  const { values, asked } = await resolved(list, { region: open, host: open }, answers);
  assert.deepEqual(values, { region: ['eu'], host: ['eu-1'] });
  assert.ok(asked.length <= 5, `${asked.length} questions`);
  const saved = [
    query('region', { current: { text: 'eu', value: 'eu' } }),
    query('host', { current: { text: 'eu-1', value: 'eu-1' } }),
  ];
  const once = await resolved(saved, { region: open, host: open }, answers);
  assert.equal(once.asked.length, 2, 'saved values that the options have are asked in one round');
});

test('a choice keeps the other values as far as their options have them', async () => {
  const open = { access: 'open', values: null };
  const list = [
    query('region', { current: { text: 'eu', value: 'eu' } }),
    query('host', { current: { text: 'eu-2', value: 'eu-2' } }),
    { name: 'words', type: 'textbox', query: 'a' },
  ];
  const access = { region: open, host: open, words: open };
  const answers = { region: ['eu', 'us'], host: ({ region }) => [`${region[0]}-1`, `${region[0]}-2`] };
  const { values } = await resolved(list, access, answers, { choice: ['region', ['us']] });
  assert.deepEqual(values, { region: ['us'], host: ['us-1'], words: ['a'] });
  const attributes = [{ name: 'var-host', value: 'eu-2' }];
  const replaced = await resolved(list, access, answers, { attributes, choice: ['region', ['us']] });
  assert.equal(replaced.values.host[0], 'us-1', 'a value of an attribute, too');
  const kept = await resolved(list, access, answers, { choice: ['words', ['b']] });
  assert.deepEqual(kept.values, { region: ['eu'], host: ['eu-2'], words: ['b'] });
});

test('a variable without options is not sent', async () => {
  const { sent } = await resolved(
    [query('none', { multi: true })],
    { none: { access: 'open', values: null } },
    { none: [] },
  );
  assert.deepEqual({ ...sent }, {});
});

test('attributes name variables whatever their capitals, and only open ones are set', async () => {
  const list = variables([query('podName', { multi: true }), query('x')]);
  const values = attributeValues(
    [
      { name: 'var-podname', value: 'a, b' },
      { name: 'var-x', value: 'a,b' },
      { name: 'var-none', value: '1' },
      { name: 'x', value: '2' },
    ],
    list,
  );
  assert.deepEqual(
    [...values],
    [
      ['podName', ['a', 'b']],
      ['x', ['a,b']],
    ],
  );
});

test('a query is a reference with its intervals, and a repeated panel has its own value', () => {
  const { dashboard } = readWith(
    {
      title: 't',
      panels: [
        {
          id: 7,
          type: 'timeseries',
          fieldConfig: {},
          options: {},
          targets: [
            { refId: 'A', queried: true },
            { refId: 'B', queried: false },
            { refId: 'C', queried: true, hide: true },
          ],
        },
      ],
    },
    currentPanel,
  );
  const [panel] = dashboard.panels;
  const scoped = new Map([['host', { name: 'host', value: 'a', text: 'a' }]]);
  const plan = (write, leastStep = 0) =>
    planPanel(panel, {
      selections: new Map(),
      range: RANGE,
      now: RANGE.to,
      width: 400,
      dashboard: { title: '', uid: '' },
      leastStep,
      write,
    });
  const { queries } = plan(writeReference(7, scoped));
  assert.deepEqual(
    queries.map(({ ask, expr, step }) => [ask, expr, step]),
    [[{ panel: 7, ref: 'A', interval: '15s', rate_interval: '1m', variables: { host: ['a'] } }, '', 15]],
  );
  assert.equal(plan(writeReference(7, new Map()), 60_000).queries[0].step, 60, 'the shortest step of the server holds');
  assert.equal(plan(writeReference(null, new Map())).queries.length, 0, 'a panel without an id cannot be asked');
});

test('annotations without expressions are asked by their places', () => {
  const { document } = readView({
    dashboard: {
      panels: [],
      annotations: {
        list: [
          { name: 'deploys', place: 3, queried: true, step: '30s', filter: { ids: [1] } },
          { name: 'hidden from viewers', place: 1 },
        ],
      },
    },
  });
  const { annotations } = readWith(document, currentPanel).dashboard;
  const queries = annotationQueries(annotations, { selections: new Map(), range: RANGE }, writeAnnotationReference);
  assert.deepEqual(
    queries.map(({ expr, ask, step }) => [expr, ask, step]),
    [['', { annotation: 3, interval: '30s', rate_interval: '2m' }, 30]],
  );
  // A member asks with the expression, and not by a place.
  const own = [{ ...annotations[0], expr: 'up', place: null }];
  assert.deepEqual(annotationQueries(own, { selections: new Map(), range: RANGE })[0].ask, { expr: 'up' });
  assert.equal(annotationQueries(own, { selections: new Map(), range: RANGE }, writeAnnotationReference).length, 0);
  const shown = [{ plan: {}, answers: [{ query: { ask: queries[0].ask, type: 'range' }, answer: { id: 'x', data: 1 } }] }];
  assert.deepEqual(snapshotAnswers(shown), { 'annotation:3:range': { data: 1 } });
});

test('a visitor sets the filters of an ad hoc variable only if it is open, and all or some as it is allowed', () => {
  const saved = { label: 'job', op: '=', value: 'api' };
  const adhoc = { name: 'f', type: 'adhoc', hide: 0, filters: [saved], multi: false, current: { text: '', value: '' } };
  const of = (access) => visitorVariables([adhoc], new Map(access ? [['f', access]] : []))[0];
  for (const access of [null, { access: 'fixed', values: [] }, { access: 'locked', values: ['x'] }]) {
    assert.equal(of(access).hide, 2);
  }
  assert.equal(of({ access: 'open', values: null }), adhoc);
  const listed = of({ access: 'open', values: ['job|=|a__gfp__b', 'no filter'] });
  assert.deepEqual([listed.type, listed.multi, JSON.parse(listed.query)], [
    'custom',
    true,
    [
      { text: 'job = a|b', value: 'job|=|a__gfp__b' },
      { text: 'no filter', value: 'no filter' },
    ],
  ]);
  const access = new Map([['f', { access: 'open', values: null }]]);
  const sent = (filters) => ({ ...sentValues(new Map([['f', { value: '', type: 'adhoc', filters }]]), access) });
  assert.deepEqual(sent([saved, { label: 'a', op: '!=', value: 'x,y' }]), { f: ['job|=|api', 'a|!=|x__gfc__y'] });
  assert.deepEqual(sent([]), { f: [] }, 'without filters, those of the document do not hold either');
});

test('filters are suggested from the results that a visitor sees', async () => {
  const rows = [{ metric: { __name__: 'up', job: 'api', zone: 'b' } }, { metric: { job: 'web' } }, null];
  const ask = suggestedFilters(() => [{ answer: { data: { result: rows } } }, { answer: null }, { answer: { data: 3 } }]);
  assert.deepEqual(await ask({ kind: 'label_names', match: '' }), ['job', 'zone']);
  assert.deepEqual(await ask({ kind: 'label_values', label: 'job', match: '' }), ['api', 'web']);
  assert.deepEqual(await ask({ kind: 'label_values', label: 'constructor', match: '' }), []);
});

test('the range of a live query is that of its panel, in whole seconds', () => {
  assert.equal(rangeSeconds({ from: 0, to: 21_600_000 }), 21_600);
  assert.equal(rangeSeconds({ from: 5, to: 900_004 }), 900);
  assert.equal(rangeSeconds({ from: 7, to: 7 }), 1);
});

test('a range is cut to the longest one that the server allows', () => {
  assert.equal(boundedRange(RANGE, 3_600_000), RANGE);
  assert.deepEqual(boundedRange(RANGE, 600_000), {
    from: 3_000_000,
    to: 3_600_000,
    raw: { from: 3_000_000, to: 3_600_000 },
  });
});

test('a snapshot answers what it holds, for any range and width, and nothing else', async () => {
  const ask = { panel: 4, ref: 'A', interval: '15s', rate_interval: '1m', variables: { host: ['a'] } };
  const data = { resultType: 'matrix', result: [{ metric: {}, values: [[1, '2']] }] };
  const answers = snapshotAnswers([
    { plan: {}, answers: [{ query: { ask, type: 'range' }, answer: { id: '0.0', status: 'success', data } }] },
  ]);
  assert.deepEqual(Object.keys(answers), [snapshotKey(ask, 'range')]);
  const source = snapshotSource(JSON.parse(JSON.stringify({ view: {}, answers, range: {}, selections: {} })));
  const got = [];
  const queries = [
    { id: 'x', type: 'range', ask: { ...ask, interval: '1m' } },
    { id: 'y', type: 'range', ask: { ...ask, ref: '__proto__' } },
  ];
  assert.deepEqual(await source.send({ queries, answered: (answer) => got.push(answer) }), []);
  assert.deepEqual(
    got.map(({ id, data: { result } }) => [id, result.length]),
    [
      ['x', 1],
      ['y', 0],
    ],
  );
});

test('a snapshot of any shape is read', () => {
  for (const value of [null, undefined, 'x', 4, []]) assert.equal(readSnapshot(value), null);
  const none = { view: undefined, answers: {}, range: { from: 0, to: 0 }, selections: {} };
  assert.deepEqual(readSnapshot({}), none);
  const odd = { answers: { a: null, b: 'x' }, range: 'x', selections: { a: 'x', b: [1, 'y'] } };
  assert.deepEqual(readSnapshot(odd), { ...none, selections: { a: [], b: ['y'] } });
  readSnapshot(JSON.parse('{"answers":{"__proto__":{"status":"x"}},"selections":{"__proto__":["y"]}}'));
  assert.equal({}.status, undefined);
});

test('visitors read a calm sentence that names no code, path or query', () => {
  for (const status of [0, 400, 401, 403, 404, 429, 500, 503]) {
    const { text } = wordsFor(
      new ApiError({ status, code: 'some_code', detail: 'at POST /api/v1/x: rate(secret[5m])' }),
    );
    assert.match(text, /^[A-Z][a-z ]+\.$/, `${status}`);
  }
  assert.deepEqual(wordsFor(new TypeError('undefined is not a function')), {
    text: 'This dashboard is not available right now.',
    retry: 'ask',
  });
});

test('a dashboard promises no return that it does not try, and offers one that may help', () => {
  const words = (code, status = 0) => wordsFor(new ApiError({ code, status, retryAfter: 7 }));
  for (const [code, status] of [['unreachable', 0], ['offline', 0], ['rate_limited', 429], ['busy', 503]]) {
    assert.doesNotMatch(words(code, status).text, /comes back/, code);
    assert.equal(words(code, status).retry, 'ask', code);
  }
  assert.deepEqual(words('no_credential'), { text: 'This dashboard is not set up yet.', retry: 'never' });
  assert.equal(words('public_link_invalid', 401).retry, 'never');
});

test('a dashboard that needs no conversion of old panels is read the same without it', () => {
  const folder = new URL('../../src/ui/assets/dashboards/', import.meta.url);
  let checked = 0;
  for (const name of readdirSync(folder)) {
    const json = JSON.parse(readFileSync(new URL(name, folder), 'utf8'));
    assert.equal(needsConversion(json), false, name);
    assert.deepEqual(readWith(json, currentPanel), readDashboard(json), name);
    checked += 1;
  }
  assert.ok(checked >= 3);
  const old = (panel) => needsConversion({ panels: [panel] });
  for (const panel of [
    { type: 'graph' },
    { type: 'singlestat', fieldConfig: {} },
    { type: 'table' },
    { type: 'stat', options: {} },
    { type: 'gauge', fieldConfig: {}, options: { fieldOptions: {} } },
    { type: 'text', options: {} },
    { type: 'row', panels: [{ type: 'graph' }] },
  ])
    assert.ok(old(panel), JSON.stringify(panel));
  assert.ok(needsConversion({ rows: [] }));
});

test('the address of a shared page gives attributes, and unknown ones are left out', () => {
  assert.deepEqual(
    frameAttributes(
      '?token=a.b.c&var-host=a&var-host=b&onload=x&org=evil&uid=evil&src=http://evil&theme=dark&__proto__=1',
    ),
    { token: 'a.b.c', 'var-host': 'a,b', theme: 'dark' },
  );
  assert.deepEqual(frameAttributes(`?var-${'x'.repeat(200)}=1&token=${'y'.repeat(5000)}&var-a b=1`), {});
});

test('only a message with a token is one, and nothing else of it counts', () => {
  assert.equal(renewedToken({ type: 'promlet-token', token: 'a.b-c.d_e', org: 'x' }), 'a.b-c.d_e');
  for (const message of [
    null,
    'promlet-token',
    [],
    { type: 'promlet-token' },
    { type: 'promlet-token', token: ['a.b.c'] },
    { type: 'other', token: 'a.b.c' },
    { type: 'promlet-token', token: 'mpl_x' },
    { type: 'promlet-token', token: `${'a'.repeat(5000)}.b.c` },
    { type: 'promlet-token', token: 'a.b.c\r\nx' },
  ])
    assert.equal(renewedToken(message), null, JSON.stringify(message));
});

test('a refusal that is not known has words, too', () => {
  for (const code of ['public_link_invalid', 'token_expired', '', 'constructor', '__proto__']) {
    const { heading, advice } = refusalText(code);
    assert.ok(heading.length > 10 && advice.endsWith('.'), code);
  }
});
