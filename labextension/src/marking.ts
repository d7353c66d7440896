/** Which reports mark which cells, in all notebooks that are open, and the editors that show it. */
import type { Extension } from '@codemirror/state';
import { type EditorView, ViewPlugin } from '@codemirror/view';
import { type ICodeCellModel, isCodeCellModel } from '@jupyterlab/cells';
import type { CodeEditor } from '@jupyterlab/codeeditor';
import type { INotebookModel } from '@jupyterlab/notebook';
import { type ISignal, Signal } from '@lumino/signaling';

import { type ILine, markedLines, textByLine } from './lines';
import type { IMarkedText } from './marklook';
import {
  type IMarksOptions,
  mark,
  marksExtension,
  showSelected
} from './marks';
import type { IRun, ISelection, NotebookReports } from './model';
import { countIn, findCell, type ICell } from './places';
import type { Report, Source } from './types';

/** What one run says about one cell. */
interface IEntry {
  readonly cell: ICodeCellModel;
  readonly run: Omit<IRun, 'report'>;
  readonly report: Report;
  readonly source: Source;
  /** Whether the cell was run again since, without being explained. */
  readonly stale: boolean;
}

/** The marks in the editors of all notebooks. */
export class Marking {
  /**
   * @param reports - Reads the reports, and knows what is selected.
   * @param options - What the marks need besides.
   */
  constructor(reports: NotebookReports, options: IMarksOptions) {
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
      this._views.forEach((cell, view) => this._mark(view, cell));
      this._toggled.emit();
    }
  }

  /** Emitted when the marks were switched on or off. */
  get toggled(): ISignal<this, void> {
    return this._toggled;
  }

  /** The extension for the editor of some model; null where that is no code cell. */
  extensionFor(model: CodeEditor.IModel): Extension | null {
    if (!isCell(model)) {
      return null;
    }
    const connect = ViewPlugin.define(view => {
      this._views.set(view, model);
      // An editor that is only being made cannot be changed yet.
      queueMicrotask(() => this._mark(view, model));
      return { destroy: () => void this._views.delete(view) };
    });
    return [marksExtension(), connect];
  }

  /** Follow the reports of a notebook for as long as it is open. */
  follow(notebook: INotebookModel): void {
    if (!this._followed.has(notebook)) {
      this._followed.add(notebook);
      new Follower(notebook, this._reports, (cells, entries) =>
        this._show(cells, entries)
      );
    }
  }

  private _show(
    cells: readonly ICodeCellModel[],
    entries: readonly IEntry[]
  ): void {
    const changed = cells.filter(cell => {
      const own = entries.filter(entry => entry.cell === cell);
      const before = this._entries.get(cell) ?? [];
      this._entries.set(cell, own);
      return !isSame(own, before);
    });
    this._views.forEach((cell, view) => {
      if (changed.includes(cell)) {
        this._mark(view, cell);
      }
    });
  }

  private _mark(view: EditorView, cell: ICodeCellModel): void {
    if (this._views.get(view) === cell) {
      const entries = this._isOn ? (this._entries.get(cell) ?? []) : [];
      const { selection } = this._reports;
      mark(view, { texts: entries.map(marked), selection }, this._options);
    }
  }

  private _onSelectionChanged(_: unknown, selection: ISelection | null): void {
    this._views.forEach((_, view) => showSelected(view, selection));
  }

  private readonly _reports: NotebookReports;
  private readonly _options: IMarksOptions;
  private readonly _views = new Map<EditorView, ICodeCellModel>();
  private readonly _entries = new WeakMap<ICodeCellModel, readonly IEntry[]>();
  private readonly _followed = new WeakSet<INotebookModel>();
  private readonly _toggled = new Signal<this, void>(this);
  private _isOn = true;
}

/** Works out anew what is marked in a notebook when its reports change; typing in it is none of its business. */
class Follower {
  constructor(
    notebook: INotebookModel,
    reports: NotebookReports,
    show: (cells: readonly ICodeCellModel[], entries: readonly IEntry[]) => void
  ) {
    this._notebook = notebook;
    this._reports = reports;
    this._show = show;
    notebook.cells.changed.connect(this._onCellsChanged, this);
    this._onCellsChanged();
  }

  private _onCellsChanged(): void {
    for (const cell of this._notebook.cells) {
      if (isCodeCellModel(cell)) {
        // What is connected already is not connected twice.
        cell.outputs.changed.connect(this._schedule, this);
        cell.stateChanged.connect(this._schedule, this);
      }
    }
    this._schedule();
  }

  private _schedule(): void {
    this._frame ??= requestAnimationFrame(() => {
      this._frame = null;
      if (!this._notebook.isDisposed) {
        this._update();
      }
    });
  }

  private _update(): void {
    const cells = Array.from(this._notebook.cells).filter(isCodeCellModel);
    const runs = this._reports.runsIn(this._notebook);
    const found = entriesOf(runs, cells);
    const explained = new Set(found.map(({ run }) => run.cell));
    // A cell that lost its report by being run shows what it was, until it is cleared.
    const lost = this._entries.filter(
      ({ cell, run }) =>
        !explained.has(run.cell) &&
        cells.includes(cell) &&
        cells.includes(run.cell) &&
        (run.cell.executionCount !== null ||
          run.cell.executionState === 'running')
    );
    this._entries = [...lost.map(each => ({ ...each, stale: true })), ...found];
    this._show(cells, this._entries);
  }

  private readonly _notebook: INotebookModel;
  private readonly _reports: NotebookReports;
  private readonly _show: (
    cells: readonly ICodeCellModel[],
    entries: readonly IEntry[]
  ) => void;
  private _entries: readonly IEntry[] = [];
  private _frame: number | null = null;
}

/** What some runs say about the cells of their notebook; what was run last comes last. */
function entriesOf(
  runs: readonly IRun[],
  cells: readonly ICodeCellModel[]
): IEntry[] {
  // The texts are asked for once for each report, and put together anew each time.
  const now = new Map(cells.map(cell => [cell, asNow(cell)]));
  return runs
    .flatMap(({ report, ...run }) => {
      const found = (report?.sources ?? []).flatMap(source => {
        const carrier = now.get(run.cell)!;
        const at = findCell(report!, source.id, carrier, now.values());
        return at === null ? [] : [{ cell: at.cell.model, source }];
      });
      const isOther = ({ cell, source }: (typeof found)[number]): boolean =>
        cell.executionCount !== countIn(source.name);
      // Counts tell nothing where the notebook has others than the kernel had.
      const own = found.find(({ cell }) => cell === run.cell);
      const areKnown = own !== undefined && !isOther(own);
      return found.map(each => ({
        ...each,
        run,
        report: report!,
        // What a cell shows of itself it shows until it is run again.
        stale: areKnown && isOther(each)
      }));
    })
    .sort(
      (one, other) =>
        Number(other.stale) - Number(one.stale) ||
        (one.run.executionCount ?? 0) - (other.run.executionCount ?? 0)
    );
}

function asNow(model: ICodeCellModel): ICell & { model: ICodeCellModel } {
  let text: string | null = null;
  return {
    model,
    executionCount: model.executionCount,
    sharedModel: { getSource: () => (text ??= model.sharedModel.getSource()) }
  };
}

const LINES = new WeakMap<Source, { text: string[]; lines: ILine[] }>();

function marked({ run, report, source, stale }: IEntry): IMarkedText {
  let known = LINES.get(source);
  if (known === undefined) {
    known = {
      text: [...textByLine(report, source).values()],
      lines: markedLines(report, source)
    };
    LINES.set(source, known);
  }
  const { cellId, output, executionCount } = run;
  const name =
    executionCount === null ? source.name : `Cell In[${executionCount}]`;
  return { ...known, run: { cellId, output }, name, stale };
}

function isSame(some: readonly IEntry[], others: readonly IEntry[]): boolean {
  return (
    some.length === others.length &&
    some.every((entry, at) => {
      const other = others[at]!;
      return (
        entry.source === other.source &&
        entry.stale === other.stale &&
        entry.run.cellId === other.run.cellId &&
        entry.run.output === other.run.output
      );
    })
  );
}

function isCell(model: CodeEditor.IModel): model is ICodeCellModel {
  return (model as Partial<ICodeCellModel>).type === 'code';
}
