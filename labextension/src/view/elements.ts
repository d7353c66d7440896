/** Elements: how to make one, and what an element of a report's markup refers to, shows and says. */
import { isKnownPage } from '../report/shown';

/** Make an element with a class. */
export function makeElement<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  name = ''
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  element.className = name;
  return element;
}

/** Make the picture of a key. */
export function makeKey(key: string): HTMLElement {
  const element = makeElement('kbd');
  element.textContent = key;
  return element;
}

/** The references of what lights up with an element. */
export function referencesIn(element: HTMLElement): string[] {
  return (element.dataset.in ?? '')
    .split(' ')
    .filter(reference => reference !== '');
}

/** The reference of the line that an element is about. */
export function ownLineOf(element: HTMLElement): string | undefined {
  return referencesIn(element).find(other => /^l\d/.test(other));
}

/** Unfold everything around an element. */
export function openFolds(element: Element): void {
  for (
    let outer = element.parentElement;
    outer !== null;
    outer = outer.parentElement
  ) {
    if (outer.matches('.gb-fold, .gb-source, .gb-minor, .gb-item > details')) {
      outer.toggleAttribute('open', true);
    }
  }
}

/** Scroll the box that an element is in, as far as needed. */
export function scrollTo(element: HTMLElement): void {
  const box = element.closest<HTMLElement>('.gb-sources, .gb-panel');
  if (box === null) {
    return;
  }
  const inner = element.getBoundingClientRect();
  const outer = box.getBoundingClientRect();
  const above = inner.top - outer.top;
  if (above < 0 || inner.bottom > outer.bottom) {
    box.scrollTop += above - Math.max(8, (outer.height - inner.height) / 3);
  }
}

/** Scroll the page so that elements are in view; where there is no room for all, the first is. */
export function scrollPageTo(elements: readonly HTMLElement[]): void {
  for (const element of [...elements].reverse()) {
    element.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }
}

/** Whether an element can be seen and take the focus: browsers differ in what they say of parts that are folded. */
export function isShown(element: HTMLElement): boolean {
  const outer = element.matches('summary')
    ? element.parentElement?.parentElement
    : element;
  // Asked last, as it may have the page laid out.
  return (
    !outer?.closest('details:not([open])') && element.offsetParent !== null
  );
}

/** The part of an element that takes the focus. */
export function focusable(element: HTMLElement): HTMLElement | null {
  return element.matches('.gb-line')
    ? element.closest<HTMLElement>('.gb-code')
    : element.querySelector<HTMLElement>('summary, a');
}

/** The row that stands for an element in a list, also while its card is open. */
export function rowOf(element: HTMLElement): HTMLElement {
  return (
    element.querySelector<HTMLElement>(':scope > details > summary') ?? element
  );
}

/** What a screen reader says of an element. */
export function announcementOf(element: HTMLElement): string {
  const parts = element.matches('.gb-line')
    ? [element]
    : Array.from((element.querySelector('summary') ?? element).children);
  return parts
    .map(part => part.textContent ?? '')
    .join(' ')
    .replace(/\s+/g, ' ')
    .trim()
    .slice(0, 160);
}

/** Let the links within an element lead to its own parts and to known pages only, and these know nothing of this page. */
export function secureLinks(element: Element): void {
  for (const link of element.querySelectorAll<HTMLElement>('[href]')) {
    const address = link.getAttribute('href') ?? '';
    if (address.startsWith('#')) {
      continue;
    }
    if (isKnownPage(address)) {
      link.setAttribute('rel', 'noopener noreferrer');
      link.setAttribute('target', '_blank');
    } else {
      link.removeAttribute('href');
    }
  }
}

/** Why something failed, in words. */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
