/** The panel at the side: every report of the current notebook. */
import { ReactWidget } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { IDisposable } from '@lumino/disposable';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import * as React from 'react';

import { ExplainCommandIDs } from '../notebook/explaincommands';
import { graphBreakIcon } from '../notebook/icon';
import type { NotebookReports } from '../notebook/notebookreports';
import type { IRun } from '../notebook/runs';
import { sectionOf } from '../report/rows';
import { afterPaint, onReportEvent } from '../view/link';
import { PointerMoves } from '../view/pointer';
import { holdFocus } from './focushold';
import type { BreakNavigator } from './breaknavigator';
import { PanelModel } from './panelmodel';
import { type IPanelActions, PanelView } from './panelview';
import type { IRow } from './rows';

/** Connects the panel's model with the notebook, the user and the page. */
export class GraphBreakPanel extends ReactWidget {
  constructor(options: GraphBreakPanel.IOptions) {
    super();
    this._reports = options.reports;
    this._navigator = options.breakNavigator;
    this._commands = options.commands;
    this._trans = options.trans;
    this.model = new PanelModel(options.trans);
    this._actions = this._makeActions();
    this.id = 'jupyter-graphbreak-panel';
    this.addClass('jp-GraphBreakPanel');
    this.title.icon = graphBreakIcon;
    this.node.tabIndex = -1;
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', this._trans.__('Graph Breaks'));
    this.model.changed.connect(this.update, this);
    this._reports.changed.connect(this._onReportsChanged, this);
    this._reports.selectionChanged.connect(this._onSelectionChanged, this);
    this._commands.commandChanged.connect(this._onCommandChanged, this);
    onReportEvent(document, 'graphbreak-running', ({ activity }, line) => {
      const cell = line.closest('.jp-Notebook .jp-Cell');
      if (activity === '' || cell === null) {
        this.model.setProgress('');
      } else {
        this.model.setProgress(this._trans.__('Cell [*]: %1', activity));
      }
    });
    this._onReportsChanged();
    this._readCommands();
  }

  readonly model: PanelModel;

  override dispose(): void {
    this._cancelUpdate?.();
    this._reportsWatch?.dispose();
    Signal.clearData(this);
    super.dispose();
  }

  /** Show the changes since the previous run. */
  showChanges({ cellId, output, rows }: IRun): void {
    const first = rows && sectionOf(rows, 'change')?.rows[0];
    if (!first) {
      this.model.setMessage(
        this._trans.__(
          'There is no earlier run of this cell in this kernel to compare with.'
        )
      );
      return;
    }
    this.model.revealKind('change');
    this.model.setMessage('');
    this._navigator
      .select({ cellId, output, kind: 'change', id: first.id })
      .catch(() => undefined);
    this._focus();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) {
      this._watch();
    }
  }

  protected override onBeforeShow(message: Message): void {
    super.onBeforeShow(message);
    this._watch();
    this.update();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._isFocusDue = false;
    this._reportsWatch?.dispose();
    this._reportsWatch = null;
  }

  protected override onUpdateRequest(message: Message): void {
    if (this.isVisible) {
      super.onUpdateRequest(message);
    }
  }

  /** Open the panel with a function, without moving the focus into it. */
  openQuietly(open: () => void): void {
    this._isQuiet = true;
    open();
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    if (this._isQuiet) {
      this._isQuiet = false;
      return;
    }
    this._focus();
    holdFocus(
      () => this._reports.notebook,
      () => this._focus()
    );
  }

  protected override render(): JSX.Element {
    const { state, rows } = this.model;
    return (
      <Rendered
        hasFocus={() => this.node.contains(document.activeElement)}
        onRendered={hadFocus => this._onRendered(hadFocus)}
      >
        <PanelView
          state={state}
          rows={rows}
          actions={this._actions}
          trans={this._trans}
        />
      </Rendered>
    );
  }

  /** Focus the active row, or the content that replaces the rows, as soon as the state is on the page. */
  private _focus(): void {
    this._isFocusDue = true;
    this.update();
  }

  private _onRendered(hadFocus: boolean): void {
    const { activeElement, body } = document;
    // The element with the focus may be gone.
    const isLost = hadFocus && activeElement === body;
    if (this._isFocusDue || isLost) {
      this._isFocusDue = false;
      const element =
        this.node.querySelector<HTMLElement>("[role=treeitem][tabindex='0']") ??
        this.node.querySelector<HTMLElement>('input, button') ??
        this.node;
      element.focus({ preventScroll: true });
      element.scrollIntoView({ block: 'nearest' });
    }
  }

  private _makeActions(): IPanelActions {
    const { model } = this;
    return {
      onQuery: query => model.setQuery(query),
      onLeaveFilter: () => this._focus(),
      onSort: sort => model.chooseSort(sort),
      onToggleKind: kind => model.toggleKind(kind),
      onShowMore: () => model.showMore(),
      onExplain: () =>
        void this._commands.execute(ExplainCommandIDs.explainCell),
      onTry: () => void this._commands.execute(ExplainCommandIDs.explainAndTry),
      onTryEdited: () =>
        void this._commands.execute(ExplainCommandIDs.tryEdited),
      onCheckInstallation: () =>
        void this._commands.execute(ExplainCommandIDs.checkInstallation),
      onActive: row => model.setActive(row),
      onMove: row => {
        model.setActive(row);
        this._focus();
      },
      onToggle: row => model.toggleRow(row),
      onPoint: (row, event) => {
        const isMove = this._moves.isMove(event);
        if (isMove && this._reports.isFollowing && row.selection !== null) {
          this._reports.selection = row.selection;
        }
      },
      onChoose: (row, focus) => this._choose(row, focus),
      onType: character => {
        model.setQuery(model.state.query + character);
        this.node
          .querySelector<HTMLElement>('.jp-GraphBreakPanel-filter')
          ?.focus();
      }
    };
  }

  private _choose(row: IRow, focus: boolean): void {
    this.model.setActive(row);
    this.model.setMessage('');
    if (row.selection !== null) {
      void this._navigator.select(row.selection, focus);
    } else if (row.level === 1) {
      if (row.isOpen === false && !focus) {
        this.model.toggleRow(row);
      }
      void this._navigator.showCell(row.run, focus);
    } else {
      this.model.toggleRow(row);
    }
  }

  private _watch(): void {
    this._reportsWatch ??= this._reports.watch();
  }

  private _onReportsChanged(): void {
    // Without watchers, the panel keeps its last content and has no number.
    const { isWatched, notebook } = this._reports;
    const runs = isWatched ? this._reports.runs : [];
    if (isWatched) {
      this.model.setRuns(runs, notebook !== null);
      this._offerEdited();
    }
    const breaks = runs.reduce(
      (sum, { report }) => sum + (report?.breaks.length ?? 0),
      0
    );
    // Side tabs are narrow.
    this.title.label = breaks > 0 ? String(breaks) : '';
    this.title.caption =
      breaks > 0
        ? this._trans._n(
            'Graph Breaks: %1 in this notebook',
            'Graph Breaks: %1 in this notebook',
            breaks
          )
        : this._trans.__('Graph Breaks');
  }

  private _onSelectionChanged(): void {
    const { selection } = this._reports;
    const run = selection ? this._reports.runOf(selection) : undefined;
    this.model.setSelection(selection, run);
  }

  private _onCommandChanged(
    _: CommandRegistry,
    { id }: CommandRegistry.ICommandChangedArgs
  ): void {
    const { explainCell, tryEdited } = ExplainCommandIDs;
    // Without a name, any command may have changed; this happens at every kernel message.
    if (id === undefined || id === explainCell || id === tryEdited) {
      this._cancelUpdate ??= afterPaint(() => {
        this._cancelUpdate = null;
        this._readCommands();
      });
    }
  }

  private _readCommands(): void {
    this.model.setCanExplain(
      this._commands.hasCommand(ExplainCommandIDs.explainCell)
    );
    if (this._reports.isWatched) {
      this._offerEdited();
    }
  }

  /** Offer to try edits, if there are any. */
  private _offerEdited(): void {
    const { tryEdited } = ExplainCommandIDs;
    this.model.setCanTryEdited(
      this._commands.hasCommand(tryEdited) &&
        this._commands.isEnabled(tryEdited)
    );
  }

  private readonly _reports: NotebookReports;
  private readonly _navigator: BreakNavigator;
  private readonly _commands: CommandRegistry;
  private readonly _trans: TranslationBundle;
  private readonly _actions: IPanelActions;
  private _reportsWatch: IDisposable | null = null;
  private _isQuiet = false;
  private _isFocusDue = false;
  private readonly _moves = new PointerMoves();
  /** Cancels the pending check of commands. */
  private _cancelUpdate: (() => void) | null = null;
}

/** Reports every change of the page, and whether the focus was in it before. */
class Rendered extends React.Component<{
  hasFocus(): boolean;
  onRendered(hadFocus: boolean): void;
  children: React.ReactNode;
}> {
  override getSnapshotBeforeUpdate(): boolean {
    return this.props.hasFocus();
  }

  override componentDidMount(): void {
    this.props.onRendered(false);
  }

  override componentDidUpdate(
    _: unknown,
    __: unknown,
    hadFocus: boolean
  ): void {
    this.props.onRendered(hadFocus);
  }

  override render(): React.ReactNode {
    return this.props.children;
  }
}

export namespace GraphBreakPanel {
  export interface IOptions {
    reports: NotebookReports;
    breakNavigator: BreakNavigator;
    commands: CommandRegistry;
    trans: TranslationBundle;
  }
}
