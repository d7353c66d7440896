import assert from 'node:assert/strict';
import { test } from 'node:test';

import { List, plainText } from '../../src/view/list';

interface IListFixture {
  box: HTMLElement;
  list: List;
  more: HTMLElement;
  requestCount: () => number;
}

/** A list of 100 items, two of them on the page. */
function makeList(fail = false): IListFixture {
  let requestCount = 0;
  const box = document.createElement('ol');
  box.innerHTML = '<li>item 0 &lt;b&gt;</li><li>item 1</li>';
  const more = document.createElement('p');
  more.dataset.left = '98';
  more.textContent = 'and 98 more items';
  const omittedItems = Array.from(
    { length: 98 },
    (_, index) =>
      `<li id="i${index + 2}"><a href="#">item ${index + 2}</a></li>`
  );
  const list = new List(box, {
    name: 'items',
    more,
    omittedItems: () => {
      requestCount += 1;
      return fail
        ? Promise.reject(new Error('the kernel is gone'))
        : Promise.resolve(omittedItems);
    }
  });
  document.body.replaceChildren(box, more);
  return { box, list, more, requestCount: () => requestCount };
}

test('omitted items are loaded on demand, and shown page by page', async () => {
  const { box, list, more, requestCount } = makeList();
  assert.equal(list.length, 100);
  assert.equal(requestCount(), 0);
  assert.equal(more.textContent, 'Show 50 of 98 more');
  more.querySelector('button')!.click();
  await new Promise(resolve => setTimeout(resolve));
  assert.equal(requestCount(), 1);
  assert.equal(box.childElementCount, 52);
  assert.equal(more.textContent, 'Show 48 more');
  more.querySelector('button')!.click();
  await new Promise(resolve => setTimeout(resolve));
  assert.equal(box.childElementCount, 100);
  assert(more.hidden);
});

test('the button says why omitted items cannot be loaded', async () => {
  const { box, more } = makeList(true);
  more.querySelector('button')!.click();
  await new Promise(resolve => setTimeout(resolve));
  assert.equal(more.textContent, 'the kernel is gone');
  assert.equal(box.childElementCount, 2);
});

test('a filter searches all items and shows the first matches', async () => {
  const { box, list } = makeList();
  await list.load();
  assert.equal(list.filter(' ITEM 9'), 11);
  assert.equal(box.childElementCount, 11);
  assert.equal(list.filter('<b>'), 1);
  assert.equal(list.filter('href'), 0);
  assert.equal(list.filter(''), 100);
  assert.equal(box.childElementCount, 50);
});

test('an item at the end can be shown despite a filter', async () => {
  const { box, list } = makeList();
  await list.load();
  list.filter('item 1');
  const element = await list.reveal(77);
  assert.equal(element?.id, 'i77');
  assert(box.contains(element));
  assert.equal(await list.reveal(100), null);
});

test('filtering keeps elements and their open parts', async () => {
  const { box, list } = makeList();
  const first = box.firstElementChild;
  list.filter('nothing');
  assert.equal(box.childElementCount, 0);
  list.filter('');
  assert.equal(box.firstElementChild, first);
});

test('markup becomes the text that it shows', () => {
  assert.equal(
    plainText('<a href="#x">a &lt;&#34;&amp;lt;</a>').trim(),
    'a <"&lt;'
  );
});

test('a filter ignores quoted code and buttons, on the page or not', async () => {
  const box = document.createElement('ol');
  const quotes = `<pre class="gb-text gb-diff" tabindex="0"><span>-print()</span></pre>`;
  box.innerHTML = `<li>one<div class="gb-excerpt"><pre>print()</pre></div>${quotes}<div class="gb-actions">print</div></li>`;
  const more = document.createElement('p');
  more.dataset.left = '2';
  const list = new List(box, {
    name: 'items',
    more,
    omittedItems: () =>
      Promise.resolve([
        `<li>two${quotes}<p>after</p></li>`,
        '<li>call of print</li>'
      ])
  });
  await list.load();
  assert.equal(list.filter('print'), 1);
  assert.equal(box.textContent, 'call of print');
  assert.equal(list.filter('after'), 1);
});
