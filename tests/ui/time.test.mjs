// Times, time zones and intervals of dashboards.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  applyPanelTime, dateText, durationMs, durationText, intervalFor, parseTime, resolveRange, roundInterval, wallTime,
  weekStartOf,
} from '../../src/ui/assets/model/time.js';
import { zoned } from '../../src/ui/assets/model/time_zone.js';

/** A Thursday. */
const NOW = Date.UTC(2026, 10, 26, 10, 43, 21, 987);
const HOUR = 3_600_000;
const UTC = { now: NOW, timeZone: 'utc' };

/** @param {string} text @param {object} [options] */
function at(text, options = {}) {
  const time = parseTime(text, { ...UTC, ...options });
  return time === null ? null : new Date(time).toISOString();
}

test('relative_times_count_from_now', () => {
  assert.equal(at('now'), '2026-11-26T10:43:21.987Z');
  assert.equal(at('now-6h'), '2026-11-26T04:43:21.987Z');
  assert.equal(at('now+90s'), '2026-11-26T10:44:51.987Z');
  assert.equal(at('now-h'), '2026-11-26T09:43:21.987Z');
  assert.equal(at('now-1d-2h'), '2026-11-25T08:43:21.987Z');
  assert.equal(at(' now - 5m '), '2026-11-26T10:38:21.987Z');
});

test('rounding_goes_down_for_from_and_to_the_last_millisecond_for_to', () => {
  assert.equal(at('now/d'), '2026-11-26T00:00:00.000Z');
  assert.equal(at('now/d', { roundUp: true }), '2026-11-26T23:59:59.999Z');
  assert.equal(at('now-1d/d'), '2026-11-25T00:00:00.000Z');
  assert.equal(at('now-1d/d', { roundUp: true }), '2026-11-25T23:59:59.999Z');
  assert.equal(at('now/h'), '2026-11-26T10:00:00.000Z');
  assert.equal(at('now/m', { roundUp: true }), '2026-11-26T10:43:59.999Z');
  assert.equal(at('now/s'), '2026-11-26T10:43:21.000Z');
  assert.equal(at('now/M'), '2026-11-01T00:00:00.000Z');
  assert.equal(at('now/M', { roundUp: true }), '2026-11-30T23:59:59.999Z');
  assert.equal(at('now/Q'), '2026-10-01T00:00:00.000Z');
  assert.equal(at('now/fQ', { roundUp: true }), '2026-12-31T23:59:59.999Z');
  assert.equal(at('now/y'), '2026-01-01T00:00:00.000Z');
  assert.equal(at('now/fy', { roundUp: true }), '2026-12-31T23:59:59.999Z');
  assert.equal(at('now-1M/M', { roundUp: true }), '2026-10-31T23:59:59.999Z');
});

test('a_week_starts_on_sunday_unless_the_dashboard_says_otherwise', () => {
  assert.equal(at('now/w'), '2026-11-22T00:00:00.000Z');
  assert.equal(at('now/w', { roundUp: true }), '2026-11-28T23:59:59.999Z');
  assert.equal(at('now/w', { weekStart: weekStartOf('monday') }), '2026-11-23T00:00:00.000Z');
  assert.equal(at('now/w', { weekStart: weekStartOf('saturday') }), '2026-11-21T00:00:00.000Z');
  assert.equal(weekStartOf('browser'), 0);
});

test('months_keep_the_day_or_take_the_last_one', () => {
  const now = Date.UTC(2028, 2, 31, 12);
  assert.equal(at('now-1M', { now }), '2028-02-29T12:00:00.000Z');
  assert.equal(at('now+1M', { now }), '2028-04-30T12:00:00.000Z');
  assert.equal(at('now-3M', { now }), '2027-12-31T12:00:00.000Z');
  assert.equal(at('now-1y', { now: Date.UTC(2028, 1, 29) }), '2027-02-28T00:00:00.000Z');
});

test('days_follow_the_calendar_of_the_time_zone', () => {
  // Berlin ends daylight saving time on 25 October 2026 at 01:00 UTC.
  const berlin = { timeZone: 'Europe/Berlin', now: Date.UTC(2026, 9, 25, 11) };
  assert.equal(at('now/d', berlin), '2026-10-24T22:00:00.000Z');
  assert.equal(at('now/d', { ...berlin, roundUp: true }), '2026-10-25T22:59:59.999Z');
  assert.equal(at('now-1d', berlin), '2026-10-24T10:00:00.000Z');
  assert.equal(at('now-24h', berlin), '2026-10-24T11:00:00.000Z');
  const kolkata = { timeZone: 'Asia/Kolkata' };
  assert.equal(at('now/d', kolkata), '2026-11-25T18:30:00.000Z');
  assert.equal(at('now/h', kolkata), '2026-11-26T10:30:00.000Z');
  assert.equal(at('now/d', { timeZone: 'No/Where' }), '2026-11-26T00:00:00.000Z');
});

test('both_equal_hours_at_the_end_of_daylight_saving_time_round_to_themselves', () => {
  for (const hour of [0, 1]) {
    const now = Date.UTC(2026, 9, 25, hour, 30);
    assert.equal(at('now/h', { timeZone: 'Europe/Berlin', now }), new Date(Date.UTC(2026, 9, 25, hour)).toISOString());
  }
});

test('absolute_times_are_iso_8601_or_epoch_milliseconds', () => {
  assert.equal(at('2026-11-26T10:00:00.000Z'), '2026-11-26T10:00:00.000Z');
  assert.equal(at('2026-11-26T10:00:00+02:00'), '2026-11-26T08:00:00.000Z');
  assert.equal(at('2026-11-26T10:00:00.5-0330'), '2026-11-26T13:30:00.500Z');
  assert.equal(at('2026-11-26 10:00'), '2026-11-26T10:00:00.000Z');
  assert.equal(at('2026-11-26 10:00', { timeZone: 'America/New_York' }), '2026-11-26T15:00:00.000Z');
  assert.equal(at('2026-11-26'), '2026-11-26T00:00:00.000Z');
  assert.equal(at('20261126T100000'), '2026-11-26T10:00:00.000Z');
  assert.equal(at('1700000000000'), '2023-11-14T22:13:20.000Z');
  assert.equal(parseTime(1700000000000.5), 1700000000000);
  assert.equal(at('2026-11-26T10:00:00Z||-1d/d'), '2026-11-25T00:00:00.000Z');
});

test('text_that_is_no_time_is_null', () => {
  for (const text of ['', 'nowhere', 'now-', 'now-1x', 'now/2d', 'now-1d/', '2026-02-30', '2026-13-01',
    '2026-01-01 25:00',
    'yesterday', '1', `now${'-1d'.repeat(100)}`, 'now-99999999999d', 'now-999999999y', '1e400']) {
    assert.equal(parseTime(text, UTC), null, text);
  }
  for (const value of [null, undefined, {}, [], NaN, Infinity, 1e300]) assert.equal(parseTime(value, UTC), null);
});

test('every_hour_of_two_years_survives_the_way_through_the_wall_clock', () => {
  for (const timeZone of ['Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe', 'Asia/Kathmandu', 'utc']) {
    let equalHours = 0;
    for (let time = Date.UTC(2025, 0, 1); time < Date.UTC(2027, 0, 1); time += HOUR) {
      const back = zoned(wallTime(time, timeZone), timeZone);
      if (back !== time) equalHours += 1;
      assert.ok(time - back === 0 || time - back === HOUR || time - back === HOUR / 2, `${timeZone} ${time}`);
    }
    // The second one of two equal hours comes back as the first, once a year.
    assert.ok(equalHours <= 2, `${timeZone}: ${equalHours}`);
  }
});

test('a_time_that_daylight_saving_skips_counts_as_one_hour_later', () => {
  const wall = { year: 2026, month: 3, day: 29, hour: 2, minute: 30, second: 0, ms: 0 };
  assert.equal(new Date(zoned(wall, 'Europe/Berlin')).toISOString(), '2026-03-29T01:30:00.000Z');
});

test('each_day_may_start_the_week', () => {
  const names = ['sunday', 'monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday'];
  names.forEach((name, day) => assert.equal(weekStartOf(name), day));
});

test('the_browser_zone_is_that_of_the_system', () => {
  for (const month of [0, 6]) {
    const date = new Date(2026, month, 15, 13, 14, 15);
    assert.equal(wallTime(date.getTime(), 'browser').hour, 13);
    assert.equal(parseTime(`2026-${month === 0 ? '01' : '07'}-15 13:14:15`, {}), date.getTime());
  }
});

test('a_range_falls_back_to_six_hours_and_orders_its_ends', () => {
  assert.deepEqual(resolveRange({ from: 'now-1h', to: 'now' }, UTC),
    { from: NOW - HOUR, to: NOW, raw: { from: 'now-1h', to: 'now' } });
  for (const raw of [null, undefined, {}, { from: 'x', to: 'now' }, { from: [], to: {} }]) {
    const range = resolveRange(/** @type {any} */ (raw), UTC);
    assert.equal(range.to - range.from, 6 * HOUR);
  }
  const swapped = resolveRange({ from: 'now', to: 'now-1h' }, UTC);
  assert.ok(swapped.from < swapped.to);
});

test('durations_are_read_and_written_in_promql', () => {
  assert.equal(durationMs('1h30m'), 5_400_000);
  assert.equal(durationMs('>10s'), 10_000);
  assert.equal(durationMs('500ms'), 500);
  assert.equal(durationMs('15'), 15_000);
  assert.equal(durationMs('1M'), 30 * 24 * HOUR);
  assert.equal(durationMs('1y1w1d'), (365 + 7 + 1) * 24 * HOUR);
  assert.equal(durationText(5_400_000), '1h30m');
  assert.equal(durationText(90_061_001), '1d1h1m1s1ms');
  assert.equal(durationText(0), '1ms');
  for (const text of ['', '0', '-5s', '5x', 's', '$__interval', null, {}, `${'1d'.repeat(500)}`]) {
    assert.equal(durationMs(text), null, String(text));
  }
  for (let ms = 1; ms < 1e12; ms = ms * 3 + 1) assert.equal(durationMs(durationText(ms)), ms);
});

test('intervals_are_rounded_as_in_grafana', () => {
  const expected = [[1, 1], [9.9, 1], [10, 10], [34, 20], [1499, 1000], [1500, 2000], [7499, 5000], [12_500, 15_000],
    [45_000, 60_000], [90_000, 120_000], [2_700_000, 3_600_000], [9_000_000, 10_800_000], [32_400_000, 43_200_000],
    [86_400_000, 86_400_000], [604_800_000, 604_800_000], [1_814_400_000, 2_592_000_000],
    [3_628_800_000, 31_536_000_000]];
  for (const [raw, rounded] of expected) assert.equal(roundInterval(raw), rounded, String(raw));
});

test('the_interval_of_a_query_depends_on_range_points_and_least_step', () => {
  const day = { from: 0, to: 24 * HOUR };
  assert.deepEqual(intervalFor({ ...day, maxDataPoints: 1000 }),
    { interval: '1m', intervalMs: 60_000, rateInterval: '1m15s', rateIntervalMs: 75_000 });
  assert.deepEqual(intervalFor({ from: 0, to: HOUR, maxDataPoints: 1000, scrapeInterval: '15s' }),
    { interval: '15s', intervalMs: 15_000, rateInterval: '1m', rateIntervalMs: 60_000 });
  assert.equal(intervalFor({ ...day, minInterval: '5m' }).interval, '5m');
  assert.equal(intervalFor({ ...day, minInterval: '5m' }).rateInterval, '20m');
  assert.equal(intervalFor({ ...day, minInterval: '$x', scrapeInterval: 30_000 }).rateInterval, '2m');
  assert.equal(intervalFor({ ...day, intervalFactor: 2 }).interval, '2m');
});

test('no_interval_gives_more_than_11000_points', () => {
  for (let hours = 1; hours < 100_000; hours = hours * 2 + 1) {
    const { intervalMs } = intervalFor({ from: 0, to: hours * HOUR, maxDataPoints: 1e6, minInterval: '1s' });
    assert.ok(hours * HOUR / intervalMs <= 11_000, `${hours} h in steps of ${intervalMs} ms`);
  }
});

test('a_panel_may_have_a_range_of_its_own', () => {
  const range = resolveRange({ from: 'now-24h', to: 'now' }, UTC);
  const own = applyPanelTime(range, { timeFrom: '1h' }, UTC);
  assert.deepEqual([own.from, own.to, own.info], [NOW - HOUR, NOW, 'last 1h']);
  const today = applyPanelTime(range, { timeFrom: 'now/d' }, UTC);
  assert.deepEqual([today.from, today.to], [Date.UTC(2026, 10, 26), Date.UTC(2026, 10, 27) - 1]);
  const shifted = applyPanelTime(range, { timeFrom: '1h', timeShift: '1d' }, UTC);
  assert.deepEqual([shifted.from, shifted.to], [NOW - 25 * HOUR, NOW - 24 * HOUR]);
  assert.equal(shifted.info, 'last 1h, time shift -1d');
  assert.equal(applyPanelTime(range, { timeShift: '1d', hideTimeOverride: true }, UTC).info, '');
});

test('an_absolute_range_ignores_timeFrom_and_keeps_timeShift', () => {
  const range = resolveRange({ from: '2026-11-01', to: '2026-11-02' }, UTC);
  const own = applyPanelTime(range, { timeFrom: '1h', timeShift: '1h' }, UTC);
  assert.deepEqual([own.from, own.to], [range.from - HOUR, range.to - HOUR]);
  assert.equal(own.info, 'time shift -1h');
});

test('an_invalid_panel_time_leaves_the_range_and_says_so', () => {
  const range = resolveRange({ from: 'now-24h', to: 'now' }, UTC);
  const own = applyPanelTime(range, { timeFrom: 'soon', timeShift: 'x' }, UTC);
  assert.deepEqual([own.from, own.to, own.info], [range.from, range.to, 'invalid time soon, invalid time shift x']);
});

test('dates_are_written_in_the_pattern_and_time_zone', () => {
  const time = Date.UTC(2026, 10, 3, 13, 5, 9, 7);
  assert.equal(dateText(time), '2026-11-03T13:05:09.007Z');
  assert.equal(dateText(time, 'seconds'), '1793711109');
  assert.equal(dateText(time, 'YYYY-MM-DD HH:mm:ss.SSS', 'utc'), '2026-11-03 13:05:09.007');
  assert.equal(dateText(time, 'ddd D. MMMM YY, h:mm A Z', 'Asia/Kolkata'), 'Tue 3. November 26, 6:35 PM +05:30');
  assert.equal(dateText(time, '[Day] Do DDDD', 'utc'), 'Day 3rd 0303');
  assert.equal(dateText(time, 'ZZ x X', 'America/New_York'), '-0500 1793711109007 1793711109');
  assert.equal(dateText(NaN), '');
  const names = Array.from({ length: 12 }, (unused, month) => dateText(Date.UTC(1999, month, 1), 'MMM MMMM', 'utc'));
  assert.equal(names.join(), Array.from({ length: 12 }, (unused, month) => ['short', 'long'].map((style) => (
    new Intl.DateTimeFormat('en-US',
      { month: /** @type {'short'} */ (style), timeZone: 'UTC' }).format(Date.UTC(1999, month, 1))))
    .join(' ')).join());
  assert.equal(dateText(Date.UTC(1999, 0, 1), 'YY Q E ddd', 'utc'), '99 1 5 Fri');
});
