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
import { onReportEvent } from '../view/link';

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
    onReportEvent(document, 'graphbreak-visit', (visit, root) => {
      const run = reports.runContaining(root);
      const source = run?.report?.sources[visit.source];
      const spot = source && { source: source.id, line: visit.line, column: null }; // prettier-ignore
      const cell = run && spot && this._cellOf(run, spot);
      if (cell && spot) {
        visit.isHandled = true;
        void this._show(cell, spot, true);
      }
    });
  }

  /**
   * Select a part of a report, and show its line.
   *
   * @param selection - The part to select.
   * @param focus - Whether the line gets the keyboard focus.
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
    const cell = this._cellOf(run, spot);
    if (cell !== null) {
      await this._show(cell, spot, focus);
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

  /** The cell that contains a line of a report; null if no cell does. */
  private _cellOf({ report, cell }: IRun, spot: Spot): ICodeCellModel | null {
    const cells = new CellIndex(this._reports.cells);
    return findCell(report!, spot.source, cell, cells)?.cell ?? null;
  }

  private _indexFromActiveCell(breaks: { run: IRun }[], by: 1 | -1): number {
    const active = this._reports.notebook?.content.activeCellIndex ?? 0;
    if (by > 0) {
      return Math.max(
        0,
        breaks.findIndex(({ run }) => run.index >= active)
      );
    }
    const countUpTo = breaks.filter(({ run }) => run.index <= active).length;
    return (countUpTo - 1 + breaks.length) % breaks.length;
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
  const positionOf = ({ spot }: Row): [number, number] => [
    indexOf(report!.sources, spot?.source),
    spot?.line ?? 0
  ];
  const breaks = rows === null ? [] : (sectionOf(rows, 'break')?.rows ?? []);
  return [...breaks].sort((one, other) => {
    const [source, line] = positionOf(one);
    const [otherSource, otherLine] = positionOf(other);
    return source - otherSource || line - otherLine;
  });
}
