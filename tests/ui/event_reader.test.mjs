// The parser of server-sent events.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventReader } from '../../src/ui/assets/chart/event_reader.js';

const STREAM =
  'retry: 2000\n\n: alive\n\nevent: points\ndata: {"id":"1","time":15}\n\nid: 15000\nevent: points\r\n' +
  'data: {"id":"2",\ndata:"time":15}\r\n\r\nevent: gap\n\ndata: last\nid\n\ndata: never complete\n';
const EVENTS = [
  { type: 'points', data: '{"id":"1","time":15}', id: null },
  { type: 'points', data: '{"id":"2",\n"time":15}', id: '15000' },
  { type: 'message', data: 'last', id: '' },
];

/** Numbers from 0 to 1, the same for the same seed. */
function random(seed) {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 4_294_967_296;
    return state / 4_294_967_296;
  };
}

test('events are the same wherever the text is cut', () => {
  for (let seed = 1; seed <= 200; seed += 1) {
    const [next, reader, found] = [random(seed), new EventReader(), []];
    for (let at = 0; at < STREAM.length; ) {
      const end = at + 1 + Math.floor(next() * 20);
      found.push(...reader.push(STREAM.slice(at, end)));
      at = end;
    }
    assert.deepEqual(found, EVENTS, `seed ${seed}`);
  }
});

test('an event without an end is refused before it fills the memory', () => {
  const piece = 'x'.repeat(1 << 16);
  for (const line of [piece, `${piece}\n`, `data: ${piece}\n`]) {
    const reader = new EventReader();
    let pieces = 0;
    assert.throws(
      () => {
        for (; pieces < 1000; pieces += 1) reader.push(line);
      },
      { code: 'unreadable_answer' },
    );
    assert.ok(pieces <= 65, `${pieces} pieces`);
  }
});

test('many long events are no long event', () => {
  const reader = new EventReader();
  for (let count = 0; count < 200; count += 1) {
    assert.equal(reader.push(`data: ${'x'.repeat(1 << 16)}\n\n`).length, 1);
  }
});
