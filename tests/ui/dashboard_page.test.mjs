// The address of a dashboard, its variables, and the queries of its panels.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { annotationEvents, isShownIn } from '../../src/ui/assets/model/annotations.js';
import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { readDashboardAddress, writeDashboardAddress } from '../../src/ui/assets/model/dashboard_address.js';
import { panelFrames, planPanel } from '../../src/ui/assets/model/panel_queries.js';
import { writeQuery } from '../../src/ui/assets/model/query_text.js';
import { addressValues, resolveVariables } from '../../src/ui/assets/model/variable_answers.js';

const RANGE = { from: 1_700_000_000_000, to: 1_700_021_600_000, raw: { from: 'now-6h', to: 'now' } };
const NOW = RANGE.to;

/** A generator of numbers from 0 to 1 with a seed. */
function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

test('an address is the same after it was read and written', () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const next = random(seed);
  const word = () =>
    Array.from(
      { length: 1 + Math.floor(next() * 5) },
      () => ['a', '&', '=', ' ', 'é', '%', '$', '+', '<'][Math.floor(next() * 9)],
    ).join('');
  for (let round = 0; round < 300; round += 1) {
    const values = new Map(
      Array.from({ length: Math.floor(next() * 4) }, (_, at) => [
        `n${at}${word()}`,
        Array.from({ length: 1 + Math.floor(next() * 3) }, word),
      ]),
    );
    const edit = next() < 0.5;
    const address = {
      org: word(),
      uid: word(),
      from: 'now-1h',
      to: word(),
      refresh: next() < 0.5 ? null : word(),
      tab: next() < 0.5 ? '' : 'json',
      panel: next() < 0.5 ? '' : '7',
      edit,
      editPanel: edit && next() < 0.5 ? '8' : '',
      values,
    };
    assert.deepEqual(readDashboardAddress(writeDashboardAddress(address)), address, `seed ${seed}, round ${round}`);
  }
});

test('each mode of an address has its own tabs', () => {
  const tabOf = (/** @type {string} */ search) => readDashboardAddress(search).tab;
  assert.deepEqual(['?tab=versions', '?tab=variables', '?tab=json'].map(tabOf), ['versions', '', 'json']);
  assert.deepEqual(['?edit=&tab=versions', '?editPanel=3&tab=variables'].map(tabOf), ['', 'variables']);
});

test('an address of Grafana is understood', () => {
  const { values, from, to, refresh } = readDashboardAddress(
    '?orgId=1&from=now-6h&to=now&var-job=a&var-job=b&var-x=&refresh=30s',
  );
  assert.deepEqual(
    [...values],
    [
      ['job', ['a', 'b']],
      ['x', ['']],
    ],
  );
  assert.deepEqual([from, to, refresh], ['now-6h', 'now', '30s']);
});

test('a hostile address has a bounded number of values', () => {
  const { values } = readDashboardAddress(`?${'var-a=x&'.repeat(5000)}var-__proto__=y`);
  assert.equal(values.get('a').length, 1000);
  assert.equal({}.y, undefined);
});

const variables = (list) => readDashboard({ title: 'T', panels: [], templating: { list } }).dashboard.variables;
const query = (name, text, more = {}) => ({ name, type: 'query', query: text, current: {}, ...more });

test('a variable is asked after those that its query mentions', async () => {
  const asked = [];
  const list = variables([query('pod', 'label_values(up{job="$job"}, pod)'), query('job', 'label_values(up, job)')]);
  const { selections } = await resolveVariables(list, new Map(), {
    context: { range: RANGE },
    ask: async (one) => {
      asked.push(one.match);
      return one.label === 'job' ? ['node', 'api'] : [`${one.match} pod`];
    },
  });
  assert.deepEqual(asked, ['up', 'up{job="node"}']);
  assert.equal(selections.get('pod').value, 'up{job="node"} pod');
  assert.deepEqual([...selections.keys()], ['pod', 'job']);
});

test('a value of the address counts although the options lack it', async () => {
  const list = variables([query('job', 'label_values(up, job)')]);
  const { selections } = await resolveVariables(list, new Map([['job', ['gone']]]), {
    context: {},
    ask: async () => ['node'],
  });
  assert.equal(selections.get('job').value, 'gone');
  const other = await resolveVariables(list, new Map(), { context: {}, ask: async () => ['node'] });
  assert.equal(other.selections.get('job').value, 'node');
});

test('a variable that cannot be asked keeps its saved value, and the others go on', async () => {
  const list = variables([
    query('job', 'label_values(up, job)', { current: { text: 'saved', value: 'saved' } }),
    query('pod', 'label_values(pod)'),
  ]);
  const { selections, resolved } = await resolveVariables(list, new Map(), {
    context: {},
    ask: async ({ label }) => {
      if (label === 'job') throw new Error('busy');
      return ['p'];
    },
  });
  assert.equal(selections.get('job').value, 'saved');
  assert.match(String(resolved.get('job').problem), /busy/);
  assert.equal(selections.get('pod').value, 'p');
});

test('All of the address selects All, and the address names it again', async () => {
  const list = variables([query('job', 'label_values(up, job)', { multi: true, includeAll: true })]);
  const { selections } = await resolveVariables(list, new Map([['job', ['All']]]), {
    context: {},
    ask: async () => ['a', 'b'],
  });
  assert.deepEqual(selections.get('job').value, ['$__all']);
  assert.deepEqual([...addressValues(list, selections)], [['job', ['$__all']]]);
});

test('a text box starts with the text of the dashboard', async () => {
  const list = variables([{ name: 'words', type: 'textbox', query: 'hello', current: {} }]);
  const { selections } = await resolveVariables(list, new Map(), { context: {}, ask: async () => [] });
  assert.equal(selections.get('words').value, 'hello');
});

const panelOf = (panel) =>
  readDashboard({ title: 'T', panels: [{ id: 1, gridPos: { x: 0, y: 0, w: 12, h: 8 }, type: 'timeseries', ...panel }] })
    .dashboard.panels[0];
const plan = (panel, more = {}) =>
  planPanel(panelOf(panel), {
    write: writeQuery,
    selections: new Map(),
    range: RANGE,
    now: NOW,
    width: 720,
    dashboard: { title: 'T', uid: 'u' },
    ...more,
  });

test('the step of a query follows the width of its panel', () => {
  const targets = [{ refId: 'A', expr: 'rate(x[$__rate_interval])' }];
  assert.deepEqual(
    plan({ targets }).queries.map(({ expr, step }) => [expr, step]),
    [['rate(x[1m])', 30]],
  );
  assert.ok(plan({ targets }, { width: 100 }).queries[0].step > plan({ targets }).queries[0].step);
});

test('hidden and unsupported queries are not asked, and the latter are named', () => {
  const { queries, problems } = plan({
    targets: [
      { refId: 'A', expr: 'up', hide: true },
      { refId: 'B', expr: 'up' },
      { refId: 'C', datasource: { type: 'loki', uid: 'x' }, expr: '{a="b"}' },
    ],
  });
  assert.deepEqual(
    queries.map(({ target }) => target.refId),
    ['B'],
  );
  assert.match(problems.join(), /Query C/);
});

test('a panel has its own time range', () => {
  const { range } = plan({ timeFrom: '1h', targets: [{ refId: 'A', expr: 'up' }] });
  assert.equal(range.to - range.from, 3_600_000);
  assert.equal(range.info, 'last 1h');
});

test('a query that is both is asked as a range and at the end', () => {
  const { queries } = plan({ targets: [{ refId: 'A', expr: 'up', instant: true, range: true }] });
  assert.deepEqual(
    queries.map(({ type }) => type),
    ['range', 'instant'],
  );
});

test('series without a configured colour have one each, and single values follow thresholds', () => {
  const answer = { resultType: 'matrix', result: [{ metric: { a: '1' }, values: [[1, '90']] }] };
  const of = (type) => {
    const panel = panelOf({ type, targets: [{ refId: 'A', expr: 'up', legendFormat: '{{a}}' }] });
    const [one] = planPanel(panel, {
      write: writeQuery,
      selections: new Map(),
      range: RANGE,
      now: NOW,
      width: 700,
      dashboard: { title: '', uid: '' },
    }).queries;
    return panelFrames(panel, [{ query: one, answer }], (text) => text, null).frames[0].fields[1].config;
  };
  assert.equal(of('timeseries').color.mode, 'palette-classic');
  assert.equal(of('stat').color.mode, 'thresholds');
  assert.equal(of('stat').displayName, '1');
  assert.deepEqual(
    of('stat').thresholds.steps.map(({ value }) => value),
    [-Infinity, 80],
  );
});

test('samples of an annotation that follow each other are one event, and 0 is none', () => {
  const annotation = {
    name: 'Deploy',
    titleFormat: '{{job}} up',
    textFormat: '',
    color: 'red',
    panelIds: [3],
    exclude: false,
  };
  const values = [0, 60, 120, 240, 300].map((at) => [at, at === 300 ? '0' : '1']);
  const events = annotationEvents(annotation, 60, {
    resultType: 'matrix',
    result: [{ metric: { job: '<b>' }, values }],
  });
  assert.deepEqual(
    events.map(({ from, to, title }) => [from, to, title]),
    [
      [0, 120_000, '<b> up'],
      [240_000, 240_000, '<b> up'],
    ],
  );
  const own = annotationEvents({ ...annotation, useValueForTime: true }, 60, {
    resultType: 'matrix',
    result: [{ metric: {}, values: [[60, '1700000000000']] }],
  });
  assert.deepEqual([own[0].from, own.length], [1_700_000_000_000, 1]);
});

test('an annotation is shown in the panels that it names, or in all others', () => {
  assert.deepEqual(
    [
      { panelIds: [3], exclude: false },
      { panelIds: [3], exclude: true },
      { panelIds: [], exclude: true },
    ].map((one) => [isShownIn(one, 3), isShownIn(one, 4), isShownIn(one, null)]),
    [
      [true, false, false],
      [false, true, true],
      [true, true, true],
    ],
  );
});

test('a variable of metric names has those that its expression matches', async () => {
  const list = variables([query('name', 'metrics(^node_)')]);
  const { resolved } = await resolveVariables(list, new Map(), { context: {}, ask: async () => ['up', 'node_load1'] });
  assert.deepEqual(
    resolved.get('name').options.map(({ value }) => value),
    ['node_load1'],
  );
});

test('All of the address stays All while the variable cannot be asked', async () => {
  const list = variables([query('job', 'label_values(up, job)', { multi: true, includeAll: true })]);
  const { selections } = await resolveVariables(list, new Map([['job', ['All']]]), {
    context: {},
    ask: async () => {
      throw new Error('busy');
    },
  });
  assert.deepEqual(selections.get('job').value, ['$__all']);
});
