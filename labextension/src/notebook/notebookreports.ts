/** The reports of the current notebook, followed while there are watchers, and the reader's selection. */
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

import { afterPaint } from '../view/link';
import {
  areSameRuns,
  codeCells,
  type IRun,
  isSameSelection,
  type ISelection,
  RunReader
} from './runs';

/**
 * The reports of the current notebook, in the order of its cells.
 *
 * They are read from the outputs in the notebook's model, so they are correct after a reload, without a kernel and in
 * several views of one notebook. Without watchers, nothing is followed, and reports are read only on demand.
 */
export class NotebookReports {
  /**
   * @param notebooks - The open notebooks.
   * @param trans - The language of the reader.
   */
  constructor(notebooks: INotebookTracker, trans: TranslationBundle) {
    this._notebooks = notebooks;
    this._reader = new RunReader(trans);
  }

  /** The current notebook. */
  get notebook(): NotebookPanel | null {
    return this._notebooks.currentWidget;
  }

  /** All runs whose reports are in the current notebook. */
  get runs(): readonly IRun[] {
    if (this._watcherCount === 0 || this._cancelUpdate !== null) {
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

  /** Emitted when the runs or the notebook change, once for several simultaneous changes. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The selection. */
  get selection(): ISelection | null {
    return this._selection;
  }
  set selection(selection: ISelection | null) {
    if (!isSameSelection(selection, this._selection)) {
      this._selection = selection;
      this._selectionChanged.emit(selection);
    }
  }

  /** Emitted when the selection changes. */
  get selectionChanged(): ISignal<this, ISelection | null> {
    return this._selectionChanged;
  }

  /** Whether the pointer selects. */
  get isFollowing(): boolean {
    return this._isFollowing;
  }
  set isFollowing(isFollowing: boolean) {
    if (isFollowing !== this._isFollowing) {
      this._isFollowing = isFollowing;
      this._followingChanged.emit();
    }
  }

  /** Emitted when selection by the pointer is switched on or off. */
  get followingChanged(): ISignal<this, void> {
    return this._followingChanged;
  }

  /** Whether there are watchers. */
  get isWatched(): boolean {
    return this._watcherCount > 0;
  }

  /** Follow the notebook until the returned object is disposed. */
  watch(): IDisposable {
    this._watcherCount += 1;
    if (this._watcherCount === 1) {
      this._notebooks.currentChanged.connect(this._follow, this);
      this._follow();
    }
    return new DisposableDelegate(() => {
      this._watcherCount -= 1;
      if (this._watcherCount === 0) {
        this._notebooks.currentChanged.disconnect(this._follow, this);
        this._leave();
        this._changed.emit();
      }
    });
  }

  /** The run that contains a selection. */
  runOf({ cellId, output }: ISelection): IRun | undefined {
    return this.runs.find(
      run => run.cellId === cellId && run.output === output
    );
  }

  /**
   * The run in the current notebook whose report an element shows.
   *
   * @param element - The element.
   * @param runs - The runs of the notebook, if already known.
   */
  runContaining(
    element: HTMLElement,
    runs: readonly IRun[] = this.runs
  ): IRun | undefined {
    const cell = this.notebook?.content.widgets.find(({ node }) =>
      node.contains(element)
    );
    const child = element.closest('.jp-OutputArea-child');
    const output = Array.from(child?.parentElement?.children ?? []).indexOf(
      child!
    );
    return runs.find(
      run =>
        run.cellId === cell?.model.id &&
        run.output === output &&
        run.report !== null
    );
  }

  /** All runs whose reports are in a notebook, current or not. */
  runsIn(notebook: INotebookModel): IRun[] {
    return this._reader.runsIn(notebook);
  }

  private _follow(): void {
    this._leave();
    const panel = this.notebook;
    this._panel = panel;
    if (panel !== null) {
      // The model exists only after the file was read, and a panel may open a different file.
      panel.content.modelChanged.connect(this._onModelChanged, this);
      panel.disposed.connect(this._leave, this);
    }
    this._onModelChanged();
  }

  private _leave(): void {
    this._cancelUpdate?.();
    this._cancelUpdate = null;
    this._panel?.content.modelChanged.disconnect(this._onModelChanged, this);
    this._panel?.disposed.disconnect(this._leave, this);
    this._panel = null;
    this._model?.contentChanged.disconnect(this._onContentChanged, this);
    this._model = null;
  }

  private _onModelChanged(): void {
    this._model?.contentChanged.disconnect(this._onContentChanged, this);
    this._model = this._panel?.content.model ?? null;
    // The signal is emitted for changes of sources, outputs, counts and the list of cells.
    this._model?.contentChanged.connect(this._onContentChanged, this);
    if (this._model !== this._lastModel) {
      this._lastModel = this._model;
      this.selection = null;
    }
    this._runs = this._read();
    this._emit();
  }

  private _onContentChanged(): void {
    // Render a new report before reading it.
    this._cancelUpdate ??= afterPaint(() => {
      this._cancelUpdate = null;
      this._runs = this._read();
      if (!areSameRuns(this._emittedRuns, this._runs)) {
        this._emit();
      }
    });
  }

  private _emit(): void {
    this._emittedRuns = this._runs;
    this._changed.emit();
  }

  /** The runs, and the previous run of each cell that is running. */
  private _read(): IRun[] {
    const runs = this._reader.runsIn(this.notebook?.content.model ?? null);
    const cells = new Set(this.cells);
    const previous = this._runs.filter(
      ({ cell }) =>
        cell.executionState === 'running' &&
        cells.has(cell) &&
        !runs.some(run => run.cell === cell)
    );
    return previous.length === 0
      ? runs
      : [...runs, ...previous].sort((one, other) => one.index - other.index);
  }

  private readonly _notebooks: INotebookTracker;
  private readonly _reader: RunReader;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _selectionChanged = new Signal<this, ISelection | null>(
    this
  );
  private readonly _followingChanged = new Signal<this, void>(this);
  private _isFollowing = false;
  private _watcherCount = 0;
  private _panel: NotebookPanel | null = null;
  private _model: INotebookModel | null = null;
  /** The model that the selection belongs to. */
  private _lastModel: INotebookModel | null = null;
  /** Cancels the pending update. */
  private _cancelUpdate: (() => void) | null = null;
  private _runs: IRun[] = [];
  /** The runs at the last emission of `changed`. */
  private _emittedRuns: IRun[] = [];
  private _selection: ISelection | null = null;
}

/** The token of the reports of the current notebook. */
export const INotebookReports = new Token<NotebookReports>(
  'jupyter-graphbreak:INotebookReports',
  'The reports of compile_explain in the current notebook.'
);
