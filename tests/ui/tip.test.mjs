import assert from 'node:assert/strict';
import { test } from 'node:test';

import { TipWindow, fittingRows } from '../../src/ui/assets/chart/tip.js';

const all = Array.from({ length: 50 }, (_, index) => index);

test('rows of a tooltip stay in place while the pointer is on one of them', () => {
  const part = new TipWindow();
  assert.equal(part.of(all, 25, 10).first, 20);
  for (const near of [20, 24, 29]) assert.equal(part.of(all, near, 10).first, 20);
  assert.deepEqual(part.of(all, 30, 10).rows, [25, 26, 27, 28, 29, 30, 31, 32, 33, 34]);
  assert.equal(part.of(all, 2, 10).first, 0);
  assert.equal(part.of(all, 49, 10).first, 40);
});

test('a tooltip without a row of the pointer begins with the first row', () => {
  const part = new TipWindow();
  part.of(all, 40, 10);
  assert.equal(part.of(all, -1, 10).first, 0);
});

test('a list that became short is shown from its first row', () => {
  const part = new TipWindow();
  part.of(all, 40, 10);
  assert.deepEqual(part.of([0, 1, 2], 1, 10), { first: 0, rows: [0, 1, 2] });
  assert.deepEqual(part.of([], -1, 10), { first: 0, rows: [] });
});

test('every part of the rows has the row of the pointer', () => {
  const part = new TipWindow();
  let near = 7;
  for (let move = 0; move < 2_000; move += 1) {
    near = (near * 31 + move) % 50;
    const most = fittingRows(40 + ((move * 37) % 600));
    const { first, rows } = part.of(all, near, most);
    assert.ok(rows.includes(near) && rows.length === most && rows[0] === first, `${near} of ${rows}`);
  }
});

test('the rows of a tooltip fit into the height of a plot', () => {
  assert.deepEqual([0, 60, 200, 320, 2_000].map(fittingRows), [4, 4, 7, 12, 24]);
});
