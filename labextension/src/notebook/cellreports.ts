/** Finds the reports about each cell of a notebook, and updates them when the reports change. */
import { type ICodeCellModel, isCodeCellModel } from '@jupyterlab/cells';
import type { INotebookModel } from '@jupyterlab/notebook';

import type { Report, Source } from '../report/types';
import { afterPaint } from '../view/link';
import {
  CellIndex,
  cellSources,
  countInName,
  findCell,
  snapshotOf
} from './cells';
import type { NotebookReports } from './notebookreports';
import type { IRun } from './runs';

/** The maximum number of sources of one report that belong to one cell: a cell has one source for each time it ran. */
const MAX_SOURCES = 10;

/** A report of one run about one cell. */
export interface ICellReport {
  readonly cell: ICodeCellModel;
  readonly run: Omit<IRun, 'report'>;
  readonly report: Report;
  /** The source in the report that is the cell. */
  readonly source: Source;
  /** Whether the cell was run again since, without being explained. */
  readonly isStale: boolean;
}

/** Called with all code cells of a notebook and the reports about them. */
export type CellReportsListener = (
  cells: readonly ICodeCellModel[],
  cellReports: readonly ICellReport[]
) => void;

/** Follows the reports of one notebook while it is open; typing does not change them. */
export class CellReportsFollower {
  constructor(
    notebook: INotebookModel,
    reports: NotebookReports,
    listener: CellReportsListener
  ) {
    this._notebook = notebook;
    this._reports = reports;
    this._listener = listener;
    notebook.cells.changed.connect(this._onCellsChanged, this);
    this._onCellsChanged();
  }

  private _onCellsChanged(): void {
    for (const cell of this._notebook.cells) {
      if (isCodeCellModel(cell)) {
        // Lumino does not connect a slot twice.
        cell.outputs.changed.connect(this._schedule, this);
        cell.stateChanged.connect(this._schedule, this);
      }
    }
    this._schedule();
  }

  private _schedule(): void {
    // Render a new report before reading it.
    if (this._isScheduled) {
      return;
    }
    this._isScheduled = true;
    afterPaint(() => {
      this._isScheduled = false;
      if (!this._notebook.isDisposed) {
        this._update();
      }
    });
  }

  private _update(): void {
    const cells = Array.from(this._notebook.cells).filter(isCodeCellModel);
    const current = cellReportsOf(this._reports.runsIn(this._notebook), cells);
    const carriers = new Set(current.map(({ run }) => run.cell));
    const present = new Set(cells);
    // A running cell without a new report keeps the old one until it is cleared.
    const lost = this._cellReports.filter(
      ({ cell, run }) =>
        !carriers.has(run.cell) &&
        present.has(cell) &&
        present.has(run.cell) &&
        (run.cell.executionCount !== null ||
          run.cell.executionState === 'running')
    );
    this._cellReports = [
      ...lost.map(cellReport => ({ ...cellReport, isStale: true })),
      ...current
    ];
    this._listener(cells, this._cellReports);
  }

  private readonly _notebook: INotebookModel;
  private readonly _reports: NotebookReports;
  private readonly _listener: CellReportsListener;
  private _cellReports: readonly ICellReport[] = [];
  private _isScheduled = false;
}

/** The reports of runs about the cells of their notebook; the latest run comes last. */
function cellReportsOf(
  runs: readonly IRun[],
  cells: readonly ICodeCellModel[]
): ICellReport[] {
  const snapshots = new Map(cells.map(cell => [cell, snapshotOf(cell)]));
  const index = new CellIndex(snapshots.values());
  return runs
    .flatMap(({ report, ...run }) => {
      const carrier = snapshots.get(run.cell);
      if (report === null || carrier === undefined) {
        return [];
      }
      const counts = new Map<ICodeCellModel, number>();
      const matches = cellSources(report).flatMap(source => {
        const match = findCell(report, source.id, carrier, index);
        const cell = match?.cell.model;
        const count = (cell && counts.get(cell)) ?? 0;
        if (cell === undefined || count >= MAX_SOURCES) {
          return [];
        }
        counts.set(cell, count + 1);
        return [{ cell, source }];
      });
      const hasOtherCount = ({
        cell,
        source
      }: (typeof matches)[number]): boolean =>
        cell.executionCount !== countInName(source.name);
      // Execution counts are meaningless if the notebook's differ from the kernel's.
      const own = matches.find(({ cell }) => cell === run.cell);
      const areCountsValid = own !== undefined && !hasOtherCount(own);
      return matches.map(match => ({
        ...match,
        run,
        report,
        // A cell keeps its own report until it is run again.
        isStale: areCountsValid && hasOtherCount(match)
      }));
    })
    .sort(
      (one, other) =>
        Number(other.isStale) - Number(one.isStale) ||
        (one.run.executionCount ?? 0) - (other.run.executionCount ?? 0)
    );
}
