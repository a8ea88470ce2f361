// The backfill of a recording rule: its range, its estimate, and its requests.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ApiError } from '../../src/ui/assets/chart/api_error.js';
import {
  backfillGrid, backfillRanges, changedRecordingRules, estimatedSamples, finishedPart, runBackfill, sampledGrid, skipped, stepsOf, withoutTime,
} from '../../src/ui/assets/model/backfill.js';
import { rulesOf } from '../../src/ui/assets/model/rule_text.js';

const DAY = 86_400;

test('the last 7 days are proposed, or the retention if it is shorter', () => {
  const proposal = (days) => {
    const { ranges, proposed } = backfillRanges(days);
    assert.ok(ranges.some(({ seconds }) => seconds === proposed), `${days}: the proposed range is one of the choices`);
    assert.deepEqual(ranges.map(({ seconds }) => seconds), ranges.map(({ seconds }) => seconds).sort((a, b) => a - b));
    return [proposed / DAY, ranges.at(-1).text];
  };
  assert.deepEqual(proposal(null), [7, 'Last 90 days']);
  assert.deepEqual(proposal(400), [7, 'The retention, 400 days']);
  assert.deepEqual(proposal(30), [7, 'The retention, 30 days']);
  assert.deepEqual(proposal(7), [7, 'The retention, 7 days']);
  assert.deepEqual(proposal(3), [3, 'The retention, 3 days']);
  assert.deepEqual(proposal(1), [1, 'The retention, 1 day']);
});

test('the steps are the multiples of the interval within the range', () => {
  assert.deepEqual(backfillGrid(61, 299, 60), { start: 120, end: 240, step: 60 });
  assert.deepEqual(backfillGrid(60, 300, 60), { start: 60, end: 300, step: 60 });
  assert.equal(backfillGrid(61, 119, 60), null);
  assert.equal(stepsOf(backfillGrid(0, 7 * DAY, 60)), 10_081);
  assert.equal(stepsOf(backfillGrid(0, 1, 0.1)), 11);
});

test('a preview of a part of the steps estimates the samples', () => {
  const grid = backfillGrid(0, 6000, 60);
  const sampled = sampledGrid(grid);
  assert.deepEqual(sampled, { start: 0, end: 6000, step: 120 });
  // One series at all steps, one at half of them.
  const series = [51, 25].map((count) => ({ values: Array.from({ length: count }, (_, at) => [at, '1']) }));
  assert.equal(estimatedSamples(grid, series), Math.round(76 * 101 / 51));
  assert.equal(estimatedSamples(grid, []), 0);
  const week = backfillGrid(0, 7 * DAY - 60, 60);
  const always = Array.from({ length: stepsOf(sampledGrid(week)) }, (_, at) => [at, '1']);
  assert.equal(estimatedSamples(week, [{ values: always }]), 10_080, 'the last steps of the range are fewer');
  const few = backfillGrid(0, 600, 60);
  assert.deepEqual(sampledGrid(few), few);
  assert.deepEqual(sampledGrid(backfillGrid(0, 0, 60)), { start: 0, end: 0, step: 60 });
});

const GRID = { start: 0, end: 900, step: 10 };

/** Writes at most 30 steps of a request; the step at `fails` fails. */
function server(fails = Infinity) {
  const asked = [];
  const write = async (start) => {
    asked.push(start);
    if (start === fails)
      throw new ApiError({ status: 422, detail: '1970-01-01T00:05:00Z: no', body: { at: new Date(fails * 1000).toISOString() } });
    const end = Math.min(start + 300, GRID.end + 10, start < fails ? fails : Infinity);
    return { stored: (end - start) / 10, refused: 1, next: end > GRID.end ? null : end };
  };
  return { asked, write };
}

test('requests follow one another until there is no next one', async () => {
  const { asked, write } = server();
  const parts = [];
  const { signal } = new AbortController();
  const outcome = await runBackfill(GRID, write, { signal, progress: ({ next }) => parts.push(finishedPart(GRID, next)) });
  assert.deepEqual(outcome, { stored: 91, refused: 4, next: null, error: null, at: null });
  assert.deepEqual(asked, [0, 300, 600, 900]);
  assert.deepEqual(parts.map((part) => Math.round(part * 100)), [33, 66, 99, 100]);
});

test('a step that fails is named, and the backfill continues from it or behind it', async () => {
  const { asked, write } = server(310);
  const options = { signal: new AbortController().signal, progress: () => {} };
  const outcome = await runBackfill(GRID, write, options);
  assert.deepEqual([outcome.stored, outcome.next, outcome.at], [31, 310, 310]);
  assert.equal(withoutTime(outcome.error.message), 'no');
  const again = await runBackfill(GRID, write, { ...options, from: outcome });
  assert.deepEqual([again.stored, again.next, again.at], [31, 310, 310]);
  const behind = await runBackfill(GRID, write, { ...options, from: skipped(GRID, outcome) });
  assert.deepEqual([behind.stored, behind.next, behind.error], [90, null, null]);
  assert.deepEqual(asked, [0, 300, 310, 310, 320, 620]);
  assert.equal(skipped(GRID, { ...outcome, at: 900 }).next, null);
});

test('an error without a time continues from the last request', async () => {
  const write = async () => {
    throw new TypeError('no connection');
  };
  const outcome = await runBackfill(GRID, write, { signal: new AbortController().signal, progress: () => {} });
  assert.deepEqual([outcome.stored, outcome.next, outcome.at, outcome.error.message], [0, 0, null, 'no connection']);
});

test('an aborted backfill sends no further request and has no error', async () => {
  const { asked, write } = server();
  const stop = new AbortController();
  const outcome = await runBackfill(GRID, write, { signal: stop.signal, progress: () => stop.abort() });
  assert.deepEqual(asked, [0]);
  assert.deepEqual([outcome.stored, outcome.next, outcome.error], [30, 300, null]);
  const during = new AbortController();
  const rejects = async () => {
    during.abort();
    throw new DOMException('stopped', 'AbortError');
  };
  const stopped = await runBackfill(GRID, rejects, { signal: during.signal, progress: () => {} });
  assert.deepEqual([stopped.next, stopped.error], [0, null]);
});

test('a server without progress does not make an endless loop', async () => {
  const write = async (start) => ({ stored: 1, refused: 0, next: start });
  const outcome = await runBackfill(GRID, write, { signal: new AbortController().signal, progress: () => {} });
  assert.match(outcome.error.message, /no progress/);
});

test('new and changed recording rules of a saved group are offered, and no others', () => {
  const before = 'name: a\nrules:\n  - record: one\n    expr: up\n  - record: two\n    expr: up\n';
  const after = `${before.replace('two\n    expr: up', 'two\n    expr: up * 2')}  - alert: three\n    expr: up\n  - record: four\n    expr: up\n`;
  const changed = (yaml, old) => changedRecordingRules(rulesOf(yaml), rulesOf(old)).map(({ name }) => name);
  assert.deepEqual(changed(after, before), ['two', 'four']);
  assert.deepEqual(changed(before, before), []);
  assert.deepEqual(changed(before, ''), ['one', 'two']);
});
