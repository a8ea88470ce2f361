// The differences of two versions of a dashboard in words.

import { insideOf, isPlaced, isRow } from './edit_prepare.js';
import { gridPosOf } from './grid.js';
import { listOf, objectOf, objectsOf, sameJson, textOf } from './limits.js';

/** @typedef {import('./limits.js').Json} Json */

/** The most lines; the last one counts the rest. */
export const LINES_MAX = 200;
/** More panels that only moved share a line: one panel that moves pushes many. */
const MOVED_MAX = 5;
/** Longest name of a panel or value in a line, in UTF-16 code units. */
const NAME_MAX = 80;

/** Members of a panel in words; the words of several members may be the same. @type {Map<string, string>} */
const PANEL_WORDS = new Map(
  Object.entries({
    type: 'kind',
    title: 'title',
    description: 'description',
    targets: 'queries',
    datasource: 'data source',
    fieldConfig: 'field settings',
    options: 'options',
    transformations: 'transformations',
    links: 'links',
    repeat: 'repetition',
    repeatDirection: 'repetition',
    maxPerRow: 'repetition',
    timeFrom: 'time range',
    timeShift: 'time range',
    hideTimeOverride: 'time range',
    interval: 'query options',
    maxDataPoints: 'query options',
    transparent: 'background',
  }),
);
/** @type {Map<string, string>} */
const SETTING_WORDS = new Map(
  Object.entries({
    title: 'title',
    description: 'description',
    tags: 'tags',
    refresh: 'refresh interval',
    time: 'time range',
    timezone: 'time zone',
    weekStart: 'start of the week',
    graphTooltip: 'shared tooltip',
    links: 'links',
    annotations: 'annotations',
    uid: 'uid',
  }),
);
/** Members that other lines describe, and numbers that every save changes. */
const APART = new Set(['panels', 'rows', 'templating', 'version', 'id', 'iteration']);

/** @param {unknown} text @param {string} none */
function quoted(text, none) {
  const shown = textOf(text).trim().slice(0, NAME_MAX);
  return shown === '' ? none : `“${shown}”`;
}

/** @param {Json} raw */
const nameOf = (raw) =>
  isRow(raw)
    ? `the row ${quoted(raw.title, 'without a title')}`
    : `the panel ${quoted(raw.title, textOf(raw.id, 'without a title'))}`;

/** @param {string} text */
const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

/** @param {string[]} words */
const joined = (words) =>
  words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words[words.length - 1]}`;

/**
 * @typedef {{raw: Json, row: unknown}} Found `row`: the id of the closed row around the panel
 *
 * @param {Json} document
 * @returns {Map<string, Found>} by id, or by place in the list for those without one
 */
function panelsOf(document) {
  /** @type {Map<string, Found>} */
  const found = new Map();
  const add = (/** @type {Json} */ raw, /** @type {unknown} */ row) => {
    const id = typeof raw.id === 'number' ? `id ${raw.id}` : '';
    found.set(id === '' || found.has(id) ? `at ${found.size}` : id, { raw, row });
  };
  const old = objectsOf(document.rows).flatMap((row) => objectsOf(row.panels));
  for (const raw of [...listOf(document.panels).filter(isPlaced), ...old]) {
    add(raw, null);
    for (const inner of insideOf(raw)) add(inner, raw.id ?? null);
  }
  return found;
}

/** The names of all members. @param {Json} before @param {Json} after */
const members = (before, after) => new Set([...Object.keys(before), ...Object.keys(after)]);

/** @param {Json} value @param {string} name */
const member = (value, name) => (Object.hasOwn(value, name) ? value[name] : undefined);

/** @param {Found} before @param {Found} after @returns {string[]} */
function panelChanges(before, after) {
  const [old, raw] = [before.raw, after.raw];
  /** @type {string[]} */
  const lines = [];
  const [from, to] = [gridPosOf(old.gridPos), gridPosOf(raw.gridPos)];
  const acts = [];
  if (before.row !== after.row || (from && to && (from.x !== to.x || from.y !== to.y))) acts.push('moved');
  if (from && to && (from.w !== to.w || from.h !== to.h)) acts.push('resized');
  if (acts.length > 0) lines.push(sentence(`${joined(acts)} ${nameOf(raw)}`));
  if (isRow(raw) && (old.collapsed === true) !== (raw.collapsed === true))
    lines.push(sentence(`${raw.collapsed === true ? 'closed' : 'opened'} ${nameOf(raw)}`));
  const words = new Set();
  for (const name of members(old, raw)) {
    if (['gridPos', 'id'].includes(name) || (isRow(raw) && ['panels', 'collapsed'].includes(name))) continue;
    if (!sameJson(member(old, name), member(raw, name))) words.add(PANEL_WORDS.get(name) ?? 'other settings');
  }
  if (words.size > 0) {
    const kind = words.has('kind') ? ` (${textOf(old.type, 'none')} to ${textOf(raw.type, 'none')})` : '';
    lines.push(sentence(`changed ${nameOf(old)}: ${joined([...words])}${kind}`));
  }
  return lines;
}

/** @param {Json} before @param {Json} after @returns {string[]} */
function variableChanges(before, after) {
  const byName = (/** @type {Json} */ document) =>
    new Map(objectsOf(objectOf(document.templating).list).map((one) => [textOf(one.name), one]));
  const [old, now] = [byName(before), byName(after)];
  const name = (/** @type {string} */ text) => `the variable ${quoted(text, 'without a name')}`;
  const common = (/** @type {Map<string, Json>} */ from, /** @type {Map<string, Json>} */ other) =>
    [...from.keys()].filter((key) => other.has(key));
  return [
    ...[...now.keys()].filter((key) => !old.has(key)).map((key) => sentence(`added ${name(key)}`)),
    ...[...old.keys()].filter((key) => !now.has(key)).map((key) => sentence(`removed ${name(key)}`)),
    ...common(now, old)
      .filter((key) => !sameJson(now.get(key), old.get(key)))
      .map((key) => sentence(`changed ${name(key)}`)),
    ...(sameJson(common(now, old), common(old, now)) ? [] : ['Changed the order of the variables.']),
  ];
}

/** @param {Json} before @param {Json} after @returns {string[]} */
function settingChanges(before, after) {
  /** @type {string[]} */
  const lines = [];
  const others = new Set();
  for (const name of members(before, after)) {
    const [old, now] = [member(before, name), member(after, name)];
    if (APART.has(name) || sameJson(old, now)) continue;
    if (name === 'title') lines.push(`Changed the title from ${quoted(old, 'none')} to ${quoted(now, 'none')}.`);
    else others.add(SETTING_WORDS.get(name) ?? 'other settings');
  }
  if (others.size > 0) lines.push(sentence(`changed the ${joined([...others])} of the dashboard`));
  return lines;
}

/**
 * The changes, one sentence a line; empty for equal documents. Both are at most DEPTH_MAX deep.
 * @param {Json} before
 * @param {Json} after
 * @returns {string[]}
 */
export function describeChanges(before, after) {
  const [old, now] = [panelsOf(before), panelsOf(after)];
  const lines = [...settingChanges(before, after), ...variableChanges(before, after)];
  for (const [key, { raw }] of now) if (!old.has(key)) lines.push(sentence(`added ${nameOf(raw)}`));
  for (const [key, { raw }] of old) if (!now.has(key)) lines.push(sentence(`removed ${nameOf(raw)}`));
  /** @type {string[]} */
  const moved = [];
  for (const [key, found] of now) {
    const earlier = old.get(key);
    if (!earlier) continue;
    const changes = panelChanges(earlier, found);
    if (changes.length === 1 && changes[0].startsWith('Moved the ')) moved.push(changes[0]);
    else lines.push(...changes);
  }
  if (moved.length <= MOVED_MAX) lines.push(...moved);
  else lines.push(`Moved ${moved.length} panels and rows.`);
  if (lines.length === 0 && !sameJson(before, after)) lines.push('Changed settings that the page does not show.');
  if (lines.length <= LINES_MAX) return lines;
  return [...lines.slice(0, LINES_MAX - 1), `${lines.length - LINES_MAX + 1} more changes.`];
}
