// Repeated panels and rows, and the layout of the grid.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { interpolate, withScope } from '../../src/ui/assets/model/interpolate.js';
import { COPIES_MAX, expandRepeats } from '../../src/ui/assets/model/repeat.js';

/** @param {object[]} panels */
function panelsOf(...panels) {
  return readDashboard({ title: 't', panels }).dashboard.panels;
}

/** @param {string} title @param {number[]} place x, y, w, h @param {object} [more] */
function panel(title, [x, y, w, h], more = {}) {
  return { type: 'timeseries', title, gridPos: { x, y, w, h }, ...more };
}

/** @param {Record<string, string[]>} given @returns {Map<string, any>} */
function selections(given) {
  return new Map(Object.entries(given).map(([name, value]) => [name, { name, value, text: value, multi: true }]));
}

/**
 * Title, repeated values and place of each panel.
 * @param {ReturnType<typeof expandRepeats>} result
 */
function shown({ placed }) {
  return placed.map((one) => {
    const values = [...one.scoped.values()].map((copy) => `${copy.name}=${copy.value}`).join(',');
    const { x, y, w, h } = one.gridPos;
    return `${one.panel.title}${values ? `[${values}]` : ''} ${x},${y} ${w}x${h}`;
  });
}

/** @param {ReturnType<typeof expandRepeats>} result */
function assertNoOverlap({ placed }) {
  const cells = new Set();
  for (const { gridPos: { x, y, w, h }, key } of placed) {
    assert.ok(x >= 0 && x + w <= 24 && y >= 0, `${key} is inside the grid`);
    for (let column = x; column < x + w; column += 1) {
      for (let row = y; row < y + h; row += 1) {
        assert.ok(!cells.has(column * 1e6 + row), `${key} overlaps`);
        cells.add(column * 1e6 + row);
      }
    }
  }
}

test('without_repeats_panels_stay_where_they_are', () => {
  const panels = panelsOf(panel('a', [0, 0, 12, 8]), panel('b', [12, 0, 12, 8]), panel('c', [0, 8, 24, 4]));
  const result = expandRepeats(panels, new Map());
  assert.deepEqual(shown(result), ['a 0,0 12x8', 'b 12,0 12x8', 'c 0,8 24x4']);
  assert.equal(result.height, 12);
});

test('a_horizontal_repeat_fills_lines_and_moves_later_panels_down', () => {
  const panels = panelsOf(panel('cpu', [0, 0, 6, 5], { repeat: 'host', maxPerRow: 2 }), panel('below', [0, 5, 24, 3]));
  const result = expandRepeats(panels, selections({ host: ['a', 'b', 'c'] }));
  assert.deepEqual(shown(result), ['cpu[host=a] 0,0 12x5', 'cpu[host=b] 12,0 12x5', 'cpu[host=c] 0,5 12x5',
    'below 0,10 24x3']);
});

test('four_copies_share_a_line_unless_the_panel_says_otherwise', () => {
  const panels = panelsOf(panel('cpu', [0, 0, 24, 5], { repeat: 'host' }));
  const result = expandRepeats(panels, selections({ host: ['a', 'b', 'c', 'd', 'e'] }));
  assert.deepEqual(result.placed.map((one) => one.gridPos.w), [6, 6, 6, 6, 6]);
  assert.deepEqual(result.placed.map((one) => one.gridPos.y), [0, 0, 0, 0, 5]);
});

test('a_vertical_repeat_keeps_column_and_width', () => {
  const panels = panelsOf(panel('side', [0, 0, 6, 12]), panel('cpu', [6, 0, 18, 4], { repeat: 'host',
    repeatDirection: 'v' }),
    panel('below', [0, 12, 24, 2]));
  const result = expandRepeats(panels, selections({ host: ['a', 'b', 'c', 'd'] }));
  assert.deepEqual(shown(result), ['side 0,0 6x12', 'cpu[host=a] 6,0 18x4', 'cpu[host=b] 6,4 18x4',
    'cpu[host=c] 6,8 18x4', 'cpu[host=d] 6,12 18x4', 'below 0,16 24x2']);
});

test('a_repeated_row_takes_its_panels_along', () => {
  const panels = panelsOf(panel('top', [0, 0, 24, 2]),
    { type: 'row', title: 'Host $host', repeat: 'host', gridPos: { x: 0, y: 2, w: 24, h: 1 }, panels: [] },
    panel('cpu', [0, 3, 12, 4]), panel('disk', [12, 3, 12, 4], { repeat: 'disk', repeatDirection: 'v' }),
    { type: 'row', title: 'Rest', gridPos: { x: 0, y: 7, w: 24, h: 1 }, panels: [] }, panel('rest', [0, 8, 24, 4]));
  const all = selections({ host: ['a', 'b'], disk: ['x', 'y'] });
  const result = expandRepeats(panels, all);
  assert.deepEqual(shown(result), ['top 0,0 24x2', 'Host $host[host=a] 0,2 24x1', 'cpu[host=a] 0,3 12x4',
    'disk[host=a,disk=x] 12,3 12x4', 'disk[host=a,disk=y] 12,7 12x4', 'Host $host[host=b] 0,11 24x1',
    'cpu[host=b] 0,12 12x4', 'disk[host=b,disk=x] 12,12 12x4', 'disk[host=b,disk=y] 12,16 12x4', 'Rest 0,20 24x1',
    'rest 0,21 24x4']);
  assertNoOverlap(result);
  assert.equal(interpolate('$host $disk', withScope(all, result.placed[4].scoped)), 'a y');
  assert.equal(result.placed[4].row, result.placed[1].key);
  assert.equal(new Set(result.placed.map((one) => one.key)).size, result.placed.length);
});

test('closed_rows_hide_the_panels_inside_of_them_until_they_are_opened', () => {
  const panels = panelsOf({ type: 'row', title: 'R', collapsed: true, gridPos: { x: 0, y: 0, w: 24, h: 1 },
    panels: [panel('in', [0, 40, 12, 5])] }, panel('below', [0, 90, 24, 2]));
  const closed = expandRepeats(panels, new Map());
  assert.deepEqual(shown(closed), ['R 0,0 24x1', 'below 0,1 24x2']);
  const { key } = closed.placed[0];
  const open = expandRepeats(panels, new Map(), { collapsed: new Map([[key, false]]) });
  assert.deepEqual(shown(open), ['R 0,0 24x1', 'in 0,1 12x5', 'below 0,6 24x2']);
});

test('all_repeats_for_each_option', () => {
  const host = { name: 'host', value: ['$__all'], text: 'All', multi: true,
    options: [{ text: 'All', value: '$__all' }, { text: 'A', value: 'a' }, { text: 'B', value: 'b' }] };
  const result = expandRepeats(panelsOf(panel('$host', [0, 0, 24, 2], { repeat: 'host' })), new Map([['host', host]]));
  assert.deepEqual(shown(result), ['$host[host=a] 0,0 12x2', '$host[host=b] 12,0 12x2']);
  assert.equal(interpolate('${host:text}', withScope(new Map([['host', host]]), result.placed[1].scoped)), 'B');
});

test('a_repeat_without_values_or_variable_shows_the_panel_once', () => {
  const panels = panelsOf(panel('a', [0, 0, 8, 2], { repeat: 'none' }), panel('b', [8, 0, 8, 2], { repeat: 'empty' }));
  assert.deepEqual(shown(expandRepeats(panels, selections({ empty: [] }))), ['a 0,0 8x2', 'b 8,0 8x2']);
});

test('overlapping_panels_are_moved_apart_and_gaps_are_closed', () => {
  const panels = panelsOf(panel('a', [0, 5, 12, 4]), panel('b', [6, 6, 12, 4]), panel('c', [18, 30, 6, 4]));
  const result = expandRepeats(panels, new Map());
  assert.deepEqual(shown(result), ['a 0,0 12x4', 'b 6,4 12x4', 'c 18,0 6x4']);
});

test('copies_beyond_the_limit_are_counted_and_left_out', () => {
  const many = Array.from({ length: 600 }, (unused, at) => `h${at}`);
  const panels = panelsOf(panel('a', [0, 0, 8, 2], { repeat: 'h' }), panel('b', [0, 2, 8, 2], { repeat: 'h' }));
  const result = expandRepeats(panels, selections({ h: many }));
  assert.equal(result.placed.length, COPIES_MAX);
  assert.equal(result.omitted, 200);
  const rows = panelsOf({ type: 'row', repeat: 'h', gridPos: { x: 0, y: 0, w: 24, h: 1 } }, panel('c', [0, 1, 8, 2]));
  const repeatedRows = expandRepeats(rows, selections({ h: many }));
  assert.equal(repeatedRows.placed.length + repeatedRows.omitted, 1200);
});

test('random_dashboards_never_overlap_and_are_laid_out_the_same_way_twice', () => {
  let seed = 17;
  const random = (/** @type {number} */ below) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor(seed / 2 ** 32 * below);
  };
  for (let round = 0; round < 300; round += 1) {
    const start = seed;
    const list = Array.from({ length: 1 + random(15) }, (unused, at) => (random(5) === 0
      ? { type: 'row', title: `r${at}`, collapsed: random(2) === 0, repeat: ['', 'v', 'w'][random(3)],
        gridPos: { x: 0, y: random(40), w: 24, h: 1 }, panels: [panel(`in${at}`, [0, random(50), 1 + random(24), 3])] }
      : panel(`p${at}`, [random(30), random(40), random(30), random(9)],
        { repeat: ['', '', 'v', 'w', 'x'][random(5)], repeatDirection: ['h', 'v'][random(2)],
          maxPerRow: random(30) })));
    const chosen = selections({ v: ['a', 'b', 'c'].slice(random(3)), w: ['1'], x: Array.from({ length: random(9) },
      () => `a|w=${random(20)}`) });
    const panels = panelsOf(...list);
    const before = structuredClone(panels);
    const first = expandRepeats(panels, chosen);
    assertNoOverlap(first);
    assert.deepEqual(shown(expandRepeats(panels, chosen)), shown(first), `seed ${start}`);
    assert.deepEqual(panels, before, `seed ${start}: the model stays as it was`);
    assert.equal(new Set(first.placed.map((one) => one.key)).size, first.placed.length, `seed ${start}: unique keys`);
  }
});
