import assert from 'node:assert/strict';
import { test } from 'node:test';

import { showExcerpt } from '../../src/view/excerpt';

test('an excerpt contains whole lines with their notes', () => {
  const root = document.createElement('div');
  const lines = [1, 2, 3, 4, 5, 6].map(
    number => `<span class="gb-line" id="l0-${number}">${number}</span><span class="gb-line gb-note">note ${number}</span>` // prettier-ignore
  );
  root.innerHTML = `<div class="gb-code">${lines.join('')}</div><li></li>`;
  const card = root.querySelector('li')!;
  showExcerpt(root.querySelector<HTMLElement>('#l0-4')!, card);
  const rows = Array.from(card.querySelectorAll('.gb-line'), row => row.textContent); // prettier-ignore
  assert.deepEqual(
    rows,
    [2, 3, 4, 5, 6].flatMap(number => [String(number), `note ${number}`])
  );
  assert.equal(card.querySelector('.gb-selected')?.textContent, '4');
});
