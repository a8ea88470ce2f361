// Points of a live query in the responses of a chart.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { columns } from '../../src/ui/assets/chart/columns.js';
import { liveStep } from '../../src/ui/assets/chart/follower.js';
import { LivePoints } from '../../src/ui/assets/chart/live_points.js';

/** Numbers from 0 to 1, the same for the same seed. */
function random(seed) {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 4_294_967_296;
    return state / 4_294_967_296;
  };
}

/** The responses of a chart of five steps of 10 s, which end at 1040. */
function responses(values = { a: [1000, 1010, 1020, 1030, 1040], b: [1030, 1040] }) {
  const result = Object.entries(values).map(([job, times]) => ({
    metric: { job },
    values: times.map((time) => [time, String(time)]),
  }));
  const grid = { start: 1000, end: 1040, step: 10, tail: 1043 };
  return {
    answer: { data: { resultType: 'matrix', result }, query: { start: 1000, end: 1040, step: 10 } },
    tail: { time: 1043, matrix: [] },
    query: { grid },
  };
}
const row = (job, time, value = String(time)) => ({ metric: { job }, values: [[time, value]] });
const times = (to, job) => to.answer.data.result.find(({ metric }) => metric.job === job)?.values.map(([time]) => time);

test('the window moves on with each step, and series without points in it leave', () => {
  const to = responses();
  const points = new LivePoints(to);
  points.append(1050, [row('a', 1050)]);
  assert.deepEqual(times(to, 'a'), [1010, 1020, 1030, 1040, 1050]);
  assert.deepEqual(times(to, 'b'), [1030, 1040]);
  assert.deepEqual([to.query.grid.start, to.query.grid.end], [1010, 1050]);
  assert.deepEqual([to.answer.query.start, to.answer.query.end], [1010, 1050]);
  assert.equal(to.tail, null);
  for (const time of [1060, 1070, 1080, 1090]) points.append(time, [row('a', time), row('c', time)]);
  assert.equal(times(to, 'b'), undefined);
  assert.deepEqual(times(to, 'c'), [1060, 1070, 1080, 1090]);
  const drawn = columns(to.answer.data.result, to.query.grid, null, to.tail);
  assert.deepEqual([...drawn.times], [1050, 1060, 1070, 1080, 1090]);
});

test('points between the steps are the tail, and never an older one', () => {
  const to = responses();
  const points = new LivePoints(to);
  points.append(1045, [row('a', 1045)]);
  assert.deepEqual(to.tail, { time: 1045, matrix: [row('a', 1045)] });
  points.append(1042, [row('a', 1042)]);
  assert.equal(to.tail.time, 1045);
  points.append(1050, [row('a', 1050)]);
  assert.equal(to.tail, null);
});

test('a point that comes twice replaces the first', () => {
  const to = responses();
  const points = new LivePoints(to);
  points.append(1040, [row('a', 1040, 'new')]);
  points.append(1030, [row('b', 1030, 'new')]);
  assert.deepEqual(to.answer.data.result[0].values.at(-1), [1040, 'new']);
  assert.deepEqual(to.answer.data.result[1].values, [[1030, 'new'], [1040, '1040']]);
  assert.deepEqual([to.query.grid.start, to.query.grid.end], [1000, 1040]);
});

test('points in any order, twice and with gaps give the points that a query of the window gives', () => {
  for (let seed = 1; seed <= 200; seed += 1) {
    const next = random(seed);
    const to = responses({ a: [1000, 1010, 1020, 1030, 1040] });
    const points = new LivePoints(to);
    const sent = Array.from({ length: 12 }, (_, at) => 1050 + at * 10);
    // A stream that resumes sends some steps again; a query of a gap comes late.
    const order = sent.flatMap((time, at) => (next() < 0.3 ? sent.slice(Math.max(0, at - 2), at + 1) : [time]));
    for (const time of order) points.append(time, [row('a', time)]);
    const missing = sent.filter(() => next() < 0.5);
    points.insert([{ metric: { job: 'a' }, values: missing.map((time) => [time, String(time)]) }]);
    assert.deepEqual(times(to, 'a'), sent.slice(-5), `seed ${seed}`);
  }
});

test('points of no time, and those before the window, change nothing', () => {
  const to = responses();
  const before = structuredClone(to);
  const points = new LivePoints(to);
  for (const time of [NaN, undefined, -1, 990]) points.append(time, [row('a', time)]);
  assert.deepEqual(to, before);
});

test('series that come and go do not fill the memory', () => {
  const to = responses();
  const points = new LivePoints(to);
  for (let at = 0; at < 20; at += 1) {
    points.append(1050, Array.from({ length: 500 }, (_, index) => row(`${at} ${index}`, 1050)));
  }
  assert.ok(to.answer.data.result.length <= 2000);
});

test('a live step meets all steps of the grid, and is never below a second', () => {
  for (const step of [1, 2, 10, 15, 20, 30, 60, 300, 3600, 7200, 86_400]) {
    const live = liveStep(step);
    assert.ok(live !== null && live >= 1 && live <= 3600 && step % live === 0, `${step}: ${live}`);
  }
  for (const step of [0, 0.5, 1.5, -15, NaN, Infinity, 3601]) assert.equal(liveStep(step), null, String(step));
});
