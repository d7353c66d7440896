/** Navigates to the line of a part of a report. */
import type { ICodeCellModel } from '@jupyterlab/cells';
import type { CommandRegistry } from '@lumino/commands';

import { EditorCommandIDs } from '../editor/editorcommands';
import { reveal } from '../editor/reveal';
import { CellIndex, findCell } from '../notebook/cells';
import type { NotebookReports } from '../notebook/notebookreports';
import type { IRun, ISelection } from '../notebook/runs';
import { indexOf } from '../report/lookup';
import { rowOf, sectionOf } from '../report/rows';
import type { Row, Spot } from '../report/types';

export class BreakNavigator {
  /**
   * @param reports - The reports of the current notebook.
   * @param commands - The application's commands.
   * @param activate - Brings a widget of the application to the front.
   */
  constructor(
    reports: NotebookReports,
    commands: CommandRegistry,
    activate: (id: string) => void
  ) {
    this._reports = reports;
    this._commands = commands;
    this._activate = activate;
  }

  /**
   * Select a part of a report, and show its line.
   *
   * @param selection - What to select.
   * @param focus - Whether the place gets the keyboard focus.
   */
  async select(selection: ISelection, focus = false): Promise<void> {
    const run = this._reports.runOf(selection);
    this._reports.selection = selection;
    if (run === undefined || run.report === null || run.rows === null) {
      return;
    }
    const spot = rowOf(run.rows, selection.kind, selection.id)?.spot ?? null;
    if (spot === null) {
      await this.showCell(run, focus);
      return;
    }
    const match = findCell(
      run.report,
      spot.source,
      run.cell,
      new CellIndex(this._reports.cells)
    );
    if (match !== null) {
      await this._show(match.cell, spot, focus);
    } else if (this._commands.hasCommand(EditorCommandIDs.openSource)) {
      await this._commands.execute(EditorCommandIDs.openSource, {
        cellId: run.cellId,
        output: run.output,
        source: spot.source,
        line: spot.line
      });
    } else {
      await this.showCell(run, focus);
    }
  }

  /** Show the cell of a run. */
  async showCell(run: IRun, focus = false): Promise<void> {
    await this._show(run.cell, null, focus);
  }

  /** Go to the next or previous break of the notebook, from the selection or else the active cell. */
  async step(by: 1 | -1): Promise<void> {
    const breaks = this._reports.runs.flatMap(run =>
      byLine(run).map(({ id }) => ({ run, id }))
    );
    if (breaks.length === 0) {
      return;
    }
    const { selection } = this._reports;
    const current = breaks.findIndex(
      ({ run, id }) =>
        selection?.kind === 'break' &&
        run.cellId === selection.cellId &&
        run.output === selection.output &&
        id === selection.id
    );
    const { run, id } =
      breaks[
        current < 0
          ? this._indexFromActiveCell(breaks, by)
          : (current + by + breaks.length) % breaks.length
      ]!;
    await this.select(
      { cellId: run.cellId, output: run.output, kind: 'break', id },
      true
    );
  }

  private _indexFromActiveCell(breaks: { run: IRun }[], by: 1 | -1): number {
    const active = this._reports.notebook?.content.activeCellIndex ?? 0;
    if (by > 0) {
      return Math.max(
        0,
        breaks.findIndex(({ run }) => run.index >= active)
      );
    }
    const before = breaks.filter(({ run }) => run.index <= active).length;
    return (before - 1 + breaks.length) % breaks.length;
  }

  private async _show(
    cell: ICodeCellModel,
    spot: Spot | null,
    focus: boolean
  ): Promise<void> {
    const panel = this._reports.notebook;
    if (panel === null) {
      return;
    }
    // Stop if the reader selects something else meanwhile.
    const request = {};
    this._request = request;
    if (!panel.isVisible) {
      this._activate(panel.id);
    }
    await reveal(panel, cell, spot, () => this._request === request, focus);
  }

  private readonly _reports: NotebookReports;
  private readonly _commands: CommandRegistry;
  private readonly _activate: (id: string) => void;
  private _request: object | null = null;
}

/** The breaks of a run in the order of its lines. */
function byLine({ report, rows }: IRun): Row[] {
  const place = ({ spot }: Row): [number, number] => [
    indexOf(report!.sources, spot?.source),
    spot?.line ?? 0
  ];
  const breaks = rows === null ? [] : (sectionOf(rows, 'break')?.rows ?? []);
  return [...breaks].sort((one, other) => {
    const [source, line] = place(one);
    const [otherSource, otherLine] = place(other);
    return source - otherSource || line - otherLine;
  });
}
