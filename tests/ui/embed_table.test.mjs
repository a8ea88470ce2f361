// The tables of the guide and the types beside the element list what its code has.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { DISPLAY_ATTRIBUTES, KINDS, PROPERTIES } from '../../src/ui/assets/chart/attributes.js';
import { adoptProperties, defineProperties } from '../../src/ui/assets/chart/properties.js';
import { QUERY_ATTRIBUTES } from '../../src/ui/assets/chart/query.js';

const read = (path) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const guide = read('docs/guide/embed-charts.md');
const types = read('src/ui/assets/embed.d.ts');
const element = read('src/ui/assets/embed.js');
const sorted = (names) => [...new Set(names)].sort();
const code = (text) => [...text.matchAll(/`([^`]+)`/g)].map(([, name]) => name);

/** The rows of the table of the guide whose head begins with `head`, as lists of their cells. */
function table(head) {
  const [, rest] = guide.split(`\n| ${head} |`);
  const lines = rest.split('\n').slice(2);
  return lines.slice(0, lines.findIndex((line) => !line.startsWith('|'))).map((line) => line.split('|').slice(1, -1));
}

/** The names of an interface of the types. */
function members(name) {
  const [, rest] = types.split(`interface ${name} {\n`);
  return [...rest.split('\n}\n')[0].matchAll(/^ {2}'?([\w-]+)'?\??:/gm)].map(([, member]) => member);
}

test('the guide lists every attribute, and the types every property that mirrors one', () => {
  const attributes = sorted([...QUERY_ATTRIBUTES, ...DISPLAY_ATTRIBUTES]);
  assert.deepEqual(sorted(table('attribute').flatMap(([name]) => code(name))), attributes);
  assert.deepEqual(sorted(members('MetricChartProperties')), sorted([...PROPERTIES.keys(), 'title']));
  assert.deepEqual(sorted(PROPERTIES.values()), attributes.filter((name) => name !== 'title'));
});

test('the guide and the types list every event', () => {
  const events = sorted([...element.matchAll(/#emit\('([\w-]+)'/g)].map(([, name]) => name));
  assert.deepEqual(sorted(table('event').map(([name]) => code(name)[0])), events);
  assert.deepEqual(sorted(members('MetricChartEventMap')), events);
});

test('the guide lists every other property and method, and the element has each', () => {
  const listed = table('property or method').map(([name]) => code(name)[0].replace(/\(.*/, ''));
  const own = [...element.matchAll(/^ {2}(?:get |set |async )?([a-z]\w*)\(.*\) \{$/gm)].map(([, name]) => name);
  const callbacks = ['connectedCallback', 'disconnectedCallback', 'attributeChangedCallback', 'title'];
  assert.deepEqual(sorted(listed), sorted(own.filter((name) => !callbacks.includes(name))));
  for (const name of listed) assert.match(types, new RegExp(`^ {2}(readonly )?${name}[:(]`, 'm'));
});

test('the guide lists every CSS variable and every part', () => {
  const style = ['style', 'cursor_style'].map((name) => read(`src/ui/assets/chart/${name}.js`)).join('');
  const used = [...style.matchAll(/--metric-chart-([a-z]+)/g)].map(([, name]) => name);
  const listed = table('CSS variable').flatMap(([names]) => code(names));
  assert.deepEqual(sorted(listed.map((name) => name.replace(/^--metric-chart-([a-z]+).*/, '$1'))), sorted(used));
  const parts = [...read('src/ui/assets/chart/shadow.js').matchAll(/part: '(\w+)'/g)].map(([, name]) => name);
  const [, sentence] = guide.split('Parts for `::part()`: ');
  assert.deepEqual(sorted(code(sentence.split('\n')[0])), sorted(parts));
});

test('properties mirror attributes, and those that were set too early are kept', () => {
  class Host {
    #attributes = new Map();
    getAttribute = (name) => this.#attributes.get(name) ?? null;
    hasAttribute = (name) => this.#attributes.has(name);
    setAttribute = (name, value) => this.#attributes.set(name, String(value));
    removeAttribute = (name) => this.#attributes.delete(name);
  }
  const host = new Host();
  Object.assign(host, { tokenEndpoint: '/t', live: true, start: 5 });
  defineProperties(Host.prototype, PROPERTIES, KINDS);
  adoptProperties(host, [...PROPERTIES.keys()]);
  assert.deepEqual(
    ['token-endpoint', 'live', 'start', 'end'].map((name) => host.getAttribute(name)),
    ['/t', '', '5', null],
  );
  assert.deepEqual([host.live, host.start, host.end, host.expr], [true, 5, null, '']);
  Object.assign(host, { live: false, start: null, expr: undefined, k: 3 });
  assert.deepEqual([host.live, host.start, host.hasAttribute('expr'), host.k], [false, null, false, '3']);
  host.setAttribute('refresh', 'soon');
  assert.equal(host.refresh, null);
});
