/** Keeps the previous report of a cell in view while the cell runs again, until the new report is there. */
import type { Cell } from '@jupyterlab/cells';

import { makeElement } from '../view/elements';
import { onReportEvent } from '../view/link';
import { keepKeys } from '../view/roving';
import type { IRunSignals } from './reportlinks';

/** The time after the end of a run within which its report may appear, in milliseconds. */
const LATE_MS = 1000;

export class PreviousReports {
  /** @param actions - Emit signals when a cell starts, before its outputs are cleared, and when it ends. */
  constructor(actions: IRunSignals) {
    actions.executionScheduled.connect((_, { cell }) => this._keep(cell));
    actions.executed.connect((_, { cell }) => {
      const copy = this._copies.get(cell.node);
      setTimeout(() => copy?.remove(), LATE_MS);
    });
    onReportEvent(document, 'graphbreak-ready', (_, root) => {
      const cell = root.closest<HTMLElement>('.jp-Cell');
      if (cell !== null) {
        this._copies.get(cell)?.remove();
      }
    });
  }

  private _keep({ node }: Cell): void {
    this._copies.get(node)?.remove();
    const root = node.querySelector('.jp-OutputArea .graphbreak');
    if (root === null) {
      return;
    }
    const box = makeElement('div', 'jp-GraphBreakPrevious');
    keepKeys(box);
    const copy = root.cloneNode(true) as HTMLElement;
    copy.inert = true;
    box.append(copy);
    node.append(box);
    this._copies.set(node, box);
  }

  /** The copies of reports, by the element of their cell. */
  private readonly _copies = new WeakMap<HTMLElement, HTMLElement>();
}
