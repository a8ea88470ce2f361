// Edits of panels and variables as pure functions on their stored JSON.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Draft } from '../../src/ui/assets/components/panel_editor/draft.js';
import {
  addTarget, findPanel, freeRefId, getAt, jsonError, mappingRows, mappingsOf, moved, queryType, setAt, sortedSteps,
  switchKind, targetsOf,
} from '../../src/ui/assets/model/edit_panel.js';
import {
  duplicateOf, newVariable, queryOf, queryTextOf, usesOf, VARIABLE_KINDS, variableProblems, withQuery,
} from '../../src/ui/assets/model/edit_variable.js';
import { CURRENT } from './dashboard_samples.mjs';

/** A small generator of numbers below 1. @param {number} seed */
function random(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
const NAMES = ['a', 'options', 'legend', 'x-y', '0', 'length', 'toString'];

/** @param {() => number} next @param {number} depth @returns {any} */
function json(next, depth = 0) {
  const kind = Math.floor(next() * (depth > 2 ? 3 : 5));
  if (kind === 3) return Array.from({ length: Math.floor(next() * 4) }, () => json(next, depth + 1));
  if (kind === 4) {
    return Object.fromEntries(NAMES.filter(() => next() < 0.4).map((name) => [name, json(next, depth + 1)]));
  }
  return [null, next(), 'text'][kind];
}

test('a value that is set at a path is read there, and everything beside the path stays', () => {
  for (let seed = 1; seed <= 500; seed += 1) {
    const next = random(seed);
    const before = { rest: json(next), ...json(next) };
    const copy = structuredClone(before);
    const path = ['a', 'options', 'legend'].slice(0, 1 + Math.floor(next() * 3));
    // A list on the way takes no name.
    if (path.some((_, at) => Array.isArray(getAt(before, path.slice(0, at + 1))))) continue;
    const after = setAt(before, path, seed);
    assert.equal(getAt(after, path), seed, `seed ${seed}`);
    assert.deepEqual(before, copy, `seed ${seed}: the original is unchanged`);
    assert.deepEqual(after.rest, before.rest, `seed ${seed}`);
    for (const name of Object.keys(before)) {
      if (name !== path[0]) assert.deepEqual(after[name], before[name], `seed ${seed}: ${name}`);
    }
  }
});

test('undefined deletes a member, and removes an entry of a list', () => {
  assert.deepEqual(setAt({ a: { b: 1, c: 2 } }, 'a.b', undefined), { a: { c: 2 } });
  assert.deepEqual(setAt({ list: [1, 2, 3] }, ['list', 1], undefined), { list: [1, 3] });
  assert.deepEqual(setAt({ list: [1] }, ['list', 1], 2), { list: [1, 2] });
  assert.deepEqual(setAt({ list: [1] }, ['list', 5], 2), { list: [1] });
});

test('no path reaches a prototype', () => {
  for (const path of ['__proto__.polluted', 'a.constructor.prototype.polluted', 'constructor.polluted']) {
    const value = JSON.parse('{"a":{},"__proto__":{"x":1}}');
    assert.equal(setAt(value, path, true), value);
    assert.equal(getAt(value, path), undefined);
  }
  assert.equal(/** @type {any} */ ({}).polluted, undefined);
  assert.equal(getAt({}, 'toString'), undefined);
});

test('switching the kind there and back loses nothing, over any chain of kinds', () => {
  const kinds = ['timeseries', 'stat', 'table', 'text', 'gauge'];
  for (let seed = 1; seed <= 100; seed += 1) {
    const next = random(seed);
    const first = { id: 1, type: 'timeseries', unknown: json(next), fieldConfig: { defaults: { custom: json(next) } },
      ...(next() < 0.8 ? { options: { legend: json(next), own: json(next) } } : {}) };
    let state = { raw: /** @type {any} */ (first), remembered: new Map() };
    for (let step = 0; step < 6; step += 1) {
      state = switchKind(state.raw, kinds[Math.floor(next() * kinds.length)], state.remembered);
      assert.deepEqual(state.raw.fieldConfig, first.fieldConfig, `seed ${seed}`);
      assert.deepEqual(state.raw.unknown, first.unknown, `seed ${seed}`);
    }
    assert.deepEqual(switchKind(state.raw, 'timeseries', state.remembered).raw, first, `seed ${seed}`);
  }
});

test('a panel is found by its id, and an old one is found in its present form', () => {
  const inRow = findPanel(CURRENT, 4);
  assert.equal(inRow?.raw.title, 'In');
  assert.equal(findPanel(CURRENT, '2')?.raw.targets[0].unknown, 1);
  assert.equal(findPanel(CURRENT, 1), null, 'a row is not edited as a panel');
  const old = findPanel({ title: 't', panels: [{ id: 3, type: 'graph', odd: 1, fill: 2, targets: [] }] }, 3);
  assert.equal(old?.raw.type, 'timeseries');
  assert.equal(old?.raw.odd, 1);
  assert.equal(old?.raw.fieldConfig.defaults.custom.fillOpacity, 20);
});

test('a new or copied query has a letter of its own', () => {
  const raw = { targets: [{ refId: 'A', expr: 'up', odd: 1 }, { expr: 'x' }] };
  assert.deepEqual(targetsOf(raw).map(({ refId }) => refId), ['A', 'B']);
  const copied = addTarget(raw, 0).targets;
  assert.deepEqual(copied.map((/** @type {any} */ one) => [one.refId, one.expr, one.odd]),
    [['A', 'up', 1], ['C', 'up', 1], ['B', 'x', undefined]]);
  assert.equal(freeRefId(Array.from({ length: 26 }, (_, at) => ({ refId: String.fromCharCode(65 + at) }))), 'AA');
});

test('a query asks a range, a point, or both', () => {
  assert.equal(queryType({}), 'range');
  assert.equal(queryType({ instant: true }), 'instant');
  assert.equal(queryType({ instant: true, range: true }), 'both');
});

test('value mappings come back as they were from the lines of the form', () => {
  const mappings = [
    { type: 'value', options: { a: { text: 'x', index: 0 }, b: { color: 'red' } }, odd: 1 },
    { type: 'value', options: { c: {} } },
    { type: 'range', options: { from: null, to: 5, result: { text: 'low' } } },
    { type: 'regex', options: { pattern: '.*', result: {} } },
    { type: 'special', options: { match: 'nan', result: { text: 'none' } } },
  ];
  assert.deepEqual(mappingsOf(mappingRows(mappings)), mappings);
  const hostile = mappingsOf(mappingRows(JSON.parse('[{"type":"value","options":{"__proto__":{"text":"x"}}}]')));
  assert.deepEqual(Object.keys(hostile[0].options), ['__proto__']);
});

test('threshold steps rise from the base', () => {
  assert.deepEqual(sortedSteps([{ color: 'red', value: 80 }, { color: 'green', value: null }, { value: 5 }]),
    [{ color: 'green', value: null }, { value: 5 }, { color: 'red', value: 80 }]);
  assert.deepEqual(moved([1, 2, 3], 0, 2), [2, 3, 1]);
  assert.deepEqual(moved([1, 2], 0, 2), [1, 2]);
});

test('the place of an error in JSON is the first character that cannot follow', () => {
  /** @type {[string, number, number][]} */
  const cases = [['{\n  "type": }', 2, 11], ['[1,]', 1, 4], ['{"a" 1}', 1, 6], ['{"a": 1', 1, 8], ['', 1, 1],
    ['{"a": 01}', 1, 8], ['[1] x', 1, 5], ['{a: 1}', 1, 2], ['"a\nb"', 1, 1], ['{"a": 1,}', 1, 9], ['[tru]', 1, 2],
    ['{"a": 1, 2: 3}', 1, 10]];
  for (const [text, line, column] of cases) {
    const error = jsonError(text);
    assert.deepEqual([error?.line, error?.column], [line, column], JSON.stringify(text));
  }
});

test('cut or changed JSON always has a place of its error, and JSON has none', () => {
  for (let seed = 1; seed <= 300; seed += 1) {
    const next = random(seed);
    const text = JSON.stringify(json(next), null, 1);
    assert.equal(jsonError(text), null, `seed ${seed}`);
    const at = Math.floor(next() * text.length);
    const error = jsonError(`${text.slice(0, at)}\u0001${text.slice(at)}`);
    assert.ok(error && error.at <= at, `seed ${seed}: ${text}`);
  }
});

test('the query of a variable survives its form, and an object keeps its other members', () => {
  for (const text of ['label_values(up{a="b"}, job)', 'label_values(job)', 'label_names()', 'metrics(node_.*)',
    'query_result(topk(5, up))', 'up{a="b"}']) {
    assert.equal(queryTextOf(queryOf({ query: text })), text);
  }
  const made = withQuery({ type: 'query', query: { query: 'x', refId: 'r', qryType: 3 }, odd: 1 }, 'metrics(a)');
  assert.deepEqual(made, { type: 'query', query: { query: 'metrics(a)', refId: 'r' }, odd: 1,
    definition: 'metrics(a)' });
});

test('new and copied variables have free names and nothing wrong with them', () => {
  /** @type {import('../../src/ui/assets/model/limits.js').Json[]} */
  let list = [];
  for (const [kind] of [...VARIABLE_KINDS, ...VARIABLE_KINDS]) list = [...list, newVariable(kind, list)];
  list = [...list, duplicateOf(list[0], list)];
  assert.equal(new Set(list.map(({ name }) => name)).size, 15);
  assert.deepEqual(variableProblems({}, list), []);
});

test('cycles, unknown references and names that cannot be used are named', () => {
  /** @param {any[]} list */
  const texts = (list) => variableProblems({}, list).map(({ text, blocks }) => `${text}${blocks ? '!' : ''}`);
  const query = (/** @type {string} */ name, /** @type {string} */ text) => ({ name, type: 'query', query: text });
  assert.match(texts([query('a', 'label_values(up{x="$b"}, y)'), query('b', '$a')]).join(), /a → b → a\.!/);
  assert.deepEqual(texts([query('a', 'x{y="$gone", z="$__range"}')]), ['a refers to $gone, which does not exist.']);
  assert.deepEqual(variableProblems({ __inputs: [{ name: 'DS' }] }, [{ ...query('a', ''), datasource: '${DS}' }]), []);
  assert.equal(texts([query('a', ''), query('a', '')]).length, 1);
  assert.equal(texts([query('', '')]).length, 1);
  assert.equal(texts([query('a b', '')]).length, 1);
});

test('the panels and variables that use a variable are named', () => {
  const root = { title: 't', templating: { list: [{ name: 'job' }, { name: 'pod', query: 'x{j="$job"}' }] }, panels: [
    { id: 1, title: 'One', type: 'stat', targets: [{ expr: 'up{job="${job}"}' }] },
    { id: 2, title: 'Two', type: 'stat', repeat: 'job' },
    { id: 3, title: 'Three', type: 'stat', targets: [{ expr: 'up{job="$jobs"}' }] },
    { id: 4, type: 'row', collapsed: true, panels: [{ id: 5, title: 'Five [[job]]', type: 'stat' }] }] };
  const { panels, variables } = usesOf(root, 'job');
  assert.deepEqual(panels.filter((title) => title !== 'Panel 4'), ['One', 'Two', 'Five [[job]]']);
  assert.deepEqual(variables, ['pod']);
});

test('a_text_that_is_typed_is_part_of_the_draft_before_it_runs_and_one_step_of_undo', (context) => {
  context.mock.timers.enable({ apis: ['Date'] });
  /** @type {[boolean, boolean][]} */
  const calls = [];
  const draft = new Draft({ expr: '' }, (rebuild, typing) => void calls.push([rebuild, typing]));
  for (const expr of ['u', 'up', 'up{']) {
    draft.set({ expr }, { typing: true, merge: '0 expr 0' });
    // Slower than edits that are merged otherwise.
    context.mock.timers.tick(60_000);
  }
  assert.deepEqual([draft.raw, draft.dirty], [{ expr: 'up{' }, true]);
  assert.deepEqual(calls, [[false, true], [false, true], [false, true]]);
  draft.set({ expr: 'up + 1' }, { typing: true, merge: '0 expr 1' });
  draft.undo();
  assert.deepEqual(draft.raw, { expr: 'up{' });
  draft.undo();
  assert.deepEqual([draft.raw, draft.canUndo, draft.dirty], [{ expr: '' }, false, false]);
  assert.deepEqual(calls.at(-1), [true, false]);
});
