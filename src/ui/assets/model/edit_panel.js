// Edits of one panel's stored JSON: pure functions that keep every member they do not know.

import { readDashboard } from './dashboard.js';
import { isObject, listOf, objectOf, objectsOf, own, textOf } from './limits.js';

/** @typedef {import('./limits.js').Json} Json */
/** @typedef {import('./panel.js').Panel} Panel */

/** The most names of a path. */
const PATH_MAX = 12;
const FORBIDDEN = new Set(['__proto__', 'constructor', 'prototype']);
/** Options that have the same meaning in several kinds of panels. */
const SHARED = ['legend', 'tooltip', 'reduceOptions', 'orientation', 'text'];
/** Members that the conversion of an old panel makes. @type {(keyof Panel)[]} */
const CONVERTED = ['type', 'fieldConfig', 'options', 'transformations'];

/**
 * The names of a path. A name that would reach a prototype makes the path empty.
 * @param {string | (string | number)[]} path such as `options.legend.calcs`
 * @returns {string[]}
 */
function namesOf(path) {
  const names = (Array.isArray(path) ? path : path.split('.')).map(String);
  return names.length > PATH_MAX || names.some((name) => FORBIDDEN.has(name)) ? [] : names;
}

/**
 * The value at a path; undefined where there is none. Only own members are read.
 * @param {unknown} value
 * @param {string | (string | number)[]} path
 * @returns {any}
 */
export function getAt(value, path) {
  const names = namesOf(path);
  /** @type {any} */
  let at = names.length > 0 ? value : undefined;
  for (const name of names) {
    at = typeof at === 'object' && at !== null && Object.hasOwn(at, name) ? at[name] : undefined;
  }
  return at;
}

/**
 * A copy with another value at a path: objects are made on the way where there are none, and
 * undefined deletes the member. In a list, undefined removes the entry. All parts outside the path
 * are shared with the original.
 * @template T
 * @param {T} value
 * @param {string | (string | number)[]} path
 * @param {unknown} next
 * @returns {T} the same value for a path that would reach a prototype
 */
export function setAt(value, path, next) {
  const names = namesOf(path);
  return names.length === 0 ? value : placed(value, names, next);
}

/** @param {any} value @param {string[]} names @param {unknown} next @returns {any} */
function placed(value, [name, ...rest], next) {
  const inner = rest.length === 0 ? next : placed(own(value, name) ?? listEntry(value, name), rest, next);
  if (Array.isArray(value)) {
    const at = Number(name);
    if (!Number.isInteger(at) || at < 0 || at > value.length) return value;
    return inner === undefined ? value.toSpliced(at, 1) : value.toSpliced(at, 1, inner);
  }
  const copy = isObject(value) ? { ...value } : {};
  if (inner === undefined) delete copy[name];
  else copy[name] = inner;
  return copy;
}

/** @param {any} value @param {string} name */
const listEntry = (value, name) =>
  (Array.isArray(value) && Object.hasOwn(value, name) ? value[Number(name)] : undefined);

/**
 * A list with one entry at another place; the same list when the place does not exist.
 * @template T
 * @param {T[]} list
 * @param {number} from
 * @param {number} to
 */
export function moved(list, from, to) {
  if (to < 0 || to >= list.length || from < 0 || from >= list.length) return list;
  return list.toSpliced(from, 1).toSpliced(to, 0, list[from]);
}

/**
 * The part of a stored document that is the dashboard.
 * @param {any} document
 * @returns {Json}
 */
export function rootOf(document) {
  const { path } = readDashboard(document).dashboard;
  return path.reduce((at, name) => at[name], document);
}

/**
 * Finds a panel, also inside rows. A panel of an old kind is returned in today's form.
 * @param {any} document
 * @param {number | string} id
 * @returns {{raw: Json, panel: Panel} | null} `raw` is a copy that may be changed
 */
export function findPanel(document, id) {
  const { dashboard } = readDashboard(document);
  const all = dashboard.panels.flatMap((panel) => [panel, ...panel.panels]);
  const panel = all.find((one) => one.type !== 'row' && String(one.id) === String(id));
  const raw = panel && getAt(dashboard.path.reduce((at, name) => at[name], document), panel.key);
  return panel && isObject(raw) ? { raw: current(structuredClone(raw), panel), panel } : null;
}

/** @param {Json} raw @param {Panel} panel @returns {Json} */
function current(raw, panel) {
  if (!panel.legacy) return raw;
  for (const name of CONVERTED) if (panel[name] !== undefined) raw[name] = structuredClone(panel[name]);
  return raw;
}

/**
 * The panel as the page draws it.
 * @param {Json} root the dashboard that it belongs to, for its data sources
 * @param {Json} raw
 * @returns {Panel}
 */
export function panelOf(root, raw) {
  const { rows, ...rest } = root;
  const alone = { ...rest, title: textOf(root.title), panels: [{ ...raw, repeatPanelId: undefined }] };
  const [panel] = readDashboard(alone).dashboard.panels;
  return panel;
}

/**
 * Another kind of panel. The field configuration stays whole; options of the old kind are
 * remembered and come back with it, so that switching there and back loses nothing.
 * @param {Json} raw
 * @param {string} type
 * @param {Map<string, unknown>} remembered options by kind
 * @returns {{raw: Json, remembered: Map<string, unknown>}}
 */
export function switchKind(raw, type, remembered) {
  const before = textOf(raw.type);
  if (before === type) return { raw, remembered };
  const kept = new Map(remembered).set(before, raw.options);
  const shared = Object.fromEntries(Object.entries(objectOf(raw.options)).filter(([name]) => SHARED.includes(name)));
  const options = kept.has(type) ? kept.get(type) : shared;
  return { raw: setAt({ ...raw, type }, 'options', options), remembered: kept };
}

/**
 * The first letter that no query has: A, B, ... Z, AA, AB, ...
 * @param {Json[]} targets
 */
export function freeRefId(targets) {
  const taken = new Set(targets.map(({ refId }) => refId));
  for (let count = 0; ; count += 1) {
    const letter = String.fromCharCode(65 + (count % 26));
    const refId = count < 26 ? letter : `${String.fromCharCode(64 + Math.floor(count / 26))}${letter}`;
    if (!taken.has(refId)) return refId;
  }
}

/**
 * The queries of a panel, each with a letter.
 * @param {Json} raw
 * @returns {Json[]}
 */
export function targetsOf(raw) {
  /** @type {Json[]} */
  const result = [];
  const named = objectsOf(raw.targets);
  for (const target of named) {
    const refId = textOf(target.refId) || freeRefId([...named, ...result]);
    result.push(target.refId === refId ? target : { ...target, refId });
  }
  return result;
}

/**
 * Adds a query, at the end or as a copy after the one it copies.
 * @param {Json} raw
 * @param {number} [copied] the place of the query to copy
 * @returns {Json}
 */
export function addTarget(raw, copied) {
  const targets = targetsOf(raw);
  const refId = freeRefId(targets);
  const last = targets[copied ?? targets.length - 1];
  const added = copied === undefined
    ? { refId, expr: '', ...(last?.datasource ? { datasource: last.datasource } : {}), range: true }
    : { ...structuredClone(last), refId };
  return { ...raw, targets: targets.toSpliced(copied === undefined ? targets.length : copied + 1, 0, added) };
}

/** The kind of one query: a range of points, or one point now. @param {Json} target
 *  @returns {'range' | 'instant' | 'both'} */
export function queryType(target) {
  const instant = target.instant === true;
  const range = typeof target.range === 'boolean' ? target.range || !instant : !instant;
  return instant && range ? 'both' : instant ? 'instant' : 'range';
}

/**
 * @typedef {{type: 'value' | 'range' | 'regex' | 'special', match: Json, result: Json, entry: number, rest: Json}}
 *   MappingRow
 * One line of the form. `match` is `{value}`, `{from, to}`, `{pattern}` or `{match}`; `entry` is the
 * entry of the stored list that it belongs to, and `rest` holds the entry's other members.
 */

/**
 * The lines of stored value mappings: an entry of several values has a line for each.
 * @param {unknown} mappings in their current form
 * @returns {MappingRow[]}
 */
export function mappingRows(mappings) {
  return objectsOf(mappings).flatMap(({ type, options, ...rest }, entry) => {
    const given = objectOf(options);
    if (type === 'value') {
      return Object.entries(given).map(([value, result]) =>
        ({ type: /** @type {const} */ ('value'), match: { value }, result: objectOf(result), entry, rest }));
    }
    if (type !== 'range' && type !== 'regex' && type !== 'special') return [];
    const { result, ...match } = given;
    return [{ type: /** @type {MappingRow['type']} */ (type), match, result: objectOf(result), entry, rest }];
  });
}

/**
 * The stored form of lines: neighbours of the same entry become one entry.
 * @param {MappingRow[]} rows
 * @returns {Json[]}
 */
export function mappingsOf(rows) {
  /** @type {{entry: number, pairs: [string, Json][], rest: Json}[]} */
  const open = [];
  /** @type {(Json | {entry: number, pairs: [string, Json][], rest: Json})[]} */
  const list = [];
  for (const { type, match, result, entry, rest } of rows) {
    if (type !== 'value') {
      list.push({ type, options: { ...match, result }, ...rest });
      continue;
    }
    const last = list.at(-1);
    const group = open.at(-1);
    if (group && last === group && group.entry === entry) group.pairs.push([textOf(match.value), result]);
    else {
      const made = { entry, pairs: [/** @type {[string, Json]} */ ([textOf(match.value), result])], rest };
      open.push(made);
      list.push(made);
    }
  }
  return list.map((one) => (open.includes(/** @type {any} */ (one))
    ? { type: 'value', options: Object.fromEntries(one.pairs), ...one.rest } : one));
}

/**
 * Threshold steps in rising order, the base first.
 * @param {unknown} steps
 * @returns {Json[]}
 */
export function sortedSteps(steps) {
  const all = objectsOf(steps);
  const base = all.find(({ value }) => value === null || value === undefined) ?? all[0];
  const others = all.filter((step) => step !== base);
  return [...(base ? [{ ...base, value: null }] : []),
    ...others.sort((left, right) => Number(left.value) - Number(right.value))];
}

/** One token of JSON. The parts of a string exclude each other, so that matching is linear. */
const TOKEN = new RegExp([
  /([{}[\],:])/, /"(?:[^"\\\u0000-\u001f]+|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*"/,
  /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/, /true|false|null/,
].map(({ source }) => source).join('|'), 'y');
const BLANKS = /[ \t\n\r]*/y;

/**
 * The place of an error in JSON text; null when the text is JSON. The messages of engines name it
 * only at times.
 * @param {string} text
 * @returns {{message: string, line: number, column: number, at: number} | null} counted from 1, `at` from 0
 */
export function jsonError(text) {
  try {
    JSON.parse(text);
    return null;
  } catch {
    const { at, wanted } = firstError(text);
    const before = text.slice(0, at).split('\n');
    const found = at >= text.length ? 'the text ends' : `found ${text[at]}`;
    return {
      message: `expected ${wanted}, ${found}`,
      line: before.length,
      column: (before.at(-1) ?? '').length + 1,
      at,
    };
  }
}

/** @param {string} text @returns {{at: number, wanted: string}} */
function firstError(text) {
  /** Open objects and lists. @type {string[]} */
  const open = [];
  /** @type {'value' | 'first value' | 'key' | 'first key' | 'colon' | 'more' | 'end'} */
  let state = 'value';
  const wanted = () => ({
    value: 'a value', 'first value': 'a value or ]', key: 'a name in quotes', 'first key': 'a name in quotes or }',
    colon: ':', more: open.at(-1) === '{' ? ', or }' : ', or ]', end: 'the end',
  })[state];
  for (let at = 0; ;) {
    BLANKS.lastIndex = at;
    BLANKS.test(text);
    at = BLANKS.lastIndex;
    TOKEN.lastIndex = at;
    const [token = '', sign = ''] = TOKEN.exec(text) ?? [];
    const fails = { at, wanted: wanted() };
    const value = state === 'value' || state === 'first value';
    const close = open.at(-1) === '{' ? '}' : ']';
    if (token === '' || state === 'end') return fails;
    if ((state === 'more' || state.startsWith('first')) && open.length > 0 && sign === close) {
      open.pop();
      state = open.length > 0 ? 'more' : 'end';
    } else if (state === 'more') {
      if (sign !== ',') return fails;
      state = close === '}' ? 'key' : 'value';
    } else if (state === 'colon') {
      if (sign !== ':') return fails;
      state = 'value';
    } else if (value && (sign === '{' || sign === '[')) {
      open.push(sign);
      state = sign === '{' ? 'first key' : 'first value';
    } else if (value && sign === '') state = open.length > 0 ? 'more' : 'end';
    else if (!value && token.startsWith('"')) state = 'colon';
    else return fails;
    at += token.length;
  }
}

/** Names of the fields in frames as an editor offers them, each once.
 *  @param {{fields: {name: string, config: Json}[]}[]} frames @returns {string[]} */
export function fieldNames(frames) {
  const names = frames.flatMap(({ fields }) => fields.map(({ name, config }) => textOf(config.displayName) || name));
  return [...new Set(names)].slice(0, 200);
}

/** The list at a path, empty where there is none. @param {unknown} value @param {string} path @returns {any[]} */
export const listAt = (value, path) => listOf(getAt(value, path));
