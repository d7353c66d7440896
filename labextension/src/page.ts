/** The script of a page with reports in it: everything they need stands beside each of them. */
import type { Rest } from './list';
import { enliven } from './view';

for (const root of document.querySelectorAll<HTMLElement>('.graphbreak')) {
  const blocks = Array.from(root.parentElement!.children).filter(
    each => each instanceof HTMLScriptElement
  );
  const block = (name: string): string =>
    blocks.find(each => each.dataset.graphbreak === name)?.textContent ??
    'null';
  // A report without them came from elsewhere, with its own script or none.
  if (blocks.some(each => each.dataset.graphbreak === 'report')) {
    enliven(root, {
      rest: () => Promise.resolve((JSON.parse(block('rest')) ?? {}) as Rest),
      text: () => Promise.resolve(String(JSON.parse(block('text')))),
      json: () => Promise.resolve(block('report'))
    });
  }
}
