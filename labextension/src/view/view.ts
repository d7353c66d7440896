/** The behaviour of a report's markup: clicks, keys and selection. */
import {
  announcementOf,
  isShown,
  reasonOf,
  referencesIn,
  secureLinks
} from './elements';
import { removeExcerpt, showsSource } from './excerpt';
import {
  type IReady,
  type IReportData,
  type IVisit,
  emitEvent,
  whenConnected
} from './link';
import { Panes } from './panes';
import { PointerMoves } from './pointer';
import { RemedyButtons } from './remedybuttons';
import {
  focusCell,
  isShortcut,
  isUndo,
  keepFromNotebook,
  Roving,
  type Step,
  suppressShortcuts
} from './roving';
import { type ISelectOptions, Selection } from './selection';
import { addMeasureButtons } from './timebars';
import { Toolbar } from './toolbar';

/**
 * Add behaviour to the markup of a report.
 *
 * @param root - The element with class `graphbreak`.
 * @param data - The source of what is not in the markup, unless the application provides it.
 * @returns A function that removes the listeners.
 */
export function addBehaviour(root: HTMLElement, data: IReportData): () => void {
  const view = new View(root, data);
  return () => view.dispose();
}

/** The delay after a change before focusable elements are updated, in milliseconds. */
const REFRESH_MS = 120;

class View {
  constructor(root: HTMLElement, data: IReportData) {
    this._root = root;
    this._data = data;
    suppressShortcuts(root);
    // A click on a plain area focuses the report; otherwise the notebook around it would get the keys.
    root.tabIndex = -1;
    secureLinks(root);
    root.classList.add('gb-live');
    root.classList.toggle('gb-page', isPageOf(root));
    this._panes = new Panes(root, {
      omittedItems: name => this._data.omittedItems(name),
      onShow: () => this._refresh(),
      onFilter: matches =>
        this._toolbar.announce(matches === null ? '' : `${matches} found`),
      onError: error => this._toolbar.announce(reasonOf(error))
    });
    this._selection = new Selection(root, this._panes);
    this._toolbar = new Toolbar({
      nextBreak: () => this._step(1),
      load: format => this._data[format](),
      follow: isFollowing => this._setFollowing(isFollowing),
      setColumn: isColumn => this._setColumn(isColumn)
    });
    root.querySelector('.gb-foot')!.append(this._toolbar.element);
    this._toolbar.hasBreaks = (this._panes.list('breaks')?.length ?? 0) > 0;
    this._remedies = new RemedyButtons(root, {
      json: () => this._data.json(),
      announce: result => this._toolbar.announce(result)
    });
    addMeasureButtons(root);
    const groups =
      '.gb-head, .gb-strip, .gb-times, .gb-sources, .gb-panel, .gb-tools';
    this._groups = Array.from(
      root.querySelectorAll<HTMLElement>(groups),
      group => new Roving(group)
    );
    this._listen();
    whenConnected(root, () => this._announce());
  }

  dispose(): void {
    this._disposal.abort();
  }

  private _listen(): void {
    const root = this._root;
    const { signal } = this._disposal;
    root.addEventListener('pointerdown', event => (this._pressEvent = event), {
      signal
    });
    root.addEventListener('click', event => this._onClick(event), { signal });
    root.addEventListener('keydown', event => this._onKey(event), { signal });
    root.addEventListener('toggle', () => this._refresh(), {
      signal,
      capture: true
    });
    root.addEventListener('pointerover', event => this._onPointer(event), {
      signal
    });
    // On a page that contains only the report, keys work without a click into it.
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

  /** Announce the report to the application around it. */
  private _announce(): void {
    this._refresh();
    const ready: IReady = {
      data: null,
      actions: null,
      handle: {
        root: this._root,
        setColumn: isColumn => {
          this._toolbar.offerColumn(isColumn);
          this._setColumn(isColumn);
        },
        highlight: (reference, reveal) => this._highlight(reference, reveal),
        quote: () => this._selection.quote(),
        setFollowing: isFollowing => this._toolbar.setFollowing(isFollowing)
      }
    };
    emitEvent(this._root, 'graphbreak-ready', ready);
    this._data = ready.data ?? this._data;
    if (ready.actions !== null) {
      this._remedies.actions = ready.actions;
      this._remedies.offerIn(this._toolbar);
    }
  }

  /** Highlight a selection from elsewhere. */
  private _highlight(reference: string, reveal: boolean): void {
    if (reference === this._selection.reference) {
      return;
    }
    if (reference === '' || !reveal) {
      this._selection.highlight(reference);
    } else {
      void this._selection
        .select(reference, { still: true })
        .catch((error: unknown) => this._toolbar.announce(reasonOf(error)));
    }
  }

  /** Update after a change of the shown items, but not while the reader types. */
  private _refresh(): void {
    clearTimeout(this._refreshTimer);
    this._refreshTimer = setTimeout(() => {
      this._remedies.refresh();
      Roving.refresh(this._groups);
    }, REFRESH_MS);
  }

  /** Show the sources folded below the conclusions, or beside them. */
  private _setColumn(isColumn: boolean): void {
    if (this._root.classList.toggle('gb-column', isColumn) !== isColumn) {
      return;
    }
    const sources =
      this._root.querySelectorAll<HTMLDetailsElement>('.gb-source');
    for (const source of sources) {
      const isLibrary = source.dataset.kind === 'library';
      source.open = !isColumn && (!isLibrary || source.matches(':has(.gb-broken)')); // prettier-ignore
    }
    if (isColumn) {
      // The summaries contain the essentials.
      const cards = '[data-list=breaks] > .gb-item > details';
      this._root
        .querySelectorAll<HTMLDetailsElement>(cards)
        .forEach(card => (card.open = false));
    }
    this._toolbar.showColumn(isColumn);
    this._refresh();
  }

  private _setFollowing(isFollowing: boolean): void {
    this._isFollowing = isFollowing;
    this._root.classList.toggle('gb-following', isFollowing);
    emitEvent(this._root, 'graphbreak-following', { isFollowing });
  }

  private async _select(
    reference: string,
    options: ISelectOptions = {}
  ): Promise<void> {
    try {
      const target = await this._selection.select(reference, options);
      if (target !== null) {
        this._toolbar.announce(announcementOf(target));
        this._emitSelection(false);
      }
    } catch (error) {
      this._toolbar.announce(reasonOf(error));
    }
  }

  private _emitSelection(isPointer: boolean): void {
    const { reference } = this._selection;
    emitEvent(this._root, 'graphbreak-selected', { reference, isPointer });
  }

  private async _step(by: 1 | -1): Promise<void> {
    const total = Number(this._root.dataset.breaks ?? 0);
    if (total === 0) {
      this._toolbar.announce('No breaks');
      return;
    }
    const { reference } = this._selection;
    const start = by > 0 ? 0 : total + 1;
    const current = reference.startsWith('b')
      ? Number(reference.slice(1))
      : start;
    const next = ((current - 1 + by + total) % total) + 1;
    await this._select(`b${next}`, { focus: true });
  }

  private _stepLine(code: Element, by: 1 | -1): void {
    const lines = Array.from(
      code.querySelectorAll<HTMLElement>('.gb-line[id][data-in]')
    ).filter(isShown);
    const current = lines.findIndex(line => line === this._selection.element);
    const next = lines[current < 0 && by < 0 ? lines.length - 1 : current + by];
    if (next) {
      void this._select(this._selection.referenceOf(next));
    }
  }

  /** Open or close the focused card, or else the selected one. */
  private _toggle(target: Element): void {
    const card =
      target.closest('.gb-item') ??
      this._selection.element?.closest('.gb-item');
    const details = card?.querySelector<HTMLDetailsElement>(':scope > details');
    if (details) {
      toggleCard(details);
    }
  }

  private _leave(target: Element): void {
    if (this._toolbar.closeMenu() || this._panes.leaveFilter(target)) {
      return;
    }
    if (this._selection.reference) {
      this._selection.clear();
      this._toolbar.announce('');
      this._emitSelection(false);
    } else {
      focusCell(this._root);
    }
  }

  private _onClick(event: MouseEvent): void {
    const target = event.target as Element;
    const link = target.closest('a[href]');
    if (link !== null) {
      const reference = this._selection.referenceOf(link);
      if (reference) {
        event.preventDefault();
        this._follow(reference);
      }
      return;
    }
    const summary = target.closest('.gb-item > details > summary');
    if (summary !== null) {
      // Toggle the card here, because the browser would toggle it again after the selection.
      event.preventDefault();
      if (this._endsTextSelection(event)) {
        return;
      }
      const item = summary.closest('.gb-item')!;
      const reference = this._selection.referenceOf(item);
      const isOpen = toggleCard(summary.parentElement as HTMLDetailsElement);
      if (isOpen || reference !== this._selection.reference) {
        void this._select(reference);
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

  /** Go to the target of a link: to an editor, if an editor shows the line instead of the report. */
  private _follow(reference: string): void {
    const [, source, line] = /^l(\d+)-(\d+)$/.exec(reference) ?? [];
    if (source !== undefined && !showsSource(this._root, source)) {
      const visit: IVisit = {
        source: Number(source),
        line: Number(line),
        isHandled: false
      };
      emitEvent(this._root, 'graphbreak-visit', visit);
      if (visit.isHandled) {
        return;
      }
      this._setColumn(false);
    }
    void this._select(reference, { focus: true, open: true });
  }

  /**
   * Whether a click ends a drag that selects text. Selected text does not prove that
   * there was a drag: a double click selects a word, and a click on selected text keeps
   * the selection until the click ends.
   */
  private _endsTextSelection(event: MouseEvent): boolean {
    const from = this._pressEvent;
    return (
      from !== undefined &&
      event.detail > 0 &&
      document.getSelection()?.isCollapsed === false &&
      Math.hypot(event.clientX - from.clientX, event.clientY - from.clientY) > 3
    );
  }

  /** Highlight the element under the pointer, if the reader has enabled that. */
  private _onPointer(event: PointerEvent): void {
    if (!this._moves.isMove(event) || !this._isFollowing) {
      return;
    }
    const target = event.target as Element;
    const part = target.closest('.gb-item, .gb-strip a');
    const reference =
      part !== null
        ? this._selection.referenceOf(part)
        : this._referenceAt(target);
    if (reference && reference !== this._selection.reference) {
      this._selection.highlight(reference);
      this._emitSelection(true);
    }
  }

  /** The reference that a click on a line or a row selects, or an empty string. */
  private _referenceAt(target: Element): string {
    const element = target.closest<HTMLElement>('.gb-line, tr');
    if (element === null) {
      return '';
    }
    const relatedReferences = referencesIn(element);
    if (element.matches('.gb-broken, .gb-note')) {
      return (
        relatedReferences.find(reference => reference.startsWith('b')) ?? ''
      );
    }
    const reference = this._selection.referenceOf(element);
    if (element.matches('.gb-line')) {
      return relatedReferences.length > 0 ? reference : '';
    }
    return reference || (relatedReferences[0] ?? '');
  }

  private _onKey(event: KeyboardEvent): void {
    const target = event.target as Element;
    if (isUndo(event) && this._toolbar.undo()) {
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    if (isShortcut(event) || event.defaultPrevented) {
      // The key is a shortcut of the application or the browser.
    } else if (event.key === 'Escape') {
      this._leave(target);
      event.preventDefault();
    } else if (!target.matches('input') && this._handleKey(event, target)) {
      event.preventDefault();
    }
    if (this._root.closest('.jp-Notebook') !== null) {
      keepFromNotebook(event);
    } else if (event.defaultPrevented) {
      event.stopPropagation();
    }
  }

  /** Handle a key; false if the key has no function here. */
  private _handleKey(
    { key, shiftKey }: KeyboardEvent,
    target: Element
  ): boolean {
    switch (key) {
      case 'F8': // as in the notebook
        void this._step(shiftKey ? -1 : 1);
        return true;
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
      case 'Enter':
      case ' ':
        if (!target.matches('.gb-item > details > summary')) {
          return false;
        }
        (target as HTMLElement).click();
        return true;
      case 'o':
        this._toggle(target);
        return true;
      case 'f':
        this._toolbar.setFollowing(!this._isFollowing);
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
        this._toolbar.toggleMenu();
        return true;
      case 'ArrowLeft':
        return this._move(target, -1);
      case 'ArrowRight':
        return this._move(target, 1);
      case 'Home':
        return this._move(target, 'first');
      case 'End':
        return this._move(target, 'last');
      case 'ArrowUp':
      case 'ArrowDown': {
        const by = key === 'ArrowDown' ? 1 : -1;
        if (!target.matches('.gb-code')) {
          return this._rove(target, by);
        }
        this._stepLine(target, by);
        return true;
      }
      default:
        return false;
    }
  }

  /** Move among the tabs, or among the items around the focus. */
  private _move(target: Element, step: Step): boolean {
    return this._panes.step(target, step) || this._rove(target, step);
  }

  private _rove(target: Element, step: Step): boolean {
    const group = this._groups.find(other => other.contains(target));
    return group?.step(target, step) ?? false;
  }

  private readonly _root: HTMLElement;
  private readonly _panes: Panes;
  private readonly _selection: Selection;
  private readonly _disposal = new AbortController();
  private readonly _moves = new PointerMoves(this._disposal.signal);
  private readonly _toolbar: Toolbar;
  private readonly _remedies: RemedyButtons;
  private readonly _groups: readonly Roving[];
  private _data: IReportData;
  private _pressEvent: PointerEvent | undefined;
  private _refreshTimer: ReturnType<typeof setTimeout> | undefined;
  private _isFollowing = false;
}

/** Open or close a card, and remove the lines that it showed; returns whether it is open. */
function toggleCard(card: HTMLDetailsElement): boolean {
  card.open = !card.open;
  removeExcerpt(card.parentElement!);
  return card.open;
}

/** Whether the report is the whole page, so all keys are meant for it. */
function isPageOf(root: HTMLElement): boolean {
  return root.parentElement?.parentElement === document.body;
}
