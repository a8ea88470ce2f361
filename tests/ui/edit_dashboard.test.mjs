// Edits of dashboards: places, ids, members that stay, undo, drafts, the clipboard.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { readDashboard } from '../../src/ui/assets/model/dashboard.js';
import { copiedPanel, copyPanel, missingVariables, PANEL_MAX } from '../../src/ui/assets/model/panel_clipboard.js';
import { DRAFTS_MAX, dropDraft, findDraft, keepDraft } from '../../src/ui/assets/model/drafts.js';
import * as edit from '../../src/ui/assets/model/edit_dashboard.js';
import { EditHistory, STEPS_MAX } from '../../src/ui/assets/model/edit_history.js';
import { allPanels, itemsOf, prepareForEditing } from '../../src/ui/assets/model/edit_prepare.js';
import { PANELS_MAX } from '../../src/ui/assets/model/limits.js';
import { expandRepeats } from '../../src/ui/assets/model/repeat.js';
import { checkBeforeSaving } from '../../src/ui/assets/model/save_limits.js';
import { CURRENT } from './dashboard_samples.mjs';

/** @param {number} seed */
function generator(seed) {
  let state = seed >>> 0;
  return (/** @type {number} */ below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** @param {number} id @param {number[]} place @param {object} [more] */
const panel = (id, [x, y, w, h], more = {}) => ({
  id,
  type: 'stat',
  title: `P${id}`,
  gridPos: { x, y, w, h },
  ...more,
});
/** @param {...any} panels */
const prepared = (...panels) => prepareForEditing({ title: 't', panels }).document;
/** Places by id, as `id x,y wxh`. @param {any} document */
const places = (document) =>
  itemsOf(document)
    .sort((a, b) => a.id - b.id)
    .map(({ id, x, y, w, h }) => `${id} ${x},${y} ${w}x${h}`);

/** The first two panels that cover the same cell. @param {any} document */
function overlap(document) {
  const cells = new Map();
  for (const { id, gridPos } of document.panels.filter((/** @type {any} */ one) => one.gridPos && !one.repeatPanelId)) {
    for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1)
      for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
        const other = cells.get(`${x},${y}`);
        if (other !== undefined) return [other, id];
        if (x >= 24) return ['outside', id];
        cells.set(`${x},${y}`, id);
      }
  }
  return null;
}

test('a_panel_changes_places_with_the_one_below_once_it_is_over_half_of_it', () => {
  const document = prepared(panel(1, [0, 0, 12, 8]), panel(2, [0, 8, 12, 8]), panel(3, [12, 0, 12, 4]));
  assert.deepEqual(places(edit.movePanel(document, 1, { x: 0, y: 3 })), ['1 0,0 12x8', '2 0,8 12x8', '3 12,0 12x4']);
  assert.deepEqual(places(edit.movePanel(document, 1, { x: 0, y: 5 })), ['1 0,8 12x8', '2 0,0 12x8', '3 12,0 12x4']);
  assert.deepEqual(places(edit.movePanel(document, 2, { x: 0, y: 3 })), ['1 0,8 12x8', '2 0,0 12x8', '3 12,0 12x4']);
  assert.deepEqual(places(edit.movePanel(document, 3, { x: 99, y: -5 })), places(document), 'the grid is the limit');
});

test('a_panel_that_is_moved_or_grows_pushes_the_others_down', () => {
  const document = prepared(panel(1, [0, 0, 12, 8]), panel(2, [12, 0, 12, 8]));
  assert.deepEqual(places(edit.movePanel(document, 2, { x: 6, y: 0 })), ['1 0,8 12x8', '2 6,0 12x8']);
  assert.deepEqual(places(edit.resizePanel(document, 1, { w: 13, h: 4 })), ['1 0,0 13x4', '2 12,4 12x8']);
  assert.deepEqual(places(edit.resizePanel(document, 2, { w: 99, h: 0 })), ['1 0,0 12x8', '2 12,0 12x1']);
  const tall = prepared(panel(1, [0, 0, 12, 4]), panel(2, [12, 0, 12, 12]), panel(3, [0, 4, 12, 4]));
  assert.deepEqual(places(edit.resizePanel(tall, 3, { w: 14, h: 4 })), ['1 0,0 12x4', '2 12,8 12x12', '3 0,4 14x4']);
});

test('an_edit_that_changes_no_place_returns_the_document_itself', () => {
  const document = prepared(panel(1, [0, 0, 12, 8]), panel(2, [12, 0, 12, 8]));
  assert.equal(edit.movePanel(document, 1, { x: 0, y: 2 }), document);
  assert.equal(edit.resizePanel(document, 2, { w: 40, h: 8 }), document);
});

test('the_keyboard_moves_by_the_fewest_rows_that_change_the_layout', () => {
  const document = prepared(panel(1, [0, 0, 12, 8]), panel(2, [0, 8, 12, 8]));
  assert.deepEqual(places(edit.stepPanel(document, 1, 'down')), ['1 0,8 12x8', '2 0,0 12x8']);
  assert.deepEqual(places(edit.stepPanel(document, 1, 'right')), ['1 1,0 12x8', '2 0,8 12x8']);
  assert.equal(edit.stepPanel(document, 1, 'up'), null);
  assert.equal(edit.stepPanel(document, 1, 'left'), null);
  assert.equal(edit.stepPanel(document, 2, 'down'), null);
});

test('a_copy_of_a_panel_is_beside_it_or_below_it', () => {
  const document = prepared(panel(1, [0, 0, 12, 8], { own: { a: 1 } }), panel(2, [0, 8, 24, 2]));
  const beside = edit.duplicatePanel(document, 1);
  assert.deepEqual(places(beside.document), ['1 0,0 12x8', '2 0,8 24x2', '3 12,0 12x8']);
  assert.deepEqual(edit.panelById(beside.document, beside.id)?.own, { a: 1 });
  const below = edit.duplicatePanel(document, 2);
  assert.deepEqual(places(below.document), ['1 0,0 12x8', '2 0,8 24x2', '3 0,10 24x2']);
});

test('a_row_closes_over_its_panels_and_opens_again', () => {
  const document = prepared(
    panel(1, [0, 0, 24, 2]),
    panel(2, [0, 2, 24, 1], { type: 'row', collapsed: false, panels: [] }),
    panel(3, [0, 3, 12, 4]),
    panel(4, [12, 3, 12, 4]),
    panel(5, [0, 7, 24, 1], { type: 'row', collapsed: false, panels: [] }),
    panel(6, [0, 8, 8, 3]),
  );
  const closed = edit.toggleRow(document, 2);
  assert.deepEqual(places(closed), ['1 0,0 24x2', '2 0,2 24x1', '5 0,3 24x1', '6 0,4 8x3']);
  assert.deepEqual(edit.ownedBy(closed, 2).map(({ id }) => id), [3, 4]);
  assert.deepEqual(places(edit.toggleRow(closed, 2)), places(document));
  assert.deepEqual(
    places(/** @type {any} */ (edit.stepPanel(document, 5, 'up'))),
    ['1 0,0 24x2', '2 0,6 24x1', '3 0,7 12x4', '4 12,7 12x4', '5 0,2 24x1', '6 0,3 8x3'],
  );
  assert.equal(edit.stepPanel(document, 2, 'up'), null, 'the panels above all rows stay first');
  assert.deepEqual(places(edit.removePanel(document, 2, { inside: true })), ['1 0,0 24x2', '5 0,2 24x1', '6 0,3 8x3']);
  const left = ['1 0,0 24x2', '3 0,2 12x4', '4 12,2 12x4', '5 0,6 24x1', '6 0,7 8x3'];
  assert.deepEqual(places(edit.removePanel(closed, 2)), left);
});

test('a_panel_below_a_closed_row_is_shown_by_the_view', () => {
  const document = prepared(
    panel(1, [0, 0, 24, 1], { type: 'row', collapsed: true, panels: [panel(2, [0, 1, 12, 4])] }),
    panel(3, [0, 1, 12, 4]),
  );
  const { placed } = expandRepeats(readDashboard(document).dashboard.panels, new Map());
  assert.deepEqual(placed.map(({ panel: { id }, gridPos: { y } }) => [id, y]), [[1, 0], [3, 1]]);
});

test('old_rows_become_panels_of_the_grid_and_the_page_says_so', () => {
  const { document, notes } = prepareForEditing({
    title: 'old',
    schemaVersion: 12,
    own: 1,
    rows: [
      {
        title: 'A',
        showTitle: true,
        height: '250px',
        panels: [{ id: 1, span: 6, type: 'graph', own: 2 }, { id: 1, span: 6 }],
      },
      { title: 'B', collapse: true, repeat: 'job', panels: [{ id: 3, span: 12, type: 'graph' }] },
    ],
  });
  assert.equal(document.rows, undefined);
  assert.deepEqual([document.own, document.schemaVersion], [1, 16]);
  assert.equal(notes.length, 2, notes.join());
  assert.match(notes[0], /rows of an old version/);
  const [a, first, second, b] = document.panels;
  assert.deepEqual([a.type, a.title, b.type, b.collapsed, b.repeat], ['row', 'A', 'row', true, 'job']);
  assert.deepEqual([first.own, first.gridPos, second.gridPos.x], [2, { x: 0, y: 1, w: 12, h: 7 }, 12]);
  assert.deepEqual(b.panels.map((/** @type {any} */ one) => one.id), [3]);
  assert.equal(new Set(allPanels(document).map(({ id }) => id)).size, 5);
  assert.equal(overlap(document), null);
});

test('an_edit_of_a_panel_keeps_its_id_and_its_place', () => {
  const document = prepareForEditing(CURRENT).document;
  const changed = edit.replacePanel(document, 4, { id: 99, type: 'gauge', gridPos: { x: 5, y: 5, w: 5, h: 5 } });
  assert.deepEqual(edit.panelById(changed, 4), { id: 4, type: 'gauge', gridPos: { x: 0, y: 10, w: 4, h: 4 } });
  assert.equal(edit.replacePanel(document, 77, {}), document);
});

test('the_501st_panel_is_refused_with_the_limit', () => {
  const document = prepared(...Array.from({ length: PANELS_MAX }, (_, at) => panel(at + 1, [0, at, 24, 1])));
  assert.throws(() => edit.addPanel(document, { type: 'stat' }), /at most 500 panels/);
});

/** @type {import('../../src/ui/assets/model/edit_layout.js').Direction[]} */
const DIRECTIONS = ['left', 'right', 'up', 'down'];

/** Every member that no edit names, by panel. @param {any} document */
const unknown = (document) =>
  JSON.stringify([
    document.own,
    document.annotations,
    document.links,
    allPanels(document)
      .map(({ id, own, targets, gridPos }) => [id, own ?? null, targets ?? null, gridPos?.static ?? null])
      .sort((a, b) => a[0] - b[0]),
  ]);

test('random_edits_keep_unknown_members_never_overlap_and_can_be_undone', () => {
  for (let round = 0; round < 60; round += 1) {
    const seed = round * 7919 + 17;
    const random = generator(seed);
    const said = `seed ${seed}`;
    const source = {
      title: 't',
      own: { deep: [1, { b: null }] },
      links: [{ x: 1 }],
      annotations: { list: [{ own: 2 }] },
      panels: Array.from({ length: random(14) }, (_, at) => {
        const [w, h] = [1 + random(24), 1 + random(9)];
        const one = panel(random(8) === 0 ? 1 : at + 1, [random(25 - w), random(40), w, h], { own: at });
        if (random(6) === 0) Object.assign(one.gridPos, { static: true });
        const inside = random(2) === 0 ? [panel(100 + at, [0, 0, 6, 3], { own: 'in' })] : [];
        if (random(5) === 0) return { ...one, type: 'row', collapsed: random(2) === 0, panels: inside };
        return random(9) === 0 ? { id: at + 50, type: 'stat' } : one;
      }),
    };
    const original = JSON.stringify(source);
    const first = prepareForEditing(source).document;
    assert.equal(JSON.stringify(source), original, `${said}: the stored document stays`);
    assert.equal(overlap(first), null, `${said}: prepared`);
    const start = JSON.stringify(first);
    for (const word of [/"static":true/g, /"own":/g]) {
      const count = (/** @type {string} */ text) => (text.match(word) ?? []).length;
      assert.equal(count(start), count(original), `${said}: preparation keeps ${word}`);
    }
    const history = new EditHistory(first);
    let expected = unknown(first);
    for (let step = 0; step < 40; step += 1) {
      const document = history.state;
      const all = allPanels(document);
      const { id } = all[random(Math.max(1, all.length))] ?? { id: 1 };
      const [x, y] = [random(30) - 3, random(50) - 5];
      let next = document;
      const act = random(8);
      if (act < 2) next = edit.movePanel(document, id, { x, y });
      else if (act === 2) next = edit.resizePanel(document, id, { w: x, h: y });
      else if (act === 3) next = edit.stepPanel(document, id, DIRECTIONS[random(4)]) ?? document;
      else if (act === 4) next = edit.toggleRow(document, id);
      else if (act === 5) ({ document: next } = edit.duplicatePanel(document, id));
      else if (act === 6 && random(3) === 0) next = edit.removePanel(document, id, { inside: random(2) === 0 });
      else if (act === 7 && random(2) === 0) ({ document: next } = edit.addRow(document, 'r'));
      else if (act === 7) ({ document: next } = edit.addPanel(document, { type: 'stat' }));
      const where = `${said}, step ${step}, edit ${act} of ${id}`;
      if (act < 5) assert.equal(unknown(next), expected, `${where}: members that no edit names stay`);
      expected = unknown(next);
      assert.equal(overlap(next), null, `${where}: two panels overlap`);
      const ids = allPanels(next).map((one) => one.id);
      assert.equal(new Set(ids).size, ids.length, `${where}: ids are unique`);
      const { placed } = expandRepeats(readDashboard(next).dashboard.panels, new Map());
      const place = (/** @type {number} */ of, /** @type {any} */ { x: left, y: top, w, h }) =>
        `${of} ${left},${top} ${w}x${h}`;
      const view = placed.map(({ panel: one, gridPos }) => place(/** @type {number} */ (one.id), gridPos));
      const stored = next.panels.map((/** @type {any} */ one) => place(one.id, one.gridPos));
      assert.deepEqual(view.sort(), stored.sort(), `${where}: the view shows the stored places`);
      history.push(next, 'edit');
    }
    while (history.undo() !== null);
    assert.equal(history.state, first, `${said}: undo leads back`);
    assert.equal(JSON.stringify(history.state), start, `${said}: and the document never changed`);
  }
});

test('consecutive_moves_of_one_panel_are_one_step', () => {
  const history = new EditHistory(0);
  history.push(1, 'move a', 'move a');
  history.push(2, 'move a', 'move a');
  history.push(3, 'move b', 'move b');
  assert.equal(history.undo(), 'move b');
  assert.equal(history.state, 2);
  history.push(4, 'move a', 'move a');
  assert.equal(history.undo(), 'move a');
  assert.equal(history.state, 2, 'a move after an undo is a step of its own');
  history.undo();
  assert.equal(history.state, 0);
  assert.equal(history.redo(), 'move a');
  assert.deepEqual([history.state, history.canRedo], [2, true]);
  history.push(5, 'other');
  assert.deepEqual([history.canRedo, history.undoLabel], [false, 'other']);
  history.push(6, 'move a', 'move a');
  history.undo();
  history.redo();
  history.push(7, 'move a', 'move a');
  history.undo();
  assert.equal(history.state, 6, 'a move after a redo is a step of its own');
});

test('the_history_forgets_the_oldest_steps', () => {
  const history = new EditHistory(0);
  for (let at = 1; at <= STEPS_MAX + 10; at += 1) history.push(at, String(at));
  while (history.undo() !== null);
  assert.equal(history.state, 10);
});

/** @param {number} [room] UTF-16 code units */
function storage(room = Infinity) {
  /** @type {Map<string, string>} */
  const map = new Map();
  return /** @type {any} */ ({
    get length() {
      return map.size;
    },
    key: (/** @type {number} */ at) => [...map.keys()][at] ?? null,
    getItem: (/** @type {string} */ key) => map.get(key) ?? null,
    removeItem: (/** @type {string} */ key) => map.delete(key),
    setItem(/** @type {string} */ key, /** @type {string} */ value) {
      const used = [...map].reduce((sum, [name, text]) => sum + (name === key ? 0 : text.length), 0);
      if (used + value.length > room) throw new Error('QuotaExceededError');
      map.set(key, value);
    },
  });
}

test('drafts_are_kept_found_and_dropped_and_the_newest_twenty_stay', () => {
  const store = storage();
  const draft = (/** @type {number} */ at) => ({ at, version: 3, document: { title: `t${at}` }, folder: 'f' });
  for (let at = 1; at <= DRAFTS_MAX + 3; at += 1) assert.ok(keepDraft(store, 'o', `u${at}`, draft(at)));
  assert.equal(store.length, DRAFTS_MAX);
  assert.equal(findDraft(store, 'o', 'u3'), null);
  assert.deepEqual(findDraft(store, 'o', 'u4'), draft(4));
  assert.equal(findDraft(store, 'p', 'u4'), null, 'another organisation has its own');
  dropDraft(store, 'o', 'u4');
  assert.equal(findDraft(store, 'o', 'u4'), null);
  store.setItem('promlet.draft.o/bad', '{"at":1,"version":"x"}');
  assert.equal(findDraft(store, 'o', 'bad'), null);
  assert.equal(findDraft(null, 'o', 'u'), null, 'a browser that refuses storage has no drafts');
  assert.equal(keepDraft(null, 'o', 'u', draft(1)), false);
});

test('older_drafts_make_room_and_a_draft_that_is_too_large_is_not_kept', () => {
  const store = storage(250);
  const draft = (/** @type {number} */ at) => ({ at, version: 1, document: { text: 'x'.repeat(60) }, folder: '' });
  for (const at of [1, 2, 3]) assert.ok(keepDraft(store, 'o', `u${at}`, draft(at)));
  assert.equal(findDraft(store, 'o', 'u1'), null);
  assert.ok(findDraft(store, 'o', 'u3'));
  assert.equal(keepDraft(store, 'o', 'u9', { ...draft(9), document: { text: 'x'.repeat(300) } }), false);
  assert.equal(keepDraft(storage(), 'o', 'u', { ...draft(1), document: { text: 'x'.repeat(1.1e6) } }), false);
});

test('only_a_panel_is_read_back_from_the_clipboard', () => {
  const store = storage();
  assert.equal(copiedPanel(store), null);
  assert.ok(copyPanel(store, { type: 'stat', id: 3, own: 1 }));
  assert.deepEqual(copiedPanel(store), { type: 'stat', id: 3, own: 1 });
  const key = store.key(0);
  const deep = `{"type":"a","x":${'['.repeat(200)}${']'.repeat(200)}}`;
  for (const text of ['', '[]', 'null', '{"type":"row"}', '{"id":1}', '{', deep]) {
    store.setItem(key, text);
    assert.equal(copiedPanel(store), null, text.slice(0, 20));
  }
  assert.equal(copyPanel(store, { type: 'stat', text: 'x'.repeat(PANEL_MAX) }), false);
});

test('the_bounds_of_the_server_are_checked_before_saving_and_named', () => {
  const good = prepared(panel(1, [0, 0, 12, 8]));
  checkBeforeSaving(good, 'Infra');
  const nested = (/** @type {number} */ levels) => JSON.parse(`${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`);
  checkBeforeSaving({ ...good, own: nested(63) }, '');
  /** @type {[object, string, RegExp][]} */
  const bad = [
    [{ ...good, title: '' }, '', /needs a title/],
    [{ ...good, title: 'x'.repeat(201) }, '', /limit is 200/],
    [good, 'f'.repeat(201), /folder has 201 characters; the limit is 200/],
    [{ ...good, tags: Array.from({ length: 51 }, String) }, '', /51 tags; the limit is 50/],
    [{ ...good, own: nested(64) }, '', /over 64 levels/],
    [{ ...good, own: 'x'.repeat(1024 * 1024) }, '', /1 MiB/],
    [{ ...good, templating: { list: Array.from({ length: 51 }, (_, at) => ({ name: `v${at}` })) } }, '', /limit is 50/],
  ];
  for (const [document, folder, message] of bad) assert.throws(() => checkBeforeSaving(document, folder), message);
});

test('a_pasted_panel_names_the_variables_that_are_missing', () => {
  const title = '$job on ${host:regex} [[zone]]';
  const copied = { type: 'stat', title, targets: [{ expr: 'a[$__interval] $1 $job' }] };
  assert.deepEqual(missingVariables(copied, [{ name: 'host' }]), ['job', 'zone']);
});

test('links_are_settings_and_links_to_nowhere_are_dropped', () => {
  const kept = { type: 'link', title: 'Docs', url: '/docs', own: 1 };
  const document = { title: 't', panels: [], links: [kept] };
  assert.equal(edit.setDashboardSettings(document, { title: 'u' }).links, document.links, 'unchanged members stay');
  const menu = { type: 'dashboards', title: 'Hosts', tags: ['host'], url: '' };
  const empty = { type: 'link', title: 'New', url: ' ' };
  assert.deepEqual(edit.setDashboardSettings(document, { links: [kept, empty, menu, 7] }).links, [kept, menu]);
  assert.deepEqual(edit.setDashboardSettings(document, { links: [] }).links, []);
});
