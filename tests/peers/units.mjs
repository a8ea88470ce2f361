// Compares the text of values in units with that of @grafana/data, over random values of all units.
//
//   node units.mjs FOLDER [SEED] [COUNT]    FOLDER has @grafana/data 11 in its node_modules
//
// Exits with 1 and the first 20 differences. The clock stands still: "now" is the same for both.
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { formatUnit } from '../../src/ui/assets/model/units.js';
import { units } from '../../src/ui/assets/model/units/names.js';

const [, , folder, seedText, countText] = process.argv;
if (!folder) {
  console.error('usage: node units.mjs FOLDER [SEED] [COUNT]');
  process.exit(2);
}
const NOW = Date.now();
Date.now = () => NOW;
const languages = ['en-US'];
globalThis.window ??= globalThis;
Object.defineProperty(globalThis, 'navigator', { value: { languages, userAgent: '' }, configurable: true });
const { getValueFormat, getValueFormats, getDisplayProcessor, createTheme } =
  createRequire(join(resolve(folder), 'x.js'))('@grafana/data');

// A constant: a change alone decides whether the comparison passes.
const seed = Number(seedText ?? 20261126);
const total = Number(countText ?? 10000);
console.log(`seed ${seed}`);
let state = seed >>> 0;
/** A number in [0, 1): mulberry32. */
function random() {
  state = (state + 0x6D2B79F5) >>> 0;
  let mixed = Math.imul(state ^ (state >>> 15), state | 1);
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
}
const below = (count) => Math.floor(random() * count);
const pick = (list) => list[below(list.length)];

const picker = getValueFormats();
const LISTED = picker.flatMap(({ submenu }) => submenu.map(({ value }) => value));
const WITH_PARAMETER = ['prefix', 'suffix', 'si', 'count', 'currency', 'bool', 'nothing', ''];
const PARAMETERS = ['', 'x', 'm', 'm/s', 'kW', 'µF', 'μF', 'MHz', '/', 'yes/no', 'a:b', 'Kč', ' ', 'fF', 'Yb', 'b/c/d',
  'z'];
const UNKNOWN = ['', 'widgets', ':x', 'req / s', 'farenheit', undefined, null, 'euro€', '%'];
// Every token of moment.js, and text between them. The names of zones (z, zz) depend on data that
// browsers abbreviate in their own way, so they are compared in UTC only.
const TOKENS = ['M', 'Mo', 'MM', 'MMM', 'MMMM', 'Q', 'Qo', 'D', 'Do', 'DD', 'DDD', 'DDDo', 'DDDD', 'd', 'do', 'dd',
  'ddd', 'dddd', 'e', 'E', 'w', 'wo', 'ww', 'W', 'Wo', 'WW', 'w|', 'YY', 'YYY', 'YYYY', 'YYYYY', 'YYYYYY', 'Y', 'y',
  'yo', 'yy', 'yyy', 'yyyy', 'N', 'NN', 'NNN', 'NNNN', 'NNNNN', 'gg', 'ggg', 'gggg', 'ggggg', 'GG', 'GGG', 'GGGG',
  'GGGGG', 'A', 'a', 'H', 'HH', 'h', 'hh', 'k', 'kk', 'hmm', 'hmmss', 'Hmm', 'Hmmss', 'm', 'mm', 's', 'ss', 'S', 'SS',
  'SSS', 'SSSS', 'SSSSS', 'SSSSSS', 'SSSSSSS', 'SSSSSSSS', 'SSSSSSSSS', 'Z', 'ZZ', 'X', 'x', 'LT', 'LTS', 'L', 'LL',
  'LLL', 'LLLL', 'l', 'll', 'lll', 'llll', '[at]', '[a', ']', '\\M', '\\L', '\\', '[[x]', 'T', 'uhr', 'ü', '\n', '[]',
  '[M]D]'];
const ZONES = [undefined, '', 'browser', 'utc', 'UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Kolkata',
  'Asia/Tokyo', 'Australia/Sydney', 'America/St_Johns', 'Asia/Kathmandu', 'nowhere/at_all',
  'Pacific/Auckland', 'Africa/Nairobi'];
const DECIMALS = [null, undefined, undefined, 0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20];
// The first and last days of the language's dates depend on the zone of the machine.
const DAYS = 2 * 864e5;
const ODD = [0, -0, NaN, Infinity, -Infinity, null, undefined, Number.MAX_VALUE, -Number.MAX_VALUE, Number.MIN_VALUE,
  Number.EPSILON, 0.5, -0.5, 999.9999, 1023.99, 0.1 + 0.2, 2 ** 53, 1e21, 1e-7, 8.64e15 + 1,
  8.64e15 - DAYS, DAYS - 8.64e15];
const STEPS = [1, 7, 24, 60, 365, 1000, 1024, 1440, 3600, 86400, 604800, 31536000, 31556900, 525948];

const FACTORS = [1, 0.999999, 1.000001, 0.5, 1.5, 2, 10, 59.5];
const DISTANCES = [0, 1, -1, 44e3, 45e3, 89e3, 90e3, 2640e3, 2670e3, 36e5, 864e5, -864e5, 22464e5, -31536e6];

function unitOf() {
  const kind = below(10);
  if (kind < 7) return pick(LISTED);
  if (kind < 8) return `${pick(WITH_PARAMETER)}:${pick(PARAMETERS)}`;
  if (kind < 9) {
    const tokens = Array.from({ length: below(5) }, () => pick(TOKENS) + pick(['', '', ' ', '-', ':']));
    return `time:${tokens.join('')}`;
  }
  return pick(UNKNOWN);
}

function numberOf() {
  const sign = random() < 0.3 ? -1 : 1;
  switch (below(8)) {
    case 0: return pick(ODD);
    case 1: return sign * below(2000);
    case 2: return sign * random() * 2000;
    case 3: return sign * 10 ** (random() * 40 - 20);
    case 4: return sign * 2 ** (random() * 100 - 20);
    case 5: return sign * pick(STEPS) * pick([1, 1000, 1e-3, 1e-6]) * pick(FACTORS);
    case 6: return sign * 10 ** below(22) * pick([1, 0.9996, 1.5, 2.5, 1e-9]);
    default: return sign * 2 ** (random() * 2000 - 1000);
  }
}

/** Dates before 1970 are compared in UTC: the data of zones differ before that. */
function dateOf(zone) {
  switch (below(6)) {
    case 0: return NOW - Math.round((random() - 0.5) * 10 ** (2 + random() * 11));
    case 1: return NOW + pick(DISTANCES);
    case 2: return below(2 ** 31 * 0.99) * 1000 + random() * 1000;
    case 3: return zone === 'utc' ? (random() - 0.5) * 2 ** (20 + random() * 34) : below(2 ** 31 * 0.99) * 1000;
    case 4: return pick(zone === 'utc' ? [...ODD, -62135400000000, -62198755200000] : [NaN, null, undefined, 0]);
    default: return 2 ** 31 * 1000 + random() * 2e12;
  }
}

const theme = createTheme();
const differences = [];
const show = (value) => (Object.is(value, -0) ? '-0' : typeof value === 'string' ? JSON.stringify(value) : `${value}`);
const parts = ({ prefix = '', text, suffix = '' }) => JSON.stringify([prefix, text, suffix]);
let compared = 0;
function compare(what, theirs, ours) {
  compared += 1;
  if (parts(theirs) !== parts(ours)) differences.push(`${what}: Grafana ${parts(theirs)}, here ${parts(ours)}`);
}

const names = (list) => JSON.stringify(list);
if (names(units().map(({ category, units: rows }) => [category, rows.map(({ id, name }) => [id, name])]))
  !== names(picker.map(({ text, submenu }) => [text, submenu.map((row) => [row.value, row.text])]))) {
  differences.push('the categories or names of units differ');
}
for (let index = 0; index < total; index += 1) {
  // The first rounds take the units in turn, so that each is compared whatever the seed.
  let unit = index < LISTED.length ? LISTED[index] : unitOf();
  const isDate = /^(?:time:|dateTime)/.test(unit ?? '');
  let zone = isDate ? pick(ZONES) : undefined;
  if (/z/.test(unit?.replaceAll('[x]', '') ?? '') && isDate) zone = 'utc';
  const value = isDate ? dateOf(zone) : numberOf();
  const decimals = pick(DECIMALS);
  const milliseconds = random() < 0.5;
  const options = { timeZone: zone, milliseconds, languages, now: NOW };
  const what = `${show(unit)} ${show(value)} decimals ${decimals} zone ${zone}`;
  let theirs;
  try {
    theirs = getValueFormat(unit)(value, decimals, null, zone, milliseconds);
  } catch (error) {
    // Some patterns are an error in Grafana (one of newlines only); here they are an empty text.
    theirs = { text: `${error}` };
    if (!/null/.test(theirs.text)) differences.push(`${what}: Grafana fails with ${error}`);
    continue;
  }
  compare(what, theirs, formatUnit(value, unit, decimals, options));
  if (!Number.isFinite(value)) continue;
  const adjacentDecimals = pick([undefined, null, 0, 1, 2, 3, 5]);
  const config = { unit: unit ?? undefined, decimals };
  const field = { name: 'value', type: 'number', config, values: [] };
  const panel = getDisplayProcessor({ field, theme, timeZone: zone });
  const shown = panel(value, adjacentDecimals);
  // Panels never format the unit "string", and show NaN for trimmed texts such as "01:00:00".
  if (unit === 'string' || (shown.text === 'NaN' && (adjacentDecimals ?? null) !== null)) continue;
  compare(`${what} adjacent ${adjacentDecimals}`, shown,
    formatUnit(value, unit, decimals, { ...options, milliseconds: false, adjacentDecimals }));
}
console.log(`${compared} comparisons, ${differences.length} differences`);
for (const line of differences.slice(0, 20)) console.log(line);
process.exit(differences.length ? 1 : 0);
