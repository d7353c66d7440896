/** The dialog that shows changes before they are applied to a notebook. */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import type { IDiffLine } from '../report/edits';
import { visiblePieces } from '../report/shown';
import { makeElement } from '../view/elements';
import type { IShownChange } from './remedyapplier';

/** Show complete changes, and ask whether to apply them. */
export async function confirmChanges(
  changes: readonly IShownChange[],
  trans: TranslationBundle
): Promise<boolean> {
  const { body, isPlain } = changesBody(changes, trans);
  const { button } = await showDialog({
    title: trans.__('Apply these changes?'),
    body: new Widget({ node: body }),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.okButton({ label: trans.__('Apply') })
    ],
    // A careless key press must not apply changes with hidden characters.
    defaultButton: isPlain ? 1 : 0
  });
  return button.accept;
}

/** The element with the changes, and whether all of their characters are visible. */
export function changesBody(
  changes: readonly IShownChange[],
  trans: TranslationBundle
): { body: HTMLElement; isPlain: boolean } {
  const body = makeElement('div', 'jp-GraphBreakChanges');
  for (const { heading, groups } of changes) {
    const title = makeElement('h3');
    title.textContent = heading;
    body.append(title);
    for (const group of groups) {
      const text = makeElement('pre');
      // It scrolls, so it must be focusable.
      text.tabIndex = 0;
      text.setAttribute('role', 'region');
      text.setAttribute('aria-label', heading);
      group.forEach(line => text.append(lineElement(line)));
      body.append(text);
    }
  }
  const isPlain = body.querySelector('.jp-mod-hidden') === null;
  if (!isPlain) {
    const warning = makeElement('p', 'jp-GraphBreakChanges-warning');
    warning.setAttribute('role', 'alert');
    warning.textContent = trans.__(
      'This change contains characters that are invisible or change how other text looks. They are shown by their names, such as U+202E.'
    );
    body.prepend(warning);
  }
  return { body, isPlain };
}

const LOOKS = { '-': 'old', '+': 'new', ' ': 'same' } as const;

function lineElement({ sign, number, text }: IDiffLine): HTMLElement {
  const line = makeElement('span', `jp-mod-${LOOKS[sign]}`);
  const lineNumber = makeElement('i');
  lineNumber.textContent = number === null ? '' : String(number);
  const code = makeElement('code');
  for (const { text: piece, isHidden } of visiblePieces(text)) {
    if (isHidden) {
      const name = makeElement('b', 'jp-mod-hidden');
      name.textContent = piece;
      code.append(name);
    } else {
      code.append(piece);
    }
  }
  line.append(lineNumber, makeSign(sign), code, '\n');
  return line;
}

function makeSign(sign: IDiffLine['sign']): HTMLElement {
  const element = makeElement('b');
  element.textContent = sign;
  return element;
}
