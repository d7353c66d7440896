import assert from 'node:assert/strict';
import { test } from 'node:test';

import { activityOf, countsOf, ProgressLine } from '../../src/embed/progress';

const PROGRESS = {
  phase: 'compiling',
  function: '<b>step</b>',
  frames: 3,
  graphs: 1,
  breaks: 0,
  elapsed_s: 12,
  left_s: null
};

test('the line shows the compiled function, the counts and the time', () => {
  assert.equal(activityOf(null), 'starting');
  assert.equal(
    activityOf({ ...PROGRESS, function: null, phase: 'running' }),
    'running'
  );
  assert.equal(
    countsOf(PROGRESS, 12.34),
    '3 frames, 1 graph, 0 breaks so far | 12.3 s'
  );
  assert.equal(countsOf(null, 125), '2 min 5 s');
  assert.equal(
    countsOf({ ...PROGRESS, left_s: null }, 12.34),
    countsOf(PROGRESS, 12.34)
  );
  const trying = { ...PROGRESS, phase: 'trying', left_s: 10 };
  assert.equal(countsOf(trying, 14), '8 s left');
  assert.equal(countsOf(trying, 24), 'about to end');
});

test('the clock runs between messages, at most five times a second', t => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const line = new ProgressLine();
  line.show(PROGRESS);
  const texts = new Set<string>();
  for (let step = 0; step < 200; step += 1) {
    now += 10;
    t.mock.timers.tick(10);
    texts.add(line.element.textContent ?? '');
  }
  assert(texts.size >= 9 && texts.size <= 11, String(texts.size));
  assert([...texts].at(-1)!.includes('compiling <b>step</b> | 3 frames'));
  line.dispose();
});
