/** Roving focus: many focusable elements are one Tab stop, and the arrow keys move among them. */
import { isShown } from './elements';

/** Focusable elements; scrolling boxes are checked separately. */
const FOCUSABLE = 'a[href], button, summary, input';
const BOXES = '.gb-code, .gb-scroll, .gb-text';

/** A move among items: to a neighbour, or to the first or last one. */
export type Step = 1 | -1 | 'first' | 'last';

/** The index of an item after a move, which may be beyond the ends. */
export function indexAfter(index: number, total: number, step: Step): number {
  if (step === 'first') {
    return 0;
  }
  return step === 'last' ? total - 1 : index + step;
}

/** The roving focus in one part of a report. */
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
   * Update the parts after elements were added or became visible.
   *
   * All parts are read before any is changed, so that the page is laid out only once.
   */
  static refresh(groups: readonly Roving[]): void {
    groups.map(group => group._update()).forEach(change => change());
  }

  /** Find the focusable elements; the returned function updates them. */
  private _update(): () => void {
    const boxes = Array.from(
      this._group.querySelectorAll<HTMLElement>(BOXES),
      box => ({ box, tabIndex: scrolls(box) ? 0 : -1 })
    );
    const items = this._items();
    const current =
      items.find(item => item === this._currentItem) ?? items.find(isShown);
    return () => {
      this._currentItem = current;
      boxes.forEach(({ box, tabIndex }) => setTabIndex(box, tabIndex));
      items.forEach(item => setTabIndex(item, item === current ? 0 : -1));
    };
  }

  /** Move the focus to another item; return false if no item has the focus. */
  step(from: Element, step: Step): boolean {
    const items = this._items().filter(isShown);
    const index = items.indexOf(from as HTMLElement);
    if (index < 0) {
      return false;
    }
    items[indexAfter(index, items.length, step)]?.focus();
    return true;
  }

  /** Whether this part contains an element. */
  contains(element: Element): boolean {
    return this._group.contains(element);
  }

  private _items(): HTMLElement[] {
    return Array.from(this._group.querySelectorAll<HTMLElement>(FOCUSABLE));
  }

  private _setCurrent(item: HTMLElement): void {
    if (this._currentItem !== item) {
      if (this._currentItem) {
        this._currentItem.tabIndex = -1;
      }
      item.tabIndex = 0;
      this._currentItem = item;
    }
  }

  private readonly _group: HTMLElement;
  private _currentItem: HTMLElement | undefined;
}

/** Whether a box is visible and scrolls, so it must be focusable. */
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
  }
}

/**
 * Suppress JupyterLab's shortcuts for an element and whatever has the focus within it.
 *
 * Notebook 7 handles keys before the element does, and matches shortcuts with the focused element first.
 */
export function suppressShortcuts(element: HTMLElement): void {
  const suppress = ({ dataset }: HTMLElement): void => {
    dataset.lmSuppressShortcuts = 'true';
  };
  suppress(element);
  element.addEventListener('focusin', ({ target }) =>
    suppress(target as HTMLElement)
  );
}

/** Whether a key is a shortcut of the application or a common one, not a key of the report. */
export function isShortcut(event: KeyboardEvent): boolean {
  const { key, shiftKey } = event;
  // Elsewhere Shift+Enter runs a cell, so do not activate the focused element.
  return hasModifier(event) || (key === 'Enter' && shiftKey);
}

/** Whether a key undoes the last change everywhere. */
export function isUndo(event: KeyboardEvent): boolean {
  const { key, ctrlKey, metaKey, shiftKey, altKey } = event;
  return key === 'z' && ctrlKey !== metaKey && !shiftKey && !altKey;
}

/**
 * Stop a key from reaching the notebook around a report.
 *
 * A key with a modifier is passed to the application, as if nothing had the focus.
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

/** Let an element get the focus by a click, and keep its keys from the notebook around it. */
export function keepKeys(element: HTMLElement): void {
  element.tabIndex = -1;
  suppressShortcuts(element);
  element.addEventListener('keydown', event => {
    if (event.key === 'Escape') {
      focusCell(element);
    }
    keepFromNotebook(event);
  });
}

/** Leave a report: focus the cell around it, so that the notebook's keys work. */
export function focusCell(root: HTMLElement): void {
  const cell = root.closest<HTMLElement>('.jp-Cell');
  (document.activeElement as HTMLElement | null)?.blur();
  cell?.focus();
}

function hasModifier(event: KeyboardEvent): boolean {
  return event.ctrlKey || event.metaKey || event.altKey;
}
