// Times on plots in the zone of a dashboard, and the time that its plots share.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatMoment, timeTicks } from '../../src/ui/assets/chart/scale.js';
import { Sync } from '../../src/ui/assets/plot/sync.js';

const at = (text) => Date.parse(text) / 1000;

test('a moment has the clock of the zone; an unknown zone counts as UTC', () => {
  const noon = at('2026-07-01T12:00:00Z');
  assert.match(formatMoment(noon, 'utc'), /12:00:00/);
  assert.match(formatMoment(noon, 'Asia/Kolkata'), /17:30:00/);
  assert.match(formatMoment(noon, 'America/St_Johns'), /09:30:00/);
  assert.equal(formatMoment(noon, 'No/Such_Zone'), formatMoment(noon, 'UTC'));
  assert.equal(formatMoment(noon, 'browser'), formatMoment(noon));
});

test('ticks are round on the clock of the zone, and days begin at its midnight', () => {
  const ticks = timeTicks(at('2026-07-01T10:00:00Z'), at('2026-07-02T10:00:00Z'), 8, 'Asia/Kolkata');
  const texts = ticks.map(({ text }) => text);
  assert.ok(texts.includes('18:00') && texts.includes('Jul 2'), texts.join());
  assert.equal(ticks.find(({ major }) => major)?.at, at('2026-07-01T18:30:00Z'));
  const utc = timeTicks(at('2026-07-01T10:00:00Z'), at('2026-07-02T10:00:00Z'), 8, 'utc');
  assert.equal(utc.find(({ major }) => major)?.at, at('2026-07-02T00:00:00Z'));
});

test('ticks stay on the clock where summer time begins and ends, also with steps of months', () => {
  const zone = 'Europe/Berlin';
  for (const [from, to] of [['2026-03-28T00:00Z', '2026-03-31T00:00Z'], ['2026-10-24T00:00Z', '2026-10-27T00:00Z']]) {
    const texts = timeTicks(at(from), at(to), 12, zone).map(({ text }) => text);
    assert.ok(texts.length > 6, texts.join());
    for (const text of texts) assert.match(text, /^(?:\d\d:00|\w{3} \d+)$/);
  }
  const months = timeTicks(at('2026-01-10T00:00Z'), at('2026-12-20T00:00Z'), 12, zone);
  assert.deepEqual(months.slice(0, 2).map((tick) => tick.at), [at('2026-01-31T23:00Z'), at('2026-02-28T23:00Z')]);
  assert.equal(months.find(({ text }) => text === 'Jul 2026')?.at, at('2026-06-30T22:00Z'));
});

/** Runs it with frames of the browser that come when `tick` is called. */
function withFrames(run) {
  const frames = new Map();
  let next = 1;
  globalThis.requestAnimationFrame = (callback) => frames.set(next, callback) && next++;
  globalThis.cancelAnimationFrame = (id) => frames.delete(id);
  const tick = () => {
    const all = [...frames.values()];
    frames.clear();
    all.forEach((callback) => callback(0));
  };
  try {
    run(tick);
  } finally {
    delete globalThis.requestAnimationFrame;
    delete globalThis.cancelAnimationFrame;
  }
}

test('plots share nothing, the crosshair, or the tooltip too, as the dashboard says', () => {
  withFrames((tick) => {
    for (const [mode, expected] of [[0, []], [1, [[5, false], [null, false]]], [2, [[5, true], [null, true]]]]) {
      const sync = new Sync(() => mode);
      const [told, own] = [[], []];
      const source = (...what) => own.push(what);
      sync.follow(source);
      sync.follow((...what) => told.push(what));
      sync.move(4, source);
      sync.move(5, source);
      tick();
      sync.move(null, source);
      tick();
      sync.move(null, source);
      tick();
      assert.deepEqual(told, expected, `mode ${mode}`);
      assert.deepEqual(own, [], 'the plot under the pointer is not told');
    }
  });
});

test('a crosshair that was shared leaves when the pointer leaves at once, or the dashboard changes', () => {
  withFrames((tick) => {
    let mode = 1;
    const sync = new Sync(() => mode);
    const told = [];
    sync.follow((time) => told.push(time));
    sync.move(5, () => {});
    sync.move(null, () => {});
    tick();
    assert.deepEqual(told, [null]);
    sync.move(6, () => {});
    tick();
    mode = 0;
    sync.move(7, () => {});
    tick();
    assert.deepEqual(told, [null, 6, null]);
  });
});

const ZONES = [undefined, 'UTC', 'Asia/Kolkata', 'America/New_York', 'America/St_Johns', 'Australia/Lord_Howe'];
/** @type {Intl.DateTimeFormatOptions} */
const CLOCK = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' };

test('moments have the texts of Intl', () => {
  for (const timeZone of ZONES) {
    const day = /** @type {const} */ ({ weekday: 'short', month: 'short', day: 'numeric' });
    const intl = new Intl.DateTimeFormat('en', { timeZone, ...day, ...CLOCK, second: '2-digit' });
    // Browsers round the offset of their own zone to minutes; before 1938 some zones had seconds.
    for (let at = timeZone ? -3e9 : -1e9; at < 4e9; at += 12_345_678) {
      assert.equal(formatMoment(at, timeZone), intl.format(at * 1000), `${at} in ${timeZone}`);
    }
  }
  assert.throws(() => formatMoment(NaN), RangeError);
  assert.throws(() => formatMoment(1e15, 'Asia/Kolkata'), RangeError);
});

test('ticks have the texts of Intl', () => {
  const date = /** @type {const} */ ({ month: 'short', day: 'numeric' });
  const month = /** @type {const} */ ({ month: 'short', year: 'numeric' });
  for (const timeZone of ZONES) {
    const all = [date, month, CLOCK, { ...CLOCK, second: /** @type {const} */ ('2-digit') }];
    const formats = all.map((options) => new Intl.DateTimeFormat('en', { timeZone, ...options }));
    const [dates, months, minutes, seconds] = formats;
    let known = 0;
    for (const range of [60, 3600, 86_400, 5 * 86_400, 90 * 86_400, 900 * 86_400]) {
      for (let start = 1.7e9; start < 1.8e9; start += 7_654_321) {
        for (const { at, text, major } of timeTicks(start, start + range, 8, timeZone)) {
          const expected = major ? [dates] : range < 400 ? [seconds] : [minutes, dates, months];
          assert.ok(expected.some((format) => format.format(at * 1000) === text), `${text} at ${at} in ${timeZone}`);
          known += 1;
        }
      }
    }
    assert.ok(known > 300, `${known}`);
  }
});
