/** Buttons in the cards of a report that apply a remedy, copy it, or copy the whole card. */
import { isInView, makeElement, reasonOf } from './elements';
import type { IApplicableRef, IRemedyActions } from './link';
import { cardAsMarkdown } from './markdown';
import {
  type IResult,
  makeButton,
  type Toolbar,
  writeClipboard
} from './toolbar';

/** The JSON fields of a report that the buttons need. */
interface IRemedies {
  remedies: { patch: string | null; code: string | null }[] | null;
  compiled: { code: string | null; edit: { new: string } | null }[] | null;
  reproducers: { script: string | null; issue: string | null }[] | null;
}

export interface IRemedyButtonOptions {
  /** The report as JSON. */
  json(): Promise<string>;
  /** Show a result to the reader. */
  announce(result: string | IResult): void;
}

export class RemedyButtons {
  /**
   * @param root - The element of the report.
   * @param options - The source of the report's data, and a callback for messages.
   */
  constructor(root: HTMLElement, options: IRemedyButtonOptions) {
    this._root = root;
    this._options = options;
  }

  /** The actions on the notebook; without them remedies can only be copied. */
  set actions(actions: IRemedyActions) {
    this._actions = actions;
    this._root
      .querySelectorAll('.gb-actions')
      .forEach(buttons => buttons.remove());
    this.refresh();
  }

  /** Add buttons for the whole report to a toolbar. */
  offerIn(toolbar: Toolbar): void {
    const actions = this._actions!;
    const { untried } = this._root.dataset;
    if (untried !== undefined) {
      const label = untried === 'rest' ? 'Continue trying' : 'Try remedies';
      toolbar.offer(label, () =>
        this._perform(async () => {
          await actions.tryRemedies();
          return '';
        })
      );
    }
  }

  /** Add buttons to remedies and cards that have none. */
  refresh(): void {
    for (const remedy of this._root.querySelectorAll<HTMLElement>(
      '.gb-remedy:is([data-remedy], [data-compiled], [data-reproducer]):not(:has(> .gb-actions))'
    )) {
      this._addTo(remedy);
    }
    const together = this._root.querySelector<HTMLElement>(
      '.gb-together:not(:has(> .gb-actions))'
    );
    if (together !== null && this._actions !== null) {
      const chosenIndexes =
        (together.dataset.remedies ?? '').match(/\d+/g) ?? [];
      const refs = chosenIndexes.map(at => ({
        list: 'remedies' as const,
        at: Number(at)
      }));
      const button = namedButton('Apply', 'Compatible remedies', () =>
        this._apply(refs, button)
      );
      together.append(row(button));
    }
    for (const card of this._root.querySelectorAll<HTMLElement>(
      '.gb-break > details:not(:has(> .gb-actions))'
    )) {
      const name = card.querySelector('.gb-cut')?.textContent ?? '';
      const button = makeButton('Copy as Markdown', '', () =>
        this._perform(async () => {
          await writeClipboard(cardAsMarkdown(card, this._root));
          return 'Copied as Markdown';
        }, button)
      );
      button.setAttribute('aria-label', `Copy as Markdown: break ${name}`);
      card.append(row(button));
    }
  }

  private _addTo(remedy: HTMLElement): void {
    const { apply, copy, compiled, comment } = remedy.dataset;
    const ref: IApplicableRef =
      compiled === undefined
        ? { list: 'remedies', at: Number(remedy.dataset.remedy) }
        : { list: 'compiled', at: Number(compiled) };
    const title = remedy.querySelector('strong, code')?.textContent ?? '';
    const buttons: HTMLButtonElement[] = [];
    if (this._actions !== null && (apply === 'edit' || apply === 'cell')) {
      const label = apply === 'edit' ? 'Apply' : 'Insert as cell';
      const button = namedButton(label, title, () =>
        this._apply([ref], button)
      );
      buttons.push(button);
    }
    if (remedy.dataset.reproducer !== undefined) {
      const at = Number(remedy.dataset.reproducer);
      for (const format of ['script', 'issue'] as const) {
        const button = namedButton(`Copy ${format}`, title, () =>
          this._copyReproducer(at, format, button)
        );
        buttons.push(button);
      }
    }
    if (copy === 'patch' || copy === 'code') {
      const button = namedButton(`Copy ${copy}`, title, () =>
        this._copy(ref, copy, comment ?? '', button)
      );
      buttons.push(button);
    }
    if (buttons.length > 0) {
      remedy.append(row(...buttons));
    }
  }

  private _apply(
    refs: readonly IApplicableRef[],
    button?: HTMLElement
  ): Promise<void> {
    return this._perform(async () => {
      const { message, undo, runAgain } = await this._actions!.apply(refs);
      return {
        message,
        undo: undo && { label: 'Undo', act: () => this._perform(undo) },
        next: runAgain && {
          label: 'Run again',
          act: () => this._perform(() => runAgain().then(() => ''))
        }
      };
    }, button);
  }

  private _copy(
    { list, at }: IApplicableRef,
    format: 'patch' | 'code',
    comment: string,
    button: HTMLElement
  ): Promise<void> {
    return this._perform(async () => {
      const report = JSON.parse(await this._options.json()) as IRemedies;
      const compiled = report.compiled?.[at];
      const text =
        (list === 'compiled'
          ? (compiled?.edit?.new.trim() ?? compiled?.code)
          : report.remedies?.[at]?.[format]) ?? '';
      const lines = comment === '' ? [] : comment.split('\n');
      const commentText = lines.map(line => `# ${line}\n`).join('');
      await writeClipboard(
        commentText + text + (text.endsWith('\n') ? '' : '\n')
      );
      return format === 'patch' ? 'Patch copied' : 'Code copied';
    }, button);
  }

  private _copyReproducer(
    at: number,
    format: 'script' | 'issue',
    button: HTMLElement
  ): Promise<void> {
    return this._perform(async () => {
      const report = JSON.parse(await this._options.json()) as IRemedies;
      await writeClipboard(report.reproducers?.[at]?.[format] ?? '');
      return format === 'script' ? 'Script copied' : 'Issue text copied';
    }, button);
  }

  /** Run an action and show its result, also beside the button if the foot of the report is out of sight. */
  private async _perform(
    act: () => Promise<string | IResult>,
    button?: HTMLElement
  ): Promise<void> {
    const result = await act().catch(reasonOf);
    this._options.announce(result);
    const message = typeof result === 'string' ? result : result.message;
    this._root
      .querySelectorAll('.gb-nearby-message')
      .forEach(nearMessage => nearMessage.remove());
    const foot = this._root.querySelector('.gb-foot');
    if (button !== undefined && message !== '' && !(foot && isInView(foot))) {
      const nearMessage = makeElement('span', 'gb-nearby-message');
      nearMessage.textContent = message;
      nearMessage.setAttribute('aria-hidden', 'true');
      button.parentElement!.append(nearMessage);
    }
  }

  private readonly _root: HTMLElement;
  private readonly _options: IRemedyButtonOptions;
  private _actions: IRemedyActions | null = null;
}

/** A button with an accessible name that identifies its remedy. */
function namedButton(
  label: string,
  title: string,
  act: () => Promise<void>
): HTMLButtonElement {
  const button = makeButton(label, '', act);
  button.setAttribute('aria-label', `${label}: ${title}`);
  return button;
}

function row(...buttons: HTMLElement[]): HTMLElement {
  const element = makeElement('div', 'gb-actions');
  element.append(...buttons);
  return element;
}
