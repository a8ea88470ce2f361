// Ad hoc filters in selectors and in addresses.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withMatchers } from '../../src/ui/assets/model/adhoc.js';
import { filterText, readFilterTexts } from '../../src/ui/assets/model/filter_text.js';
import { cpuMs } from './cpu_time.mjs';

const F = [{ label: 'f', op: '=', value: '1' }];

test('every selector gets the matchers, and nothing else does', () => {
  // The matcher is written as § and a selector of its own as {§}.
  for (const expected of [
    'up{§}',
    'up {a="b", §}',
    '{__name__=~"node_.*", §}',
    '{"metric.name", a="b", §}',
    'up{a="b",  §}',
    'rate(x{§}[5m])',
    'rate(x{a="}", b=\'{\', c=`"`, §}[5m:1m] offset 5m)',
    'max_over_time(rate(x{§}[5m])[1h:30s] @ end())',
    'x{§} @ start() offset -1h + y{§} @ 1609746000',
    'sum by (job, instance) (x{§}) / on(job) group_left(a) sum(y{§}) without (job)',
    'a{§} * on (x) group_left b{§}',
    'a{§} * ignoring(x) group_right () b{§}',
    'a{§} and b{§} OR c{§} unless on() d{§}',
    'a{§} > bool b{§} == bool 1',
    'a{§} atan2 -b{§} ^ 2',
    'SUM BY (x) (a{§}) + Sum(a{§}) By (x)',
    'sum without () (count{§})',
    'label_replace(up{§}, "dst", "up{a=\\"b\\"}", "src", "(.*)")',
    'count_values("version", build{§})',
    'histogram_quantile(0.99, sum by (le) (rate(a_bucket{§}[1m])))',
    'quantile_over_time(.5, m{§}[1h30m]) + 1e-3 * 0x1F - Inf + NaN',
    'topk(5, job:rate:sum{§})',
    'a{§} # comment with up{x="y"} and (\n + b{§}',
    'a{x="1", § # the last one }\n} + 1',
    'vector(1) + time() - scalar(x{§})',
    '(((x{§})))',
    'x{§} or vector(0)',
    'by{§} + on{§}',
    'x{§} offset 1w + offset{§}',
    '"up{}"',
    '',
    '   ',
  ]) {
    const plain = expected
      .replaceAll(',  §', ',')
      .replaceAll(', §', '')
      .replaceAll(/(?<=[\w:])\{§\}/g, '')
      .replaceAll('§', '');
    const wanted = expected.replaceAll(',  §', ', §').replaceAll('§', 'f="1"');
    assert.equal(withMatchers(plain, F), wanted, plain);
  }
});

test('empty braces are filled, and several filters keep their order', () => {
  assert.equal(withMatchers('up{}', F), 'up{f="1"}');
  const two = [{ label: 'a', op: '=~', value: 'x|y' }, { label: 'b.c', op: '!=', value: 'quote " and \\ and\nline' }];
  assert.equal(withMatchers('up', two), 'up{a=~"x|y", "b.c"!="quote \\" and \\\\ and\\nline"}');
  assert.equal(withMatchers('up', []), 'up');
});

test('any text has a result that is the text with matchers inserted', () => {
  const pieces = ['up', 'sum', ' by ', '(', ')', '{', '}', '[', ']', '"', "'", '`', '\\', '#', '\n', ',', '=~', '5m',
    '.5',
    'offset', 'on', 'group_left', 'bool', '@', '-', '>', 'é', '\u{1F600}', '$x', 'rate('];
  let state = 20261126;
  const random = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  for (let round = 0; round < 3000; round += 1) {
    const length = Math.floor(random() * 25);
    const text = Array.from({ length }, () => pieces[Math.floor(random() * pieces.length)]).join('');
    const result = withMatchers(text, [{ label: 'zz', op: '=', value: '' }]);
    // The commas and braces around a matcher cannot be told from those of the text.
    const bare = (part) => part.replaceAll('zz=""', '').replaceAll(/[\s,{}]/g, '');
    assert.equal(bare(result), bare(text), JSON.stringify(text));
  }
});

test('long queries are read in linear time', () => {
  for (const text of ['"'.repeat(60_000), 'a+'.repeat(30_000), '{'.repeat(60_000), '{}+'.repeat(20_000)]) {
    const took = cpuMs(() => withMatchers(text, F));
    assert.ok(took < 3000, `${text.slice(0, 10)} took ${took} ms`);
  }
});

test('filters survive an address, and texts that are none are dropped', () => {
  const filters = [{ label: 'job', op: '=~', value: 'a|b,c' }, { label: 'x', op: '!=', value: '' }];
  assert.equal(filterText(filters[0]), 'job|=~|a__gfp__b__gfc__c');
  assert.deepEqual(readFilterTexts(filters.map(filterText)), filters);
  assert.deepEqual(readFilterTexts(['', 'job', 'job|~|x', '|=|x', 'job|=']), []);
});
