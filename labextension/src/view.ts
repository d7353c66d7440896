/**
 * Behaviour over the static markup of a report: selection that shows everywhere, panes, filter, keyboard, copy.
 *
 * The markup names what belongs together (see `jupyter_graphbreak/views/html.py`): an element's id is the report's
 * prefix and a reference, links lead to ids, and `data-in` lists the references of what lights up with an element.
 */
import { List, type Rest } from './list';

/** Where a view gets what the markup does not hold. */
export interface IHost {
  rest(): Promise<Rest>;
  text(): Promise<string>;
  json(): Promise<string>;
}

/** Lists by the first letter of the references of their items, and the number of the first. */
const LISTS: Record<string, [name: string, first: number]> = {
  b: ['breaks', 1],
  g: ['graphs', 0],
  f: ['frames', 0],
  r: ['resumes', 0],
  k: ['skipped', 0],
  y: ['recompiles', 0],
  c: ['scopes', 0]
};

const KEYS: [key: string, meaning: string][] = [
  ['n / p', 'next, previous break'],
  ['b / g', 'breaks, graphs'],
  ['← / →', 'panes, on their names'],
  ['↑ / ↓', 'lines on which something happened, in the source'],
  ['o', 'open or close what is selected'],
  ['/', 'filter the pane'],
  ['c / C', 'copy as text, as JSON'],
  ['Esc', 'clear the filter, the selection; then leave'],
  ['?', 'these keys']
];

/**
 * Add behaviour to the markup of a report.
 *
 * @param root - The element with class `graphbreak`.
 * @param host - Where the rest of the report comes from.
 * @returns A function that takes the listeners away again.
 */
export function enliven(root: HTMLElement, host: IHost): () => void {
  const view = new View(root, host);
  return () => view.dispose();
}

class View {
  constructor(root: HTMLElement, host: IHost) {
    this._root = root;
    this._host = host;
    this._prefix = root.dataset.prefix ?? '';
    this._panes = Array.from(
      root.querySelectorAll<HTMLDetailsElement>('.gb-pane')
    );
    // Keys pressed in here are ours, not shortcuts of JupyterLab.
    root.dataset.lmSuppressShortcuts = 'true';
    root.classList.add('gb-live');
    this._addLists(root);
    this._makeTabs();
    this._makeFoot();
    this._showPane(0);
    const signal = this._gone.signal;
    root.addEventListener('click', event => this._onClick(event), { signal });
    root.addEventListener('keydown', event => this._onKey(event), { signal });
    // A page that holds nothing else needs no click into it first.
    document.addEventListener(
      'keydown',
      event => {
        if (event.target === document.body && isAlone(root)) {
          this._onKey(event);
        }
      },
      { signal }
    );
  }

  dispose(): void {
    this._gone.abort();
  }

  // Selection.

  /** Show something in every pane, and what belongs to it. */
  private async _select(reference: string, focus = false): Promise<void> {
    const target = await this._reveal(reference);
    this._clear();
    if (target === null) {
      this._say('Not in this report');
      return;
    }
    this._selected = reference;
    const ownLine = referencesIn(target).find(each => /^l\d/.test(each));
    if (ownLine !== undefined) {
      await this._reveal(ownLine);
    }
    const around = this._around(target, reference);
    for (const element of around) {
      element.classList.add('gb-with');
    }
    for (const element of [target, ...this._linksTo(reference)]) {
      element.classList.remove('gb-with');
      element.classList.add('gb-selected');
    }
    target.setAttribute('aria-current', 'true');
    this._openAround(target);
    this._scrollTo(target);
    const lines = around.filter(element => element.matches('.gb-line[id]'));
    const line =
      lines.find(element => element.classList.contains('gb-broken')) ??
      lines[0];
    if (line && !target.matches('.gb-line')) {
      openFolds(line);
      this._scrollTo(line);
    }
    const row = around.find(element =>
      element.matches('.gb-side tr, .gb-item')
    );
    if (target.matches('.gb-line') && row) {
      this._openAround(row);
      this._scrollTo(row);
    }
    if (focus) {
      focusable(target)?.focus({ preventScroll: true });
    }
    this._say(spoken(target));
  }

  private _clear(): void {
    for (const element of this._root.querySelectorAll(
      '.gb-selected, .gb-with'
    )) {
      element.classList.remove('gb-selected', 'gb-with');
      element.removeAttribute('aria-current');
    }
    this._selected = '';
  }

  /** Get the element of a reference into the page. */
  private async _reveal(reference: string): Promise<HTMLElement | null> {
    const found = this._byReference(reference);
    if (found !== null) {
      return found;
    }
    const kind = LISTS[reference[0] ?? ''];
    if (kind !== undefined) {
      await this._lists
        .get(kind[0])
        ?.reveal(Number(reference.slice(1)) - kind[1]);
    } else {
      // A line beyond those that the markup shows.
      const lines = this._lists.get(reference.split('-')[0] ?? '');
      await lines?.load();
      await lines?.reveal(lines.length - 1);
    }
    return this._byReference(reference);
  }

  private _byReference(reference: string): HTMLElement | null {
    const found = document.getElementById(this._prefix + reference);
    return found !== null && this._root.contains(found) ? found : null;
  }

  private _around(target: HTMLElement, reference: string): HTMLElement[] {
    const found = new Set(
      this._root.querySelectorAll<HTMLElement>(
        `[data-in~="${CSS.escape(reference)}"]`
      )
    );
    for (const other of referencesIn(target)) {
      const element = this._byReference(other);
      if (element !== null) {
        found.add(element);
        this._linksTo(other).forEach(link => found.add(link));
      }
    }
    found.delete(target);
    return Array.from(found);
  }

  private _linksTo(reference: string): HTMLElement[] {
    const href = CSS.escape(`#${this._prefix}${reference}`);
    return Array.from(
      this._root.querySelectorAll<HTMLElement>(`.gb-strip a[href="${href}"]`)
    );
  }

  /** Open the pane and the folded parts around an element, and the element itself where it is one. */
  private _openAround(element: HTMLElement): void {
    const pane = this._panes.findIndex(each => each.contains(element));
    if (pane >= 0) {
      this._showPane(pane);
    }
    openFolds(element);
    element
      .querySelector<HTMLDetailsElement>(':scope > details')
      ?.toggleAttribute('open', true);
  }

  /** Scroll the pane of an element, never the page around it. */
  private _scrollTo(element: HTMLElement): void {
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

  private async _step(by: 1 | -1): Promise<void> {
    const total = this._lists.get('breaks')?.length ?? 0;
    if (total === 0) {
      this._say('No breaks');
      return;
    }
    const now = this._selected.startsWith('b')
      ? Number(this._selected.slice(1))
      : by > 0
        ? 0
        : 1;
    await this._select(`b${((now - 1 + by + total) % total) + 1}`, true);
  }

  private _stepLine(code: Element, by: 1 | -1): void {
    const lines = Array.from(
      code.querySelectorAll<HTMLElement>('.gb-line[id][data-in]')
    ).filter(line => line.offsetParent !== null);
    const now = lines.findIndex(line => line.classList.contains('gb-selected'));
    const next = lines[now < 0 && by < 0 ? lines.length - 1 : now + by];
    if (next) {
      void this._select(this._referenceOf(next));
    }
  }

  private _referenceOf(element: Element): string {
    return element.id.slice(this._prefix.length);
  }

  // Panes and lists.

  private _addLists(within: Element): void {
    for (const box of within.querySelectorAll<HTMLElement>('[data-list]')) {
      const name = box.dataset.list!;
      const list = new List(box, {
        name,
        more: within.querySelector<HTMLElement>(`[data-more="${name}"]`),
        rest: () => this._rest(),
        created: element => this._addLists(element),
        further:
          name === 'graphs'
            ? index => (this._loaded?.[`ops-${index}`] ?? []).join(' ')
            : undefined,
        page: /^(ops-|l)\d/.test(name) ? 500 : undefined
      });
      this._lists.set(name, list);
      if (this._filter?.value) {
        filterOps(name, list, this._filter.value);
      }
    }
  }

  private _rest(): Promise<Rest> {
    this._asked ??= this._host.rest().then(
      rest => (this._loaded = rest),
      reason => {
        this._asked = null;
        throw reason;
      }
    );
    return this._asked;
  }

  private _makeTabs(): void {
    const side = this._root.querySelector('.gb-side')!;
    const bar = make('div', 'gb-tabs');
    const list = make('div', 'gb-tablist');
    list.setAttribute('role', 'tablist');
    list.setAttribute('aria-label', 'What happened');
    this._tabs = this._panes.map((pane, index) => {
      const summary = pane.querySelector(':scope > summary')!;
      const panel = make('div', 'gb-panel');
      panel.append(
        ...Array.from(pane.childNodes).filter(node => node !== summary)
      );
      pane.append(panel);
      pane.open = true;
      const tab = make('button', 'gb-tab');
      tab.type = 'button';
      tab.id = `${this._prefix}tab${index}`;
      tab.append(
        ...Array.from(summary.childNodes, node => node.cloneNode(true))
      );
      tab.setAttribute('role', 'tab');
      panel.id = `${this._prefix}pane${index}`;
      panel.setAttribute('role', 'tabpanel');
      panel.setAttribute('aria-labelledby', tab.id);
      panel.tabIndex = 0;
      tab.setAttribute('aria-controls', panel.id);
      tab.addEventListener('click', () => this._showPane(index));
      return tab;
    });
    list.append(...this._tabs);
    this._filter = make('input', 'gb-filter');
    this._filter.type = 'search';
    this._filter.placeholder = 'filter';
    this._filter.setAttribute('aria-label', 'Filter the pane');
    this._filter.addEventListener('focus', () => void this._loadAll());
    this._filter.addEventListener('input', () => this._applyFilter());
    bar.append(list, this._filter);
    side.prepend(bar);
  }

  private _showPane(index: number): void {
    if (index === this._pane) {
      return;
    }
    this._pane = index;
    this._panes.forEach((pane, each) => {
      pane.hidden = each !== index;
    });
    this._tabs.forEach((tab, each) => {
      tab.setAttribute('aria-selected', String(each === index));
      tab.tabIndex = each === index ? 0 : -1;
    });
    if (this._filter?.value) {
      this._applyFilter();
    }
  }

  private _showPaneOf(name: string): void {
    const index = this._panes.findIndex(pane => pane.dataset.pane === name);
    if (index >= 0) {
      this._showPane(index);
      this._tabs[index]!.focus();
    }
  }

  private async _loadAll(): Promise<void> {
    try {
      await Promise.all(Array.from(this._lists.values(), list => list.load()));
      this._lists.forEach(list => list.prepare());
    } catch (reason) {
      this._say(reason instanceof Error ? reason.message : String(reason));
      return;
    }
    if (this._filter.value) {
      this._applyFilter();
    }
  }

  private _applyFilter(): void {
    const pane = this._panes[this._pane];
    const query = this._filter.value;
    let found = 0;
    for (const box of pane?.querySelectorAll<HTMLElement>('[data-list]') ??
      []) {
      const name = box.dataset.list!;
      const list = this._lists.get(name);
      if (list === undefined) {
        continue;
      }
      if (name === pane?.dataset.pane) {
        found += list.filter(query);
      } else {
        filterOps(name, list, query);
      }
    }
    this._say(query ? `${found} found` : '');
  }

  // Foot, copying, what is said.

  private _makeFoot(): void {
    const foot = this._root.querySelector('.gb-foot')!;
    const tools = make('div', 'gb-tools');
    this._status = make('span', 'gb-said');
    this._status.setAttribute('role', 'status');
    this._keys = make('details', 'gb-keys');
    const summary = make('summary');
    summary.append('Keys ', kbd('?'));
    const table = make('dl');
    for (const [key, meaning] of KEYS) {
      const term = make('dt');
      term.append(kbd(key));
      const what = make('dd');
      what.textContent = meaning;
      table.append(term, what);
    }
    this._keys.append(summary, table);
    tools.append(
      this._status,
      this._button('Next break', 'n', () => this._step(1)),
      this._button('Copy text', 'c', () => this._copy('text')),
      this._button('Copy JSON', 'C', () => this._copy('json')),
      this._keys
    );
    foot.append(tools);
  }

  private _button(
    label: string,
    key: string,
    act: () => Promise<void>
  ): HTMLElement {
    const button = make('button');
    button.type = 'button';
    button.append(`${label} `, kbd(key));
    button.addEventListener('click', () => void act());
    return button;
  }

  private async _copy(what: 'text' | 'json'): Promise<void> {
    try {
      await writeClipboard(await this._host[what]());
      this._say(what === 'text' ? 'Copied as text' : 'Copied as JSON');
    } catch (reason) {
      this._say(
        `Not copied: ${reason instanceof Error ? reason.message : String(reason)}`
      );
    }
  }

  private _say(words: string): void {
    this._status.textContent = words;
  }

  // Events.

  private _onClick(event: MouseEvent): void {
    const at = event.target as Element;
    const link = at.closest<HTMLAnchorElement>('a[href]');
    if (link !== null) {
      const href = link.getAttribute('href')!;
      if (href.startsWith(`#${this._prefix}`)) {
        event.preventDefault();
        void this._select(href.slice(this._prefix.length + 1), true);
      }
      return;
    }
    const summary = at.closest('.gb-item > details > summary');
    if (summary !== null) {
      const item = summary.closest('.gb-item')!;
      // The click itself opens or closes it, after this.
      if (!(summary.parentElement as HTMLDetailsElement).open) {
        void this._select(this._referenceOf(item));
      }
      return;
    }
    if (
      at.closest('summary, button, input') ||
      !document.getSelection()?.isCollapsed
    ) {
      return;
    }
    const line = at.closest<HTMLElement>('.gb-line');
    if (line !== null) {
      const cut = /\bb\d+\b/.exec(
        line.classList.contains('gb-via') ? '' : (line.dataset.in ?? '')
      );
      const broken = line.matches('.gb-broken, .gb-note');
      if (broken && cut) {
        void this._select(cut[0]);
      } else if (line.id && line.dataset.in) {
        void this._select(this._referenceOf(line));
      }
      return;
    }
    const row = at.closest<HTMLElement>('tr');
    if (row?.id) {
      void this._select(this._referenceOf(row));
    } else if (row?.dataset.in) {
      void this._select(row.dataset.in.split(' ')[0]!);
    }
  }

  private _onKey(event: KeyboardEvent): void {
    if (
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      event.defaultPrevented
    ) {
      return;
    }
    const at = event.target as Element;
    if (event.key === 'Escape') {
      this._leave();
    } else if (at.matches('input, textarea, select')) {
      return;
    } else if (!this._pressed(event.key, at)) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** Do what a key says; false where it says nothing here. */
  private _pressed(key: string, at: Element): boolean {
    switch (key) {
      case 'n':
        void this._step(1);
        return true;
      case 'p':
        void this._step(-1);
        return true;
      case 'b':
        this._showPaneOf('breaks');
        return true;
      case 'g':
        this._showPaneOf('graphs');
        return true;
      case 'o':
        this._toggle();
        return true;
      case '/':
        this._filter.focus();
        return true;
      case 'c':
        void this._copy('text');
        return true;
      case 'C':
        void this._copy('json');
        return true;
      case '?':
        this._keys.open = !this._keys.open;
        this._keys.querySelector('summary')!.focus();
        return true;
      case 'ArrowLeft':
      case 'ArrowRight':
        return this._stepTab(at, key === 'ArrowRight' ? 1 : -1);
      case 'ArrowUp':
      case 'ArrowDown':
        if (!at.matches('.gb-code')) {
          return false;
        }
        this._stepLine(at, key === 'ArrowDown' ? 1 : -1);
        return true;
      default:
        return false;
    }
  }

  private _stepTab(at: Element, by: 1 | -1): boolean {
    const now = this._tabs.indexOf(at as HTMLButtonElement);
    if (now < 0) {
      return false;
    }
    const next = (now + by + this._tabs.length) % this._tabs.length;
    this._showPane(next);
    this._tabs[next]!.focus();
    return true;
  }

  private _toggle(): void {
    const target = this._selected && this._byReference(this._selected);
    const folded =
      target &&
      (target.querySelector<HTMLDetailsElement>('.gb-more') ??
        target.querySelector<HTMLDetailsElement>(':scope > details'));
    if (folded) {
      folded.open = !folded.open;
    }
  }

  private _leave(): void {
    if (this._keys.open) {
      this._keys.open = false;
    } else if (this._filter.value) {
      this._filter.value = '';
      this._applyFilter();
    } else if (this._selected) {
      this._clear();
      this._say('');
    } else {
      // In JupyterLab the cell around it takes the focus, so that its own keys work again.
      const cell = this._root.closest<HTMLElement>('.jp-Cell');
      (document.activeElement as HTMLElement | null)?.blur();
      cell?.focus();
    }
  }

  private readonly _root: HTMLElement;
  private readonly _host: IHost;
  private readonly _prefix: string;
  private readonly _panes: HTMLDetailsElement[];
  private readonly _lists = new Map<string, List>();
  private readonly _gone = new AbortController();
  private _tabs: HTMLButtonElement[] = [];
  private _pane = -1;
  private _selected = '';
  private _asked: Promise<Rest> | null = null;
  private _loaded: Rest | null = null;
  private _filter!: HTMLInputElement;
  private _status!: HTMLElement;
  private _keys!: HTMLDetailsElement;
}

function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  name = ''
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  element.className = name;
  return element;
}

function kbd(key: string): HTMLElement {
  const element = make('kbd');
  element.textContent = key;
  return element;
}

function referencesIn(element: HTMLElement): string[] {
  return (element.dataset.in ?? '').split(' ').filter(each => each !== '');
}

/** Filter the operations of a graph, unless it is the graph's own name that matches. */
function filterOps(name: string, list: List, query: string): void {
  if (name.startsWith('ops-') && list.filter(query) === 0) {
    list.filter('');
  }
}

function openFolds(element: Element): void {
  for (let at = element.parentElement; at !== null; at = at.parentElement) {
    if (at.matches('.gb-fold, .gb-source, .gb-item > details')) {
      at.toggleAttribute('open', true);
    }
  }
}

function focusable(element: HTMLElement): HTMLElement | null {
  return element.matches('.gb-line')
    ? element.closest<HTMLElement>('.gb-code')
    : element.querySelector<HTMLElement>('summary, a');
}

/** What a screen reader says of a selection. */
function spoken(element: HTMLElement): string {
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

function isAlone(root: HTMLElement): boolean {
  return (
    document.querySelectorAll('.graphbreak').length === 1 &&
    root.closest('main') !== null &&
    !root.closest('.jp-Notebook')
  );
}

async function writeClipboard(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Pages from a host without https have no clipboard object.
  const area = make('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  if (!done) {
    throw new Error('the browser gives no access to the clipboard');
  }
}
