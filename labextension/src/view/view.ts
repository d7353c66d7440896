/** What the static markup of a report does when clicked and when keys are pressed in it. */
import { announcementOf, reasonOf, referencesIn } from './elements';
import type { Rest } from './list';
import { Panes } from './panes';
import { Selection } from './selection';
import { Toolbar } from './toolbar';

/** Where a view gets the parts of the report that the markup does not hold. */
export interface IHost {
  rest(): Promise<Rest>;
  text(): Promise<string>;
  json(): Promise<string>;
}

/**
 * Add behaviour to the markup of a report.
 *
 * @param root - The element with class `graphbreak`.
 * @param host - Where the rest of the report comes from.
 * @returns A function that removes the listeners again.
 */
export function addBehaviour(root: HTMLElement, host: IHost): () => void {
  const view = new View(root, host);
  return () => view.dispose();
}

class View {
  constructor(root: HTMLElement, host: IHost) {
    this._root = root;
    // Keys pressed in the report are for the report, not for JupyterLab's shortcuts.
    root.dataset.lmSuppressShortcuts = 'true';
    root.classList.add('gb-live');
    this._panes = new Panes(root, {
      rest: () => host.rest(),
      onFilter: matches =>
        this._toolbar.announce(matches === null ? '' : `${matches} found`),
      onError: error => this._toolbar.announce(reasonOf(error))
    });
    this._selection = new Selection(root, this._panes);
    this._toolbar = new Toolbar({
      nextBreak: () => this._step(1),
      load: format => host[format]()
    });
    root.querySelector('.gb-foot')!.append(this._toolbar.element);
    const { signal } = this._disposed;
    root.addEventListener('click', event => this._onClick(event), { signal });
    root.addEventListener('keydown', event => this._onKey(event), { signal });
    // A page that holds nothing else takes keys without a click into the report.
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
    this._disposed.abort();
  }

  private async _select(reference: string, focus = false): Promise<void> {
    try {
      const target = await this._selection.select(reference, focus);
      if (target !== null) {
        this._toolbar.announce(announcementOf(target));
      }
    } catch (error) {
      this._toolbar.announce(reasonOf(error));
    }
  }

  private async _step(by: 1 | -1): Promise<void> {
    const total = this._panes.list('breaks')?.length ?? 0;
    if (total === 0) {
      this._toolbar.announce('No breaks');
      return;
    }
    const { reference } = this._selection;
    const start = by > 0 ? 0 : total + 1;
    const current = reference.startsWith('b')
      ? Number(reference.slice(1))
      : start;
    await this._select(`b${((current - 1 + by + total) % total) + 1}`, true);
  }

  private _stepLine(code: Element, by: 1 | -1): void {
    const lines = Array.from(
      code.querySelectorAll<HTMLElement>('.gb-line[id][data-in]')
    ).filter(line => line.offsetParent !== null);
    const current = lines.findIndex(line => line === this._selection.element);
    const next = lines[current < 0 && by < 0 ? lines.length - 1 : current + by];
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
    if (this._toolbar.closeKeys() || this._panes.clearFilter()) {
      return;
    }
    if (this._selection.reference) {
      this._selection.clear();
      this._toolbar.announce('');
    } else {
      // In JupyterLab the cell around it takes the focus, so that its own keys work again.
      const cell = this._root.closest<HTMLElement>('.jp-Cell');
      (document.activeElement as HTMLElement | null)?.blur();
      cell?.focus();
    }
  }

  private _onClick(event: MouseEvent): void {
    const target = event.target as Element;
    const link = target.closest('a[href]');
    if (link !== null) {
      const reference = this._selection.referenceOf(link);
      if (reference) {
        event.preventDefault();
        void this._select(reference, true);
      }
      return;
    }
    const summary = target.closest('.gb-item > details > summary');
    if (summary !== null) {
      // The click itself opens or closes it, after this.
      if (!(summary.parentElement as HTMLDetailsElement).open) {
        const item = summary.closest('.gb-item')!;
        void this._select(this._selection.referenceOf(item));
      }
      return;
    }
    const isReading = document.getSelection()?.isCollapsed === false;
    const reference = target.closest('summary, button, input')
      ? ''
      : this._referenceAt(target);
    if (reference && !isReading) {
      void this._select(reference);
    }
  }

  /** The reference that a click on a line or a row selects; the empty string where it selects nothing. */
  private _referenceAt(target: Element): string {
    const element = target.closest<HTMLElement>('.gb-line, tr');
    if (element === null) {
      return '';
    }
    const around = referencesIn(element);
    if (element.matches('.gb-broken, .gb-note')) {
      return around.find(reference => reference.startsWith('b')) ?? '';
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
    const target = event.target as Element;
    if (event.key === 'Escape') {
      this._leave();
    } else if (target.matches('input') || !this._handleKey(event.key, target)) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** Do what a key is for; false where it is for nothing here. */
  private _handleKey(key: string, target: Element): boolean {
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
        void this._toolbar.copy('text');
        return true;
      case 'C':
        void this._toolbar.copy('json');
        return true;
      case '?':
        this._toolbar.toggleKeys();
        return true;
      case 'ArrowLeft':
        return this._panes.step(target, -1);
      case 'ArrowRight':
        return this._panes.step(target, 1);
      case 'ArrowUp':
      case 'ArrowDown':
        if (!target.matches('.gb-code')) {
          return false;
        }
        this._stepLine(target, key === 'ArrowDown' ? 1 : -1);
        return true;
      default:
        return false;
    }
  }

  private readonly _root: HTMLElement;
  private readonly _panes: Panes;
  private readonly _selection: Selection;
  private readonly _disposed = new AbortController();
  private readonly _toolbar: Toolbar;
}

/** Whether a report has a page of its own, and the keys pressed in it are meant for the report. */
function isPageOf(root: HTMLElement): boolean {
  return root.parentElement?.parentElement === document.body;
}
