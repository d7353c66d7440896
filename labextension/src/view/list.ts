/** A long list; only its beginning is on the page. */
import { reasonOf } from './elements';

/** The markup of items that a report leaves out, by list name. */
export type OmittedItems = Readonly<Record<string, readonly string[]>>;

/** The number of items that a "show more" button adds. */
const PAGE = 50;

interface IItem {
  element: Element | null;
  html: string;
  /** The text that a filter searches, in lower case; computed on demand. */
  text: string | null;
}

/**
 * The items of a list, whether on the page or not.
 *
 * Items that were never shown stay strings, so they cost little.
 */
export class List {
  /**
   * @param box - The element that contains the items.
   * @param options - The source of the omitted items, and callbacks for added items.
   */
  constructor(box: HTMLElement, options: List.IOptions) {
    this._box = box;
    this._options = options;
    this._items = Array.from(box.children, element => ({
      element,
      html: '',
      text: null
    }));
    this._limit = this._items.length;
    this._unloadedCount = Number(options.more?.dataset.left ?? 0);
    this._unloadedLabel = (options.more?.textContent ?? '').replace(
      /^and /,
      ''
    );
    this._showMore();
  }

  /** The number of items, whether on the page or not. */
  get length(): number {
    return this._items.length + this._unloadedCount;
  }

  /** Whether all items are loaded. */
  get isWhole(): boolean {
    return this._unloadedCount === 0;
  }

  /** Load the remaining items. */
  async load(): Promise<void> {
    if (this._unloadedCount === 0) {
      return;
    }
    const omittedItems = await this._options.omittedItems(this._options.name);
    if (this._unloadedCount > 0) {
      this._unloadedCount = 0;
      for (const html of omittedItems) {
        this._items.push({ element: null, html, text: null });
      }
      this._showMore();
    }
  }

  /**
   * Show the first items that contain the given text.
   *
   * @returns The number of items that contain it.
   */
  filter(query: string): number {
    this._query = query.trim().toLowerCase();
    this._limit = this._options.page ?? PAGE;
    return this._render();
  }

  /** Add an item to the page regardless of the filter; null if there is no such item. */
  async reveal(index: number): Promise<Element | null> {
    if (index >= this._items.length) {
      await this.load();
    }
    const item = this._items[index];
    if (item === undefined) {
      return null;
    }
    if (item.element === null || !item.element.isConnected) {
      this._limit = Math.max(this._limit, index + 1);
      if (this._query === '') {
        this._extend();
      } else {
        this._query = '';
        this._render();
      }
    }
    return item.element;
  }

  /** Compute the texts that a filter searches, so that the first key press is fast. */
  prepare(): void {
    this._items.forEach((_, index) => this.text(index));
  }

  /** The searchable text of one item. */
  text(index: number): string {
    const item = this._items[index];
    if (item === undefined) {
      return '';
    }
    if (item.text !== null) {
      return item.text;
    }
    const itemText =
      item.element === null
        ? plainText(item.html.replace(QUOTED_MARKUP, ' '))
        : textOf(item.element);
    const extraText = this._options.extraText?.(index);
    const text = (itemText + (extraText ?? '')).toLowerCase();
    item.text = extraText === null ? null : text;
    return text;
  }

  /** The searchable text of all items. */
  get allText(): string {
    return this._items.map((_, index) => this.text(index)).join(' ');
  }

  private _render(): number {
    const matchingItems = this._matchingItems();
    const visible = matchingItems.slice(0, this._limit);
    this._box.replaceChildren(this._elements(visible));
    this._options.onItemsChanged?.();
    this._showMore(matchingItems.length - visible.length);
    return matchingItems.length;
  }

  /** Show more items without changing those on the page. */
  private _extend(): void {
    const matchingItems = this._matchingItems();
    const visible = matchingItems.slice(0, this._limit);
    this._box.append(
      this._elements(visible.slice(this._box.childElementCount))
    );
    this._options.onItemsChanged?.();
    this._showMore(matchingItems.length - visible.length);
  }

  private _matchingItems(): readonly IItem[] {
    return this._query === ''
      ? this._items
      : this._items.filter((_, index) =>
          this.text(index).includes(this._query)
        );
  }

  /** A fragment with the elements of items: they may be too many for the arguments of one call. */
  private _elements(items: readonly IItem[]): DocumentFragment {
    const fragment = document.createDocumentFragment();
    items.forEach(item => fragment.append(this._element(item)));
    return fragment;
  }

  private _element(item: IItem): Element {
    if (item.element === null) {
      const template = document.createElement('template');
      // Our own markup, escaped by the template that produced the page.
      template.innerHTML = item.html;
      item.element = template.content.firstElementChild!;
      item.html = '';
      this._options.onElementCreated?.(item.element);
    }
    return item.element;
  }

  private _showMore(hidden = 0): void {
    const more = this._options.more;
    if (!more) {
      return;
    }
    const remainingCount = hidden + this._unloadedCount;
    more.hidden = remainingCount === 0;
    if (remainingCount === 0) {
      return;
    }
    const button = document.createElement('button');
    button.type = 'button';
    const page = this._options.page ?? PAGE;
    button.textContent =
      remainingCount > page
        ? `Show ${page} of ${remainingCount} more`
        : `Show ${this._unloadedCount > 0 ? this._unloadedLabel : `${remainingCount} more`}`;
    button.addEventListener('click', () => void this._next(button));
    more.replaceChildren(button);
  }

  private async _next(button: HTMLButtonElement): Promise<void> {
    button.disabled = true;
    button.textContent = 'Loading…';
    const first = this._box.childElementCount;
    try {
      await this.load();
    } catch (error) {
      button.textContent = reasonOf(error);
      return;
    }
    this._limit += this._options.page ?? PAGE;
    this._extend();
    focusInto(this._box.children[first]);
  }

  private readonly _box: HTMLElement;
  private readonly _options: List.IOptions;
  private readonly _items: IItem[];
  /** The number of items that are not loaded yet, and the text that the markup has for them. */
  private _unloadedCount: number;
  private readonly _unloadedLabel: string;
  private _limit: number;
  private _query = '';
}

export namespace List {
  export interface IOptions {
    /** The name of the list in {@link OmittedItems}. */
    name: string;
    /** The element that shows the number of remaining items. */
    more: HTMLElement | null;
    omittedItems(name: string): Promise<readonly string[]>;
    /** Called with every element that is made from markup. */
    onElementCreated?(element: Element): void;
    /** Called when the items on the page change. */
    onItemsChanged?(): void;
    /** Text of an item that is not in its markup; null as long as it is not loaded. */
    extraText?(index: number): string | null;
    /** The number of items to add at once. */
    page?: number;
  }
}

/** The selector of quoted code and buttons: a search ignores their text. */
const QUOTED = '.gb-excerpt, .gb-diff, .gb-actions';

/** Matches quoted code in markup that is not on the page yet; such markup has no excerpts and buttons. */
const QUOTED_MARKUP = /<pre class="[^"]*\bgb-diff\b[^]*?<\/pre>/g;

/** The searchable text of an item on the page. */
function textOf(element: Element): string {
  if (element.querySelector(QUOTED) === null) {
    return element.textContent ?? '';
  }
  const copy = element.cloneNode(true) as Element;
  copy.querySelectorAll(QUOTED).forEach(quoted => quoted.remove());
  return copy.textContent ?? '';
}

/** The text in our own markup, in which every "<" begins an element. */
export function plainText(html: string): string {
  return html
    .replace(/<[^>]*>/g, ' ')
    .replace(/&(lt|gt|amp|#34|#39);/g, (_, name: string) => ENTITIES[name]!);
}

const ENTITIES: Record<string, string> = {
  lt: '<',
  gt: '>',
  amp: '&',
  '#34': '"',
  '#39': "'"
};

/** Focus the first control of an element, or the element itself, because the pressed button is gone. */
function focusInto(element: Element | undefined): void {
  const control = element?.querySelector<HTMLElement>('summary, a, button');
  if (control) {
    control.focus();
  } else if (element instanceof HTMLElement) {
    element.tabIndex = -1;
    element.focus();
  }
}
