/** The tools at the foot of a report: the status, the main action, and the menu with other actions and the keys. */
import { makeElement, makeKey, reasonOf } from './elements';

const KEYS: [key: string, meaning: string][] = [
  ['n / p', 'next, previous break'],
  ['b / g', 'breaks, graphs'],
  ['← / →', 'panes, if a tab has the focus; Home and End: the first and last'],
  ['↑ / ↓', 'rows; in the source, marked lines'],
  ['o', 'open or close the card'],
  ['f', 'select the part under the pointer'],
  ['/', 'filter the pane'],
  ['c / C', 'copy as text, as JSON'],
  ['Esc', 'close the menu, leave the filter, the selection, the report'],
  ['?', 'this menu']
];

/** A format of the report that can be copied. */
export type CopyFormat = 'text' | 'json';

export interface IToolbarOptions {
  /** Go to the next break. */
  nextBreak(): Promise<void>;
  /** The report in a format to copy. */
  load(format: CopyFormat): Promise<string>;
  /** Enable or disable selection by the pointer. */
  follow(isFollowing: boolean): void;
  /** Show the report with or without sources beside it. */
  setColumn(isColumn: boolean): void;
}

/** A step that the reader can take after an action. */
export interface INextStep {
  readonly label: string;
  act(): Promise<void>;
}

/** The result of an action. */
export interface IResult {
  readonly message: string;
  /** Reverts the action, if that is possible. */
  readonly undo?: INextStep;
  readonly next?: INextStep;
}

/** The toolbar of one report: the status, one main action, and a menu with the other actions and the keys. */
export class Toolbar {
  constructor(options: IToolbarOptions) {
    this._options = options;
    this._status.setAttribute('role', 'status');
    this._followButton.setAttribute('aria-pressed', 'false');
    this._sourceButton.hidden = true;
    this._menuButton.setAttribute('aria-expanded', 'false');
    this._menu.hidden = true;
    this._menu.append(
      this._followButton,
      this._sourceButton,
      this._copyButton,
      makeButton('Copy JSON', 'C', () => this.copy('json')),
      makeKeyTable()
    );
    this._mainAction.append(this._steps, this._nextButton, this._menuButton);
    this.element.append(this._status, this._mainAction, this._menu);
  }

  readonly element = makeElement('div', 'gb-tools');

  /** Whether there is a next break; otherwise copying is the main action. */
  set hasBreaks(hasBreaks: boolean) {
    if (!hasBreaks) {
      this._makeMain(this._copyButton);
    }
  }

  /** Show what happened, which screen readers announce, and what the reader can do next. */
  announce(result: string | IResult): void {
    const { message, undo, next }: IResult =
      typeof result === 'string' ? { message: result } : result;
    this._status.textContent = message;
    this._undo = undo ?? null;
    const steps = [undo, next].filter(step => step !== undefined);
    const isFocused = this._steps.contains(document.activeElement);
    this._steps.replaceChildren(
      ...steps.map(({ label, act }) => makeButton(label, '', act))
    );
    if (isFocused) {
      // The pressed button is no longer on the page, and the focus must not be lost.
      this.element
        .closest<HTMLElement>('.graphbreak')
        ?.focus({ preventScroll: true });
    }
  }

  /** Undo the announced action; false if there is nothing to undo. */
  undo(): boolean {
    const step = this._undo;
    this._undo = null;
    void step?.act();
    return step !== null;
  }

  /** Enable or disable selection by the pointer. */
  setFollowing(isFollowing: boolean): void {
    if (this._isFollowing !== isFollowing) {
      this._isFollowing = isFollowing;
      this._followButton.setAttribute('aria-pressed', String(isFollowing));
      this._options.follow(isFollowing);
    }
  }

  /** Make an action the main one. */
  offer(label: string, act: () => Promise<void>): void {
    this._makeMain(makeButton(label, '', act));
  }

  /** Offer to show the sources beside the conclusions, if these are shown alone. */
  offerColumn(isOffered: boolean): void {
    this._sourceButton.hidden = !isOffered;
  }

  /** Show whether the sources are beside the conclusions. */
  showColumn(isColumn: boolean): void {
    this._isColumn = isColumn;
    this._sourceButton.setAttribute('aria-pressed', String(!isColumn));
  }

  /** Copy the report to the clipboard. */
  async copy(format: CopyFormat): Promise<void> {
    try {
      await writeClipboard(await this._options.load(format));
      this.announce(format === 'text' ? 'Copied as text' : 'Copied as JSON');
    } catch (error) {
      this.announce(`Not copied: ${reasonOf(error)}`);
    }
  }

  /** Open or close the menu. */
  toggleMenu(): void {
    this._menu.hidden = !this._menu.hidden;
    this._menuButton.setAttribute('aria-expanded', String(!this._menu.hidden));
    this._menuButton.focus();
  }

  /** Close the menu; false if it is not open. */
  closeMenu(): boolean {
    const isOpen = !this._menu.hidden;
    if (isOpen) {
      this.toggleMenu();
    }
    return isOpen;
  }

  /** Replace the main action and move the replaced one to the menu. */
  private _makeMain(button: HTMLElement): void {
    this._menu.prepend(this._mainAction.querySelector(':scope > button')!);
    this._steps.after(button);
  }

  private readonly _options: IToolbarOptions;
  private readonly _nextButton = makeButton('Next break', 'n', () =>
    this._options.nextBreak()
  );
  private readonly _followButton = makeButton('Follow pointer', 'f', () =>
    this.setFollowing(!this._isFollowing)
  );
  private readonly _sourceButton = makeButton('Source', '', () =>
    this._options.setColumn(!this._isColumn)
  );
  private readonly _copyButton = makeButton('Copy text', 'c', () =>
    this.copy('text')
  );
  private readonly _menuButton = makeButton('More', '?', () =>
    this.toggleMenu()
  );
  private _isFollowing = false;
  private _isColumn = false;
  private _undo: INextStep | null = null;
  private readonly _status = makeElement('span', 'gb-status');
  private readonly _mainAction = makeElement('span', 'gb-main-action');
  /** The buttons for the steps that are possible after the announced action. */
  private readonly _steps = makeElement('span', 'gb-steps');
  private readonly _menu = makeElement('div', 'gb-menu');
}

function makeKeyTable(): HTMLElement {
  const table = makeElement('dl');
  for (const [key, meaning] of KEYS) {
    const term = makeElement('dt');
    term.append(makeKey(key));
    const description = makeElement('dd');
    description.textContent = meaning;
    table.append(term, description);
  }
  return table;
}

/** Make a button that depicts its equivalent key. */
export function makeButton(
  label: string,
  key: string,
  act: () => Promise<void> | void
): HTMLButtonElement {
  const button = makeElement('button');
  button.type = 'button';
  button.append(...(key === '' ? [label] : [`${label} `, makeKey(key)]));
  button.addEventListener('click', () => void act());
  return button;
}

/** Copy text to the clipboard. */
export async function writeClipboard(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Pages without https have no clipboard object.
  const area = makeElement('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand('copy');
  area.remove();
  if (!isCopied) {
    throw new Error('the browser does not allow access to the clipboard');
  }
}
