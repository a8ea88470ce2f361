// What a refresh of a chart requests again.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Loader } from '../../src/ui/assets/chart/loader.js';
import { chartQuery } from '../../src/ui/assets/chart/query.js';

/** A multiple of two hours, in unix seconds: a boundary of the grid of 30 days. */
const BOUNDARY = 1_700_006_400;
const attributes = { org: 'a', expr: 'up', range: '30d' };
const element = (changed = {}) => ({ getAttribute: (name) => ({ ...attributes, ...changed })[name] ?? null });

/** Loads at the given seconds after the boundary; returns the number of requests of each load. */
async function requests(seconds, { scheduled = true, changed = [] } = {}) {
  const loader = new Loader();
  const counts = [];
  const [{ fetch }, { now }] = [globalThis, Date];
  try {
    for (const [round, after] of seconds.entries()) {
      let count = 0;
      Date.now = () => (BOUNDARY + after) * 1000;
      globalThis.fetch = async () => {
        count += 1;
        return new Response(
          JSON.stringify({ data: { resultType: 'matrix', result: [] }, stats: { samples: 5, series: 1 } }),
        );
      };
      const query = chartQuery(element(changed[round]), 800, 'http://x', BOUNDARY + after);
      assert.ok(await loader.load(query, scheduled && round > 0, () => {}));
      counts.push(count);
    }
    assert.equal(loader.summary.stats.samples, 10, 'the cost of grid and tail is added');
  } finally {
    [globalThis.fetch, Date.now] = [fetch, now];
  }
  return counts;
}

test('a refresh without a new step requests only the newest point', async () => {
  assert.deepEqual(await requests([600, 615, 630]), [2, 1, 1]);
});

test('a response is requested again until its last step is a minute old', async () => {
  assert.deepEqual(await requests([10, 25, 80, 95]), [2, 2, 2, 1]);
});

test('a new step, five minutes, another query and an explicit reload request everything', async () => {
  assert.deepEqual(await requests([7_190, 7_205]), [2, 2]);
  assert.deepEqual(await requests([600, 890, 905]), [2, 1, 2]);
  assert.deepEqual(await requests([600, 615], { changed: [{}, { expr: 'down' }] }), [2, 2]);
  assert.deepEqual(await requests([600, 615], { scheduled: false }), [2, 2]);
});
