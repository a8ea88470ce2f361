// Targets, alerts and rules: pools and relabelling, matchers and silences, lanes of states, the text of a group.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { fingerprint, lanesOf, matches, matchersOf, matchersText, parseMatchers, transitionsOf } from '../../src/ui/assets/model/alerting.js';
import { groupInterval, groupLimit, groupName, offsetOf, pathName, placeInGroup, placeOf, ruleAt, rulesOf } from '../../src/ui/assets/model/rule_text.js';
import { labelChanges, poolsOf, ruleLines, targetMatches } from '../../src/ui/assets/model/targets.js';
import { FIRING, HOSTS_YAML } from '../peers/alerting_answers.mjs';

const target = (scrapePool, scrapeUrl, health, more = {}) =>
  ({ scrapePool, scrapeUrl, health, labels: {}, discoveredLabels: {}, lastError: '', ...more });

test('pools are in order, count all their targets, and show those that are down first', () => {
  const data = {
    activeTargets: [target('b', 'http://2', 'up'), target('b', 'http://1', 'up'), target('b', 'http://3', 'down')],
    droppedTargets: [{ discoveredLabels: { job: 'c' } }],
    droppedTargetCounts: { b: 0, c: 7 },
  };
  const [a, b, c, ...none] = poolsOf(data, ['a'], { text: '', health: '' });
  assert.deepEqual(none, []);
  assert.deepEqual([a.name, a.total, b.name, b.up, b.total, c.name, c.droppedCount, c.dropped.length], ['a', 0, 'b', 2, 3, 'c', 7, 1]);
  assert.deepEqual(b.targets.map(({ scrapeUrl }) => scrapeUrl), ['http://3', 'http://1', 'http://2']);
  const [, filtered] = poolsOf(data, ['a'], { text: '', health: 'up' });
  assert.deepEqual([filtered.targets.length, filtered.total], [2, 3]);
});

test('an answer with null for empty lists has no targets', () => {
  assert.deepEqual(poolsOf({ activeTargets: null, droppedTargets: null, droppedTargetCounts: null }, [], { text: '', health: '' }), []);
});

test('a target is found by parts of its address, labels and error in any case', () => {
  const one = target('node', 'http://db-1:9100/metrics', 'down', { labels: { zone: 'EU' }, lastError: 'context deadline exceeded' });
  for (const text of ['', 'db-1', 'zone=eu', 'DEADLINE', 'eu db-1']) assert.ok(targetMatches(one, text), text);
  assert.ok(!targetMatches(one, 'eu db-2'));
});

test('the changes of a step are those labels that were added, changed or removed', () => {
  assert.deepEqual(labelChanges({ a: '1', b: '2', c: '3' }, { a: '1', b: '4', d: '' }), [
    { name: 'b', before: '2', after: '4' },
    { name: 'c', before: '3', after: undefined },
    { name: 'd', before: undefined, after: '' },
  ]);
});

test('a rule of relabelling is shown as the file has it, without members that are empty', () => {
  assert.equal(ruleLines({ sourceLabels: ['a', 'b'], target_label: 'c', modulus: 0, action: 'replace', replacement: '' }),
    'source_labels: [a, b]\ntarget_label: c\naction: replace');
});

test('matchers that are written are read back as the same', () => {
  const matchers = [
    { name: 'alertname', value: 'High "load", twice\n', isEqual: true, isRegex: false },
    { name: 'instance', value: 'db-.*\\d', isEqual: false, isRegex: true },
    { name: 'a', value: '', isEqual: false, isRegex: false },
    { name: 'b', value: 'x,y}', isEqual: true, isRegex: true },
  ];
  assert.deepEqual(parseMatchers(matchersText(matchers)), matchers);
  assert.deepEqual(parseMatchers(`{ ${matchersText(matchers)} }`), matchers);
});

test('a text that is no matcher is refused with an example', () => {
  for (const text of ['', '{}', 'severity', 'severity=page', '="x"', 'a==b', 'a="x" or b="y"', 'a="\\q"'])
    assert.throws(() => parseMatchers(text), /such as/, text);
});

test('a silence matches whole values, and a missing label as an empty one', () => {
  const cases = [
    ['a="1"', true], ['a!="1"', false], ['a=~"1|2"', true], ['a=~"."', true], ['b=~"x"', false], ['b=~"x|xyz"', true],
    ['b!~"x"', true], ['c=""', true], ['c!="x"', true], ['c=~".+"', false], ['a="1", b="no"', false],
    // Expressions that this page cannot bound match nothing here; the server decides.
    ['a=~"(1+)+"', false],
  ];
  for (const [text, wanted] of cases) assert.equal(matches(parseMatchers(text), { a: '1', b: 'xyz' }), wanted, text);
  const labels = { alertname: 'A', weird: '"},' };
  assert.ok(matches(parseMatchers(matchersText(matchersOf(labels))), labels));
});

test('fingerprints do not depend on the order of labels, and are 64-bit FNV-1a', () => {
  assert.equal(fingerprint({}), 'cbf29ce484222325');
  assert.equal(fingerprint({ a: '1', b: '2' }), fingerprint({ b: '2', a: '1' }));
  assert.notEqual(fingerprint({ a: '1b' }), fingerprint({ a: '1', b: '' }));
  assert.equal(fingerprint({ severity: 'page', instance: 'db-1:9100', alertname: 'HighLoad' }), FIRING);
  assert.match(fingerprint({ alertname: 'ä' }), /^[0-9a-f]{16}$/);
});

test('the lanes of transitions end where the next one begins, or at the end of the range', () => {
  const a = { alertname: 'A', instance: '1', job: 'x' };
  const b = { alertname: 'A', instance: '2', job: 'x' };
  const lanes = lanesOf([
    { labels: a, at: 30, state: 'firing' },
    { labels: b, at: 40, state: 'pending' },
    { labels: a, at: 10, state: 'pending' },
    { labels: b, at: 50, state: 'resolved' },
  ], 100);
  assert.deepEqual(lanes, [
    { name: 'instance=1', spans: [{ from: 10, to: 30, state: 'pending' }, { from: 30, to: 100, state: 'firing' }] },
    { name: 'instance=2', spans: [{ from: 40, to: 50, state: 'pending' }] },
  ]);
  assert.deepEqual(lanesOf([], 100), []);
  assert.equal(lanesOf([{ labels: a, at: 1, state: 'firing' }], 2)[0].name, 'A');
});

test('transitions of the series ALERTS are the steps at which the state differs', () => {
  const grid = { start: 100, end: 160, step: 10 };
  const series = (alertstate, times) => ({
    metric: { __name__: 'ALERTS', alertname: 'A', alertstate }, values: times.map((at) => [at, '1']),
  });
  const found = transitionsOf([series('firing', [130, 140]), series('pending', [110, 120, 130])], grid);
  assert.deepEqual(found.map(({ at, state }) => [at, state]), [[110, 'pending'], [130, 'firing'], [150, 'inactive']]);
  assert.deepEqual(found[0].labels, { alertname: 'A' });
});

test('the rule at the caret is a text of its own', () => {
  assert.equal(groupName(HOSTS_YAML), 'hosts');
  assert.equal(groupInterval(HOSTS_YAML), 60);
  const rules = rulesOf(HOSTS_YAML);
  assert.deepEqual(rules.map(({ name, line }) => [name, line]), [['HighLoad', 3], ['InstanceDown', 12], ['job:up:sum', 15]]);
  assert.equal(rules[2].text, 'record: job:up:sum\nexpr: sum by (job) (up)\n');
  assert.ok(rules[0].text.startsWith('alert: HighLoad\nexpr: node_load1 > 4\n'));
  assert.ok(rules[0].text.includes('\nlabels:\n  severity: page\n'));
  const at = (text) => ruleAt(HOSTS_YAML, HOSTS_YAML.indexOf(text))?.name;
  assert.deepEqual(['name: hosts', 'keep_firing_for', 'up == 0', 'sum by'].map(at), ['HighLoad', 'HighLoad', 'InstanceDown', 'job:up:sum']);
});

test('the limit of a group is that of its own key', () => {
  assert.equal(groupLimit('name: a\nlimit: 30 # series\nrules:\n- {record: b, expr: up, labels: {limit: 5}}\n'), 30);
  assert.equal(groupLimit('name: a\nlimit: -3\n'), 0);
  assert.equal(groupLimit('name: a\nrules:\n- record: b\n  limit: 5\n'), 0);
});

test('groups are read in the styles that people write, and other texts have no rules', () => {
  const styles = [
    'name: a\nrules:\n- alert: A\n  expr: up\n- record: b\n  expr: up\n',
    '- name: "a"  # a comment\n  interval: 30s\n  rules:\n  -   alert: A\n      expr: |\n        up\n          == 0\n\n  -   record: b\n      expr: up\n  limit: 3\n',
    'name: a\nrules:\n    -\n      alert: A\n      expr: up\n    # end\n    - record: b\n      expr: up\n',
  ];
  for (const text of styles) {
    assert.deepEqual(rulesOf(text).map(({ name }) => name), ['A', 'b'], text);
    assert.equal(groupName(text), 'a', text);
  }
  assert.equal(groupInterval(styles[1]), 30);
  assert.equal(rulesOf(styles[1])[0].text, 'alert: A\nexpr: |\n  up\n    == 0\n');
  for (const text of ['', 'rules:', 'rules: []', '{rules: [{alert: A}]}', '\n\n- x', 'rules:\n  alert: A']) {
    assert.deepEqual(rulesOf(text), [], text);
    assert.equal(ruleAt(text, 0), null);
  }
});

test('a place of an error is read from its members or its text, and moved into the group', () => {
  const [, rule] = rulesOf(HOSTS_YAML);
  const place = placeOf({ detail: 'invalid expression at line 2, column 7: unexpected end' });
  assert.deepEqual(place, { line: 2, column: 7, message: 'Invalid expression unexpected end' });
  assert.deepEqual(placeInGroup(place, rule), { ...place, line: 14, column: 11 });
  assert.deepEqual(placeOf({ detail: 'x', body: { line: 3, column: 4 } }), { line: 3, column: 4, message: 'X' });
  assert.deepEqual(placeOf({ detail: 'x', fields: [{ message: 'line 5: y' }] }), { line: 5, column: 1, message: 'Y' });
  const unknown = placeOf({ detail: 'the disk is full' });
  assert.deepEqual(placeInGroup(unknown, rule), { line: 0, column: 1, message: 'The disk is full' });
  assert.equal(HOSTS_YAML.slice(offsetOf(HOSTS_YAML, { line: 14, column: 11 })).startsWith('up == 0'), true);
  assert.equal(offsetOf('ab\ncd', { line: 1, column: 99 }), 2);
  assert.equal(offsetOf('ab\ncd', { line: 9, column: 1 }), 3);
});

test('any text of a group is split without an error, and rules cover whole lines of it', () => {
  let state = 20_261_127;
  const next = (bound) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) % bound;
  };
  const pieces = ['name: a', 'rules:', '- ', '  ', '    ', 'alert: A', 'expr: up', '\n', '\n', '#', '-', ':', '"', "'", '\t', 'record:'];
  for (let round = 0; round < 3000; round += 1) {
    const text = Array.from({ length: next(24) }, () => pieces[next(pieces.length)]).join('');
    const lines = text.split('\n').length;
    const rules = rulesOf(text);
    rules.forEach(({ line }, at) => assert.ok(line < lines && line > (rules[at - 1]?.line ?? -1), JSON.stringify(text)));
    groupName(text);
    assert.ok(groupInterval(text) > 0);
    ruleAt(text, next(text.length + 1));
  }
});

test('a name with a slash is in the namespace of the page', () => {
  assert.deepEqual(['hosts', 'a/b', 'api/x'].map(pathName), ['hosts', 'api/a/b', 'api/api/x']);
});
