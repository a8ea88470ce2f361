// Refreshes that ask for new steps only give what a query of the whole range gives.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { firstStep, joinSteps } from '../../src/ui/assets/model/increment.js';

/** Numbers in [0, 1): mulberry32. */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** The answer of a server with one value a series and a step: `data` has times by series. */
function answerOf(data, { start, end, step }) {
  const result = [];
  for (const [host, values] of [...data].sort(([left], [right]) => (left < right ? -1 : 1))) {
    const points = [];
    for (let at = start; at <= end; at += step) if (values.has(at)) points.push([at, values.get(at)]);
    if (points.length > 0) result.push({ metric: { host, __name__: 'load' }, values: points });
  }
  return { resultType: 'matrix', result };
}

const known = (steps, answer, refreshes = 0) => ({ ...steps, answer, refreshes });

test('random refreshes with late samples in the overlap give the answer of the whole range', () => {
  for (let seed = 1; seed <= 300; seed += 1) {
    const random = generator(seed);
    const step = [5, 15, 60][Math.floor(random() * 3)];
    const span = step * (8 + Math.floor(random() * 30));
    const data = new Map();
    const hosts = Array.from({ length: 1 + Math.floor(random() * 5) }, (_, index) => `h${index}`);
    for (const host of hosts) data.set(host, new Map());
    let now = 1_700_000_000 + Math.floor(random() * 1000);
    const write = (host, at) => data.get(host).set(at, String(Math.floor(random() * 1000)));
    for (let at = now - (now % step) - span * 2; at <= now; at += step)
      for (const host of hosts) if (random() < 0.8) write(host, at);
    let last;
    let parts = 0;
    for (let refresh = 0; refresh < 30; refresh += 1) {
      const steps = { start: Math.floor((now - span) / step) * step, end: now, step };
      const from = firstStep('load', steps, last);
      const part = answerOf(data, { ...steps, start: from });
      const whole = answerOf(data, steps);
      let answer = part;
      if (from > steps.start) {
        parts += 1;
        answer = joinSteps(last, part, { start: steps.start, from });
      }
      assert.deepEqual(answer, whole, `seed ${seed}, refresh ${refresh}`);
      last = known(steps, answer, from > steps.start ? last.refreshes + 1 : 0);
      const newest = now - (now % step);
      now += Math.floor(random() * step * 2.5);
      // The last step was not complete, and samples of the one before arrive late.
      for (const host of hosts) {
        for (let at = newest - step; at <= now; at += step)
          if (random() < 0.6) write(host, at);
      }
      if (random() < 0.2) {
        const host = `h${Math.floor(random() * 20)}`;
        if (!data.has(host)) {
          hosts.push(host);
          data.set(host, new Map());
          write(host, newest);
        }
      }
    }
    assert.ok(parts > 15, `seed ${seed}: only ${parts} refreshes were partial`);
  }
});

const STEPS = { start: 600, end: 1200, step: 60 };
const rising = new Map([['a', new Map(Array.from({ length: 60 }, (_, at) => [at * 60, String(at)]))]]);
const LAST = known(STEPS, answerOf(rising, STEPS));

test('a refresh asks from two steps before the newest one', () => {
  assert.equal(firstStep('up', { start: 660, end: 1260, step: 60 }, LAST), 1200 - 120);
});

test('the whole range is asked when steps, range or query do not continue the last answer', () => {
  for (const [why, steps, last] of [
    ['no last answer', { start: 660, end: 1260, step: 60 }, undefined],
    ['another step', { start: 660, end: 1260, step: 30 }, LAST],
    ['an earlier start', { start: 540, end: 1260, step: 60 }, LAST],
    ['an earlier end', { start: 660, end: 1140, step: 60 }, LAST],
    ['a start after the last answer', { start: 1260, end: 1860, step: 60 }, LAST],
    ['steps between those of the last answer', { start: 690, end: 1290, step: 60 }, LAST],
    ['the twentieth refresh', { start: 660, end: 1260, step: 60 }, known(STEPS, LAST.answer, 20)],
    ['a scalar', { start: 660, end: 1260, step: 60 }, known(STEPS, { resultType: 'scalar', result: [0, '1'] })],
  ]) {
    assert.equal(firstStep('up', steps, last), steps.start, why);
  }
});

test('queries whose old steps follow the end of the range are always asked as a whole', () => {
  for (const expr of ['up @ end()', 'rate(x[5m] @end ())', 'up offset -5m', 'sum(up OFFSET  -1h)']) {
    assert.equal(firstStep(expr, { start: 660, end: 1260, step: 60 }, LAST), 660, expr);
  }
  assert.ok(firstStep('up offset 5m', { start: 660, end: 1260, step: 60 }, LAST) > 660);
});

test('a difference at the oldest common step asks the whole range again', () => {
  const times = { start: 660, from: 1080 };
  const row = (values, host) => ({ metric: { host, __name__: 'load' }, values });
  const part = (values, host = 'a') => ({ resultType: 'matrix', result: [row(values, host)] });
  const same = [[1080, '18'], [1140, 'late'], [1200, '20'], [1260, '21']];
  assert.deepEqual(joinSteps(LAST, part(same), times).result[0].values.slice(-4), same);
  assert.equal(joinSteps(LAST, part([[1080, '17'], ...same.slice(1)]), times), null, 'another value');
  assert.equal(joinSteps(LAST, part(same.slice(1)), times), null, 'no value');
  const both = { resultType: 'matrix', result: [...part(same).result, ...part(same, 'b').result] };
  assert.equal(joinSteps(LAST, both, times), null, 'a series that had none');
});

test('series leave with their last point, and histograms are joined like values', () => {
  const gone = known(STEPS, answerOf(new Map([['a', new Map([[600, '1']])]]), STEPS));
  const times = { start: 660, from: 1080 };
  assert.deepEqual(joinSteps(gone, { resultType: 'matrix', result: [] }, times).result, []);
  const count = (at) => [at, { count: String(at), sum: '1' }];
  const histograms = known(STEPS, {
    resultType: 'matrix', result: [{ metric: {}, histograms: [600, 660, 1080, 1140].map(count) }],
  });
  const part = { resultType: 'matrix', result: [{ metric: {}, histograms: [1080, 1140, 1260].map(count) }] };
  assert.deepEqual(joinSteps(histograms, part, times).result[0].histograms, [660, 1080, 1140, 1260].map(count));
});
