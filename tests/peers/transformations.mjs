// Compares transformations, reducers, mappings, thresholds and names with @grafana/data on random frames.
// Arguments: the folder that holds node_modules; optional: rounds of each comparison, seed. The seed
// without one is constant, so that a change alone decides whether the comparison passes.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { thresholdOf } from '../../src/ui/assets/model/color.js';
import { applyFieldConfig } from '../../src/ui/assets/model/fields.js';
import { mapValue } from '../../src/ui/assets/model/mappings.js';
import { fieldNames } from '../../src/ui/assets/model/names.js';
import { REDUCER_IDS, reduceValues } from '../../src/ui/assets/model/reduce.js';
import { transform } from '../../src/ui/assets/model/transformations/index.js';
import { CASES } from './transformation_cases.mjs';

const [folder = '.', rounds = '300', given] = process.argv.slice(2);
const SEED = Number(given ?? 20261126);
// The package expects a browser's globals.
Object.assign(globalThis, { window: globalThis, localStorage: { getItem: () => null, setItem: () => undefined } });
Object.defineProperty(globalThis, 'navigator', { value: { userAgent: '', language: 'en', languages: ['en'] } });
Object.defineProperty(globalThis, 'location', { value: { search: '', href: '' } });
const grafana = createRequire(join(resolve(folder), 'node_modules', 'none.js'))('@grafana/data');

/** @param {number} seed @returns {() => number} from 0 to 1, exclusive */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Random choices, all from one generator. */
function chooser(seed) {
  const next = generator(seed);
  const below = (count) => Math.floor(next() * count);
  const one = (list) => list[below(list.length)];
  return { below, one, chance: (part) => next() < part, some: (list) => list.filter(() => next() < 0.5) };
}

const number = (pick) => (pick.chance(0.12) ? null : pick.one([0, 1, 2, 3, 5, 7, 10, -1, -4, 0.5, 2.25, 100, 1e6]));
const word = (pick) => pick.one(['a', 'b', 'c', 'x1', 'x10', 'x9', 'Alpha', 'beta', '12', '3.5']);

/** @param {ReturnType<typeof chooser>} pick @param {'series' | 'table'} kind @param {number} index */
function randomFrame(pick, kind, index) {
  const length = pick.below(6);
  const times = kind === 'series' ? pick.some([1, 2, 3, 4, 5, 6]).map((step) => step * 1000)
    : Array.from({ length }, () => pick.one([1, 2, 3]) * 1000);
  const make = (name, type, value, labels) =>
    ({ name, type, config: {}, values: times.map(value), ...(labels ? { labels } : {}) });
  const labels = () => Object.fromEntries(pick.some(['host', 'job', 'zone']).map((label) =>
    [label, pick.one(['p', 'q'])]));
  const fields = [{ name: 'Time', type: 'time', config: {}, values: times }];
  if (kind === 'series') fields.push(make(pick.one(['Value', 'Value', 'cpu']), 'number', () => number(pick), labels()));
  else {
    if (pick.chance(0.7)) fields.push(make('host', 'string', () => word(pick)));
    if (pick.chance(0.5)) fields.push(make('zone', 'string', () => word(pick)));
    fields.push(make(pick.one(['Value', `Value #${'ABC'[index]}`, 'cpu']), 'number', () => number(pick)));
    if (pick.chance(0.3)) fields.push(make('on', 'boolean', () => pick.chance(0.5)));
  }
  const frame = { refId: 'ABC'[index], length: times.length, fields };
  return pick.chance(0.5) ? { ...frame, name: pick.one(['n1', 'n2', 'n3']) } : frame;
}

/** @param {ReturnType<typeof chooser>} pick */
function randomFrames(pick) {
  const kind = pick.one(/** @type {const} */ (['series', 'series', 'table']));
  return Array.from({ length: 1 + pick.below(3) }, (_, index) => randomFrame(pick, kind, index));
}

/** No value, null and NaN are one: each is drawn as a gap. */
function plain(value) {
  if (value === undefined || value === null || (typeof value === 'number' && Number.isNaN(value))) return null;
  if (Array.isArray(value)) return value.map(plain);
  return typeof value === 'number' && value % 1 !== 0 ? Number(value.toPrecision(12)) : value;
}

/** @param {any[]} frames @param {any} options what a case does not compare */
function comparable(frames, { labels = true, types = true, config = ['displayName', 'unit'] }) {
  return frames.map((frame) => ({
    length: frame.length,
    name: frame.name ?? '',
    fields: frame.fields.map((field) => ({
      name: field.name,
      ...(types ? { type: field.type } : {}),
      values: Array.from({ length: frame.length }, (_, row) => plain(field.values[row])),
      ...(labels ? { labels: Object.fromEntries(Object.entries(field.labels ?? {}).sort()) } : {}),
      config: config.map((key) => field.config[key]).map((value) => value ?? null),
    })),
  }));
}

/** @param {any[]} frames one line a frame, to read differences */
const brief = (frames) => frames.map((frame) => `{${frame.name} ${frame.length}} ${frame.fields
  .map(({ name, type, labels, config, values }) => `${name}:${type} ${JSON.stringify([labels, config, values])}`)
  .join(' | ')}`).join('\n');

const copy = (frames) => structuredClone(frames);
const known = [...new Map(Object.values(grafana.standardTransformers).map((one) => [one.id, one])).values()];
grafana.standardTransformersRegistry.setInit(() => known.map((one) => ({
  id: one.id, name: one.name, transformation: one,
    ...(one.id === 'joinByField' ? { aliasIds: ['seriesToColumns'] } : {}),
})));
const theirs = (list, frames) => new Promise((done, failed) => {
  grafana.transformDataFrame(list, frames, { interpolate: (text) => text }).subscribe({ next: done, error: failed });
});

let compared = 0;
let skipped = 0;
/** @type {Map<string, number>} */
const failures = new Map();

/** @param {string} what @param {number} seed @param {() => void} check @param {() => string} told */
function verify(what, seed, check, told) {
  try {
    check();
    compared += 1;
  } catch (error) {
    const count = failures.get(what) ?? 0;
    failures.set(what, count + 1);
    if (count < Number(process.env.SHOWN ?? 2)) console.error(`${what}, seed ${seed}: ${told()}\n${error.message}\n`);
  }
}

async function transformations() {
  const { error: quiet, warn } = console;
  for (const { id, options, differs, compare = {} } of CASES) {
    for (let round = 0; round < Number(rounds); round += 1) {
      const seed = SEED + round;
      const pick = chooser(seed);
      const frames = randomFrames(pick).map((frame) => ({ name: '', ...frame }));
      const chosen = options(pick, frames, fieldNames(frames).flat());
      if (differs?.(chosen, frames)) {
        skipped += 1;
        continue;
      }
      console.error = () => undefined;
      console.warn = () => undefined;
      const expected = await theirs([{ id, options: structuredClone(chosen) }], copy(frames)).catch((error) => error);
      Object.assign(console, { error: quiet, warn });
      const before = JSON.stringify(frames);
      const got = transform(frames, [{ id, options: chosen }]);
      const shown = () => `${id} ${JSON.stringify(chosen)} of ${before}`;
      verify(id, seed, () => {
        assert.equal(JSON.stringify(frames), before, 'the input has changed');
        assert.deepEqual(got.unsupported, []);
        if (expected instanceof Error) throw expected;
        const [ours, peers] = [got.frames, expected].map((all) => comparable(all, compare));
        if (process.env.SHORT) assert.equal(brief(ours), brief(peers));
        assert.deepEqual(ours, peers);
      }, shown);
    }
  }
}

function reducers() {
  const ids = [...REDUCER_IDS, ...Array.from({ length: 99 }, (_, index) => `p${index + 1}`)];
  for (let round = 0; round < Number(rounds) * 3; round += 1) {
    const seed = SEED + round;
    const pick = chooser(seed);
    const values = Array.from({ length: pick.below(8) }, () => number(pick));
    const mode = pick.one([undefined, 'null', 'connected', 'null as zero']);
    const config = mode ? { nullValueMode: mode } : {};
    const expected = grafana.reduceField({ field: { name: 'v', type: 'number', config, values: [...values] },
      reducers: ids });
    const got = reduceValues(values, ids, mode);
    for (const id of ids) {
      // Without a number above zero the peer returns the largest double, and 0 and the values depend
      // on what else is computed in these two; a gap says more.
      const asZero = mode === 'null as zero' && ['lastNotNull', 'firstNotNull'].includes(id);
      const none = values.every((value) => value === null);
      if (asZero || (id === 'logmin' && !values.some((value) => value !== null && value > 0))) continue;
      // With mode `null` the peer sorts null among the numbers for percentiles and the median.
      if (mode === 'null' && /^p\d|median/.test(id)) continue;
      if (none && id === 'median' && mode !== 'null as zero') continue;
      verify(`reducer ${id}`, seed, () => assert.deepEqual(plain(got.get(id)), plain(expected[id])),
        () => `${JSON.stringify(values)} ${mode}`);
    }
  }
}

function mappingsAndThresholds() {
  const result = (pick) => ({ text: pick.one(['T1', '<$1>', 'N/A']), color: pick.one(['red', '#123456']), index: 0 });
  const mapping = (pick) => pick.one([
    () => ({ type: 'value', options: { [pick.one(['1', 'a', 'true', 'null', '2.25'])]: result(pick) } }),
    () => ({ type: 'range', options: { from: pick.one([-4, 0, 2]), to: pick.one([2, 5, 100]), result: result(pick) } }),
    () => ({ type: 'regex', options: { pattern: pick.one(['a', '/x(.*)/', '/(a|b)/i', '.*']), result: result(pick) } }),
    () => ({
      type: 'special',
      options: { match: pick.one(['null', 'nan', 'null+nan', 'true', 'false', 'empty']), result: result(pick) },
    }),
  ])();
  const theme = grafana.createTheme();
  for (let round = 0; round < Number(rounds) * 10; round += 1) {
    const seed = SEED + round;
    const pick = chooser(seed);
    const mappings = Array.from({ length: 1 + pick.below(3) }, () => mapping(pick));
    const value = pick.one([null, undefined, NaN, '', true, false, 'true', 'false', number(pick), word(pick), '1']);
    const type = typeof value === 'string' ? 'string' : typeof value === 'boolean' ? 'boolean' : 'number';
    const display = grafana.getDisplayProcessor({ field: { name: 'v', type, config: { mappings } }, theme });
    const { text } = display(value);
    // The texts of mappings differ from those of all values.
    const expected = /T1|N\/A|</.test(text) ? text : undefined;
    verify('mapping', seed, () => assert.deepEqual(mapValue(value, mappings)?.text, expected),
      () => `${JSON.stringify(mappings)} of ${String(value)}`);

    const steps = [{ value: -Infinity, color: 'c0' },
      ...pick.some([-5, 0, 1, 10, 50, 90]).map((at, index) => ({ value: at, color: `c${index + 1}` }))];
    const [min, max] = [pick.one([-10, 0, 1]), pick.one([2, 50, 100])];
    const at = pick.one([NaN, -Infinity, Infinity, -20, 0, 1, 25, 50, 90, 1e9, number(pick)]);
    const mode = pick.one(['absolute', 'percentage']);
    const field = {
      name: 'v', type: 'number', values: [],
        config: { min, max, color: { mode: 'thresholds' }, thresholds: { mode, steps } },
    };
    const threshold = grafana.getScaleCalculator(field, theme)(at).threshold;
    // null counts as 0 for the peer; a missing value has the colour of the first step.
    if (at === null) continue;
    verify('threshold', seed, () => assert.equal(thresholdOf(at, { mode, steps }, min, max)?.color, threshold.color),
      () => `${JSON.stringify(field.config)} of ${at}`);
  }
}

/** Properties that the peer takes from a field configuration. */
const property = (id, path, isCustom = false) => ({
  id, path, isCustom, name: id, process: (value) => value, shouldApply: () => true, settings: {}, override: undefined,
  editor: undefined,
});

function fieldConfigs() {
  const registry = new grafana.FieldConfigOptionsRegistry();
  for (const id of ['unit', 'decimals', 'displayName', 'noValue']) registry.register(property(id, id));
  for (const id of ['lineWidth', 'hideFrom.legend']) registry.register({ ...property(`custom.${id}`, id, true) });
  const theme = grafana.createTheme();
  for (let round = 0; round < Number(rounds) * 3; round += 1) {
    const seed = SEED + round;
    const pick = chooser(seed);
    const frames = randomFrames(pick).map((frame) => ({ name: '', ...frame }));
    for (const frame of frames) for (const field of frame.fields) if (pick.chance(0.2)) field.config.unit = 'own';
    const shown = fieldNames(frames).flat();
    const matcher = () => pick.one([
      { id: 'byName', options: pick.one(shown) }, { id: 'byName', options: pick.one(['Value', 'D', 'N1']) },
      { id: 'byRegexp', options: '/a/' },
      { id: 'byRegexp', options: 'Value' }, { id: 'byType', options: pick.one(['number', 'string', 'time']) },
      { id: 'byFrameRefID', options: pick.one(['A', 'B']) },
      { id: 'byNames', options: { mode: pick.one(['include', 'exclude']), names: pick.some(shown) } },
      { id: 'byRegexpOrNames', options: { pattern: '/o/', names: pick.some(shown) } },
      { id: 'byValue', options: { reducer: 'max', op: pick.one(['gt', 'lte', 'eq', 'neq']), value: pick.one([1, 7]) } },
    ]);
    const fieldConfig = {
      defaults: {
        ...(pick.chance(0.5) ? { unit: 's' } : {}), ...(pick.chance(0.5) ? { decimals: 1 } : {}),
        ...(pick.chance(0.3) ? { displayName: pick.one(['D', 'alpha']) } : {}),
        custom: pick.chance(0.5) ? { lineWidth: 1, hideFrom: { legend: false } } : {},
      },
      overrides: Array.from({ length: pick.below(4) }, () => ({ matcher: matcher(), properties: pick.some([
        { id: 'unit', value: pick.one(['m', 'bytes']) }, { id: 'decimals', value: pick.one([0, 3]) },
        { id: 'custom.lineWidth', value: pick.one([2, 5]) }, { id: 'custom.hideFrom.legend', value: true },
        { id: 'displayName', value: pick.one(['N1', 'beta']) }, { id: 'noValue', value: 'none' },
      ]) })),
    };
    const chosen = ({ config }) => [config.unit, config.decimals, config.noValue, config.custom?.lineWidth,
      config.custom?.hideFrom?.legend].map((value) => value ?? null);
    const ours = applyFieldConfig(frames, structuredClone(fieldConfig)).map((frame) => frame.fields.map((field) =>
      [field.config.displayName, ...chosen(field)]));
    const applied = grafana.applyFieldOverrides({
      data: copy(frames), fieldConfig: structuredClone(fieldConfig), replaceVariables: (text) => text, theme,
      fieldConfigRegistry: registry,
    });
    const plainNames = fieldNames(frames);
    const theirs = applied.map((frame, at) => frame.fields.map((field, index) => {
      const template = field.config.displayName;
      return [template || plainNames[at][index], ...chosen(field)];
    }));
    verify('field configuration', seed, () => assert.deepEqual(ours, theirs),
      () => `${JSON.stringify(fieldConfig)} of ${JSON.stringify(frames)}`);
  }
}

function names() {
  for (let round = 0; round < Number(rounds) * 3; round += 1) {
    const seed = SEED + round;
    const frames = randomFrames(chooser(seed));
    const expected = frames.map((frame) =>
      frame.fields.map((field) => grafana.getFieldDisplayName(field, frame, frames)));
    verify('field names', seed,
      () => assert.deepEqual(fieldNames(frames.map((frame) => ({ name: '', ...frame }))), expected),
      () => JSON.stringify(frames));
  }
}

console.log(`seed ${SEED}, ${rounds} rounds`);
reducers();
mappingsAndThresholds();
names();
fieldConfigs();
await transformations();
console.log(`${compared} comparisons equal, ${skipped} left out for a listed difference`);
for (const [what, count] of failures) console.log(`${what}: ${count} differ`);
process.exitCode = failures.size ? 1 : 0;
