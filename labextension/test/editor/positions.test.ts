import assert from 'node:assert/strict';
import { test } from 'node:test';

import { align } from '../../src/editor/positions';

test('lines are matched after insertions and deletions', () => {
  const linesAfter = (after: string): (number | null)[] => {
    const lineAfter = align([...'abcde'], [...after]);
    return [1, 2, 3, 4, 5].map(lineAfter);
  };
  assert.deepEqual(linesAfter('abcde'), [1, 2, 3, 4, 5]);
  assert.deepEqual(linesAfter('xabcde'), [2, 3, 4, 5, 6]);
  assert.deepEqual(linesAfter('abxycde'), [1, 2, 5, 6, 7]);
  assert.deepEqual(linesAfter('abde'), [1, 2, null, 3, 4]);
  assert.deepEqual(linesAfter('abXde'), [1, 2, 3, 4, 5]);
  assert.deepEqual(linesAfter('aXXde'), [1, 2, 3, 4, 5]);
  assert.deepEqual(linesAfter(''), [null, null, null, null, null]);
});
