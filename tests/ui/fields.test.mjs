// Field configuration, thresholds, mappings and colours.

import assert from 'node:assert/strict';
import test from 'node:test';
import { COLOR_MODES } from '../../src/ui/assets/model/color.js';
import { applyFieldConfig, colorOf, currentMappings, displayValue, mapValue, palette, resolveColor, thresholdOf,
} from '../../src/ui/assets/model/fields.js';
import { channels } from '../../src/ui/assets/model/palette.js';

/** @typedef {import('../../src/ui/assets/model/frame.js').Frame} Frame */

/** @param {string} name @param {any[]} values @param {any} [more] */
const field = (name, values, more) => ({ name, type: /** @type {const} */ ('number'), values, config: {}, ...more });
/** @param {any[]} fields @param {Partial<Frame>} [more] @returns {Frame} */
const frame = (fields, more) => ({ refId: 'A', name: '', length: fields[0].values.length, fields, ...more });
/** @param {Frame[]} frames @param {any} fieldConfig @param {any} [context] */
const configs = (frames, fieldConfig, context) =>
  applyFieldConfig(frames, fieldConfig, context).flatMap((one) => one.fields.map(({ config }) => config));

test('defaults fill in what a field does not say, and later overrides win', () => {
  const frames = [frame([field('a', [1]), field('b', [2], { config: { unit: 's' } })])];
  const [a, b] = configs(frames, {
    defaults: { unit: 'bytes', decimals: 1, custom: { lineWidth: 2, hideFrom: { legend: false } } },
    overrides: [
      { matcher: { id: 'byName', options: 'a' },
        properties: [{ id: 'unit', value: 'percent' }, { id: 'custom.lineWidth', value: 5 }] },
      { matcher: { id: 'byRegexp', options: '/^a/' },
        properties: [{ id: 'decimals', value: '3' }, { id: 'custom.hideFrom.legend', value: true }] },
    ],
  });
  assert.deepEqual([a.unit, a.decimals, a.custom], ['percent', 3, { lineWidth: 5, hideFrom: { legend: true } }]);
  assert.deepEqual([b.unit, b.decimals, b.custom], ['s', 1, { lineWidth: 2, hideFrom: { legend: false } }]);
  assert.deepEqual(frames[0].fields[0].config, {}, 'the input stays unchanged');
});

test('each matcher finds its fields', () => {
  const frames = [
    frame([{ ...field('Time', [1]), type: 'time' }, field('Value', [5], { labels: { job: 'x' } })],
      { refId: 'A', name: 'n' }),
    frame([field('other', [50])], { refId: 'B' }),
  ];
  const found = (/** @type {any} */ matcher, /** @type {any} */ context = {}) => configs(frames,
    { overrides: [{ matcher, properties: [{ id: 'unit', value: 'hit' }] }] },
      context).map(({ unit }) => (unit ? 1 : 0)).join('');
  assert.equal(found({ id: 'byName', options: 'n x' }), '010');
  assert.equal(found({ id: 'byName', options: 'Value' }), '010');
  assert.equal(found({ id: 'byRegexp', options: '/O/i' }), '001');
  assert.equal(found({ id: 'byRegexpOrNames', options: { pattern: '/^Ti/', names: ['other'] } }), '101');
  assert.equal(found({ id: 'byRegexpOrNames', options: { variable: '$v' } }, { replace: () => '{Time,other}' }), '101');
  assert.equal(found({ id: 'byType', options: 'number' }), '011');
  assert.equal(found({ id: 'byFrameRefID', options: 'B' }), '001');
  assert.equal(found({ id: 'byNames', options: { mode: 'exclude', names: ['Time'] } }), '011');
  assert.equal(found({ id: 'byValue', options: { reducer: 'max', op: 'gt', value: 10 } }), '001');
  assert.equal(found({ id: 'nope' }), '000');
  assert.equal(found(undefined), '000');
  assert.equal(found({ id: 'byRegexp', options: '(a+)+$' }), '000');
});

test('an override sees the name from before a rename that asked for it, and the place of a field', () => {
  const frames = [frame([field('a', [1]), field('a', [2]), field('c', [3])])];
  const rename = { matcher: { id: 'byName', options: 'a 2' }, properties: [{ id: 'displayName', value: 'new' }] };
  const unit = (/** @type {any} */ matcher) => configs(frames,
    { overrides: [rename, { matcher, properties: [{ id: 'unit', value: 'hit' }] }] }).map((one) =>
      (one.unit ? 1 : 0)).join('');
  assert.equal(unit({ id: 'byName', options: 'a 2' }), '010');
  assert.equal(unit({ id: 'byName', options: 'new' }), '000');
  assert.equal(unit({ id: 'first' }), '100');
});

test('keys from a dashboard cannot change prototypes', () => {
  const hostile = JSON.parse(`{
    "defaults": {"__proto__": {"unit": "x"}, "custom": {"__proto__": {"y": 1}}},
    "overrides": [{"matcher": {"id": "byName", "options": "a"}, "properties": [
      {"id": "__proto__.polluted", "value": 1}, {"id": "constructor.prototype.polluted", "value": 1},
      {"id": "custom.__proto__.polluted", "value": 1}]}]}`);
  const [config] = configs([frame([field('a', [1])])], hostile);
  assert.equal(Reflect.get({}, 'polluted'), undefined);
  assert.deepEqual([config.unit, config.custom.y, config.polluted], [undefined, undefined, undefined]);
});

test('a display name may hold the field, its labels, the series and variables', () => {
  const frames = [frame([field('Value', [1], { labels: { job: 'api' } })], { name: 'series' })];
  const name = (/** @type {string} */ displayName) => configs(frames, { defaults: { displayName } },
    { replace: (/** @type {string} */ text) => text.replaceAll('$host', 'h1') })[0].displayName;
  assert.equal(name('${__field.labels.job} ${__field.name} $host'), 'api Value h1');
  assert.equal(name('${__series.name}/${__field.displayName}/${__field.labels.none}'), 'series/api/');
  assert.equal(name('${__field.labels.constructor}'), '');
  assert.equal(configs(frames, {})[0].displayName, 'api');
});

test('the range of a scale is configured, of all fields, or of the field alone', () => {
  const frames = [frame([field('a', [1, NaN, 5]), field('b', [-3, Infinity])])];
  const ranges = (/** @type {any} */ defaults) =>
    applyFieldConfig(frames, { defaults })[0].fields.map(({ range }) => range);
  assert.deepEqual(ranges({}), [{ min: -3, max: 5 }, { min: -3, max: 5 }]);
  assert.deepEqual(ranges({ fieldMinMax: true }), [{ min: 1, max: 5 }, { min: -3, max: -3 }]);
  assert.deepEqual(ranges({ min: 0, max: '10' })[0], { min: 0, max: 10 });
  assert.deepEqual(ranges({ max: 10 })[0], { min: -3, max: 10 });
});

test('a threshold is the last step at or below a value', () => {
  const steps = [{ value: null, color: 'green' }, { value: 10, color: 'yellow' }, { value: 80, color: 'red' }];
  const at = (/** @type {any} */ value, /** @type {string} */ mode, min = 0, max = 100) =>
    thresholdOf(value, { mode, steps }, min, max)?.color;
  assert.deepEqual([-1, 9.9, 10, 79, 80, NaN, null, undefined].map((value) => at(value, 'absolute')),
    ['green', 'green', 'yellow', 'yellow', 'red', 'green', 'green', 'green']);
  assert.deepEqual([0, 20, 180, 200].map((value) => at(value, 'percentage', 0, 200)),
    ['green', 'yellow', 'red', 'red']);
  assert.deepEqual([49, 55, 60].map((value) => at(value, 'percentage', 50, 60)), ['green', 'yellow', 'red']);
  assert.equal(thresholdOf(1, undefined, 0, 1), null);
  assert.equal(thresholdOf(1, { steps: [] }, 0, 1), null);
});

test('the first mapping that a value matches is used', () => {
  const mappings = [
    { type: 'value', options: { 1: { text: 'one' }, true: { text: 'yes' } } },
    { type: 'range', options: { from: 2, to: 5, result: { text: 'some', color: 'red' } } },
    { type: 'range', options: { from: 100, to: null, result: { text: 'many' } } },
    { type: 'regex', options: { pattern: '/^node-(.*)$/', result: { text: 'N $1' } } },
    { type: 'special', options: { match: 'null', result: { text: 'none' } } },
    { type: 'special', options: { match: 'nan', result: { text: 'not' } } },
    { type: 'special', options: { match: 'empty', result: { text: 'empty' } } },
    { type: 'special', options: { match: 'false', result: { text: 'no' } } },
  ];
  const text = (/** @type {any} */ value) => mapValue(value, mappings)?.text;
  assert.deepEqual([1, '1', 2, 5, 5.1, 1000, 'node-a', 'x', null, undefined, NaN, '', true, false].map(text),
    ['one', 'one', 'some', 'some', undefined, 'many', 'N a', undefined, 'none', 'none', 'not', 'empty', 'yes', 'no']);
  for (const key of ['constructor', '__proto__', 'toString']) assert.equal(mapValue(key, mappings), null, key);
  assert.equal(mapValue('aaaaaaaaaaaaaaaaaaaaaaaaaaaa!',
    [{ type: 'regex', options: { pattern: '/(a+)+$/', result: {} } }]), null);
});

test('mappings of old dashboards are understood', () => {
  const old = [{ type: 1, value: '1', text: 'one' }, { type: 2, from: '2', to: '5', text: 'some' },
    { op: '=', value: 'null', text: 'N/A' },
    { from: 'null', to: 'null', text: 'N/A' }, { value: '__proto__', text: 'p' }];
  assert.deepEqual([1, 3, null, 9, '__proto__'].map((value) => mapValue(value, old)?.text),
    ['one', 'some', 'N/A', undefined, 'p']);
  assert.deepEqual(currentMappings('x'), []);
});

/** @param {string} hex */
function luminance(hex) {
  const [red, green, blue] = channels(hex).map((channel) => {
    const part = channel / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

test('every named and series colour has a contrast of 3:1 on the pages', () => {
  for (const [theme, pages] of /** @type {const} */ ([['light', ['#ffffff', '#f4f5f9']],
    ['dark', ['#15171e', '#0d0f14']]])) {
    const { named, series } = palette(theme);
    const hues = [...named].filter(([name]) => /red|orange|yellow|green|blue|purple|text|gray/.test(name));
    assert.equal(hues.length, 32);
    for (const [name, hex] of [...hues, ...series.map((one, index) => [`series ${index}`, one])]) {
      for (const page of pages) {
        const [low, high] = [luminance(hex), luminance(page)].sort((a, b) => a - b);
        assert.ok((high + 0.05) / (low + 0.05) >= 3, `${name} ${hex} on ${page}`);
      }
    }
  }
});

test('colours of dashboards are resolved, and other text becomes gray', () => {
  const { named, gray } = palette('dark');
  assert.equal(resolveColor('semi-dark-blue', 'dark'), named.get('semi-dark-blue'));
  for (const css of ['#abc', '#aabbcc', '#aabbccdd', 'rgba(1, 2, 3, 0.5)', 'rgb(1 2 3 / 50%)', 'hsl(120, 50%, 50%)']) {
    assert.equal(resolveColor(css, 'dark'), css);
  }
  for (const bad of ['url(x)', 'red;background:url(x)', '#12', 'rgb(var(--x))', '', 7, null, 'constructor']) {
    assert.equal(resolveColor(bad, 'dark'), gray, String(bad));
  }
});

test('each colour mode colours as it says', () => {
  const colour = (/** @type {any} */ color, /** @type {any} */ value, index = 0, /** @type {any} */ more = {}) =>
    colorOf(
    { ...field('v', [1, 9, 5], { range: { min: 0, max: 10 } }), config: { color, ...more } }, value, index,
      { theme: 'dark' });
  const { named, series } = palette('dark');
  assert.equal(colour({ mode: 'fixed', fixedColor: 'red' }, 1), named.get('red'));
  assert.equal(colour({ mode: 'palette-classic' }, 1, 1), series[1]);
  assert.equal(colour({ mode: 'palette-classic' }, 1, series.length), series[0]);
  assert.equal(colour({ mode: 'palette-classic-by-name' }, 1, 0), colour({ mode: 'palette-classic-by-name' }, 1, 5));
  assert.equal(colour({ mode: 'continuous-GrYlRd' }, 0), named.get('green'));
  assert.equal(colour({ mode: 'continuous-GrYlRd' }, 5), named.get('yellow'));
  assert.equal(colour({ mode: 'continuous-GrYlRd' }, 99), named.get('red'));
  const shades = [0, 1, 2, 3].map((index) => colour({ mode: 'shades', fixedColor: 'red' }, 1, index));
  assert.equal(new Set(shades).size, 4);
  const thresholds = { mode: 'absolute', steps: [{ value: -Infinity, color: 'green' }, { value: 6, color: 'red' }] };
  const seriesBy = (/** @type {string} */ by) =>
    colour({ mode: 'thresholds', seriesBy: by }, undefined, 0, { thresholds });
  assert.deepEqual([seriesBy('last'), seriesBy('max'), seriesBy('min')],
    ['green', 'red', 'green'].map((name) => named.get(name)));
  for (const mode of COLOR_MODES) assert.match(colour({ mode, fixedColor: 'blue' }, 3), /^#[0-9a-f]{6}$/, mode);
});

test('a value is shown mapped, in its unit, as text, or as the text for none', () => {
  const format = (/** @type {number} */ value, /** @type {any} */ unit, /** @type {any} */ decimals) =>
    ({ prefix: '', text: value.toFixed(decimals ?? 0), suffix: ` ${unit}` });
  const [made] = applyFieldConfig([frame([field('v', [1])])], { defaults: {
    unit: 's', decimals: 1, noValue: 'no data',
      mappings: [{ type: 'value', options: { 7: { text: 'seven', color: 'red', icon: 'star' } } }],
  } });
  const show = (/** @type {any} */ value) => displayValue(made.fields[0], value, format, { theme: 'light' });
  assert.deepEqual([show(1.25), show(7), show(null), show('12'), show('abc'),
    show(true)].map(({ text, suffix }) => text + suffix),
    ['1.3 s', 'seven', 'no data', '12.0 s', 'abc', 'true']);
  assert.deepEqual([show(7).color, show(7).icon], [palette('light').named.get('red'), 'star']);
  const time = { ...field('t', []), type: /** @type {const} */ ('time') };
  assert.equal(displayValue(time, 5, format).suffix, ' dateTimeAsIso');
});

test('a_time_field_is_shown_as_a_date_whatever_the_unit_of_the_panel_is', () => {
  const format = (/** @type {number} */ value, /** @type {string | undefined} */ unit) =>
    ({ text: `${value}`, suffix: ` ${unit}` });
  const suffix = (/** @type {any} */ defaults, /** @type {string} */ type) => {
    const [{ fields: [made] }] = applyFieldConfig([frame([field('Time', [5], { type })])], { defaults });
    return displayValue(made, 5, format).suffix;
  };
  for (const unit of ['s', 'bytes', 'short', 'percentunit', 'euros', undefined, { $ne: 1 }]) {
    assert.equal(suffix({ unit }, 'time'), ' dateTimeAsIso', String(unit));
  }
  for (const unit of ['dateTimeFromNow', 'dateTimeAsUS', 'time:YYYY']) assert.equal(suffix({ unit }, 'time'), ` ${unit}`);
  assert.equal(suffix({ unit: 's' }, 'number'), ' s');
});
