import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RemedyButtons } from '../../src/view/remedybuttons';
import { Toolbar } from '../../src/view/toolbar';

const MARKUP = `<p class="gb-together" data-remedies="1 0 "></p>
  <li class="gb-item gb-break"><details><summary><strong><span class="gb-cut">✂1</span></strong></summary>
    <div class="gb-remedy" data-remedy="0" data-apply="edit" data-copy=""><strong>First</strong></div>
    <div class="gb-remedy" data-remedy="1" data-apply="cell" data-copy="code"><strong>Second</strong></div>
    <div class="gb-remedy" data-remedy="2" data-apply="" data-copy="patch"><strong>Third</strong></div>
    <div class="gb-remedy"><strong>Shown elsewhere</strong></div>
    <div class="gb-remedy" data-reproducer="1"><details><summary><strong>Script</strong></summary></details></div>
  </details></li>`;

function setUp(): {
  root: HTMLElement;
  buttons: RemedyButtons;
  messages: string[];
} {
  const root = document.createElement('div');
  root.innerHTML = MARKUP;
  const messages: string[] = [];
  const buttons = new RemedyButtons(root, {
    json: () => Promise.resolve('{"remedies": null}'),
    announce: result =>
      messages.push(typeof result === 'string' ? result : result.message)
  });
  buttons.refresh();
  return { root, buttons, messages };
}

function names(root: HTMLElement): string[] {
  return Array.from(
    root.querySelectorAll('button'),
    button => button.getAttribute('aria-label') ?? button.textContent ?? ''
  );
}

const COPIES = [
  'Copy code: Second',
  'Copy patch: Third',
  'Copy script: Script',
  'Copy issue: Script',
  'Copy as Markdown: break ✂1'
];

test('without actions there are only copy buttons, added once', () => {
  const { root, buttons } = setUp();
  assert.deepEqual(names(root), COPIES);
  buttons.refresh();
  assert.deepEqual(names(root), COPIES);
});

test('the actions receive the chosen remedies', async () => {
  const { root, buttons, messages } = setUp();
  const applied: (readonly number[])[] = [];
  let tried = 0;
  buttons.actions = {
    apply: places => {
      const remedies = places.map(({ at }) => at);
      applied.push(remedies);
      return remedies[0] === 0
        ? Promise.resolve({ message: 'Applied' })
        : Promise.reject(new Error('Not applied: it changed'));
    },
    tryRemedies: () => Promise.resolve(void (tried += 1))
  };
  assert.deepEqual(names(root), [
    'Apply: Compatible remedies',
    'Apply: First',
    'Insert as cell: Second',
    ...COPIES
  ]);
  const toolbar = new Toolbar({
    nextBreak: () => Promise.resolve(),
    load: () => Promise.resolve(''),
    follow: () => undefined,
    setColumn: () => undefined
  });
  root.dataset.untried = '1';
  buttons.offerIn(toolbar);
  for (const button of [
    ...root.querySelectorAll('button'),
    ...toolbar.element.querySelectorAll('button')
  ]) {
    if (/Apply|Insert|Try/.test(button.textContent ?? '')) {
      button.click();
    }
  }
  await new Promise(resolve => setTimeout(resolve));
  assert.deepEqual(applied, [[1, 0], [0], [1]]);
  assert.equal(tried, 1);
  assert.deepEqual(messages.filter(message => message !== ''), ['Not applied: it changed', 'Applied', 'Not applied: it changed']); // prettier-ignore
});

test('the script and the text for an issue are copied', async () => {
  const root = document.createElement('div');
  root.innerHTML = MARKUP;
  const reproducers = [null, { script: 'import torch', issue: '### Bug' }];
  const messages: string[] = [];
  new RemedyButtons(root, {
    json: () => Promise.resolve(JSON.stringify({ reproducers })),
    announce: result =>
      messages.push(typeof result === 'string' ? result : result.message)
  }).refresh();
  const written: string[] = [];
  const writeText = (text: string) => Promise.resolve(void written.push(text));
  Object.defineProperty(navigator, 'clipboard', {
    value: { writeText },
    configurable: true
  });
  for (const button of root.querySelectorAll('button')) {
    if (/Copy (script|issue)/.test(button.textContent ?? '')) {
      button.click();
    }
  }
  await new Promise(resolve => setTimeout(resolve));
  assert.deepEqual(written, ['import torch', '### Bug']);
  assert.deepEqual(messages, ['Script copied', 'Issue text copied']);
});
