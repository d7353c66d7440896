/** Functions on elements of a report's markup: creation, references, visibility, text. */
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

/** Make an element that depicts a key. */
export function makeKey(key: string): HTMLElement {
  const element = makeElement('kbd');
  element.textContent = key;
  return element;
}

/** The references of elements that are highlighted with an element. */
export function referencesIn(element: HTMLElement): string[] {
  return (element.dataset.in ?? '')
    .split(' ')
    .filter(reference => reference !== '');
}

/** The reference of the line of an element. */
export function ownLineOf(element: HTMLElement): string | undefined {
  return referencesIn(element).find(reference => /^l\d/.test(reference));
}

/** Open all folded parts around an element. */
export function openFolds(element: Element): void {
  for (
    let outer = element.parentElement;
    outer !== null;
    outer = outer.parentElement
  ) {
    if (
      outer.matches(
        '.gb-fold, .gb-source, .gb-minor, .gb-group > details, .gb-item > details'
      )
    ) {
      outer.toggleAttribute('open', true);
    }
  }
}

/** Scroll the box around an element as far as needed. */
export function scrollTo(element: HTMLElement): void {
  const box = element.closest<HTMLElement>('.gb-sources, .gb-panel');
  if (box === null) {
    return;
  }
  const inner = element.getBoundingClientRect();
  const outer = box.getBoundingClientRect();
  const topOffset = inner.top - outer.top;
  if (topOffset < 0 || inner.bottom > outer.bottom) {
    box.scrollTop += topOffset - Math.max(8, (outer.height - inner.height) / 3);
  }
}

/** Scroll the page so that elements are in view; if they do not fit, the first one is. */
export function scrollPageTo(elements: readonly HTMLElement[]): void {
  for (const element of [...elements].reverse()) {
    element.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }
}

/** Whether an element is completely in the window of the page or notebook. */
export function isInView(element: Element): boolean {
  const outer = element.closest('.jp-WindowedPanel-outer');
  const view = outer?.getBoundingClientRect();
  const { top, bottom } = element.getBoundingClientRect();
  return (view?.top ?? 0) <= top && bottom <= (view?.bottom ?? innerHeight);
}

/** Whether an element is visible and focusable; browsers differ in how they treat folded parts. */
export function isShown(element: HTMLElement): boolean {
  const outer = element.matches('summary')
    ? element.parentElement?.parentElement
    : element;
  // Checked last, because it may force a layout.
  return (
    !outer?.closest('details:not([open])') && element.offsetParent !== null
  );
}

/** The focusable part of an element. */
export function focusable(element: HTMLElement): HTMLElement | null {
  return element.matches('.gb-line')
    ? element.closest<HTMLElement>('.gb-code')
    : element.querySelector<HTMLElement>('summary, a');
}

/** The row that represents an element in a list, even if its card is open. */
export function rowOf(element: HTMLElement): HTMLElement {
  return (
    element.querySelector<HTMLElement>(':scope > details > summary') ?? element
  );
}

/** The maximum length of an announcement to screen readers. */
const MAX_ANNOUNCED = 160;

/** The text of an element for screen readers; of a card, its title and location only. */
export function announcementOf(element: HTMLElement): string {
  const parts = element.matches('.gb-line')
    ? [element]
    : Array.from((element.querySelector('summary') ?? element).children).filter(
        part => !part.matches('.gb-brief, .gb-do')
      );
  const text = parts
    .map(part => part.textContent ?? '')
    .join(' ')
    .replace(/\s+/g, ' ')
    .trim();
  return text.length > MAX_ANNOUNCED
    ? `${text.slice(0, MAX_ANNOUNCED - 1).trimEnd()}…`
    : text;
}

/** Restrict links to parts of the report and known pages, without a referrer. */
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

/** The reason for a failure, in words. */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
