// Markdown of text panels, and which links are followed.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { linkOf } from '../../src/ui/assets/model/links.js';
import { readMarkdown } from '../../src/ui/assets/model/markdown.js';
import { safeUrl } from '../../src/ui/assets/model/safe_url.js';
import { cpuMs } from './cpu_time.mjs';

/** All texts of a tree in order. */
const textOf = (nodes) => nodes.map((node) => (typeof node === 'string' ? node : textOf(node.children))).join('');
/** All tags of a tree in order. */
const tagsOf = (nodes) =>
  nodes.flatMap((node) => (typeof node === 'string' ? [] : [node.tag, ...tagsOf(node.children)]));

test('only http, https and relative addresses are links', () => {
  for (const url of ['https://a.example/x', 'HTTP://a.example', '/d/uid', 'other?x=1', '#part', '?var-a=b']) {
    assert.equal(safeUrl(url), url);
  }
  for (const url of [
    'javascript:alert(1)',
    'JaVaScRiPt:alert(1)',
    ' javascript:alert(1)',
    'java\nscript:alert(1)',
    '\u0001javascript:x',
    'data:text/html,x',
    'vbscript:x',
    '//other.example/x',
    '\\\\other.example',
    '/\\other.example',
    'file:///etc/passwd',
    '',
    null,
  ]) {
    assert.equal(safeUrl(url), null, JSON.stringify(url));
  }
});

test('markup in Markdown stays text', () => {
  const tree = readMarkdown('# <b>x</b>\n\n<script>alert(1)</script> **bold <i>**');
  assert.deepEqual(tagsOf(tree), ['h3', 'p', 'strong']);
  assert.equal(textOf(tree), '<b>x</b><script>alert(1)</script> bold <i>');
});

test('a link to a script stays text with its brackets', () => {
  const [paragraph] = readMarkdown('[press](javascript:alert) and [go](https://a.example/)');
  assert.deepEqual(paragraph.children, [
    '[press](javascript:alert)',
    ' and ',
    { tag: 'a', href: 'https://a.example/', children: ['go'] },
  ]);
});

test('headings, lists, code, quotes and rules are blocks', () => {
  const tree = readMarkdown(
    '## Two\ntext `a*b*`\n\n- one\n- *two*\n\n1. first\n\n```\n# no heading\n```\n> said\n\n---',
  );
  assert.deepEqual(
    tree.map(({ tag }) => tag),
    ['h4', 'p', 'ul', 'ol', 'pre', 'blockquote', 'hr'],
  );
  assert.deepEqual(tree[1].children[1], { tag: 'code', children: ['a*b*'] });
  assert.equal(textOf(tree[4].children), '# no heading');
});

test('hostile Markdown is read within a second', () => {
  const bombs = [
    '*'.repeat(50_000),
    '['.repeat(50_000),
    '`'.repeat(50_001),
    '[a]('.repeat(20_000),
    '**a'.repeat(30_000),
    '- '.repeat(40_000),
    '> '.repeat(40_000),
    '_a'.repeat(40_000),
    '\n#'.repeat(50_000),
    `![${'a'.repeat(4000)}](`,
  ];
  for (const bomb of bombs) {
    const took = cpuMs(() => readMarkdown(bomb));
    assert.ok(took < 1000, `${bomb.slice(0, 10)} took ${took} ms`);
  }
});

const selections = new Map([['job', { name: 'job', value: ['a b', 'c'], text: ['a b', 'c'], multi: true }]]);
const context = { range: { from: 1000, to: 2000, raw: { from: 'now-6h', to: 'now' } } };
const options = { page: (uid, query) => `/dashboard?uid=${uid}&${query}` };

test('a link keeps the time and the variables when the dashboard wants it', () => {
  const link = linkOf(
    { title: 'T $job', url: '/x?y=1', keepTime: true, includeVars: true },
    selections,
    context,
    options,
  );
  assert.equal(link.href, '/x?y=1&from=now-6h&to=now&var-job=a%20b&var-job=c');
  assert.equal(link.text, 'T a b + c');
});

test('a link to another dashboard leads to its page here', () => {
  assert.equal(
    linkOf({ title: 'D', url: '/d/abc/name?var-x=1' }, selections, context, options).href,
    '/dashboard?uid=abc&var-x=1',
  );
});

test('a variable cannot turn a link into a script', () => {
  const evil = new Map([['v', { name: 'v', value: 'javascript:alert(1)', text: 'x' }]]);
  const { href } = linkOf({ title: 'E', url: '${v:raw}' }, evil, context, options);
  assert.equal(href, null);
});

test('the value of a variable cannot add parameters to a link', () => {
  const evil = new Map([['v', { name: 'v', value: 'a&admin=1#x', text: 'x' }]]);
  assert.equal(linkOf({ title: 'E', url: '/x?v=$v' }, evil, context, options).href, '/x?v=a%26admin%3D1%23x');
});
