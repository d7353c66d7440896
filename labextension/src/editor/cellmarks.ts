/** The marks in the cells of all open notebooks, and whether they are shown. */
import type { Extension } from '@codemirror/state';
import { type EditorView, ViewPlugin } from '@codemirror/view';
import type { ICodeCellModel } from '@jupyterlab/cells';
import type { CodeEditor } from '@jupyterlab/codeeditor';
import type { INotebookModel } from '@jupyterlab/notebook';
import { type ISignal, Signal } from '@lumino/signaling';

import { CellReportsFollower, type ICellReport } from '../notebook/cellreports';
import { cellName } from '../notebook/cells';
import type { NotebookReports } from '../notebook/notebookreports';
import type { ISelection } from '../notebook/runs';
import { reportLines, textByLine } from '../report/lines';
import type { Source } from '../report/types';
import type { IMarkOptions } from './interaction';
import { markExtension, showMarks, showSelection } from './markextension';
import type { IReportedText } from './positions';

export class CellMarks {
  /**
   * @param reports - The reports of the current notebook, and the selection.
   * @param options - Further dependencies of the marks.
   */
  constructor(reports: NotebookReports, options: IMarkOptions) {
    this._reports = reports;
    this._options = options;
    reports.selectionChanged.connect(this._onSelectionChanged, this);
  }

  /** Whether the marks are shown. */
  get isOn(): boolean {
    return this._isOn;
  }
  set isOn(isOn: boolean) {
    if (isOn !== this._isOn) {
      this._isOn = isOn;
      this._views.forEach((cell, view) => this._show(view, cell));
      this._toggled.emit();
    }
  }

  /** Emitted when the marks are switched on or off. */
  get toggled(): ISignal<this, void> {
    return this._toggled;
  }

  /** The extension for the editor of a model; null if the model is not a code cell. */
  extensionFor(model: CodeEditor.IModel): Extension | null {
    if (!isCodeCell(model)) {
      return null;
    }
    const connection = ViewPlugin.define(view => {
      this._views.set(view, model);
      // An editor cannot be changed while it is being constructed.
      queueMicrotask(() => this._show(view, model));
      return { destroy: () => void this._views.delete(view) };
    });
    return [markExtension(), connection];
  }

  /** Follow the reports of a notebook for as long as it is open. */
  follow(notebook: INotebookModel): void {
    if (!this._notebooks.has(notebook)) {
      this._notebooks.add(notebook);
      new CellReportsFollower(notebook, this._reports, (cells, cellReports) =>
        this._update(cells, cellReports)
      );
    }
  }

  private _update(
    cells: readonly ICodeCellModel[],
    cellReports: readonly ICellReport[]
  ): void {
    const byCell = new Map<ICodeCellModel, ICellReport[]>();
    for (const cellReport of cellReports) {
      const reportsOfCell = byCell.get(cellReport.cell) ?? [];
      reportsOfCell.push(cellReport);
      byCell.set(cellReport.cell, reportsOfCell);
    }
    const changedCells = new Set(
      cells.filter(cell => {
        const before = this._cellReports.get(cell) ?? [];
        const after = byCell.get(cell) ?? [];
        this._cellReports.set(cell, after);
        return !areSame(before, after);
      })
    );
    this._views.forEach((cell, view) => {
      if (changedCells.has(cell)) {
        this._show(view, cell);
      }
    });
  }

  private _show(view: EditorView, cell: ICodeCellModel): void {
    if (this._views.get(view) === cell) {
      const cellReports = this._isOn ? (this._cellReports.get(cell) ?? []) : [];
      showMarks(
        view,
        cellReports.map(reportedText),
        this._reports.selection,
        this._options
      );
    }
  }

  private _onSelectionChanged(_: unknown, selection: ISelection | null): void {
    this._views.forEach((_, view) => showSelection(view, selection));
  }

  private readonly _reports: NotebookReports;
  private readonly _options: IMarkOptions;
  private readonly _views = new Map<EditorView, ICodeCellModel>();
  private readonly _cellReports = new WeakMap<
    ICodeCellModel,
    readonly ICellReport[]
  >();
  private readonly _notebooks = new WeakSet<INotebookModel>();
  private readonly _toggled = new Signal<this, void>(this);
  private _isOn = true;
}

/** Caches the annotated lines of sources. */
const ANNOTATED_LINES = new WeakMap<
  Source,
  Pick<IReportedText, 'text' | 'lines'>
>();

function reportedText({
  run,
  report,
  source,
  isStale
}: ICellReport): IReportedText {
  const rows = run.rows!;
  let lines = ANNOTATED_LINES.get(source);
  if (lines === undefined) {
    const texts = textByLine(report, source);
    lines = {
      text: [...texts.values()],
      lines: reportLines(report, rows, source, texts)
    };
    ANNOTATED_LINES.set(source, lines);
  }
  const { cellId, output, executionCount } = run;
  const runName =
    executionCount === null ? source.name : cellName(executionCount);
  return { ...lines, rows, run: { cellId, output }, runName, isStale };
}

function areSame(
  some: readonly ICellReport[],
  others: readonly ICellReport[]
): boolean {
  return (
    some.length === others.length &&
    some.every((cellReport, index) => {
      const other = others[index]!;
      return (
        cellReport.source === other.source &&
        cellReport.isStale === other.isStale &&
        cellReport.run.cellId === other.run.cellId &&
        cellReport.run.output === other.run.output
      );
    })
  );
}

function isCodeCell(model: CodeEditor.IModel): model is ICodeCellModel {
  return (model as Partial<ICodeCellModel>).type === 'code';
}
