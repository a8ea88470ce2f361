// Regular expressions from dashboards are accepted, equal to native ones, and bounded in time.

import assert from 'node:assert/strict';
import test from 'node:test';
import { PATTERN_MAX, TEXT_MAX, safeRegex } from '../../src/ui/assets/model/pattern.js';
import { cpuMs } from './cpu_time.mjs';

const USUAL = [
  '.*', '/.*/', '/(.*)/', '/^(?!lo).*$/', '/.*instance="([^"]*)".*/', '/.*a="([^"]*)".*b="([^"]*)".*/',
  '/^(\\d{1,3}\\.){3}\\d{1,3}$/', '/([^:]+):(\\d+)/i', 'node|go|process', '/(?<text>[^|]+)\\|(?<value>.*)/g',
  '/^([a-z]+\\.)*local$/', '/[^\\]]+\\]/', '/(read|write)s?_(bytes|ops)_total/', '/a{2}b{1,3}c{4,}/',
  '/(?:(?:a|b)c)?d/', '/\\bcpu\\b/', '/\\u0041\\x42/', '/^Value #[A-Z]$/', '/a\\/b/', '/(.*?)-(.*?)-(.*)/',
];

test('usual expressions of dashboards are accepted', () => {
  for (const text of USUAL) assert.ok(safeRegex(text), text);
});

test('an expression without slashes covers the whole text, one with slashes a part of it', () => {
  assert.equal(safeRegex('ab')?.test('cab'), false);
  assert.equal(safeRegex('ab')?.test('ab'), true);
  assert.equal(safeRegex('/ab/')?.test('cab'), true);
  assert.equal(safeRegex('/AB/i')?.test('cab'), true);
  assert.equal(safeRegex('/ab', { whole: false })?.test('c/abc'), true);
});

test('invalid, long and unbounded expressions are rejected', () => {
  const bad = ['(', '/a', '/a/x', '/a/gg', '[', '(a+)+$', '(a*)*', '(a|a)*$', '(a|aa)+$', '(a?a?)*b', '(.*)\\1',
    '(?:(?:a{0,99}){0,99})b', '.*.*.*.*.*.*.*.*.*x', `${'a?'.repeat(40)}${'a'.repeat(40)}`, '(a|b|ab)*c', '([a-z]+)*1',
    '(?:.*a){20}', 'a'.repeat(PATTERN_MAX + 1), undefined, 7];
  for (const text of bad) assert.equal(safeRegex(text), null, String(text));
});

test('a test with the flag g or y is the same for each call', () => {
  for (const text of ['/a/g', '/a/y', '/.*a/g']) {
    const regex = safeRegex(text);
    assert.deepEqual([regex?.test('ab'), regex?.test('ab'), regex?.test('ab')], [true, true, true], text);
  }
});

test('text beyond the bound does not match and stays unchanged', () => {
  const long = 'a'.repeat(TEXT_MAX + 1);
  assert.equal(safeRegex('/a/')?.test(long), false);
  assert.equal(long.replace(/** @type {RegExp} */ (safeRegex('/a/g')), 'b'), long);
  assert.equal(safeRegex('/a/')?.test(long.slice(1)), true);
});

test('a bounded expression finds what the native one finds', () => {
  const texts = ['', 'lo', 'eth0', 'up{instance="a:90",job="x"} 1 2', 'x a="1", b="2" y a="3" b="4"', '10.0.0.1',
    'a.b.local',
    'a\nb', 'text|value\nnext|line', 'node', 'aabbcccc', 'Value #B', 'a/b', 'p-q-r-s', 'read_bytes_total', 'bcd', 'AB'];
  for (const text of USUAL) {
    const parts = /^\/([^]*)\/(\w*)$/.exec(text) ?? [text, `^${text}$`, ''];
    for (const flags of [parts[2], parts[2].includes('g') ? parts[2] : `${parts[2]}g`]) {
      for (const over of texts) {
        const ours = /** @type {RegExp} */ (safeRegex(`/${parts[1]}/${flags}`));
        const native = new RegExp(parts[1], flags);
        const told = `${text} ${flags} over ${JSON.stringify(over)}`;
        assert.equal(over.replace(ours, '<$1>'), over.replace(native, '<$1>'), told);
        assert.deepEqual([...(over.match(ours) ?? [])], [...(over.match(native) ?? [])], told);
        assert.deepEqual(over.split(ours), over.split(native), told);
      }
    }
  }
});

test('one match of the worst accepted expressions takes less than four seconds', () => {
  const worst = ['/.*.*.*x/', '/(.*)a(.*)a(.*)x/', '/^.*.*.*.*x$/', '/.*a[^"]*".*b[^"]*"x/', '/(a|a)(a|a)a*a*x/',
    '/[ab]+[ab]+[ab]+c/', '/(a,)*(a,)*x/'];
  for (const text of worst) {
    for (const char of ['a', 'a,', 'a"b', 'a\n']) {
      const regex = safeRegex(text);
      const bound = Reflect.get(Object(regex), 'bound');
      const over = char.repeat(TEXT_MAX).slice(0, bound[char === 'a\n' ? 'lines' : 'plain']);
      const took = cpuMs(() => assert.equal(regex?.test(over), false));
      assert.ok(took < 4000, `${text} took ${took} ms on ${JSON.stringify(char)}`);
    }
  }
});

test('an expression that used its time stops matching', () => {
  const regex = /** @type {RegExp} */ (safeRegex('/.*.*.*x/'));
  const took = cpuMs(() => {
    for (let index = 0; index < 1000; index += 1) regex.test('a'.repeat(500));
  });
  assert.ok(took < 4000, `${took} ms`);
  assert.equal(regex.test('x'), false);
});
