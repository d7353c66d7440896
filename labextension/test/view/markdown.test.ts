import assert from 'node:assert/strict';
import { test } from 'node:test';

import { cardAsMarkdown } from '../../src/view/markdown';

function markdownOf(card: string, line = ''): string {
  const root = document.createElement('div');
  root.dataset.prefix = 'p-';
  root.innerHTML = `<div class="gb-code">${line}</div>
    <ol><li class="gb-item gb-break" data-in="l0-2"><details>${card}</details></li></ol>`;
  return cardAsMarkdown(root.querySelector('details')!, root);
}

const SUMMARY =
  '<summary><strong><span>✂1</span> Why <small>GB1</small></strong><br><span>allowed by f_g(True), line 3</span></summary>';

test('a card has the same content in Markdown', () => {
  const text = markdownOf(
    `${SUMMARY}<section><h5>Remedies</h5><div><p><b>✓ works</b> <strong>With <code>where</code></strong></p>
     <pre class="gb-diff">-a\n+b\n</pre><div class="gb-actions"><button>Apply</button></div></div></section>
     <dl><dt>Why</dt><dd>it is so</dd></dl><ul><li>one</li><li><ul><li>two</li></ul></li></ul>`
  );
  assert.equal(
    text,
    [
      '**Graph break:** Why GB1',
      'allowed by `f_g(True)`, line 3',
      '**Remedies**',
      '✓ works With `where`',
      '```diff\n-a\n+b\n```',
      '- Why: it is so',
      '- one\n  - two'
    ].join('\n\n')
  );
});

test('the lines around the break come first, without annotations', () => {
  const lines = [1, 2, 3].map(
    number =>
      `<span class="gb-line" id="p-l0-${number}"><i>${number}</i><code>x = ${number}<span class="gb-via"> → ✂1</span></code></span>`
  );
  const text = markdownOf(SUMMARY, lines.join(''));
  assert(
    text.includes('```\n     1  x = 1\n>    2  x = 2\n     3  x = 3\n```')
  );
});

test('separators and titles of folds, which only make sense on the page, are left out', () => {
  const text = markdownOf(
    `<summary><strong>Why</strong><span>allowed by default | adds 1 graph, 0.1 s of a|b</span></summary>
     <details class="gb-more"><summary>3 other ways</summary><h5>Other ways</h5><ul><li>one</li></ul></details>
     <details class="gb-more gb-failed"><summary>2 trials failed</summary><p>with it</p></details>`
  );
  assert.equal(
    text,
    [
      '**Graph break:** Why',
      'allowed by default; adds 1 graph, 0.1 s of `a|b`',
      '**Other ways**',
      '- one',
      '**2 trials failed**',
      'with it'
    ].join('\n\n')
  );
});

test('untrusted text is neither markup nor a mention', () => {
  const text = markdownOf(
    `${SUMMARY}<p>&lt;img src=x&gt; @somebody [a](b) *c* a \`tick</p><pre>\`\`\`\nend</pre>`
  );
  const [, paragraph, code] = text.split('\n\n').slice(-3);
  assert.equal(
    paragraph,
    '`<img` `src=x>` `@somebody` `[a](b)` `*c*` a `` `tick ``' // prettier-ignore
  );
  assert.equal(code, '````\n```\nend\n````');
});
