/** The script of a report's own page: everything it needs stands in the page. */
import type { Rest } from './list';
import { enliven } from './view';

function block(name: string): string {
  return (
    document.querySelector(`script[data-graphbreak="${name}"]`)?.textContent ??
    'null'
  );
}

const root = document.querySelector<HTMLElement>('.graphbreak');
if (root !== null) {
  enliven(root, {
    rest: () => Promise.resolve((JSON.parse(block('rest')) ?? {}) as Rest),
    text: () => Promise.resolve(String(JSON.parse(block('text')))),
    json: () => Promise.resolve(block('report'))
  });
}
