// The words of <metric-alerts>.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countText, durationText } from '../../src/ui/assets/alert_list/times.js';
import { embedWords } from '../../src/ui/assets/chart/problems.js';

test('a duration has the two largest units', () => {
  const cases = [
    [-5, 'less than 1 min'],
    [59.9, 'less than 1 min'],
    [60, '1 min'],
    [3599, '59 min'],
    [3600, '1 h'],
    [3 * 3600 + 305, '3 h 5 min'],
    [86_400, '1 d'],
    [3 * 86_400 + 2 * 3600 + 59, '3 d 2 h'],
  ];
  for (const [seconds, text] of cases) assert.equal(durationText(seconds), text, String(seconds));
});

test('counts name the states that are listed', () => {
  const counts = { firing: 2, pending: 1 };
  assert.equal(countText(counts, ''), '2 firing, 1 pending');
  assert.equal(countText(counts, 'firing'), '2 firing');
  assert.equal(countText(counts, 'pending'), '1 pending');
});

test('a refused list names itself and the missing grant', () => {
  const problem = { code: 'embed_restricted', status: 403, retryAfter: 0 };
  const place = { server: 'https://s', page: 'https://p', org: 'acme', element: 'metric-alerts' };
  const words = embedWords(problem, place);
  assert.equal(words.visitor, 'This list is not available.');
  assert.match(words.hint, /Name alerts in the policy/);
  assert.equal(embedWords(problem, { ...place, element: undefined }).visitor, 'This chart is not available.');
});
