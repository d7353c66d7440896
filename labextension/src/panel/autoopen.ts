/** Opens the panel when a run of this session finds the first break. */
import type { Cell } from '@jupyterlab/cells';
import type { ISignal } from '@lumino/signaling';

import type { NotebookReports } from '../notebook/notebookreports';

/** The time in milliseconds after the end of a run within which its report may appear. */
const LATE_MS = 2000;

/** The time in milliseconds between two checks. */
const STEP_MS = 100;

export class AutoOpen {
  /**
   * @param reports - The reports of the current notebook.
   * @param executed - Emitted when a cell has run.
   * @param open - Opens the panel.
   */
  constructor(
    reports: NotebookReports,
    executed: ISignal<unknown, { cell: Cell }>,
    open: () => void
  ) {
    this._reports = reports;
    this._open = open;
    executed.connect((_, { cell }) => this._check(cell, LATE_MS));
  }

  /** Whether to open the panel. */
  isOn = false;

  private _check(cell: Cell, remainingMs: number): void {
    if (!this.isOn || this._hasOpened || cell.isDisposed) {
      return;
    }
    const hasBreaks = this._reports.runs.some(
      run =>
        run.cell === cell.model &&
        run.cell.executionState !== 'running' &&
        (run.report?.breaks.length ?? 0) > 0
    );
    if (hasBreaks) {
      this._hasOpened = true;
      this._open();
    } else if (remainingMs > 0 && cell.model.type === 'code') {
      setTimeout(() => this._check(cell, remainingMs - STEP_MS), STEP_MS);
    }
  }

  private readonly _reports: NotebookReports;
  private readonly _open: () => void;
  private _hasOpened = false;
}
