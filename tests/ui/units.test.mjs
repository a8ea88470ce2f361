// Values have the text that Grafana gives them, and ticks are round in the unit of an axis.

import assert from 'node:assert/strict';
import test from 'node:test';
import { automaticDecimals, display, formatUnit, unitTicks } from '../../src/ui/assets/model/units.js';
import { formatOf } from '../../src/ui/assets/model/units/catalogue.js';
import { units } from '../../src/ui/assets/model/units/names.js';

process.env.TZ = 'America/New_York';

/** 2024-03-05 13:04:09.007 in UTC, a Tuesday. */
const DAY = Date.UTC(2024, 2, 5, 13, 4, 9, 7);
const UTC = { timeZone: 'utc', languages: ['en-US'] };

/**
 * Fails unless each value has its text.
 * @param {[number|null|undefined, string, string, (number|null)?, object?][]} rows
 */
function texts(rows) {
  for (const [value, unit, text, decimals, options] of rows) {
    assert.equal(display(value, unit, decimals, options), text, `${value} in ${unit}, decimals ${decimals}`);
  }
}

test('numbers without configured decimals have three significant digits', () => {
  texts([
    [0, 'none', '0'], [-0, 'none', '0'], [3, '', '3'], [1.5, 'none', '1.50'], [12.345, 'none', '12.3'],
    [1234.5, 'none', '1235'], [0.000123456, 'none', '0.000123'], [-0.5, 'none', '-0.500'], [1e-9, 'none', '1e-9'],
    [1e21, 'none', '1e+21'], [0.1 + 0.2, 'none', '0.300'],
  ]);
  assert.deepEqual([7, 1.5, 0.05, 123.4, -0.5].map(automaticDecimals), [0, 2, 4, 0, 3]);
});

test('configured decimals are kept, also when they are zeros', () => {
  texts([
    [1, 'none', '1.00', 2], [1.005, 'none', '1.00', 2], [1.5, 'none', '2', 0], [-1.5, 'none', '-1', 0],
    [0, 'none', '0.000', 3],
    [2.5, 'percent', '2.5000%', 4], [0.123, 'percentunit', '12.3%', 1], [1.5, 'none', '2', -1],
  ]);
});

test('no decimals in a dashboard are an error', () => {
  for (const decimals of [-5, 101, 1e9, 1.5, NaN]) {
    for (const value of [0, 1.5, 1e300]) {
      for (const { units: rows } of units()) for (const { id } of rows) display(value, id, decimals, UTC);
    }
  }
});

test('units of data scale by 1024 or 1000, from the unit in which they are measured', () => {
  texts([
    [0, 'bytes', '0 B'], [1023, 'bytes', '1023 B'], [1536, 'bytes', '1.50 KiB'], [-(2 ** 30), 'bytes', '-1 GiB'],
    [1.5, 'mbytes', '1.50 MiB'], [0.5, 'kbytes', '512 B'], [2 ** 95, 'bytes', '32768 YiB'],
    [1500, 'decbytes', '1.50 kB'],
    [1e6, 'Bps', '1 MB/s'], [0.001, 'bps', '1 mb/s'], [2048, 'KiBs', '2 MiB/s'], [1e-20, 'watt', '0.0000100 fW'],
    [1234567, 'short', '1.23 Mil'], [999.9, 'short', '1000'], [1e30, 'short', '1000000 Sept'],
    [1500, 'pressurepsi', '1.50ksi'],
    [12, 'celsius', '12 °C'], [55.5, 'dBm', '55.5 dBm'], [2, 'mwatt', '2 mW'],
  ]);
});

test('counts and money scale by thousands', () => {
  texts([
    [12, 'reqps', '12 req/s'], [15000, 'ops', '15K ops/s'], [2.5e9, 'iops', '2.50B io/s'],
    [1500, 'count:cats', '1.50K cats'],
    [-1234.5, 'currencyUSD', '-$1.23K'], [5, 'currencyEUR', '€5'], [-5, 'currencySEK', '-5kr'],
    [2e6, 'currency:₿', '₿2M'],
  ]);
});

test('units with a parameter and unknown units show their symbol', () => {
  texts([
    [5, 'widgets', '5 widgets'], [5, 'suffix:x', '5 x'], [5, 'prefix:x', 'x5'], [5, 'si:m', '5 m'],
    [1500, 'si:MHz', '1.50 GHz'],
    [5, 'si:µF', '5 µF'], [5, 'si:μF', '5 µF'], [5, 'si:zz', '5 zz'], [1, 'bool:up/down', 'up'],
    [0, 'bool:up/down', 'down'],
    [0, 'bool:up', '-'], [1, 'bool_yes_no', 'Yes'], [0, 'bool', 'False'], [5, ':x', '5 :x'],
    [5, 'other:x', '5 other:x'],
    [77, 'farenheit', '77 °F'],
  ]);
  for (const name of ['constructor', '__proto__', 'toString']) assert.equal(display(1, name), `1 ${name}`);
});

test('numbers in other notations', () => {
  texts([
    [255, 'hex', 'FF'], [-255, 'hex0x', '-0xFF'], [1.5, 'hex', '1.8'], [12345, 'sci', '1.2345e+4'],
    [12345, 'sci', '1.23e+4', 2],
    [5, 'string', '5'], [50, 'humidity', '50 %H'],
  ]);
  assert.equal(display(1234.5678, 'locale', 1), (1234.5678).toLocaleString(undefined, { maximumFractionDigits: 1 }));
});

test('missing and infinite values have the text of the unit in Grafana', () => {
  texts([
    [null, 'bytes', ''], [null, 's', ''], [null, 'none', ''], [undefined, 'bytes', ''], [NaN, 'bytes', 'NaN'],
    [NaN, 'none', 'NaN.00', 2], [Infinity, 'bytes', '∞'], [-Infinity, 's', '-∞ years'], [Infinity, 'currencySEK', '∞'],
    [-Infinity, 'currencyUSD', '-$∞'], [Infinity, 'reqps', '∞undefined req/s'], [NaN, 'dateTimeAsIso', 'Invalid date'],
    [null, 'dateTimeAsIso', 'Invalid date'], [null, 'dthms', '00:00:00'], [Infinity, 'percent', '∞%'],
  ]);
});

test('durations are shown in the largest unit that fits', () => {
  texts([
    [0, 's', '0 s'], [0.5, 's', '500 ms'], [1e-7, 's', '100 ns'], [59.9, 's', '59.9 s'], [60, 's', '1 min'],
    [90, 's', '1.50 mins'],
    [7200, 's', '2 hours'], [86400, 's', '1 day'], [604800, 's', '1 week'], [31556900, 's', '1 year'],
    [-120, 's', '-2 mins'],
    [1500, 'ms', '1.50 s'], [864e5, 'ms', '1 day'], [31536e6 * 2, 'ms', '2 years'], [2e9, 'ns', '2 s'],
    [864e11, 'ns', '1 day'],
    [2500, 'µs', '2.50 ms'], [30, 'm', '30 min'], [150, 'm', '2.50 hours'], [5, 'h', '5 hour'], [48, 'h', '2 days'],
    [5, 'd', '5 days'],
    [14, 'd', '2 weeks'], [730, 'd', '2 years'], [12345, 'timeticks', '2.06 mins'], [1.5, 's', '1.5000 s', 4],
  ]);
});

test('durations in words and clocks count down to the configured unit', () => {
  texts([
    [5400, 'dtdurations', '1 hour'], [5400, 'dtdurations', '1 hour, 30 minutes', 1],
    [-90, 'dtdurations', '1 minute, 30 seconds ago', 1],
    [0, 'dtdurationms', '0 milliseconds'], [86400000, 'dtdurationms', '1 day, 0 hours, 0 minutes', 2],
    [3661, 'dthms', '01:01:01'],
    [-3661, 'dthms', '01:01:01 ago'], [360000, 'dthms', '100:00:00'], [90061, 'dtdhms', '1 d 01:01:01'],
    [61, 'dtdhms', '00:01:01'],
    [5, 'clockms', '005ms'], [1005, 'clockms', '01s:005ms'], [61005, 'clockms', '01m:01s:005ms'],
    [61005, 'clockms', '01m', 0],
    [3661, 'clocks', '1h:01m:01s:000ms'], [3661, 'clocks', '1h', 0], [3661, 'clocks', '1h:01m', 1],
    [90000, 'clocks', '25h:00m:00s', 2],
    [61005, 'clockms', '01m:01s', 1], [NaN, 'clockms', 'NaNh:Invalid date'],
  ]);
});

test('dates are shown in the zone that a dashboard asks for', () => {
  const at = (/** @type {string} */ timeZone) => display(DAY, 'dateTimeAsIso', null, { timeZone });
  assert.equal(at('utc'), '2024-03-05 13:04:09');
  assert.equal(at('Europe/Berlin'), '2024-03-05 14:04:09');
  assert.equal(at('Asia/Kolkata'), '2024-03-05 18:34:09');
  assert.equal(at('America/St_Johns'), '2024-03-05 09:34:09');
  for (const own of ['', 'browser', 'No/Such_Zone', '+05:00']) assert.equal(at(own), '2024-03-05 08:04:09', own);
  const summer = Date.UTC(2024, 6, 1);
  assert.equal(display(summer, 'time:HH:mm Z z', null, { timeZone: 'Europe/Berlin' }), '02:00 +02:00 CEST');
  assert.equal(display(summer, 'time:ZZ z', null, { timeZone: 'Asia/Tokyo' }), '+0900 JST');
  assert.equal(display(summer, 'time:z', null, { timeZone: 'Europe/Istanbul' }), '+03');
});

test('date units have their patterns', () => {
  texts([
    [DAY, 'dateTimeAsUS', '03/05/2024 1:04:09 pm', null, UTC],
    [DAY, 'dateTimeAsSystem', '2024-03-05 13:04:09', null, UTC],
    [DAY, 'dateTimeAsSystem', '2024-03-05 13:04:09.007', null, { ...UTC, milliseconds: true }],
    [DAY, 'dateTimeAsIsoNoDateIfToday', '13:04:09', null, { ...UTC, now: DAY + 36e5 }],
    [DAY, 'dateTimeAsIsoNoDateIfToday', '2024-03-05 13:04:09', null, { ...UTC, now: DAY + 864e5 }],
    [DAY, 'dateTimeAsUSNoDateIfToday', '1:04:09 pm', null, { ...UTC, now: DAY }],
    [DAY, 'dateTimeAsLocal', '05.03.2024, 13:04:09', null, { ...UTC, languages: ['de'] }],
    [DAY, 'dateTimeAsLocalNoDateIfToday', '13:04:09', null, { ...UTC, languages: ['de'], now: DAY }],
    [1e300, 'dateTimeAsIso', 'Invalid date', null, UTC],
  ]);
  assert.match(display(DAY, 'dateTimeAsLocal', null, UTC), /^03\/05\/2024, 01:04:09.PM$/);
});

test('patterns have the tokens of moment.js', () => {
  /** @type {[string, string][]} */
  const rows = [
    ['dddd, MMMM Do YYYY', 'Tuesday, March 5th 2024'], ['ddd dd d do E e', 'Tue Tu 2 2nd 2 2'],
    ['M Mo MM MMM', '3 3rd 03 Mar'],
    ['DDD DDDD DDDo', '65 065 65th'], ['Q Qo', '1 1st'], ['W WW Wo GGGG GG', '10 10 10th 2024 24'],
    ['w ww gggg', '10 10 2024'],
    ['H HH h hh k kk a A', '13 13 1 01 13 13 pm PM'], ['hmm hmmss Hmm', '104 10409 1304'], ['m mm s ss', '4 04 9 09'],
    ['S SS SSS SSSSSS', '0 00 007 007000'], ['X x', '1709643849 1709643849007'], ['z Z ZZ', 'UTC +00:00 +0000'],
    ['[at] HH [[x]', 'at 13 [x'], ['\\H\\L', 'HL'], ['YY Y YYYYYY y N NNNN', '24 2024 +002024 2024 AD Anno Domini'],
    ['L l', '03/05/2024 3/5/2024'], ['LL ll', 'March 5, 2024 Mar 5, 2024'], ['LLLL', 'Tuesday, March 5, 2024 1:04 PM'],
    ['LT LTS', '1:04 PM 1:04:09 PM'], ['', '2024-03-05T13:04:09Z'],
  ];
  texts(rows.map(([pattern, text]) => [DAY, `time:${pattern}`, text, null, UTC]));
  texts([
    [Date.UTC(2021, 0, 3), 'time:W GGGG w gggg', '53 2020 2 2021', null, UTC],
    [Date.UTC(2026, 0, 1), 'time:W GGGG', '1 2026', null, UTC],
    [Date.UTC(2022, 0, 1), 'time:w gggg', '1 2022', null, UTC],
    [Date.UTC(2024, 0, 1), 'time:h k a', '12 24 am', null, UTC],
    [Date.UTC(2024, 0, 1, 12), 'time:h k a', '12 12 pm', null, UTC],
    [Date.UTC(2024, 0, 11), 'time:Do', '11th', null, UTC], [Date.UTC(2024, 0, 22), 'time:Do', '22nd', null, UTC],
    [-62198755200000, 'time:YYYY y N', '-0001 2 BC', null, UTC],
    [DAY, 'time:', '2024-03-05T14:04:09+01:00', null, { timeZone: 'Europe/Berlin' }],
  ]);
  assert.ok(display(DAY, `time:${'[LLLL'.repeat(1e5)}`, null, UTC).length < 1e5, 'a long pattern is cut');
});

test('dates from now are counted in the unit that a person would name', () => {
  /** @type {[number, string][]} */
  const rows = [
    [0, 'a few seconds ago'], [44e3, 'in a few seconds'], [-45e3, 'a minute ago'], [-150e3, '3 minutes ago'],
    [44 * 6e4, 'in 44 minutes'],
    [45 * 6e4, 'in an hour'], [-21 * 36e5, '21 hours ago'], [22 * 36e5, 'in a day'], [-25 * 864e5, '25 days ago'],
    [26 * 864e5, 'in a month'], [-100 * 864e5, '3 months ago'], [-340 * 864e5, 'a year ago'],
    [800 * 864e5, 'in 2 years'],
  ];
  for (const [distance, text] of rows) {
    assert.equal(display(DAY + distance, 'dateTimeFromNow', null, { now: DAY }), text, `${distance} ms`);
  }
});

test('decimals of the neighbours leave out zeros at the end', () => {
  /** @param {number} value @param {string} unit @param {number|null} [decimals] */
  const near = (value, unit, decimals) => display(value, unit, decimals, { ...UTC, adjacentDecimals: 3 });
  assert.equal(near(1.5, 'none'), '1.5');
  assert.equal(near(2, 'bytes'), '2 B');
  assert.equal(near(1.5, 'none', 2), '1.50', 'configured decimals count first');
  assert.equal(near(1.5, 'currencyUSD'), '$1.50');
  assert.equal(near(90, 's'), '1.5 mins');
  assert.equal(near(90, 'dthms'), '00:01:30', 'where Grafana shows NaN');
  assert.equal(near(DAY, 'dateTimeAsIso'), '2024-03-05 13:04:09');
});

test('the parts of a text are texts', () => {
  assert.deepEqual(formatUnit(-1500, 'currencyUSD'), { prefix: '-$', text: '1.50', suffix: 'K' });
  assert.deepEqual(formatUnit(1536, 'bytes'), { prefix: '', text: '1.50', suffix: ' KiB' });
  assert.deepEqual(formatUnit(null, 'bytes'), { prefix: '', text: '', suffix: '' });
});

test('the picker lists every unit once, and the formats know each', () => {
  const listed = units().flatMap((category) => category.units);
  assert.equal(listed.length, 272);
  assert.equal(new Set(listed.map(({ id }) => id)).size, 272);
  assert.deepEqual(units().map(({ category }) => category).slice(0, 3), ['Misc', 'Acceleration', 'Angle']);
  assert.deepEqual(units()[0].units[0], { id: 'none', name: 'Number' });
  for (const { id, name } of listed) {
    assert.ok(name && !/\s{2}|^\s|\s$/.test(name), id);
    // Formats of unknown units are made anew each time.
    assert.equal(formatOf(id), formatOf(id), id);
  }
  assert.notEqual(formatOf('widgets'), formatOf('widgets'));
});

/** The texts of the ticks of an axis. @param {number} low @param {number} high @param {string} unit */
function ticks(low, high, unit, count = 5, timeZone = 'utc') {
  const found = unitTicks(low, high, count, unit, { timeZone });
  return found.map((tick) => display(tick, unit, null, { timeZone })).join(' | ');
}

test('ticks are round in the unit of the axis', () => {
  assert.deepEqual(unitTicks(0, 1, 5, 'percentunit'), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(unitTicks(-3, 7, 5, 'short'), [-2, 0, 2, 4, 6]);
  assert.equal(ticks(0, 16e9, 'bytes'), '0 B | 4 GiB | 8 GiB | 12 GiB');
  assert.equal(ticks(0, 16e9, 'decbytes'), '0 B | 5 GB | 10 GB | 15 GB');
  assert.equal(ticks(0, 0.3, 'kbytes'), '0 KiB | 64 B | 128 B | 192 B | 256 B');
  assert.equal(ticks(0, 0.7, 'bytes'), '0 B | 0.200 B | 0.400 B | 0.600 B');
  assert.equal(ticks(0, 40, 'hex'), '0 | 8 | 10 | 18 | 20 | 28');
  assert.equal(ticks(0, 5, 's'), '0 s | 1 s | 2 s | 3 s | 4 s | 5 s');
  assert.equal(ticks(0, 60, 's', 4), '0 s | 15 s | 30 s | 45 s | 1 min');
  assert.equal(ticks(0, 90, 's', 10), '0 s | 15 s | 30 s | 45 s | 1 min | 1.25 mins | 1.50 mins');
  assert.equal(ticks(0, 1500, 's'), '0 s | 5 mins | 10 mins | 15 mins | 20 mins | 25 mins');
  assert.equal(ticks(0, 86400, 's', 4), '0 s | 6 hours | 12 hours | 18 hours | 1 day');
  assert.equal(ticks(0, 9e5, 's'), '0 s | 3.50 days | 1 week');
  assert.equal(ticks(0, 4e6, 's'), '0 s | 2 weeks | 4 weeks | 6 weeks');
  assert.equal(ticks(0, 1e8, 's'), '0 s | 1 year | 2 years | 3 years');
  assert.equal(ticks(0, 0.02, 's'), '0 s | 5 ms | 10 ms | 15 ms | 20 ms');
  assert.equal(ticks(0, 5e5, 'ms'), '0 ms | 2 mins | 4 mins | 6 mins | 8 mins');
  assert.equal(ticks(0, 9000, 'dthms'), '00:00:00 | 00:30:00 | 01:00:00 | 01:30:00 | 02:00:00 | 02:30:00');
  assert.equal(ticks(0, 9000, 'timeticks', 6), '0 s | 15 s | 30 s | 45 s | 1 min | 1.25 mins | 1.50 mins');
  assert.equal(ticks(0, 1, 'bool'), 'False | True');
  assert.equal(ticks(17e11, 17e11 + 3 * 864e5, 'dateTimeAsIso', 3, 'Asia/Kolkata'),
    '2023-11-16 00:00:00 | 2023-11-17 00:00:00 | 2023-11-18 00:00:00');
});

test('an axis without a finite range has no ticks, a range of one value has that one', () => {
  for (const [low, high] of [[NaN, 1], [1, 0], [-Infinity, 1], [0, Infinity]]) {
    assert.deepEqual(unitTicks(low, high, 5, 's'), []);
  }
  assert.deepEqual(unitTicks(3, 3, 5, 's'), [3]);
});

test('ticks ascend within the range, and are about as many as wished', () => {
  const seed = Date.now() % 1e9;
  let state = seed;
  const random = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const ids = [...units().flatMap((category) => category.units.map(({ id }) => id)), 'time:HH', 'si:m', 'widgets'];
  for (let round = 0; round < 20000; round += 1) {
    const unit = ids[Math.floor(random() * ids.length)];
    const size = 10 ** (random() * 24 - 9);
    const middle = (random() - 0.5) * size * 10 ** (random() * 4);
    const [low, high] = random() < 0.4 ? [0, size] : [middle - size / 2, middle + size / 2];
    const count = 1 + Math.floor(random() * 20);
    const found = unitTicks(low, high, count, unit);
    const what = `${unit} ${low}..${high}, ${count} wished: ${found} (seed ${seed})`;
    assert.ok(found.every((tick) => tick >= low && tick <= high), `within: ${what}`);
    assert.ok(found.every((tick, index) => index === 0 || tick > found[index - 1]), `ascending: ${what}`);
    assert.ok(found.length <= count * 1.25 + 1, what);
    // Truth has no fractions, and dates have none of a millisecond.
    const whole = unit.startsWith('bool') || (size < 100 && /^time:|^dateTime/.test(unit));
    if (!whole) assert.ok(found.length >= Math.floor(count / 2), what);
    const gaps = found.slice(1).map((tick, index) => tick - found[index]);
    assert.ok(gaps.every((gap) => Math.abs(gap - gaps[0]) < gaps[0] * 1e-4), `even: ${what}`);
  }
});

test('no range of numbers makes more ticks than the bound', () => {
  const ranges = [[0, 5e-324], [-1.7e308, 1.7e308], [1e15, 1e15 + 3], [0, 1e-300], [1, 1 + Number.EPSILON]];
  for (const [low, high] of ranges) {
    for (const unit of ['none', 's', 'ns', 'bytes', 'dthms', 'hex', 'dateTimeAsIso', 'timeticks']) {
      for (const count of [0, -1, NaN, 5, 1e9, Infinity]) {
        const found = unitTicks(low, high, count, unit);
        const what = `${unit} ${low}..${high}, ${count} wished`;
        assert.ok(found.length <= 252 && found.every((tick) => tick >= low && tick <= high), what);
      }
    }
  }
});
