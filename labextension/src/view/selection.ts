/**
 * The selected part of a report, highlighted in every pane together with related elements.
 *
 * The markup contains the relations (`references.py`): an element's id is the report's prefix and a reference, links
 * lead to ids, and `data-in` lists the references of related elements.
 */
import {
  focusable,
  isShown,
  openFolds,
  ownLineOf,
  referencesIn,
  rowOf,
  scrollPageTo,
  scrollTo
} from './elements';
import { isInReport, showExcerpt } from './excerpt';
import type { Panes } from './panes';

/** Lists by the first letter of their references; a break may be in one of several. */
const LISTS: Record<string, string> = {
  g: 'graphs',
  f: 'frames',
  r: 'resumes',
  k: 'skipped',
  y: 'recompiles',
  c: 'scopes'
};

export interface ISelectOptions {
  readonly focus?: boolean;
  readonly open?: boolean;
  /** Do not scroll the page. */
  readonly still?: boolean;
}

export class Selection {
  /**
   * @param root - The element of the report.
   * @param panes - Its panes, which show the selection.
   */
  constructor(root: HTMLElement, panes: Panes) {
    this._root = root;
    this._panes = panes;
    this._prefix = root.dataset.prefix ?? '';
  }

  /** The reference of the selection, or an empty string. */
  get reference(): string {
    return this._reference;
  }

  /** The selected element. */
  get element(): HTMLElement | null {
    return this._reference ? this._find(this._reference) : null;
  }

  /** The reference of an element, or of a link's target. */
  referenceOf(element: Element): string {
    const id = element.getAttribute('href')?.slice(1) ?? element.id;
    return id.startsWith(this._prefix) ? id.slice(this._prefix.length) : '';
  }

  /**
   * Highlight an element and related elements, and show them.
   *
   * @param reference - The reference to select.
   * @param options - Whether to focus the element, to open its card, and to leave the page where it is.
   * @returns The element; null if it does not exist, or if the reader has selected something else meanwhile.
   */
  async select(
    reference: string,
    { focus = false, open = false, still = false }: ISelectOptions = {}
  ): Promise<HTMLElement | null> {
    this._request = reference;
    const target = await this._reveal(reference);
    const ownLine = target && ownLineOf(target);
    if (ownLine) {
      await this._reveal(ownLine);
    }
    if (this._request !== reference) {
      return null;
    }
    this.highlight(target === null ? '' : reference);
    if (target === null) {
      return null;
    }
    this._show(target, open);
    const counterpart = this._showCounterpart(target);
    if (!still) {
      scrollPageTo([
        rowOf(target),
        ...(counterpart === null ? [] : [rowOf(counterpart)])
      ]);
    }
    if (focus) {
      const part = focusable(target);
      // The link that led here may now be hidden, and the focus must not be lost.
      (part !== null && isShown(part) ? part : this._root).focus({
        preventScroll: true
      });
    }
    return target;
  }

  /** Highlight an element and related elements on the page, without scrolling. */
  highlight(reference: string): void {
    this.clear();
    const target = reference === '' ? null : this._find(reference);
    if (target === null) {
      return;
    }
    this._reference = reference;
    const relatedElements = this._relatedElements(target, reference);
    relatedElements.forEach(element => element.classList.add('gb-related'));
    const boxes = this._boxes().filter(
      box => this.referenceOf(box) === reference
    );
    for (const element of [target, ...boxes]) {
      element.classList.remove('gb-related');
      element.classList.add('gb-selected');
    }
    target.setAttribute('aria-current', 'true');
  }

  /** Show the line of the selected card in the card, even if an editor shows it. */
  quote(): void {
    const card = this.element;
    const ownLine = card?.matches('.gb-item') ? ownLineOf(card) : undefined;
    const line = ownLine === undefined ? null : this._find(ownLine);
    if (card !== null && line !== null) {
      scrollPageTo([rowOf(card), showExcerpt(line, card)]);
    }
  }

  /** Remove all highlights. */
  clear(): void {
    const highlights = this._root.querySelectorAll('.gb-selected, .gb-related');
    for (const element of highlights) {
      element.classList.remove('gb-selected', 'gb-related');
      element.removeAttribute('aria-current');
    }
    this._reference = '';
  }

  /** Add the element of a reference to the page. */
  private async _reveal(reference: string): Promise<HTMLElement | null> {
    const element = this._find(reference);
    if (element !== null) {
      return element;
    }
    const kind = LISTS[reference[0] ?? ''];
    if (reference.startsWith('b')) {
      await this._panes.revealBreak(Number(reference.slice(1)));
    } else if (kind !== undefined) {
      await this._panes.list(kind)?.reveal(Number(reference.slice(1)));
    } else {
      // The reference is that of a line that the markup leaves out.
      const lines = this._panes.list(reference.split('-')[0] ?? '');
      await lines?.load();
      await lines?.reveal(lines.length - 1);
    }
    return this._find(reference);
  }

  private _find(reference: string): HTMLElement | null {
    // Do not search the whole document, which may contain the same report twice.
    return this._root.querySelector<HTMLElement>(
      `#${CSS.escape(this._prefix + reference)}`
    );
  }

  /** The elements that are highlighted together with an element. */
  private _relatedElements(
    target: HTMLElement,
    reference: string
  ): HTMLElement[] {
    const elements = new Set(
      this._root.querySelectorAll<HTMLElement>(
        `[data-in~="${CSS.escape(reference)}"]`
      )
    );
    const relatedReferences = new Set(referencesIn(target));
    for (const relatedReference of relatedReferences) {
      const element = this._find(relatedReference);
      if (element !== null) {
        elements.add(element);
      }
    }
    for (const box of this._boxes()) {
      if (relatedReferences.has(this.referenceOf(box))) {
        elements.add(box);
      }
    }
    elements.delete(target);
    return Array.from(elements);
  }

  /** The boxes of the strip. */
  private _boxes(): HTMLElement[] {
    return Array.from(
      this._root.querySelectorAll<HTMLElement>('.gb-strip a[href]')
    );
  }

  /** Open the pane and the folded parts around an element, and optionally its card. */
  private _show(element: HTMLElement, open: boolean): void {
    this._panes.showAround(element);
    openFolds(element);
    if (open) {
      element
        .querySelector<HTMLDetailsElement>(':scope > details')
        ?.toggleAttribute('open', true);
    }
    scrollTo(element);
  }

  /** Show the line of an item, or the first item of a line, on the other side. */
  private _showCounterpart(target: HTMLElement): HTMLElement | null {
    const relatedElements = this._relatedElements(target, this._reference);
    if (target.matches('.gb-line')) {
      const items = relatedElements.filter(element =>
        element.matches('.gb-side tr, .gb-item')
      );
      // The pane stays if it shows one of them.
      const item = items.find(isShown) ?? items[0];
      if (item !== undefined) {
        this._show(item, true);
      }
      return item ?? null;
    }
    const ownLine = ownLineOf(target);
    const line =
      (ownLine ? this._find(ownLine) : null) ??
      relatedElements.find(element => element.matches('.gb-line[id]'));
    if (line === undefined || !isInReport(line, this._root)) {
      return null;
    }
    if (this._root.matches('.gb-column')) {
      return showExcerpt(line, target);
    }
    openFolds(line);
    scrollTo(line);
    return line;
  }

  private readonly _root: HTMLElement;
  private readonly _panes: Panes;
  private readonly _prefix: string;
  private _reference = '';
  private _request = '';
}
