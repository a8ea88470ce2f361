// The canvas of the cursor is used only while something is on it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CursorCanvas } from '../../src/ui/assets/chart/cursor_canvas.js';

/** A canvas that lists the calls of its pen. */
function fakeCanvas() {
  /** @type {string[]} */
  const calls = [];
  const pen = new Proxy({}, {
    get: (_, name) => () => calls.push(String(name)),
    set: () => true,
  });
  const canvas = /** @type {any} */ ({ width: 0, height: 0, pens: 0, getContext() { this.pens += 1; return pen; } });
  const since = () => calls.splice(0).filter((name) => name !== 'scale');
  return { canvas, since };
}

const place = /** @type {any} */ ({
  width: 100, height: 50, plot: { top: 0, bottom: 40 }, x: (/** @type {number} */ at) => at, y: (/** @type {number} */ value) => value,
});
/** @param {number} lines @param {number|null} cursor @param {number[]|null} [band] */
const what = (lines, cursor, band = null) => /** @type {any} */ ({
  data: { times: [0, 1] }, shown: Array.from({ length: lines }, () => ({ values: [1, 2], colour: 0 })),
  colours: { accent: '#000', background: '#fff', series: ['#111'] }, cursor, band,
});

test('a pointer over many lines does not touch the canvas', () => {
  const { canvas } = fakeCanvas();
  globalThis.devicePixelRatio = 1;
  const cursor = new CursorCanvas(canvas);
  for (const at of [0, 1, null]) cursor.draw([100, 50], place, what(41, at));
  cursor.draw([100, 50], null, null);
  assert.equal(canvas.pens, 0);
  cursor.draw([100, 50], place, what(40, 1));
  assert.equal(canvas.pens, 1);
});

test('what was on the canvas is cleared once', () => {
  const { canvas, since } = fakeCanvas();
  globalThis.devicePixelRatio = 1;
  const cursor = new CursorCanvas(canvas);
  const dot = ['beginPath', 'arc', 'fill', 'stroke'];
  cursor.draw([100, 50], place, what(1, 0));
  assert.deepEqual(since(), dot);
  cursor.draw([100, 50], place, what(1, 1));
  assert.deepEqual(since(), ['clearRect', ...dot]);
  cursor.draw([100, 50], place, what(50, 1));
  assert.deepEqual(since(), ['clearRect']);
  cursor.draw([100, 50], place, what(50, 0));
  assert.deepEqual(since(), []);
  cursor.draw([100, 50], place, what(50, 0, [10, 20]));
  assert.deepEqual(since(), ['fillRect']);
  cursor.draw([100, 50], null, null);
  cursor.draw([100, 50], null, null);
  assert.deepEqual(since(), ['clearRect']);
});
