/** The panes of a report. One is visible at a time, each contains lists, and one filter searches them. */
import { makeElement, secureLinks } from './elements';
import { List, plainText, type OmittedItems } from './list';
import { indexAfter, type Step } from './roving';

/** The number of operations, or of chunks of source lines, that a button adds. */
const LARGE_PAGE = 500;

/** Turns the foldable panes of the markup into tabs, and its lists into {@link List}s. */
export class Panes {
  /**
   * @param root - The element of the report.
   * @param options - The source of the omitted items, and a callback for the filter's result.
   */
  constructor(root: HTMLElement, options: Panes.IOptions) {
    this._options = options;
    this._panes = Array.from(
      root.querySelectorAll<HTMLDetailsElement>('.gb-pane')
    );
    this._addLists(root);
    const first = this._panes.findIndex(pane => pane.open);
    const prefix = root.dataset.prefix ?? '';
    this._tabs = this._panes.map((pane, index) =>
      this._makeTab(pane, `${prefix}tab${index}`, () => this._show(index))
    );
    root.querySelector('.gb-side')!.prepend(this._makeBar());
    this._show(Math.max(first, 0));
  }

  /** The list with a name. */
  list(name: string): List | undefined {
    return this._lists.get(name);
  }

  /** Add a break to the page. */
  async revealBreak(number: number): Promise<void> {
    if (!(await this._revealIn(this._breakLists(), number))) {
      // It may be in a group that is not on the page.
      const groups = this._lists.get('breaks');
      await groups?.load();
      await groups?.reveal(groups.length - 1);
    }
    // A group that is now on the page has its own list.
    await this._revealIn(this._breakLists(), number);
  }

  /** Show the pane that contains an element, if any. */
  showAround(element: Element): void {
    const index = this._panes.findIndex(pane => pane.contains(element));
    if (index >= 0) {
      this._show(index);
    }
  }

  /** Show a pane by name, and focus its tab. */
  focus(name: string): void {
    this._focusTab(this._panes.findIndex(pane => pane.dataset.pane === name));
  }

  /** Move from a tab to a neighbour, and from the last tab to the first; false if the element is not a tab. */
  step(tab: Element, step: Step): boolean {
    const current = this._tabs.indexOf(tab as HTMLButtonElement);
    if (current < 0) {
      return false;
    }
    const { length } = this._tabs;
    this._focusTab((indexAfter(current, length, step) + length) % length);
    return true;
  }

  /** Focus the filter. */
  focusFilter(): void {
    this._filter.focus();
  }

  /**
   * Clear the filter, and move the focus from it to the tab of the pane.
   *
   * @param target - The element with the focus.
   * @returns Whether this changed anything.
   */
  leaveFilter(target: Element): boolean {
    const isInFilter = target === this._filter;
    const isFiltered = this._filter.value !== '';
    if (isFiltered) {
      this._filter.value = '';
      this._applyFilter();
    }
    if (isInFilter) {
      this._tabs[this._shownIndex]?.focus();
    }
    return isFiltered || isInFilter;
  }

  /** Add a break to the page if one of these lists contains it. */
  private async _revealIn(
    boxes: readonly HTMLElement[],
    number: number
  ): Promise<boolean> {
    let isFound = false;
    for (const box of boxes) {
      const index = indexIn(rangesOf(box), number);
      if (index >= 0) {
        await this._lists.get(box.dataset.list!)!.reveal(index);
        isFound = true;
      }
    }
    return isFound;
  }

  private _breakLists(): readonly HTMLElement[] {
    return this._panes.flatMap(pane =>
      Array.from(pane.querySelectorAll<HTMLElement>('[data-numbers]'))
    );
  }

  private _addLists(within: Element): void {
    for (const box of within.querySelectorAll<HTMLElement>('[data-list]')) {
      const name = box.dataset.list!;
      const list = new List(box, {
        name,
        more: within.querySelector<HTMLElement>(`[data-more="${name}"]`),
        omittedItems: async listName =>
          entriesOf(await this._omittedItems(listName), listName),
        onElementCreated: element => {
          secureLinks(element);
          this._addLists(element);
        },
        onItemsChanged: () => this._options.onShow(),
        extraText: index => this._innerText(name, index),
        page: /^(ops-|l)\d/.test(name) ? LARGE_PAGE : undefined
      });
      this._lists.set(name, list);
      if (this._filter.value !== '') {
        filterInner(name, list, this._filter.value);
      }
    }
  }

  /** The text of the inner list of an item; null if it is not loaded. */
  private _innerText(name: string, index: number): string | null {
    const inner = INNER_LISTS[name];
    if (inner === undefined) {
      return '';
    }
    const list = this._lists.get(`${inner}-${index}`);
    if (list !== undefined) {
      return list.isWhole ? list.allText : null;
    }
    return this._loadedItems === null
      ? null
      : plainText(entriesOf(this._loadedItems, `${inner}-${index}`).join(' '));
  }

  /** Load the omitted items of a list, or of all lists for an empty string. */
  private _omittedItems(name: string): Promise<OmittedItems> {
    const known = this._requests.get('') ?? this._requests.get(name);
    if (known !== undefined) {
      return known;
    }
    const request = this._options.omittedItems(name).then(items => {
      if (name === '') {
        this._loadedItems = items;
      }
      return items;
    });
    this._requests.set(name, request);
    // A later request may succeed.
    request.catch(() => this._requests.delete(name));
    return request;
  }

  private _makeTab(
    pane: HTMLDetailsElement,
    id: string,
    show: () => void
  ): HTMLButtonElement {
    const summary = pane.querySelector(':scope > summary')!;
    const panel = makeElement('div', 'gb-panel');
    panel.append(
      ...Array.from(pane.childNodes).filter(node => node !== summary)
    );
    pane.append(panel);
    pane.open = true;
    panel.id = `${id}-panel`;
    panel.setAttribute('role', 'tabpanel');
    panel.setAttribute('aria-labelledby', id);
    const tab = makeElement('button', 'gb-tab');
    tab.type = 'button';
    tab.id = id;
    tab.setAttribute('role', 'tab');
    tab.setAttribute('aria-controls', panel.id);
    tab.append(...Array.from(summary.childNodes, node => node.cloneNode(true)));
    tab.addEventListener('click', show);
    return tab;
  }

  private _makeBar(): HTMLElement {
    const bar = makeElement('div', 'gb-tabs');
    const list = makeElement('div', 'gb-tablist');
    list.setAttribute('role', 'tablist');
    list.setAttribute('aria-label', 'What happened');
    list.append(...this._tabs);
    this._filter.type = 'search';
    this._filter.placeholder = 'filter';
    this._filter.setAttribute('aria-label', 'Filter the pane');
    this._filter.addEventListener('focus', () => void this._loadPane());
    this._filter.addEventListener('input', () => {
      this._applyFilter();
      // The event may be missing, or the first request may have failed.
      if (this._filter.value !== '' && !this._isWhole()) {
        void this._loadPane();
      }
    });
    bar.append(list, this._filter);
    return bar;
  }

  private _show(index: number): void {
    if (index === this._shownIndex) {
      return;
    }
    this._shownIndex = index;
    this._panes.forEach((pane, position) => {
      pane.hidden = position !== index;
    });
    this._tabs.forEach((tab, position) => {
      tab.setAttribute('aria-selected', String(position === index));
      tab.tabIndex = position === index ? 0 : -1;
    });
    if (this._filter.value !== '') {
      this._applyFilter();
    }
    this._options.onShow();
  }

  private _focusTab(index: number): void {
    const tab = this._tabs[index];
    if (tab !== undefined) {
      this._show(index);
      tab.focus();
    }
  }

  /** The lists of the visible pane. */
  private _shownLists(): readonly List[] {
    const boxes =
      this._panes[this._shownIndex]!.querySelectorAll<HTMLElement>(
        '[data-list]'
      );
    return Array.from(boxes, box => this._lists.get(box.dataset.list!)!);
  }

  private _isWhole(): boolean {
    return this._shownLists().every(list => list.isWhole);
  }

  /** A filter searches the whole pane, so load it when the filter gets the focus. */
  private async _loadPane(): Promise<void> {
    const lists = this._shownLists();
    try {
      const { pane } = this._panes[this._shownIndex]!.dataset;
      if (pane! in INNER_LISTS && !lists.every(list => list.isWhole)) {
        // Include the inner lists of items that are not on the page.
        await this._omittedItems('');
      }
      await Promise.all(lists.map(list => list.load()));
    } catch (error) {
      this._options.onError(error);
      return;
    }
    lists.forEach(list => list.prepare());
    if (this._filter.value !== '') {
      this._applyFilter();
    }
  }

  private _applyFilter(): void {
    const pane = this._panes[this._shownIndex]!;
    const query = this._filter.value;
    let matchCount = 0;
    for (const box of pane.querySelectorAll<HTMLElement>('[data-list]')) {
      const name = box.dataset.list!;
      const list = this._lists.get(name)!;
      if (box.parentElement!.closest('[data-list]') === null) {
        matchCount += list.filter(query);
        box.closest('.gb-minor')?.toggleAttribute('open', query !== '');
      } else {
        matchCount += filterInner(name, list, query);
        if (query !== '') {
          box.closest('.gb-group > details')?.toggleAttribute('open', true);
        }
      }
    }
    this._options.onFilter(query === '' ? null : matchCount);
  }

  private readonly _options: Panes.IOptions;
  private readonly _panes: HTMLDetailsElement[];
  private readonly _tabs: HTMLButtonElement[];
  private readonly _lists = new Map<string, List>();
  private readonly _filter = makeElement('input', 'gb-filter');
  private _shownIndex = -1;
  private readonly _requests = new Map<string, Promise<OmittedItems>>();
  private _loadedItems: OmittedItems | null = null;
}

export namespace Panes {
  export interface IOptions {
    /** The omitted items of a list, or of all lists for an empty string. */
    omittedItems(name: string): Promise<OmittedItems>;
    /** Called when a different pane, or more of a pane, is shown. */
    onShow(): void;
    /** Called with the number of items that match the filter; null if the filter is empty. */
    onFilter(matchCount: number | null): void;
    onError(error: unknown): void;
  }
}

/** The remaining items of a list, if any. */
function entriesOf(items: OmittedItems, name: string): readonly string[] {
  const entries: unknown = Object.hasOwn(items, name) ? items[name] : [];
  return Array.isArray(entries) ? entries.map(String) : [];
}

/** The names of the lists inside the items of other lists: the operations of graphs, and the locations of a group. */
const INNER_LISTS: Readonly<Record<string, string>> = {
  graphs: 'ops',
  breaks: 'places'
};

/**
 * Filter a list inside an item, unless only the item's own text matches.
 *
 * @returns How many matches the list adds to the match of its item.
 */
function filterInner(name: string, list: List, query: string): number {
  if (!/^(ops|places)-/.test(name)) {
    return 0;
  }
  const matches = list.filter(query) || list.filter('');
  return name.startsWith('places') ? matches - 1 : 0;
}

/** The numbers of a list's breaks, as written in the markup: "1 3-7". */
function rangesOf(box: HTMLElement): readonly [number, number][] {
  return (box.dataset.numbers ?? '').split(' ').map(range => {
    const [first, last] = range.split('-').map(Number);
    return [first!, last ?? first!];
  });
}

/** The index of a number in ranges, or -1. */
function indexIn(ranges: readonly [number, number][], number: number): number {
  let countBefore = 0;
  for (const [first, last] of ranges) {
    if (first <= number && number <= last) {
      return countBefore + number - first;
    }
    countBefore += last - first + 1;
  }
  return -1;
}
