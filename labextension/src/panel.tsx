/** The panel at the side: every report of the current notebook. */
import type { IDisposable } from '@lumino/disposable';
import type { CommandRegistry } from '@lumino/commands';
import type { Message } from '@lumino/messaging';
import { ReactWidget } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal, type ISignal } from '@lumino/signaling';
import * as React from 'react';

import type { Guide } from './guide';
import { graphBreakIcon } from './icon';
import type { IRun, Kind, NotebookReports } from './model';
import { countOf, KINDS, kindLabel } from './parts';
import { type IRow, keysOf, makeRows, type Sort } from './tree';
import { Tree } from './treeview';

/** So many rows are in the page at first, and so many more at each wish. */
const PAGE = 500;

/** Explains the active cell. */
const EXPLAIN_CELL = 'jupyter-graphbreak:explain-cell';

export class GraphBreakPanel extends ReactWidget {
  constructor(options: GraphBreakPanel.IOptions) {
    super();
    this._reports = options.reports;
    this._guide = options.guide;
    this._commands = options.commands;
    this._trans = options.trans;
    this.id = 'jupyter-graphbreak-panel';
    this.addClass('jp-GraphBreakPanel');
    this.title.icon = graphBreakIcon;
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', this._trans.__('Graph Breaks'));
    this._reports.changed.connect(this._onChanged, this);
    this._reports.selectionChanged.connect(this._onSelectionChanged, this);
    this._onChanged();
  }

  override dispose(): void {
    this._watching?.dispose();
    Signal.clearData(this);
    super.dispose();
  }

  /** By what the parts of a run are sorted. */
  get sort(): Sort {
    return this._sort;
  }
  set sort(sort: Sort) {
    if (sort !== this._sort) {
      this._sort = sort;
      this.update();
    }
  }

  /** Emitted when the reader chooses another order. */
  get sortChosen(): ISignal<this, Sort> {
    return this._sortChosen;
  }

  /** Show what changed since the run before. */
  showChanges(run: IRun): void {
    const { cellId, output } = run;
    if (run.report?.changes) {
      this._hidden.delete('change');
      this._query = '';
      this._guide
        .select({ cellId, output, kind: 'change', id: 'figures' })
        .catch(() => undefined);
      this._focus = {};
      this._said = '';
    } else {
      this._said = this._trans.__(
        'There is no earlier run of this cell in this kernel to compare with.'
      );
    }
    this.update();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) {
      this._watching ??= this._reports.watch();
    }
  }

  protected override onBeforeShow(message: Message): void {
    super.onBeforeShow(message);
    this._watching ??= this._reports.watch();
    this.update();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._watching?.dispose();
    this._watching = null;
  }

  protected override onUpdateRequest(message: Message): void {
    if (this.isVisible) {
      super.onUpdateRequest(message);
    }
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this._focus = {};
    this.update();
    if (this._reports.runs.length === 0) {
      this.node.querySelector<HTMLElement>('button')?.focus();
    }
  }

  protected override render(): JSX.Element {
    const { runs } = this._reports;
    if (runs.length === 0) {
      return this._renderEmpty();
    }
    const trans = this._trans;
    const rows = makeRows(
      runs,
      {
        query: this._query,
        hidden: this._hidden,
        sort: this._sort,
        open: this._open
      },
      trans
    );
    this._rows = rows;
    const limit = Math.max(
      this._limit,
      rows.findIndex(({ key }) => key === this._active) + 1
    );
    const { selection } = this._reports;
    const selectedRun = selection && this._reports.runOf(selection);
    return (
      <>
        {this._renderTools(runs)}
        <div role="status" className="jp-GraphBreakPanel-status">
          {this._said || this._found(rows)}
        </div>
        <Tree
          rows={rows.slice(0, limit)}
          label={trans.__('Reports of this notebook')}
          active={this._active}
          selected={
            selection && selectedRun
              ? keysOf(selectedRun, selection).at(-1)!
              : ''
          }
          focus={this._focus}
          onActive={row => this._setActive(row)}
          onMove={row => {
            this._focus = {};
            this._setActive(row);
          }}
          onToggle={row => this._toggle(row)}
          onChoose={(row, go) => this._choose(row, go)}
          onType={character => this._typeInFilter(character)}
        />
        {rows.length > limit ? (
          <button
            className="jp-GraphBreakPanel-more"
            onClick={() => {
              this._limit = limit + PAGE;
              this.update();
            }}
          >
            {trans.__('Show more: %1 of %2', PAGE, rows.length - limit)}
          </button>
        ) : null}
      </>
    );
  }

  private _renderEmpty(): JSX.Element {
    const trans = this._trans;
    if (this._reports.notebook === null) {
      return (
        <div className="jp-GraphBreakPanel-empty">
          <p>{trans.__('Open a notebook to see its graph breaks here.')}</p>
        </div>
      );
    }
    return (
      <div className="jp-GraphBreakPanel-empty">
        <h2>{trans.__('No reports yet')}</h2>
        <p>
          {trans.__(
            'Run a cell that uses torch.compile with this in its first line:'
          )}
        </p>
        <pre>%%compile_explain</pre>
        <p>
          {trans.__(
            'Once in a notebook, the magic has to be loaded in a cell of its own:'
          )}
        </p>
        <pre>%load_ext jupyter_graphbreak</pre>
        {this._commands.hasCommand(EXPLAIN_CELL) ? (
          <>
            <p>{trans.__('Or explain the active cell as it stands:')}</p>
            <button
              className="jp-mod-styled jp-mod-accept"
              onClick={() => void this._commands.execute(EXPLAIN_CELL)}
            >
              {trans.__('Explain the active cell')}
            </button>
          </>
        ) : null}
      </div>
    );
  }

  private _renderTools(runs: readonly IRun[]): JSX.Element {
    const trans = this._trans;
    const counts = KINDS.map((kind): [Kind, number] => [
      kind,
      runs.reduce(
        (sum, { report }) => sum + (report ? countOf(report, kind) : 0),
        0
      )
    ]).filter(([kind, count]) => kind !== 'error' && count > 0);
    return (
      <div className="jp-GraphBreakPanel-tools">
        <div className="jp-GraphBreakPanel-row">
          <input
            type="search"
            className="jp-GraphBreakPanel-filter"
            placeholder={trans.__('Filter')}
            aria-label={trans.__('Filter by text')}
            value={this._query}
            onChange={event => this._setQuery(event.target.value)}
            onKeyDown={event => this._onFilterKey(event)}
          />
          <select
            aria-label={trans.__('Sort')}
            value={this._sort}
            onChange={event => {
              this.sort = event.target.value as Sort;
              this._sortChosen.emit(this.sort);
            }}
          >
            <option value="line">{trans.__('by line')}</option>
            <option value="cost">{trans.__('by cost')}</option>
            <option value="cause">{trans.__('by cause')}</option>
          </select>
        </div>
        <div
          className="jp-GraphBreakPanel-row"
          role="group"
          aria-label={trans.__('Show')}
        >
          {counts.map(([kind, count]) => (
            <button
              key={kind}
              className="jp-GraphBreakPanel-kind"
              aria-pressed={!this._hidden.has(kind)}
              onClick={() => this._toggleKind(kind)}
            >
              {kindLabel(kind, trans)} <b>{count}</b>
            </button>
          ))}
        </div>
      </div>
    );
  }

  private _found(rows: readonly IRow[]): string {
    if (this._query.trim() === '') {
      return '';
    }
    const found = rows.filter(({ selection }) => selection !== null).length;
    return found === 0
      ? this._trans.__('Nothing matches')
      : this._trans._n('%1 found', '%1 found', found);
  }

  private _setQuery(query: string): void {
    this._query = query;
    this._limit = PAGE;
    this._said = '';
    this.update();
  }

  private _onFilterKey(event: React.KeyboardEvent): void {
    if (event.key === 'Escape' && this._query !== '') {
      this._setQuery('');
    } else if (event.key === 'ArrowDown' || event.key === 'Escape') {
      this._focus = {};
      this.update();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private _typeInFilter(character: string): void {
    this._setQuery(this._query + character);
    this.node.querySelector<HTMLElement>('.jp-GraphBreakPanel-filter')?.focus();
  }

  private _toggleKind(kind: Kind): void {
    if (!this._hidden.delete(kind)) {
      this._hidden.add(kind);
    }
    this.update();
  }

  private _setActive({ key }: IRow): void {
    if (key !== this._active) {
      this._active = key;
      this.update();
    }
  }

  private _toggle(row: IRow): void {
    this._open.set(row.key, !row.isOpen);
    this._active = row.key;
    this.update();
  }

  private _choose(row: IRow, go: boolean): void {
    this._active = row.key;
    this._said = '';
    if (row.selection !== null) {
      void this._guide.select(row.selection, go);
    } else if (row.level === 1) {
      if (row.isOpen === false && !go) {
        this._toggle(row);
      }
      void this._guide.showCell(row.run, go);
    } else {
      this._toggle(row);
    }
    this.update();
  }

  private _onChanged(): void {
    const { runs, isWatched } = this._reports;
    const trans = this._trans;
    const breaks = isWatched
      ? runs.reduce((sum, { report }) => sum + (report?.breaks.length ?? 0), 0)
      : 0;
    // Side tabs are narrow; while nobody watches the number would be an old one.
    this.title.label = breaks > 0 ? String(breaks) : '';
    this.title.caption =
      breaks > 0
        ? trans._n(
            'Graph Breaks: %1 in this notebook',
            'Graph Breaks: %1 in this notebook',
            breaks
          )
        : trans.__('Graph Breaks');
    this.update();
  }

  private _onSelectionChanged(): void {
    const { selection } = this._reports;
    const run = selection && this._reports.runOf(selection);
    if (selection && run) {
      const keys = keysOf(run, selection);
      const own = keys.pop()!;
      if (own !== this._active) {
        this._active = own;
        keys.forEach(key => this._open.set(key, true));
        if (!this._rows.some(({ key }) => key === own)) {
          // Not behind a filter either.
          this._hidden.delete(selection.kind);
          this._query = '';
        }
      }
    }
    this.update();
  }

  private readonly _reports: NotebookReports;
  private readonly _guide: Guide;
  private readonly _commands: CommandRegistry;
  private readonly _trans: TranslationBundle;
  private readonly _sortChosen = new Signal<this, Sort>(this);
  private readonly _open = new Map<string, boolean>();
  private readonly _hidden = new Set<Kind>();
  private _rows: readonly IRow[] = [];
  private _watching: IDisposable | null = null;
  private _sort: Sort = 'line';
  private _query = '';
  private _active = '';
  private _limit = PAGE;
  private _focus: object | null = null;
  private _said = '';
}

export namespace GraphBreakPanel {
  export interface IOptions {
    reports: NotebookReports;
    guide: Guide;
    commands: CommandRegistry;
    trans: TranslationBundle;
  }
}
