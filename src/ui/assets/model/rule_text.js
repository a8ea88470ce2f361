// The text of a rule group: its name, its interval, the rule at the caret, and the place of an error.

import { parseDuration } from '../chart/scale.js';

/**
 * @typedef {{name: string, text: string, line: number, indent: number}} RuleText `line` is the first line of the
 *   rule in the text of the group, from 0; `indent` characters were taken off each line
 * @typedef {{line: number, column: number, message: string}} Place both from 1; `line` is 0 if it is not known
 */

/** The interval of a group that has none, in seconds. */
const INTERVAL = 60;

/** A place as errors write it. */
const PLACE = /(?:\bat )?\bline (\d+)(?:,? (?:column|col) (\d+))?:? ?/i;

/** @param {string} text */
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** @param {string} text a scalar of YAML on one line */
const scalar = (text) =>
  text
    .replace(/\s+#.*$/, '')
    .trim()
    .replace(/^(["'])(.*)\1$/, '$2');

/** The value of a key of the group itself; '' without one. @param {string} text @param {string} key */
function groupValue(text, key) {
  const before = text.split(/^\s*rules:/m)[0];
  return scalar(new RegExp(`^[ \\t-]*${key}:[ \\t]*(.*)$`, 'm').exec(before)?.[1] ?? '');
}

/**
 * The name of a new group in paths: of a name with a slash, the first part would be the namespace.
 * @param {string} name that of its YAML
 */
export const pathName = (name) => (name.includes('/') ? `api/${name}` : name);

/** The name of a group; '' without one. @param {string} text */
export const groupName = (text) => groupValue(text, 'name');

/** The interval of a group in seconds. @param {string} text */
export const groupInterval = (text) => parseDuration(groupValue(text, 'interval')) ?? INTERVAL;

/** The offset of the evaluation, such as `1m`; undefined without one. @param {string} text */
export const groupOffset = (text) => groupValue(text, 'query_offset') || undefined;

/** The most series or alerts of a rule; 0: any number. @param {string} text */
export const groupLimit = (text) => Math.max(0, Number.parseInt(groupValue(text, 'limit'), 10) || 0);

/** Whether a rule records series. @param {RuleText} rule */
export const isRecording = ({ text }) => /^record:/m.test(text);

/** @param {string} line */
const indentOf = (line) => line.length - line.trimStart().length;

/**
 * The rules of a group in block style, each as a text of its own. A text that YAML writes in another style has none.
 * @param {string} text
 * @returns {RuleText[]}
 */
export function rulesOf(text) {
  const lines = text.split('\n');
  const list = lines.findIndex((line) => /^\s*(- )?rules:\s*(#.*)?$/.test(line));
  /** @type {{from: number, indent: number}[]} */
  const starts = [];
  let end = lines.length;
  for (let at = list + 1; list >= 0 && at < lines.length; at += 1) {
    const line = lines[at];
    if (/^\s*(#.*)?$/.test(line)) continue;
    const indent = indentOf(line);
    const isItem = /^\s*-(\s|$)/.test(line);
    const own = starts[0]?.indent ?? (isItem ? indent : -1);
    if (isItem && indent === own) starts.push({ from: at, indent });
    else if (indent <= own || own < 0) {
      end = at;
      break;
    }
  }
  return starts.map(({ from, indent }, index) => {
    const own = lines.slice(from, starts[index + 1]?.from ?? end);
    const [, gap, first] = /^-(\s*)(\S?)/.exec(own[0].trimStart()) ?? ['', '', ''];
    // The dash may stand alone above the first member.
    const inner = first ? indent + 1 + gap.length : indentOf(own.find((line, at) => at > 0 && line.trim()) ?? '');
    own[0] = own[0].replace('-', ' ');
    const shown = own.map((line) => (indentOf(line) >= inner ? line.slice(inner) : line.trimStart()));
    const rule = shown.join('\n').trimEnd();
    const [, name = ''] = /^(?:alert|record):[ \t]*(.*)$/m.exec(rule) ?? [];
    return { name: scalar(name), text: `${rule}\n`, line: from, indent: inner };
  });
}

/**
 * The rule at an offset of the text: the last one that begins before it, else the first one.
 * @param {string} text
 * @param {number} offset
 */
export function ruleAt(text, offset) {
  const line = text.slice(0, offset).split('\n').length - 1;
  const rules = rulesOf(text);
  return rules.findLast((rule) => rule.line <= line) ?? rules[0] ?? null;
}

/**
 * The place of the server's error.
 * @param {{detail: string, body?: any, fields?: any[]}} error
 * @returns {Place}
 */
export function placeOf({ detail, body, fields = [] }) {
  const [first] = fields;
  const message = sentence(first?.message ?? detail);
  const given = [body, first].find((one) => Number.isInteger(one?.line));
  if (given) return { line: given.line, column: given.column ?? 1, message };
  const [, line, column] = PLACE.exec(message) ?? PLACE.exec(detail) ?? [];
  // The page says the place itself: the text of a rule is a part of that of its group.
  return { line: Number(line ?? 0), column: Number(column ?? 1), message: sentence(message.replace(PLACE, '')) };
}

/**
 * The corresponding place in the text of the group.
 * @param {Place} place in a rule
 * @param {RuleText} rule
 * @returns {Place}
 */
export const placeInGroup = (place, rule) =>
  place.line === 0 ? place : { ...place, line: place.line + rule.line, column: place.column + rule.indent };

/**
 * The offset of a place; that of the end of its line if the line is shorter.
 * @param {string} text
 * @param {Place} place
 */
export function offsetOf(text, { line, column }) {
  const lines = text.split('\n').slice(0, line);
  const last = lines.pop() ?? '';
  return lines.reduce((sum, one) => sum + one.length + 1, 0) + Math.min(Math.max(0, column - 1), last.length);
}
