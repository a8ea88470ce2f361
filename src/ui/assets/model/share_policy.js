// The restrictions of an embed token or of a public link, as the Share dialog's form has them.

import { parseDuration } from '../chart/scale.js';

/**
 * @typedef {null | number | string | any[] | {[name: string]: any}} Json of a restriction
 *
 * @typedef {Object} VariableChoice what viewers may do with a variable
 * @property {string} name
 * @property {'fixed' | 'locked' | 'open'} access `fixed`: it keeps the value of the saved dashboard
 * @property {string[]} values the locked values, or the only ones that viewers may choose; empty for any
 * @property {string} label the label of the series that a locked value restricts
 *
 * @typedef {{locked?: {[name: string]: Json}, open?: Json}} VariableRules
 *
 * @typedef {Object} Limits texts of the form; '' for no limit
 * @property {string} maxRange
 * @property {string} maxLookback
 * @property {string} minStep
 */

/** The most locked and open variables, values of one, and characters of a value, as the server allows. */
const LOCKED_MAX = 16;
const OPEN_MAX = 32;
const VALUES_MAX = 64;
const VALUE_LENGTH_MAX = 256;
/** The most origins of a token, and most characters of an origin's host and port. */
const ORIGINS_MAX = 32;
const HOST_MAX = 255;
/** Least seconds of a token. */
const LIFETIME_MIN_S = 60;

/** The lines of a text that are not blank. @param {string} text */
export const linesOf = (text) =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean);

/** An object whose names may be any, `__proto__` included. @param {[string, Json][]} entries */
const objectOf = (entries) => /** @type {{[name: string]: Json}} */ (Object.fromEntries(entries));

/** @param {VariableChoice} choice */
function checkValues({ name, values }) {
  if (values.length > VALUES_MAX) throw new Error(`${name}: at most ${VALUES_MAX} values.`);
  for (const value of values) {
    if (!value.isWellFormed()) throw new Error(`${name}: a value is not valid Unicode.`);
    if ([...value].length > VALUE_LENGTH_MAX)
      throw new Error(`${name}: a value has at most ${VALUE_LENGTH_MAX} characters.`);
  }
}

/**
 * The members `locked` and `open` of a restriction; each is left out if it is empty.
 * @param {VariableChoice[]} choices
 * @returns {VariableRules}
 * @throws {Error} that says what is wrong
 */
export function variableRules(choices) {
  const locked = choices.filter(({ access }) => access === 'locked');
  const open = choices.filter(({ access }) => access === 'open');
  if (locked.length > LOCKED_MAX) throw new Error(`At most ${LOCKED_MAX} variables can be locked.`);
  if (open.length > OPEN_MAX) throw new Error(`At most ${OPEN_MAX} variables can be open.`);
  choices.forEach(checkValues);
  const none = locked.find(({ values }) => values.length === 0);
  if (none) throw new Error(`${none.name}: enter the value that it is locked to.`);
  const lockOf = (/** @type {VariableChoice} */ { name, values, label }) => {
    if (label && label !== name) return { label, values };
    return values.length === 1 ? values[0] : values;
  };
  const listed = open.some(({ values }) => values.length > 0);
  return {
    ...(locked.length > 0 ? { locked: objectOf(locked.map((one) => [one.name, lockOf(one)])) } : {}),
    ...(open.length > 0
      ? {
          open: listed
            ? objectOf(open.map(({ name, values }) => [name, values.length > 0 ? values : null]))
            : open.map(({ name }) => name),
        }
      : {}),
  };
}

/**
 * Whole seconds of a duration such as "15s"; null for an empty text.
 * @param {string} text
 * @param {string} label of the field
 * @throws {Error}
 */
function secondsOf(text, label) {
  if (text.trim() === '') return null;
  const seconds = parseDuration(text);
  if (seconds === null || !Number.isInteger(seconds))
    throw new Error(`${label}: enter a duration such as 15s, 12h or 7d.`);
  return seconds;
}

/**
 * The limits that are set.
 * @param {Limits} limits
 * @returns {{max_range_s?: number, max_lookback_s?: number, min_step_s?: number}}
 * @throws {Error} for a text that is no duration
 */
export function limitRules({ maxRange, maxLookback, minStep }) {
  const all = {
    max_range_s: secondsOf(maxRange, 'Longest range'),
    max_lookback_s: secondsOf(maxLookback, 'Oldest data'),
    min_step_s: secondsOf(minStep, 'Smallest step'),
  };
  return Object.fromEntries(Object.entries(all).filter(([, seconds]) => seconds !== null));
}

/**
 * Whether a text is `*` or an origin as a browser sends it: scheme, host and optional port. The server
 * accepts the same.
 * @param {string} text
 */
export function isOrigin(text) {
  if (text === '*') return true;
  const host = /^https?:\/\/([a-z0-9.:[\]-]+)$/.exec(text)?.[1];
  return host !== undefined && host.length <= HOST_MAX;
}

/**
 * The origins of a text with one a line.
 * @param {string} text
 * @throws {Error} that says which line is wrong, and how it would be right if that is known
 */
export function originsOf(text) {
  const origins = linesOf(text);
  if (origins.length > ORIGINS_MAX) throw new Error(`At most ${ORIGINS_MAX} origins.`);
  const wrong = origins.find((origin) => !isOrigin(origin));
  if (wrong === undefined) return origins;
  const meant = URL.canParse(wrong) ? new URL(wrong).origin : '';
  const advice = isOrigin(meant) ? `enter ${meant}` : 'enter scheme and host as the address bar shows them';
  throw new Error(`${wrong.slice(0, 100)} is no origin: ${advice}.`);
}

/**
 * The lifetime of a token in seconds.
 * @param {string} text
 * @param {number} longest that the key allows
 * @throws {Error}
 */
export function lifetimeOf(text, longest) {
  const seconds = secondsOf(text, 'Lifetime');
  if (seconds === null || seconds < LIFETIME_MIN_S || seconds > longest)
    throw new Error(`Lifetime: enter ${LIFETIME_MIN_S} to ${longest} seconds; the key allows no more.`);
  return seconds;
}

/**
 * The claim `ms` of a token for a dashboard, or for the query of a chart.
 * @param {{uid: string, choices: VariableChoice[]} | {expr: string, matchers: string[]}} shown
 * @param {Limits & {origins: string}} limits
 * @returns {{[name: string]: Json}}
 * @throws {Error} that says what is wrong
 */
export function restrictionsOf(shown, limits) {
  const origins = originsOf(limits.origins);
  /** @type {{[name: string]: Json}} */
  const granted =
    'uid' in shown
      ? { dashboard: { uid: shown.uid, ...variableRules(shown.choices) } }
      : { exprs: [shown.expr], ...(shown.matchers.length > 0 ? { match: shown.matchers } : {}) };
  return { ...granted, ...limitRules(limits), ...(origins.length > 0 ? { origins } : {}) };
}
