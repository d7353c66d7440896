/** Behaviour over the static markup of a report: selection, panes, filter, keyboard, copying. */
import { kbd, make, reasonOf, referencesIn, spoken } from './elements';
import type { Rest } from './list';
import { Panes } from './panes';
import { Selection } from './selection';

/** Where a view gets what the markup does not hold. */
export interface IHost {
  rest(): Promise<Rest>;
  text(): Promise<string>;
  json(): Promise<string>;
}

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
    // Keys pressed in here are ours, not shortcuts of JupyterLab.
    root.dataset.lmSuppressShortcuts = 'true';
    root.classList.add('gb-live');
    this._panes = new Panes(root, {
      rest: () => host.rest(),
      found: number => this._say(number === null ? '' : `${number} found`),
      failed: error => this._say(reasonOf(error))
    });
    this._selection = new Selection(root, this._panes);
    this._makeTools();
    const { signal } = this._gone;
    root.addEventListener('click', event => this._onClick(event), { signal });
    root.addEventListener('keydown', event => this._onKey(event), { signal });
    // A page that holds nothing else needs no click into it first.
    document.addEventListener(
      'keydown',
      event => {
        if (event.target === document.body && isPageOf(root)) {
          this._onKey(event);
        }
      },
      { signal }
    );
  }

  dispose(): void {
    this._gone.abort();
  }

  private async _select(reference: string, focus = false): Promise<void> {
    try {
      const target = await this._selection.select(reference, focus);
      if (target !== null) {
        this._say(spoken(target));
      }
    } catch (error) {
      this._say(reasonOf(error));
    }
  }

  private async _step(by: 1 | -1): Promise<void> {
    const total = this._panes.list('breaks')?.length ?? 0;
    if (total === 0) {
      this._say('No breaks');
      return;
    }
    const { reference } = this._selection;
    const start = by > 0 ? 0 : total + 1;
    const now = reference.startsWith('b') ? Number(reference.slice(1)) : start;
    await this._select(`b${((now - 1 + by + total) % total) + 1}`, true);
  }

  private _stepLine(code: Element, by: 1 | -1): void {
    const lines = Array.from(
      code.querySelectorAll<HTMLElement>('.gb-line[id][data-in]')
    ).filter(line => line.offsetParent !== null);
    const now = lines.findIndex(line => line === this._selection.element);
    const next = lines[now < 0 && by < 0 ? lines.length - 1 : now + by];
    if (next) {
      void this._select(this._selection.referenceOf(next));
    }
  }

  private _toggle(): void {
    const { element } = this._selection;
    const folded =
      element?.querySelector<HTMLDetailsElement>('.gb-more') ??
      element?.querySelector<HTMLDetailsElement>(':scope > details');
    if (folded) {
      folded.open = !folded.open;
    }
  }

  private _leave(): void {
    if (this._keys.open) {
      this._keys.open = false;
    } else if (this._panes.clearFilter()) {
      return;
    } else if (this._selection.reference) {
      this._selection.clear();
      this._say('');
    } else {
      // In JupyterLab the cell around it takes the focus, so that its own keys work again.
      const cell = this._root.closest<HTMLElement>('.jp-Cell');
      (document.activeElement as HTMLElement | null)?.blur();
      cell?.focus();
    }
  }

  private async _copy(what: 'text' | 'json'): Promise<void> {
    try {
      await writeClipboard(await this._host[what]());
      this._say(what === 'text' ? 'Copied as text' : 'Copied as JSON');
    } catch (error) {
      this._say(`Not copied: ${reasonOf(error)}`);
    }
  }

  private _say(words: string): void {
    this._status.textContent = words;
  }

  private _makeTools(): void {
    this._status.setAttribute('role', 'status');
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
    const tools = make('div', 'gb-tools');
    tools.append(
      this._status,
      makeButton('Next break', 'n', () => this._step(1)),
      makeButton('Copy text', 'c', () => this._copy('text')),
      makeButton('Copy JSON', 'C', () => this._copy('json')),
      this._keys
    );
    this._root.querySelector('.gb-foot')!.append(tools);
  }

  private _onClick(event: MouseEvent): void {
    const at = event.target as Element;
    const link = at.closest('a[href]');
    if (link !== null) {
      const reference = this._selection.referenceOf(link);
      if (reference) {
        event.preventDefault();
        void this._select(reference, true);
      }
      return;
    }
    const summary = at.closest('.gb-item > details > summary');
    if (summary !== null) {
      // The click itself opens or closes it, after this.
      if (!(summary.parentElement as HTMLDetailsElement).open) {
        const item = summary.closest('.gb-item')!;
        void this._select(this._selection.referenceOf(item));
      }
      return;
    }
    const isReading = document.getSelection()?.isCollapsed === false;
    const reference = at.closest('summary, button, input')
      ? ''
      : this._clicked(at);
    if (reference && !isReading) {
      void this._select(reference);
    }
  }

  /** What a click on a line or a row is meant for. */
  private _clicked(at: Element): string {
    const element = at.closest<HTMLElement>('.gb-line, tr');
    if (element === null) {
      return '';
    }
    const around = referencesIn(element);
    if (element.matches('.gb-broken, .gb-note')) {
      return around.find(each => each.startsWith('b')) ?? '';
    }
    const own = this._selection.referenceOf(element);
    if (element.matches('.gb-line')) {
      return around.length > 0 ? own : '';
    }
    return own || (around[0] ?? '');
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
    } else if (at.matches('input') || !this._pressed(event.key, at)) {
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
        this._panes.focus('breaks');
        return true;
      case 'g':
        this._panes.focus('graphs');
        return true;
      case 'o':
        this._toggle();
        return true;
      case '/':
        this._panes.focusFilter();
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
        return this._panes.step(at, -1);
      case 'ArrowRight':
        return this._panes.step(at, 1);
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

  private readonly _root: HTMLElement;
  private readonly _host: IHost;
  private readonly _panes: Panes;
  private readonly _selection: Selection;
  private readonly _gone = new AbortController();
  private readonly _status = make('span', 'gb-said');
  private readonly _keys = make('details', 'gb-keys');
}

function makeButton(
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

/** Whether a report has a page of its own, and the keys pressed in it are meant for the report. */
function isPageOf(root: HTMLElement): boolean {
  return root.parentElement?.parentElement === document.body;
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
