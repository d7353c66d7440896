/** The reports in the outputs of the current notebook, and what of them the reader looks at. */
import type { ICodeCellModel } from '@jupyterlab/cells';
import type {
  INotebookModel,
  INotebookTracker,
  NotebookPanel
} from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Token } from '@lumino/coreutils';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { type ISignal, Signal } from '@lumino/signaling';

import { findCell } from './places';
import type { Report } from './report';
import { carriesReport, type Reading, readOutput } from './reports';

/** One output of a cell that carries a report, or what should be one. */
export interface IRun {
  /** The cell in whose output the report is. */
  readonly cell: ICodeCellModel;
  readonly cellId: string;
  /** The place of the cell among all cells of the notebook. */
  readonly index: number;
  /** The place of the output among those of the cell; a cell may explain several calls. */
  readonly output: number;
  readonly executionCount: number | null;
  /** Whether the cell was edited after this run. */
  readonly edited: boolean;
  /** null where it cannot be read; `problem` then says why. */
  readonly report: Report | null;
  readonly problem: string | null;
}

/** The parts of a report that can be selected. */
export type Kind =
  | 'break'
  | 'change'
  | 'error'
  | 'graph'
  | 'note'
  | 'recompile'
  | 'scope'
  | 'skipped';

/** What the reader looks at: a part of a report, by the id that it has there (of a list without ids, by its index). */
export interface ISelection {
  readonly cellId: string;
  readonly output: number;
  readonly kind: Kind;
  readonly id: string;
}

/**
 * The reports of the current notebook, in the order of its cells.
 *
 * They are read from the outputs in the notebook's model, so they are right after a reload, without a kernel and in
 * several views of one notebook. While nobody watches, nothing is followed and nothing is read unless asked for.
 */
export class NotebookReports {
  /**
   * @param notebooks - The notebooks that are open.
   * @param trans - The language of the reader.
   */
  constructor(notebooks: INotebookTracker, trans: TranslationBundle) {
    this._notebooks = notebooks;
    this._trans = trans;
  }

  /** The current notebook. */
  get notebook(): NotebookPanel | null {
    return this._notebooks.currentWidget;
  }

  /** All runs whose reports are in the current notebook. */
  get runs(): readonly IRun[] {
    if (this._watchers === 0 || this._frame !== null) {
      this._runs = this._read();
    }
    return this._runs;
  }

  /** All code cells of the current notebook. */
  get cells(): ICodeCellModel[] {
    return codeCells(this.notebook?.content.model ?? null).map(
      ([cell]) => cell
    );
  }

  /** Emitted when the runs are others than before, or the notebook is; once for many changes at a time. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** What the reader looks at. */
  get selection(): ISelection | null {
    return this._selection;
  }
  set selection(selection: ISelection | null) {
    if (!isSame(selection, this._selection)) {
      this._selection = selection;
      this._selectionChanged.emit(selection);
    }
  }

  /** Emitted when the reader turns to something else. */
  get selectionChanged(): ISignal<this, ISelection | null> {
    return this._selectionChanged;
  }

  /** Whether anybody watches. */
  get isWatched(): boolean {
    return this._watchers > 0;
  }

  /** Follow the notebook until the result is disposed of. */
  watch(): IDisposable {
    this._watchers += 1;
    if (this._watchers === 1) {
      this._notebooks.currentChanged.connect(this._follow, this);
      this._follow();
    }
    return new DisposableDelegate(() => {
      this._watchers -= 1;
      if (this._watchers === 0) {
        this._notebooks.currentChanged.disconnect(this._follow, this);
        this._leave();
        this._changed.emit();
      }
    });
  }

  /** The run that a selection is in. */
  runOf({ cellId, output }: ISelection): IRun | undefined {
    return this.runs.find(
      run => run.cellId === cellId && run.output === output
    );
  }

  private _follow(): void {
    this._leave();
    const panel = this.notebook;
    this._panel = panel;
    if (panel !== null) {
      // The model comes when the file has been read, and a file may be opened anew in the same panel.
      panel.content.modelChanged.connect(this._onModelChanged, this);
      panel.disposed.connect(this._leave, this);
    }
    this._onModelChanged();
  }

  private _leave(): void {
    if (this._frame !== null) {
      cancelAnimationFrame(this._frame);
      this._frame = null;
    }
    this._panel?.content.modelChanged.disconnect(this._onModelChanged, this);
    this._panel?.disposed.disconnect(this._leave, this);
    this._panel = null;
    this._model?.contentChanged.disconnect(this._onContentChanged, this);
    this._model = null;
  }

  private _onModelChanged(): void {
    this._model?.contentChanged.disconnect(this._onContentChanged, this);
    this._model = this._panel?.content.model ?? null;
    // It is emitted for sources, outputs, counts and the list of cells alike.
    this._model?.contentChanged.connect(this._onContentChanged, this);
    if (this._model !== this._seen) {
      this._seen = this._model;
      this.selection = null;
    }
    this._runs = this._read();
    this._tell();
  }

  private _onContentChanged(): void {
    this._frame ??= requestAnimationFrame(() => {
      this._frame = null;
      this._runs = this._read();
      if (!hasSameRuns(this._told, this._runs)) {
        this._tell();
      }
    });
  }

  private _tell(): void {
    this._told = this._runs;
    this._changed.emit();
  }

  /** All runs whose reports are in some notebook, current or not. */
  runsIn(model: INotebookModel | null): IRun[] {
    return codeCells(model).flatMap(([cell, index]) =>
      this._runsOf(cell, index)
    );
  }

  private _read(): IRun[] {
    return this.runsIn(this.notebook?.content.model ?? null);
  }

  private _runsOf(cell: ICodeCellModel, index: number): IRun[] {
    const runs: IRun[] = [];
    for (let output = 0; output < cell.outputs.length; output += 1) {
      // The model's own `data` is a deep copy each time.
      const { data } = cell.outputs.get(output).toJSON();
      const reading = isBundle(data) ? this._readOnce(data) : null;
      if (reading === null) {
        continue;
      }
      const report = 'report' in reading ? reading.report : null;
      runs.push({
        cell,
        cellId: cell.id,
        index,
        output,
        executionCount: cell.executionCount,
        edited: report !== null && isEdited(report, cell),
        report,
        problem: 'problem' in reading ? reading.problem : null
      });
    }
    return runs;
  }

  /** An output does not change its data but gets others, so each is read once. */
  private _readOnce(data: Record<string, unknown>): Reading | null {
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

  private readonly _notebooks: INotebookTracker;
  private readonly _trans: TranslationBundle;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _selectionChanged = new Signal<this, ISelection | null>(
    this
  );
  private readonly _readings = new WeakMap<object, Reading>();
  private _watchers = 0;
  private _panel: NotebookPanel | null = null;
  private _model: INotebookModel | null = null;
  private _seen: INotebookModel | null = null;
  private _frame: number | null = null;
  private _runs: IRun[] = [];
  /** The runs when `changed` was emitted last. */
  private _told: IRun[] = [];
  private _selection: ISelection | null = null;
}

/** The reports of the current notebook, for whatever shows them. */
export const INotebookReports = new Token<NotebookReports>(
  'jupyter-graphbreak:INotebookReports',
  'The reports of compile_explain in the current notebook.'
);

/** The code cells of a notebook with their places among all cells. */
function codeCells(
  model: INotebookModel | null
): [cell: ICodeCellModel, index: number][] {
  return Array.from(model?.cells ?? [], (cell, index) => [cell, index]).filter(
    (pair): pair is [ICodeCellModel, number] =>
      (pair[0] as ICodeCellModel).type === 'code'
  );
}

function isBundle(data: unknown): data is Record<string, unknown> {
  return typeof data === 'object' && data !== null && !Array.isArray(data);
}

/** Whether the cell of a report has another text now. */
function isEdited(report: Report, cell: ICodeCellModel): boolean {
  return report.sources.some(({ id }) => {
    const found = findCell(report, id, cell, [cell]);
    return found !== null && found.stale;
  });
}

function isSame(one: ISelection | null, other: ISelection | null): boolean {
  return (
    one?.cellId === other?.cellId &&
    one?.output === other?.output &&
    one?.kind === other?.kind &&
    one?.id === other?.id
  );
}

function hasSameRuns(some: readonly IRun[], others: readonly IRun[]): boolean {
  return (
    some.length === others.length &&
    some.every((run, at) => {
      const other = others[at]!;
      return (Object.keys(run) as (keyof IRun)[]).every(
        field => run[field] === other[field]
      );
    })
  );
}
