// Variables: queries, options, order, formats and replacement in text.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { interpolate, referencesOf, withScope } from '../../src/ui/assets/model/interpolate.js';
import { DashboardError, QUERY_MAX, TEXT_MAX } from '../../src/ui/assets/model/limits.js';
import { dependents, optionsOf, order, selectionOf } from '../../src/ui/assets/model/variables.js';
import { parseVariableQuery } from '../../src/ui/assets/model/variable_query.js';
import { savedSelections } from './saved_selections.mjs';

/** Variables as a dashboard has them. @param {object[]} list */
function variables(...list) {
  return readDashboard({ title: 't', templating: { list } }).dashboard.variables;
}

/** @param {object} raw */
function variable(raw) {
  return variables({ name: 'v', type: 'query', ...raw })[0];
}

/** Selections by name; a list selects several values. @param {Record<string, any>} values */
function selections(values) {
  return new Map(Object.entries(values).map(([name, value]) => {
    const given = typeof value === 'object' && !Array.isArray(value) ? value : { value, multi: Array.isArray(value) };
    return [name, { name, text: given.value, ...given }];
  }));
}

/** @param {object[]} options */
function values(options) {
  return options.map((/** @type {any} */ option) => option.value);
}

test('every_form_of_a_variable_query_is_understood', () => {
  /** @type {[unknown, object][]} */
  const cases = [
    ['label_values(job)', { kind: 'label_values', label: 'job' }],
    ['label_values(up, job)', { kind: 'label_values', label: 'job', match: 'up' }],
    [' label_values( up{a="x,y",b=~"(1|2)"} ,instance ) ',
      { kind: 'label_values', label: 'instance', match: 'up{a="x,y",b=~"(1|2)"}' }],
    ['label_values({__name__=~"a|b"}, "host.name")', { kind: 'label_values', label: 'host.name',
      match: '{__name__=~"a|b"}' }],
    ['label_values($metric, ${label})', { kind: 'label_values', label: '${label}', match: '$metric' }],
    ['label_names()', { kind: 'label_names' }],
    ['label_names(up)', { kind: 'label_names', match: 'up' }],
    ['metrics(node_.*)', { kind: 'metrics', regex: 'node_.*' }],
    ['query_result(topk(5, sum(rate(x[5m])) by (a)))', { kind: 'query_result',
      expr: 'topk(5, sum(rate(x[5m])) by (a))' }],
    ['up{job="a"}', { kind: 'series', match: 'up{job="a"}' }],
    [{ query: 'label_values(up, job)', refId: 'x', qryType: 5 }, { kind: 'label_values', label: 'job', match: 'up' }],
    [{ qryType: 1, label: 'job', metric: 'up', labelFilters: [{ label: 'env', op: '=~', value: 'a"b' }] },
      { kind: 'label_values', label: 'job', match: 'up{env=~"a\\"b"}' }],
    [{ qryType: 1, label: 'job' }, { kind: 'label_values', label: 'job' }],
    [{ qryType: 0 }, { kind: 'label_names' }],
    [{ qryType: 2, metric: 'go_.*' }, { kind: 'metrics', regex: 'go_.*' }],
    [{ qryType: 3, varQuery: 'up' }, { kind: 'query_result', expr: 'up' }],
    [{ qryType: 4, seriesQuery: 'up' }, { kind: 'series', match: 'up' }],
    ['', { kind: 'none' }], [null, { kind: 'none' }], [{}, { kind: 'none' }], [7, { kind: 'series', match: '7' }],
  ];
  for (const [query, expected] of cases) assert.deepEqual(parseVariableQuery(query), expected, JSON.stringify(query));
});

test('custom_options_may_have_texts_and_escaped_commas', () => {
  const options = optionsOf(variable({ type: 'custom', query: '1m, five minutes : 5m,a\\,b , 1m' }));
  assert.deepEqual(options, [{ text: '1m', value: '1m' }, { text: 'five minutes', value: '5m' },
    { text: 'a,b', value: 'a,b' }]);
});

test('interval_options_are_its_steps_with_auto_in_front', () => {
  const auto = variable({ type: 'interval', query: '1m,10m, "1h"', auto: true, auto_count: 10, auto_min: '1m' });
  assert.deepEqual(values(optionsOf(auto)), ['$__auto_interval_v', '1m', '10m', '1h']);
  const range = { from: 0, to: 3_600_000 };
  const chosen = new Map([['v', selectionOf(auto, optionsOf(auto), '$__auto_interval_v')]]);
  assert.equal(interpolate('[$v]', chosen, { format: 'promql', range }), '[5m]');
  assert.equal(interpolate('[$v]', chosen, { format: 'promql', range: { from: 0, to: 60_000 } }), '[1m]');
});

test('the_regular_expression_filters_and_captures', () => {
  const hosts = ['web-1:9100', 'web-2:9100', 'db-1:9104'];
  assert.deepEqual(values(optionsOf(variable({ regex: '/([^:]+):.*/' }), hosts)), ['web-1', 'web-2', 'db-1']);
  assert.deepEqual(values(optionsOf(variable({ regex: '/web/' }), hosts)), ['web-1:9100', 'web-2:9100']);
  assert.deepEqual(values(optionsOf(variable({ regex: 'web' }), hosts)), [],
    'without slashes the whole text must match');
  assert.deepEqual(optionsOf(variable({ regex: '/(?<text>[^:]+):(?<value>\\d+)/' }), hosts.slice(2)),
    [{ text: 'db-1', value: '9104' }]);
  assert.deepEqual(optionsOf(variable({ regex: '/(?<value>\\d+)$/' }), hosts.slice(2)), [{ text: '9104',
    value: '9104' }]);
  assert.deepEqual(values(optionsOf(variable({ regex: '/(\\d)/g' }), ['1 2 3'])), ['1', '2', '3']);
});

test('a_costly_or_invalid_regular_expression_is_an_error_with_its_text', () => {
  for (const regex of ['/(a+)+$/', '/(/', `/${'a'.repeat(5000)}/`]) {
    assert.throws(() => optionsOf(variable({ regex }), ['a']),
      (error) => error instanceof DashboardError && error.code === 'bad_regex'
        && error.message.includes(regex.slice(0, 50)));
  }
});

test('options_are_sorted_in_each_of_grafanas_orders', () => {
  const answer = ['b10', 'a2', 'B1', 'c'];
  const expected = [['b10', 'a2', 'B1', 'c'], ['B1', 'a2', 'b10', 'c'], ['c', 'b10', 'a2', 'B1'],
    ['c', 'B1', 'a2', 'b10'], ['b10', 'a2', 'B1', 'c'], ['a2', 'B1', 'b10', 'c'], ['c', 'b10', 'B1', 'a2'],
    ['a2', 'B1', 'b10', 'c'], ['c', 'b10', 'B1', 'a2']];
  expected.forEach((list, sort) => {
    assert.deepEqual(values(optionsOf(variable({ sort }), answer)), list, `sort ${sort}`);
  });
  assert.deepEqual(values(optionsOf(variable({ sort: 7 }), ['n10', 'n9', 'n100'])), ['n9', 'n10', 'n100']);
});

test('options_are_unique_and_all_comes_first', () => {
  const options = optionsOf(variable({ includeAll: true }), ['x', 'x', { text: 'Why', value: 'y' }, 'y']);
  assert.deepEqual(options, [{ text: 'All', value: '$__all' }, { text: 'x', value: 'x' }, { text: 'Why', value: 'y' }]);
});

test('series_of_query_result_become_text_with_labels_value_and_time', () => {
  const answer = [{ metric: { __name__: 'up', job: 'a' }, value: [1700000000, '1'] }];
  assert.deepEqual(values(optionsOf(variable({}), answer)), ['up{job="a"} 1 1700000000000']);
  assert.deepEqual(values(optionsOf(variable({ regex: '/job="([^"]+)"/' }), answer)), ['a']);
});

test('answers_of_any_shape_give_options_or_nothing', () => {
  for (const answer of [[null, 1, {}, [], true], null, 'x', 7, { a: 1 }]) {
    for (const option of optionsOf(variable({}), /** @type {any} */ (answer))) {
      assert.equal(typeof option.value, 'string');
    }
  }
});

test('the_selection_keeps_the_values_that_still_exist', () => {
  const options = [{ text: 'A', value: 'a' }, { text: 'B', value: 'b' }];
  const one = variable({ current: { value: 'b' } });
  assert.equal(selectionOf(one, options).value, 'b');
  assert.equal(selectionOf(one, options, 'gone').value, 'a');
  assert.equal(selectionOf(one, options, 'A').value, 'a', 'a text selects its value');
  assert.equal(selectionOf(one, [], 'x').value, '');
  const many = variable({ multi: true, includeAll: true });
  assert.deepEqual(selectionOf(many, options, ['b', 'gone']).value, ['b']);
  assert.deepEqual(selectionOf(many, options, ['$__all']).value, ['$__all']);
  assert.equal(selectionOf(variable({ type: 'textbox', query: 'x' }), [], 'typed').value, 'typed');
  assert.equal(selectionOf(variable({ type: 'constant', query: 'x' }), [], 'typed').value, 'x');
});

test('variables_come_after_those_that_they_refer_to', () => {
  const list = variables({ name: 'pod', query: { query: 'label_values(up{ns="$ns"}, pod)' } },
    { name: 'ns', query: 'label_values(up{cluster="[[cluster]]"}, ns)' },
    { name: 'other', query: 'label_values(x)' },
    { name: 'cluster', query: 'label_values(cluster)', regex: '/${prefix}.*$/' },
    { name: 'prefix', type: 'constant', query: 'eu' });
  assert.deepEqual(order(list).map((one) => one.name), ['prefix', 'cluster', 'ns', 'pod', 'other']);
  assert.deepEqual([...dependents(list, 'cluster')].sort(), ['ns', 'pod']);
});

test('a_cycle_is_an_error_that_names_it', () => {
  assert.throws(() => variables({ name: 'z', query: 'label_values($a, x)' }, { name: 'a',
    query: 'label_values($b, x)' },
    { name: 'b', query: 'label_values(${c:regex}, x)' }, { name: 'c', query: 'label_values(m{x="[[a]]"}, x)' }),
      (error) => {
    assert.ok(error instanceof DashboardError);
    assert.equal(error.code, 'cyclic_variables');
    assert.equal(error.status, 422);
    assert.deepEqual(error.detail.cycle, ['a', 'b', 'c', 'a']);
    assert.match(error.message, /a → b → c → a/);
    return true;
  });
  assert.throws(() => variables({ name: 'me', query: 'label_values($me, x)' }), { code: 'cyclic_variables' });
});

test('all_three_forms_of_a_reference_are_replaced', () => {
  const one = selections({ v: 'x', long_name: 'y' });
  assert.equal(interpolate('$v ${v} [[v]] $v.b ${v}b $long_name', one), 'x x x x.b xb y');
  assert.equal(interpolate('${two.text}', selections({ two: { value: ['a', 'b'], text: ['A', 'B'] } })), 'A + B');
  assert.equal(interpolate('$vv ${vv} [[vv]] $1 $ ${} $$v', one), '$vv ${vv} [[vv]] $1 $ ${} $x');
  assert.deepEqual([...referencesOf('$a ${b:csv} [[c:raw]] ${d.text}')], ['a', 'b', 'c', 'd']);
});

test('replaced_values_are_not_replaced_again', () => {
  assert.equal(interpolate('$a', selections({ a: '$b', b: 'x' })), '$b');
});

test('each_format_writes_one_and_several_values_as_grafana_does', () => {
  const many = ['a.b', "c'd", 'e"f'];
  const all = selections({ one: 'a.b', many });
  /** @type {[string, string, string][]} */
  const cases = [
    ['regex', 'a\\.b', '(a\\.b|c\'d|e"f)'],
    ['pipe', 'a.b', 'a.b|c\'d|e"f'],
    ['csv', 'a.b', 'a.b,c\'d,e"f'],
    ['raw', 'a.b', 'a.b,c\'d,e"f'],
    ['json', 'a.b', '["a.b","c\'d","e\\"f"]'],
    ['doublequote', '"a.b"', '"a.b","c\'d","e\\"f"'],
    ['singlequote', "'a.b'", "'a.b','c\\'d','e\"f'"],
    ['sqlstring', "'a.b'", "'a.b','c''d','e\"f'"],
    ['glob', 'a.b', '{a.b,c\'d,e"f}'],
    ['percentencode', 'a.b', '%7Ba.b%2Cc%27d%2Ce%22f%7D'],
    ['lucene', 'a.b', '("a.b" OR "c\'d" OR "e\\"f")'],
    ['distributed', 'a.b', 'a.b,many=c\'d,many=e"f'],
    ['html', 'a.b', 'a.b, c&#39;d, e&quot;f'],
    ['text', 'a.b', 'a.b + c\'d + e"f'],
    ['queryparam', 'var-one=a.b', 'var-many=a.b&var-many=c%27d&var-many=e%22f'],
    ['nosuchformat', 'a.b', '{a.b,c\'d,e"f}'],
    ['constructor', 'a.b', '{a.b,c\'d,e"f}'],
  ];
  for (const [format, one, several] of cases) {
    assert.equal(interpolate(`\${one:${format}}`, all), one, `${format} of one value`);
    assert.equal(interpolate(`\${many:${format}}`, all), several, `${format} of several values`);
    assert.equal(interpolate(`[[one:${format}]]`, all), one);
  }
  assert.equal(interpolate('${one:lucene}', selections({ one: 'a+b' })), 'a\\+b');
  assert.equal(interpolate('${t:date:YYYY-MM}', selections({ t: '1700000000000' }), { timeZone: 'utc' }), '2023-11');
});

test('in_promql_a_variable_with_several_values_is_an_escaped_alternation', () => {
  const promql = { format: 'promql' };
  const given = selections({ many: ['a.b', 'c|d'], single: ['a.b'], plain: 'a.b', all: { value: 'a.b',
    includeAll: true } });
  assert.equal(interpolate('x{a=~"$many"}', given, promql), 'x{a=~"(a\\\\.b|c\\\\|d)"}');
  assert.equal(interpolate('x{a=~"$single"}', given, promql), 'x{a=~"a\\\\.b"}');
  assert.equal(interpolate('x{a=~"$all"}', given, promql), 'x{a=~"a\\\\.b"}');
  assert.equal(interpolate('x{a="$plain"}', given, promql), 'x{a="a.b"}');
  assert.equal(interpolate('x{a=~"${many:pipe}"}', given, promql), 'x{a=~"a.b|c|d"}');
  assert.equal(interpolate('x{a=~"$many"}', selections({ many: ['a\\b', 'c'] }), promql), 'x{a=~"(a\\\\\\\\b|c)"}');
});

/** The value of the one string in a PromQL matcher. @param {string} expr */
function stringIn(expr) {
  const quote = expr[expr.indexOf('=') + 1 + Number(expr.includes('=~'))];
  const body = expr.slice(expr.indexOf(quote) + 1, expr.lastIndexOf(quote));
  return quote === '`' ? body : body.replace(/\\(.)/g, (match, mark) => (mark === 'n' ? '\n' : mark));
}

test('any_value_in_any_quotes_matches_itself', () => {
  const promql = { format: 'promql' };
  for (const value of ['plain', 'it\'s', 'say "hi"', 'back\\slash', '\\d+', 'a.b*c', 'line\nend', '$v', '[x]{y}',
    'ä€😀']) {
    for (const quote of ['"', "'"]) {
      const literal = interpolate(`up{a=${quote}$v${quote}}`, selections({ v: value }), promql);
      assert.equal(stringIn(literal), value, literal);
    }
    for (const quote of ['"', "'", '`']) {
      const regex = interpolate(`up{a=~${quote}$v${quote}}`, selections({ v: [value, 'z'] }), promql);
      assert.ok(new RegExp(`^(?:${stringIn(regex)})$`).test(value), regex);
    }
  }
});

test('escaped_quotes_do_not_end_a_string', () => {
  const given = selections({ v: '"' });
  const promql = { format: 'promql' };
  assert.equal(interpolate('x{a="\\"$v"}', given, promql), 'x{a="\\"\\""}');
  assert.equal(interpolate('x{a=`\\`,b="$v"}', given, promql), 'x{a=`\\`,b="\\""}');
  assert.equal(interpolate('x{a="\'"} + $v', given, promql), 'x{a="\'"} + "', 'outside of a string a value stays');
});

test('quotes_in_a_comment_do_not_open_a_string', () => {
  assert.equal(interpolate('# it\'s\nup{a="$v"}', selections({ v: "'" }), { format: 'promql' }), '# it\'s\nup{a="\'"}');
});

test('all_stands_for_each_option_or_for_its_custom_value', () => {
  const options = [{ text: 'All', value: '$__all' }, { text: 'a', value: 'a' }, { text: 'b', value: 'b' }];
  const all = { value: ['$__all'], multi: true, includeAll: true, options };
  assert.equal(interpolate('{x=~"$v"}', selections({ v: all }), { format: 'promql' }), '{x=~"(a|b)"}');
  const custom = selections({ v: { ...all, allValue: '.*$w' }, w: 'x' });
  assert.equal(interpolate('{x=~"$v"}', custom, { format: 'promql' }), '{x=~".*x"}');
  assert.equal(interpolate('${v:csv}', custom), '.*x', 'other formats leave a custom value as it is');
  assert.equal(interpolate('${v:text}', custom), 'All');
  assert.equal(interpolate('${v:percentencode}', custom), '.%2A%24w');
  assert.equal(interpolate('${v:queryparam}', custom), 'var-v=%24__all');
});

test('custom_values_of_all_that_refer_to_each_other_end', () => {
  const all = { value: '$__all', includeAll: true };
  const endless = selections({ a: { ...all, allValue: '$b$b' }, b: { ...all, allValue: '$a$a' } });
  assert.equal(interpolate('$a', endless), '');
});

test('built_in_variables_describe_range_and_interval', () => {
  const context = { range: { from: 1_000_000, to: 8_200_500, raw: { from: 'now-2h', to: 'now' } }, timeZone: 'utc',
    interval: { intervalMs: 15_000, rateIntervalMs: 60_000 } };
  /** @type {[string, string][]} */
  const cases = [['$__interval', '15s'], ['$__interval_ms', '15000'], ['${__rate_interval}', '1m'],
    ['$__rate_interval_ms', '60000'], ['$__range', '7201s'], ['[[__range_s]]', '7201'], ['$__range_ms', '7200500'],
    ['$__from', '1000000'], ['${__to}', '8200500'], ['${__from:date}', '1970-01-01T00:16:40.000Z'],
    ['${__from:date:iso}', '1970-01-01T00:16:40.000Z'], ['${__to:date:seconds}', '8201'],
    ['${__from:date:YYYY-MM-DD HH:mm}', '1970-01-01 00:16'], ['$timeFilter', 'time >= 1000000ms and time <= 8200500ms'],
    ['$__timeFilter', 'time >= 1000000ms and time <= 8200500ms'], ['$__all', '$__all'], ['$__timezone', 'utc'],
    ['${__url_time_range}', 'from=now-2h&to=now'], ['${__all_variables}', 'var-a=1&var-a=2'],
    ['${__interval:percentencode}', '15s']];
  for (const [text, expected] of cases) assert.equal(interpolate(text, selections({ a: ['1', '2'] }), context),
    expected);
  assert.equal(interpolate('rate(x[$__rate_interval])', new Map(), { ...context, format: 'promql' }), 'rate(x[1m])');
  assert.equal(interpolate('$__interval $__from', new Map()), '$__interval $__from', 'unknown without a context');
});

test('built_in_variables_of_links_describe_series_and_row', () => {
  const context = { dashboard: { title: 'D', uid: 'u1' }, org: { id: 3, name: 'Shop' },
    user: { id: 7, login: 'ann', email: 'ann@example.org' }, series: { name: 'S' },
    field: { name: 'Value', displayName: 'CPU', labels: { job: 'a', 'k8s.pod': 'p' } },
    value: { text: '50 %', raw: 0.5, numeric: 0.5, time: 1000, calc: 'last' },
    data: { refId: 'A', fields: [{ name: 'Time', text: '10:00' }, { name: 'my host', text: 'web', numeric: 4 }] } };
  /** @type {[string, string][]} */
  const cases = [['$__dashboard', 'D'], ['${__dashboard.uid}', 'u1'], ['$__org', '3'], ['${__org.name}', 'Shop'],
    ['${__user.login}', 'ann'], ['${__user.email}', 'ann@example.org'], ['$__user', '7'], ['$__name', 'S'],
    ['${__series.name}', 'S'], ['${__field.displayName}', 'CPU'], ['${__field.name}', 'Value'],
    ['${__field.labels.job}', 'a'], ['${__field.labels["k8s.pod"]}', 'p'], ['${__value.text}', '50 %'],
    ['${__value.raw}', '0.5'], ['${__value.time}', '1000'], ['$__value', '0.5'], ['${__value.calc}', 'last'],
    ['${__data.fields[0]}', '10:00'], ['${__data.fields["my host"]}', 'web'],
    ['${__data.fields["my host"].numeric}', '4'], ['${__data.fields.Time}', '10:00'], ['${__data.refId}', 'A'],
    ['$__cell_1', 'web'], ['${__cell}', '50 %'], ['${__data.fields[9]}', ''], ['${__value.text:percentencode}',
      '50%20%25']];
  for (const [text, expected] of cases) assert.equal(interpolate(text, new Map(), context), expected, text);
  for (const name of ['constructor', '__proto__', 'toString']) {
    assert.equal(interpolate(`\${__field.labels.${name}}\${__data.fields[0].${name}}`, new Map(), context), '', name);
    assert.equal(interpolate(`$${name}`, new Map(), context), `$${name}`);
  }
});

test('the_scope_of_a_repeated_panel_wins', () => {
  const scope = selections({ v: 'inner' });
  assert.equal(interpolate('$v $w', withScope(selections({ v: 'outer', w: 'x' }), scope)), 'inner x');
});

test('expansion_is_bounded_for_texts_and_for_queries', () => {
  const big = selections({ v: 'x'.repeat(1000) });
  const times = (/** @type {number} */ count) => '$v '.repeat(count);
  assert.equal(interpolate(times(1000), big).length, 1_001_000);
  for (const [text, context, limit] of /** @type {[string, object, number][]} */ ([
    [times(1100), {}, TEXT_MAX], [times(70), { format: 'promql' }, QUERY_MAX]])) {
    assert.throws(() => interpolate(text, big, context),
      (error) => error instanceof DashboardError && error.code === 'text_too_long' && error.detail.limit === limit);
  }
});

test('hostile_texts_are_read_in_linear_time', () => {
  const started = performance.now();
  for (const part of ['${a.', '[[a:', '${a:', '[[', '${', '$', '[[a', '${v:date:']) {
    interpolate(part.repeat(TEXT_MAX / 2 / part.length), selections({ v: '1' }));
  }
  assert.ok(performance.now() - started < 5000, `${performance.now() - started} ms`);
});

test('lone_surrogates_do_not_stop_url_formats', () => {
  assert.doesNotThrow(() => interpolate('${v:percentencode}${v:queryparam}${v:uriencode}',
    selections({ v: '\ud800' })));
});

test('ad_hoc_variables_have_matchers', () => {
  const list = variables({ name: 'adhoc', type: 'adhoc', filters: [{ key: 'job', operator: '=~', value: 'a.*' },
    { key: '', operator: '=', value: 'x' }, { key: 'env', operator: '<', value: 'y' }, null] });
  assert.deepEqual(list.flatMap((variable) => variable.filters), [{ label: 'job', op: '=~', value: 'a.*' }, { label: 'env', op: '=',
    value: 'y' }]);
});

test('saved_selections_use_the_values_of_the_file', () => {
  const list = variables({ name: 'a', current: { text: 'A', value: 'a' } }, { name: 'b', type: 'custom', query: 'x,y' },
    { name: 'c', multi: true, includeAll: true, current: { text: ['All'], value: ['$__all'] }, options: [{ text: 'q',
      value: 'q' }] },
    { name: 'd', current: null });
  const saved = savedSelections(list);
  assert.equal(interpolate('$a ${a:text} $b $d ${c:csv}', saved), 'a A x  q');
});

test('random_texts_and_values_never_throw_anything_but_the_one_error', () => {
  let seed = 20261126;
  const random = (/** @type {number} */ below) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor(seed / 2 ** 32 * below);
  };
  const parts = ['$v', '${', '}', '[[', ']]', 'v', ':', '.', 'date', 'regex', '__from', '__data.fields[', '"', "'", '`',
    '\\', '\n', '#', '__cell_9', '$__interval', 'ä', '\ud800', '%', 'text', '__proto__'];
  for (let round = 0; round < 20_000; round += 1) {
    const text = Array.from({ length: random(12) }, () => parts[random(parts.length)]).join('');
    const value = Array.from({ length: random(3) }, () => parts[random(parts.length)]);
    const context = { format: ['promql', 'text', undefined][random(3)], range: { from: 0, to: 1 },
      data: { fields: [] } };
    try {
      const result = interpolate(text, selections({ v: random(2) ? value : 'x' }), context);
      assert.equal(typeof result, 'string');
      parseVariableQuery(text);
    } catch (error) {
      assert.ok(error instanceof DashboardError, `round ${round}: ${error} for ${JSON.stringify(text)}`);
    }
  }
});
