import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PointerMoves } from '../../src/view/pointer';

test('an event at the same place is no movement: something has scrolled below the pointer', () => {
  const moves = new PointerMoves();
  const at = (screenX: number): MouseEvent =>
    new window.MouseEvent('pointermove', { screenX, screenY: 5 });
  assert.ok(moves.isMove(at(1)));
  assert.ok(!moves.isMove(at(1)));
  document.dispatchEvent(at(2));
  assert.ok(!moves.isMove(at(2)));
  assert.ok(moves.isMove(at(3)));
});
