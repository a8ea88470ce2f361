// Tokens of PromQL, pairs of brackets, places of errors, and the list of functions.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { AGGREGATIONS, KEYWORDS } from '../../src/ui/assets/model/promql.js';
import { FUNCTIONS, KEYWORD_HELP, SNIPPETS } from '../../src/ui/assets/model/promql_functions.js';
import {
  bracketsAt, errorSentence, looksComplete, queryError, tokenize,
} from '../../src/ui/assets/model/promql_tokens.js';

const rust = (path) => readFileSync(new URL(`../../src/promql/${path}`, import.meta.url), 'utf8');
const kinds = (text) =>
  tokenize(text)
    .filter(({ kind }) => kind !== 'blank')
    .map(({ kind, from, to }) => `${kind} ${text.slice(from, to)}`);

test('every function and aggregation of the evaluator is offered with arguments and help', () => {
  const table = rust('functions/table.rs');
  const rows = table.slice(table.indexOf('pub static FUNCTIONS'), table.indexOf('#[cfg(test)]'));
  const functions = [...rows.matchAll(/\b(?:row|map|date_part|special|window)\(\s*"(\w+)"/g)].map(([, name]) => name);
  assert.ok(functions.length >= 90, `${functions.length} functions were read from the source`);
  const listed = (aggregation) => FUNCTIONS.filter((row) => row.aggregation === aggregation).map(({ name }) => name);
  assert.deepEqual(listed(false), [...functions].sort());
  const aggregations = [...rust('syntax/tree.rs').matchAll(/AggregateOp::\w+ => "(\w+)"/g)].map(([, name]) => name);
  assert.ok(aggregations.length >= 14);
  assert.deepEqual(listed(true), [...aggregations].sort());
  assert.deepEqual([...AGGREGATIONS].sort(), [...aggregations].sort());
  // A row of the table ends where the next one begins.
  const experimental = rows
    .split(/\n    (?=(?:row|map|date_part|special|window)\()/)
    .filter((row) => row.includes('.experimental()'))
    .map((row) => /"(\w+)"/.exec(row)?.[1]);
  assert.ok(experimental.length >= 10);
  assert.deepEqual(
    FUNCTIONS.filter((row) => row.experimental && !row.aggregation).map(({ name }) => name),
    experimental.sort(),
  );
  for (const { name, args, help } of FUNCTIONS) assert.ok(args.startsWith('(') && help.length > 3, name);
});

test('every keyword of the grammar is known, and only keywords have help as such', () => {
  const encoder = rust('syntax/encoder.rs');
  const list = /const KEYWORDS: \[&str; \d+\] = \[([^\]]*)\]/.exec(encoder)?.[1] ?? '';
  const words = [...list.matchAll(/"(\w+)"/g)].map(([, word]) => word);
  assert.ok(words.length >= 17);
  for (const word of words) assert.ok(KEYWORDS.has(word), word);
  for (const [word] of KEYWORD_HELP) assert.ok(words.includes(word), word);
  for (const { insert } of SNIPPETS) assert.ok(looksComplete(insert.replace('‸', 'x')), insert);
});

test('words have the kind that their place gives them', () => {
  assert.deepEqual(kinds('sum by (job) (rate(a:b{env=~"x|y"}[5m:1m] offset 1d)) > 0.5 # high'), [
    'aggregation sum', 'keyword by', 'bracket (', 'label job', 'bracket )', 'bracket (', 'function rate', 'bracket (',
    'metric a:b', 'bracket {', 'label env', 'operator =~', 'text "x|y"', 'bracket }', 'bracket [', 'number 5m',
    'operator :', 'number 1m', 'bracket ]', 'keyword offset', 'number 1d', 'bracket )', 'bracket )', 'operator >',
    'number 0.5', 'comment # high',
  ]);
  assert.deepEqual(kinds('rate (x[$__rate_interval]) ${a:csv} [[b]] 1e-3 Inf'), [
    'function rate', 'bracket (', 'metric x', 'bracket [', 'variable $__rate_interval', 'bracket ]', 'bracket )',
    'variable ${a:csv}', 'variable [[b]]', 'number 1e-3', 'number Inf',
  ]);
  assert.deepEqual(kinds("'a\\'b' `c\\` \"open"), ["text 'a\\'b'", 'text `c\\`', 'text "open']);
});

/** A small generator of pseudo-random numbers below 1. */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

test('tokens of any text join to the text, and none is empty', () => {
  const pieces = [
    'sum', ' by ', '(', ')', '[', ']', '{', '}', '"', "'", '`', '\\', '\n', '#', '5m', ':', '=~', '!', '$', '${',
    '[[', ']]', 'é', '🙂', '\ud800', '1e', '-', '.', '_', ',', 'rate', '\u2028', '\0',
  ];
  for (let seed = 1; seed <= 400; seed += 1) {
    const random = generator(seed);
    const pick = () => pieces[Math.floor(random() * pieces.length)];
    const text = Array.from({ length: 1 + Math.floor(random() * 40) }, pick).join('');
    let at = 0;
    for (const { from, to } of tokenize(text)) {
      assert.ok(from === at && to > from, `seed ${seed}: ${JSON.stringify(text)}`);
      at = to;
    }
    assert.equal(at, text.length, `seed ${seed}: ${JSON.stringify(text)}`);
  }
});

test('long hostile texts take linear time', () => {
  for (const piece of ['(', '"\\', '[[', '${', '\\', "'", 'a:', '1e+', '!']) {
    const started = performance.now();
    tokenize(piece.repeat(20_000 / piece.length));
    assert.ok(performance.now() - started < 1_000, piece);
  }
});

test('the bracket beside the caret has its partner, and one without a partner stays alone', () => {
  const pair = (text) => {
    const caret = text.indexOf('|');
    const plain = text.replace('|', '');
    const tokens = tokenize(plain);
    return bracketsAt(plain, tokens, caret)?.map((index) => tokens[index].from) ?? null;
  };
  assert.deepEqual(pair('a(b[c])|'), [6, 1]);
  assert.deepEqual(pair('|(b(c))'), [0, 5]);
  assert.deepEqual(pair('a(")")|'), [5, 1]);
  assert.deepEqual(pair('a(b]|'), [3]);
  assert.deepEqual(pair('(|a'), [0]);
  assert.equal(pair('a|b()'), null);
});

test('a text that is still being typed is not complete', () => {
  const open = ['', ' ', 'rate(x[5m]', 'a +', 'a{b="c', 'sum by', 'a,', 'a)', '(a]', 'a ==', 'x offset', 'a # b\n+'];
  for (const text of open) assert.ok(!looksComplete(text), text);
  const whole = ['a', 'rate(x[5m])', 'a + 1', 'a{b="c)"}', '"x"', 'a # b +', 'sum(a) by (b)'];
  for (const text of whole) assert.ok(looksComplete(text), text);
});

test('the column of an error counts bytes, and the token there is underlined', () => {
  const text = 'up{x="äö🙂"} +* 1';
  const column = new TextEncoder().encode(text.slice(0, text.indexOf('*'))).length + 1;
  const error = queryError(text, `1:${column}: parse error: unexpected "*"`);
  assert.deepEqual(error && text.slice(error.from, error.to), '*');
  assert.equal(error.column, [...text.slice(0, text.indexOf('*'))].length + 1);
  assert.equal(errorSentence(text, error), `Unexpected "*" (column ${error.column}).`);
  const two = queryError('\nsum by (rou te) (x)', '2:13: parse error: unexpected identifier "te"');
  assert.deepEqual([two.from, two.to, two.line], [13, 15, 2]);
  assert.match(errorSentence('\nx', two), /line 2, column 13/);
});

test('an error at the end underlines the last token, and one beyond the text is no error of it', () => {
  const open = 'sum(x  ';
  const error = queryError(open, '1:6: parse error: unclosed left parenthesis');
  assert.equal(open.slice(error.from, error.to), 'x');
  assert.equal(queryError('x', '3:1: parse error: y'), null);
  assert.equal(queryError('x', 'too expensive'), null);
  assert.equal(queryError('x y', 'invalid parameter "query": 1:3: parse error: z')?.message, 'z');
  assert.deepEqual(queryError('', '1:1: parse error: no expression')?.to, 0);
});
