/** The runs whose reports are in the outputs of a notebook, and how to refer to a part of one. */
import type { ICodeCellModel } from '@jupyterlab/cells';
import type { INotebookModel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';

import { isObject } from '../report/conform';
import { carriesReport, type Reading, readOutput } from '../report/reader';
import type { Report, Rows } from '../report/types';
import {
  CellIndex,
  cellSources,
  findCell,
  type ISnapshot,
  snapshotOf
} from './cells';

type Cells = CellIndex<ISnapshot<ICodeCellModel>>;

/** An output of a cell with a report, readable or not. */
export interface IRun {
  /** The cell with the report in its output. */
  readonly cell: ICodeCellModel;
  readonly cellId: string;
  /** The index of the cell among all cells of the notebook. */
  readonly index: number;
  /** The index of the output in the cell, because a cell may explain several calls. */
  readonly output: number;
  readonly executionCount: number | null;
  /** The name of the compiled code, or else the line of code that identifies the cell for the reader. */
  readonly title: string;
  /** Whether the cell, or a cell with a function that it runs, was edited after this run. */
  readonly isEdited: boolean;
  /** null if the report cannot be read; `problem` then contains the reason. */
  readonly report: Report | null;
  /** The rows of the report; null if the report cannot be read. */
  readonly rows: Rows | null;
  readonly problem: string | null;
}

/** A selected part of a report. */
export interface ISelection {
  readonly cellId: string;
  readonly output: number;
  /** The id of the section that lists the part. */
  readonly kind: string;
  /** The id of the part's row. */
  readonly id: string;
}

/** A cell whose text differs from the one that ran. */
export interface IEditedCell {
  readonly cell: ICodeCellModel;
  /** The cell's whole text when it ran. */
  readonly before: string;
  /** The cell's whole text now. */
  readonly now: string;
}

/** A run, and the cells that were edited after it. */
export interface IEditedRun {
  readonly run: IRun;
  readonly editedCells: readonly IEditedCell[];
}

/** Reads the runs in notebooks. */
export class RunReader {
  /** @param trans - The language of the reader. */
  constructor(trans: TranslationBundle) {
    this._trans = trans;
  }

  /** All runs in a notebook, in the order of its cells. */
  runsIn(notebook: INotebookModel | null): IRun[] {
    const cells = codeCells(notebook);
    let index: Cells | null = null;
    const findCells = (): Cells =>
      (index ??= new CellIndex(cells.map(([cell]) => snapshotOf(cell))));
    return cells.flatMap(([cell, position]) =>
      this._runsOf(cell, position, findCells)
    );
  }

  private _runsOf(
    cell: ICodeCellModel,
    index: number,
    findCells: () => Cells
  ): IRun[] {
    const runs: IRun[] = [];
    for (let output = 0; output < cell.outputs.length; output += 1) {
      // The model's own `data` returns a deep copy on each access.
      const { data } = cell.outputs.get(output).toJSON();
      const reading = isObject(data) ? this._read(data) : null;
      if (reading === null) {
        continue;
      }
      const report = 'report' in reading ? reading.report : null;
      const rows = 'rows' in reading ? reading.rows : null;
      runs.push({
        cell,
        cellId: cell.id,
        index,
        output,
        executionCount: cell.executionCount,
        title: rows?.title || titleOf(cell.sharedModel.getSource()),
        isEdited:
          report !== null && editedSince(cell, report, findCells()).length > 0,
        report,
        rows,
        problem: 'problem' in reading ? reading.problem : null
      });
    }
    return runs;
  }

  /** Read an output, once per data object, because an output replaces its data instead of changing them. */
  private _read(data: Record<string, unknown>): Reading | null {
    if (!carriesReport(data)) {
      return null;
    }
    let reading = this._readings.get(data);
    if (reading === undefined) {
      reading = readOutput(data, this._trans)!;
      this._readings.set(data, reading);
    }
    return reading;
  }

  private readonly _trans: TranslationBundle;
  private readonly _readings = new WeakMap<object, Reading>();
}

/** The code cells of a notebook with their indexes among all cells. */
export function codeCells(
  notebook: INotebookModel | null
): [cell: ICodeCellModel, index: number][] {
  return Array.from(notebook?.cells ?? [], (cell, index) => [
    cell,
    index
  ]).filter(
    (pair): pair is [ICodeCellModel, number] =>
      (pair[0] as ICodeCellModel).type === 'code'
  );
}

/**
 * Find the run with which an edit is compared.
 *
 * @param runs - The runs of a notebook.
 * @param cells - All code cells of the notebook.
 * @param active - The active cell.
 * @returns The last run of that cell or of its functions, with all cells that were edited since; null if there is no such
 * run or no edit.
 */
export function editedRun(
  runs: readonly IRun[],
  cells: readonly ICodeCellModel[],
  active: ICodeCellModel
): IEditedRun | null {
  const index = new CellIndex(cells.map(snapshotOf));
  let runOfOtherCell: IEditedRun | null = null;
  for (const run of [...runs].reverse()) {
    const editedCells =
      run.report === null ? [] : editedSince(run.cell, run.report, index);
    if (editedCells.length === 0) {
      continue;
    }
    if (run.cell === active) {
      return { run, editedCells };
    }
    if (
      runOfOtherCell === null &&
      editedCells.some(({ cell }) => cell === active)
    ) {
      runOfOtherCell = { run, editedCells };
    }
  }
  return runOfOtherCell;
}

/** The cells of a report whose texts have changed since. */
function editedSince(
  cell: ICodeCellModel,
  report: Report,
  cells: Cells
): IEditedCell[] {
  const carrier = snapshotOf(cell);
  return cellSources(report).flatMap(source => {
    const match = findCell(report, source.id, carrier, cells);
    const before = source.segments[0]?.text;
    return match?.isStale && before !== undefined
      ? [
          {
            cell: match.cell.model,
            before,
            now: match.cell.sharedModel.getSource()
          }
        ]
      : [];
  });
}

export function isSameSelection(
  one: ISelection | null,
  other: ISelection | null
): boolean {
  return (
    one?.cellId === other?.cellId &&
    one?.output === other?.output &&
    one?.kind === other?.kind &&
    one?.id === other?.id
  );
}

export function areSameRuns(
  some: readonly IRun[],
  others: readonly IRun[]
): boolean {
  return (
    some.length === others.length &&
    some.every((run, index) => {
      const other = others[index]!;
      return (Object.keys(run) as (keyof IRun)[]).every(
        field => run[field] === other[field]
      );
    })
  );
}

/** The first line of a cell that is not a magic, a comment, a decorator or an import; otherwise its first line. */
function titleOf(code: string): string {
  const lines = code
    .split('\n')
    .map(line => line.trim())
    .filter(line => line !== '');
  const first = lines.find(line => !/^([%#@]|import |from )/.test(line));
  return (first ?? lines[0] ?? '').slice(0, 120);
}
