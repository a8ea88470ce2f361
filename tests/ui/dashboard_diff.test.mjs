// The differences of dashboards, in words and by lines.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { describeChanges, LINES_MAX } from '../../src/ui/assets/model/dashboard_diff.js';
import { EDITS_MAX, lineDiff, SHOWN_MAX } from '../../src/ui/assets/model/line_diff.js';

const panel = (/** @type {number} */ id, /** @type {object} */ more = {}) => ({
  id,
  type: 'stat',
  title: `P${id}`,
  gridPos: { x: 0, y: id, w: 4, h: 4 },
  ...more,
});

test('panels_variables_and_settings_are_described_in_words', () => {
  const before = {
    title: 'Old',
    tags: ['a'],
    secret: 1,
    templating: { list: [{ name: 'job' }, { name: 'host' }, { name: 'gone' }] },
    panels: [panel(1), panel(2), panel(3), panel(4), panel(5, { type: 'row', collapsed: false, panels: [] })],
  };
  const after = {
    title: 'New',
    tags: ['b'],
    secret: 2,
    templating: { list: [{ name: 'host' }, { name: 'job', multi: true }, { name: 'more' }] },
    panels: [
      panel(1, { gridPos: { x: 3, y: 1, w: 5, h: 4 } }),
      panel(2, { type: 'gauge', targets: [{ expr: 'up' }], weird: 1, maxPerRow: 2, repeat: 'job' }),
      panel(5, { type: 'row', collapsed: true, panels: [panel(4)] }),
      panel(6, { title: '<img src=x>' }),
    ],
  };
  assert.deepEqual(describeChanges(before, after), [
    'Changed the title from “Old” to “New”.',
    'Changed the tags and other settings of the dashboard.',
    'Added the variable “more”.',
    'Removed the variable “gone”.',
    'Changed the variable “job”.',
    'Changed the order of the variables.',
    'Added the panel “<img src=x>”.',
    'Removed the panel “P3”.',
    'Moved and resized the panel “P1”.',
    'Changed the panel “P2”: kind, queries, other settings and repetition (stat to gauge).',
    'Closed the row “P5”.',
    'Moved the panel “P4”.',
  ]);
  assert.deepEqual(describeChanges(before, structuredClone(before)), []);
});

test('panels_without_an_id_and_old_rows_are_compared_too', () => {
  const before = { rows: [{ panels: [{ title: 'a' }, { id: 2, title: 'b' }] }] };
  const after = { rows: [{ panels: [{ title: 'a' }, { id: 2, title: 'c' }] }] };
  assert.deepEqual(describeChanges(before, after), ['Changed the panel “b”: title.']);
  assert.deepEqual(describeChanges({ version: 1 }, { version: 2 }), ['Changed what the page does not show.']);
});

test('many_changes_end_in_their_number', () => {
  const panels = Array.from({ length: 300 }, (_, at) => panel(at + 1));
  const lines = describeChanges({ panels: [] }, { panels });
  assert.equal(lines.length, LINES_MAX);
  assert.equal(lines.at(-1), '101 more changes.');
});

/** One of both texts. @param {ReturnType<typeof lineDiff>} lines @param {'removed' | 'added'} side */
const sideOf = (lines, side) =>
  lines.filter(({ kind }) => kind === 'same' || kind === side).map(({ text }) => text);

test('the_difference_of_lines_contains_both_texts_and_is_the_shortest', () => {
  let state = 5;
  const random = (/** @type {number} */ below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  for (let round = 0; round < 400; round += 1) {
    const words = () => Array.from({ length: 1 + random(7) }, () => 'abc'[random(3)]);
    const [before, after] = [words(), words()];
    const lines = lineDiff(before.join('\n'), after.join('\n'));
    if (before.join() === after.join()) {
      assert.deepEqual(lines, []);
      continue;
    }
    if (lines.some(({ kind }) => kind === 'skipped')) continue;
    const said = `${before.join('')} to ${after.join('')}, round ${round}`;
    assert.deepEqual([sideOf(lines, 'removed'), sideOf(lines, 'added')], [before, after], said);
    // The longest common subsequence by the textbook's table.
    const table = Array.from({ length: before.length + 1 }, () => new Array(after.length + 1).fill(0));
    for (let i = 1; i <= before.length; i += 1)
      for (let j = 1; j <= after.length; j += 1)
        table[i][j] =
          before[i - 1] === after[j - 1] ? table[i - 1][j - 1] + 1 : Math.max(table[i - 1][j], table[i][j - 1]);
    assert.equal(lines.filter(({ kind }) => kind === 'same').length, table[before.length][after.length], said);
  }
});

test('lines_far_from_a_difference_are_counted_and_the_result_is_bounded', () => {
  const before = Array.from({ length: 100 }, (_, at) => `line ${at}`);
  const after = before.map((text, at) => (at === 50 ? 'new' : text));
  const lines = lineDiff(before.join('\n'), after.join('\n'));
  assert.deepEqual(lines[0], { kind: 'skipped', text: '47 lines' });
  assert.equal(lines.length, 10);
  const many = Array.from({ length: EDITS_MAX * 2 }, (_, at) => `x ${at}`);
  const replaced = lineDiff(many.join('\n'), many.map((text) => `y ${text}`).join('\n'));
  assert.equal(replaced.length, SHOWN_MAX);
  assert.deepEqual(replaced.at(-1), { kind: 'skipped', text: '4001 more lines' });
});
