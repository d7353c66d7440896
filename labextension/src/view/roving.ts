/** The focus in a report, and the keys pressed there: many things to focus are one Tab stop, the arrow keys move within it. */
import { isShown } from './elements';

/** What takes the focus; boxes that scroll are looked at one by one. */
const FOCUSABLE = 'a[href], button, summary, input';
const BOXES = '.gb-code, .gb-scroll, .gb-text';

/** One part of a report. */
export class Roving {
  /** @param group - The element of the part. */
  constructor(group: HTMLElement) {
    this._group = group;
    group.addEventListener('focusin', event => {
      const target = event.target as HTMLElement;
      if (target.matches(FOCUSABLE)) {
        this._setCurrent(target);
      }
    });
  }

  /**
   * Take notice of what is new, or visible now, in some parts.
   *
   * All are looked at before anything is changed, so that the page is laid out once.
   */
  static refresh(groups: readonly Roving[]): void {
    groups.map(group => group._look()).forEach(change => change());
  }

  /** Find out what takes the focus; the result sets it. */
  private _look(): () => void {
    const boxes = Array.from(
      this._group.querySelectorAll<HTMLElement>(BOXES),
      box => ({ box, tabIndex: scrolls(box) ? 0 : -1 })
    );
    const items = this._items();
    const current =
      items.find(item => item === this._current) ?? items.find(isShown);
    return () => {
      this._current = current;
      boxes.forEach(({ box, tabIndex }) => setTabIndex(box, tabIndex));
      items.forEach(item => setTabIndex(item, item === current ? 0 : -1));
    };
  }

  /** Move the focus to the item before or after; false where the focus is on none. */
  step(from: Element, by: 1 | -1): boolean {
    const items = this._items().filter(isShown);
    const index = items.indexOf(from as HTMLElement);
    if (index < 0) {
      return false;
    }
    items[index + by]?.focus();
    return true;
  }

  /** Whether an element is in this part. */
  contains(element: Element): boolean {
    return this._group.contains(element);
  }

  private _items(): HTMLElement[] {
    return Array.from(this._group.querySelectorAll<HTMLElement>(FOCUSABLE));
  }

  private _setCurrent(item: HTMLElement): void {
    if (this._current !== item) {
      if (this._current) {
        this._current.tabIndex = -1;
      }
      item.tabIndex = 0;
      this._current = item;
    }
  }

  private readonly _group: HTMLElement;
  private _current: HTMLElement | undefined;
}

/** Whether a box scrolls: then it has to be reached, else it need not. What is folded away need not either. */
function scrolls(box: HTMLElement): boolean {
  return (
    isShown(box) &&
    (box.scrollWidth > box.clientWidth + 1 ||
      box.scrollHeight > box.clientHeight + 1)
  );
}

function setTabIndex(element: HTMLElement, tabIndex: number): void {
  if (element.getAttribute('tabindex') !== String(tabIndex)) {
    element.tabIndex = tabIndex;
    suppress(element);
  }
}

/** Keep JupyterLab's shortcuts from an element: it matches them with the element itself before those around it. */
export function suppress(element: HTMLElement): void {
  element.dataset.lmSuppressShortcuts = 'true';
}

/** Whether a key is a shortcut, of the application or of whoever is used to one, and not a key of the report. */
export function isShortcut(event: KeyboardEvent): boolean {
  const { key, shiftKey } = event;
  // With Shift it runs a cell, elsewhere; whoever means that does not mean what has the focus.
  return hasModifier(event) || (key === 'Enter' && shiftKey);
}

/**
 * Keep a key from the notebook around a report.
 *
 * With a modifier it may be for the application as a whole, which gets it as if nothing had the focus.
 */
export function keepFromNotebook(event: KeyboardEvent): void {
  event.stopPropagation();
  if (hasModifier(event)) {
    const copy = new KeyboardEvent(event.type, event);
    if (!document.body.dispatchEvent(copy)) {
      event.preventDefault();
    }
  }
  if (event.key === 'Enter' && isShortcut(event)) {
    event.preventDefault();
  }
}

/** Leave a report: the cell around it takes the focus, so that the notebook's keys work again. */
export function focusCell(root: HTMLElement): void {
  const cell = root.closest<HTMLElement>('.jp-Cell');
  (document.activeElement as HTMLElement | null)?.blur();
  cell?.focus();
}

function hasModifier(event: KeyboardEvent): boolean {
  return event.ctrlKey || event.metaKey || event.altKey;
}
