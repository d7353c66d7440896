/** The script of a page with reports in it; beside every report stands all the data that it needs. */
import type { Rest } from './list';
import { addBehaviour } from './view';

for (const root of document.querySelectorAll<HTMLElement>('.graphbreak')) {
  const blocks = Array.from(root.parentElement!.children).filter(
    element => element instanceof HTMLScriptElement
  );
  const block = (name: string): string =>
    blocks.find(element => element.dataset.graphbreak === name)?.textContent ??
    'null';
  // A report without these blocks was put into the page by something else, with its own script or none.
  if (blocks.some(element => element.dataset.graphbreak === 'report')) {
    addBehaviour(root, {
      rest: () => Promise.resolve((JSON.parse(block('rest')) ?? {}) as Rest),
      text: () => Promise.resolve(String(JSON.parse(block('text')))),
      json: () => Promise.resolve(block('report'))
    });
  }
}
