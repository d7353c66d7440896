/** The tools at the foot of a report: the status line, the buttons, the list of keys, copying. */
import { makeElement, makeKey, reasonOf } from './elements';

const KEYS: [key: string, meaning: string][] = [
  ['n / p', 'next, previous break'],
  ['b / g', 'breaks, graphs'],
  ['← / →', 'panes, on their names'],
  ['↑ / ↓', 'rows; in the source lines on which something happened'],
  ['o', 'open or close the card'],
  ['f', 'select what the pointer is on'],
  ['/', 'filter the pane'],
  ['c / C', 'copy as text, as JSON'],
  ['Esc', 'clear the filter, the selection; then leave'],
  ['?', 'these keys']
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

/** The toolbar of one report. */
export class Toolbar {
  constructor(options: IToolbarOptions) {
    this._options = options;
    this._status.setAttribute('role', 'status');
    const summary = makeElement('summary');
    summary.append('Keys ', makeKey('?'));
    this._keys.append(summary, makeKeyTable());
    this._follow.setAttribute('aria-pressed', 'false');
    this._source.hidden = true;
    this.element.append(
      this._status,
      makeButton('Next break', 'n', () => options.nextBreak()),
      this._follow,
      this._source,
      makeButton('Copy text', 'c', () => this.copy('text')),
      makeButton('Copy JSON', 'C', () => this.copy('json')),
      this._keys
    );
  }

  readonly element = makeElement('div', 'gb-tools');

  /** Show a message, which screen readers announce. */
  announce(message: string): void {
    this._status.textContent = message;
  }

  /** Enable or disable selection by the pointer. */
  setFollowing(isFollowing: boolean): void {
    if (this._isFollowing !== isFollowing) {
      this._isFollowing = isFollowing;
      this._follow.setAttribute('aria-pressed', String(isFollowing));
      this._options.follow(isFollowing);
    }
  }

  /** Add a button before all others. */
  offer(label: string, act: () => Promise<void>): void {
    this._status.after(makeButton(label, '', act));
  }

  /** Offer to show the sources beside the conclusions, if these are shown alone. */
  offerColumn(isOffered: boolean): void {
    this._source.hidden = !isOffered;
  }

  /** Show whether the sources are beside the conclusions. */
  showColumn(isColumn: boolean): void {
    this._isColumn = isColumn;
    this._source.setAttribute('aria-pressed', String(!isColumn));
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

  /** Open or close the list of keys. */
  toggleKeys(): void {
    this._keys.open = !this._keys.open;
    this._keys.querySelector('summary')!.focus();
  }

  /** Close the list of keys; false if it was closed. */
  closeKeys(): boolean {
    const { open } = this._keys;
    this._keys.open = false;
    return open;
  }

  private readonly _options: IToolbarOptions;
  private readonly _follow = makeButton('Follow pointer', 'f', () =>
    this.setFollowing(!this._isFollowing)
  );
  private readonly _source = makeButton('Source', '', () =>
    this._options.setColumn(!this._isColumn)
  );
  private _isFollowing = false;
  private _isColumn = false;
  private readonly _status = makeElement('span', 'gb-said');
  private readonly _keys = makeElement('details', 'gb-keys');
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

/** Copy a text to the clipboard. */
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
    throw new Error('the browser gives no access to the clipboard');
  }
}
