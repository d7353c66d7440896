/** Leads the reader to the line that something in a report is about. */
import type { ICodeCellModel } from '@jupyterlab/cells';
import type { CommandRegistry } from '@lumino/commands';

import type { IRun, ISelection, NotebookReports } from './model';
import { locationOf } from './parts';
import { findCell } from './places';
import { reveal } from './reveal';
import type { Break, Location, Report } from './types';

/** Opens a source that is in no cell, read-only. */
const OPEN_SOURCE = 'jupyter-graphbreak:open-source';

export class Guide {
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
   * Select something, and show its line.
   *
   * @param selection - What to select.
   * @param focus - Whether the keyboard goes there too.
   */
  async select(selection: ISelection, focus = false): Promise<void> {
    const run = this._reports.runOf(selection);
    this._reports.selection = selection;
    if (run === undefined || run.report === null) {
      return;
    }
    const location = locationOf(run.report, selection.kind, selection.id);
    if (location === null) {
      await this.showCell(run, focus);
      return;
    }
    const found = findCell(
      run.report,
      location.source,
      run.cell,
      this._reports.cells
    );
    if (found !== null) {
      await this._show(found.cell, location, focus);
    } else if (this._commands.hasCommand(OPEN_SOURCE)) {
      await this._commands.execute(OPEN_SOURCE, {
        cellId: run.cellId,
        output: run.output,
        source: location.source,
        line: location.line
      });
    } else {
      await this.showCell(run, focus);
    }
  }

  /** Show the cell of a run. */
  async showCell(run: IRun, focus = false): Promise<void> {
    await this._show(run.cell, null, focus);
  }

  /** Go to the next or the previous break of the notebook, from what is selected or else from the active cell. */
  async step(by: 1 | -1): Promise<void> {
    const breaks = this._reports.runs.flatMap(run =>
      byLine(run.report).map(({ id }) => ({ run, id }))
    );
    if (breaks.length === 0) {
      return;
    }
    const { selection } = this._reports;
    const now = breaks.findIndex(
      ({ run, id }) =>
        selection?.kind === 'break' &&
        run.cellId === selection.cellId &&
        run.output === selection.output &&
        id === selection.id
    );
    const { run, id } =
      breaks[
        now < 0
          ? this._fromActiveCell(breaks, by)
          : (now + by + breaks.length) % breaks.length
      ]!;
    await this.select(
      { cellId: run.cellId, output: run.output, kind: 'break', id },
      true
    );
  }

  private _fromActiveCell(breaks: { run: IRun }[], by: 1 | -1): number {
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
    location: Location | null,
    focus: boolean
  ): Promise<void> {
    const panel = this._reports.notebook;
    if (panel === null) {
      return;
    }
    // Whoever clicks on something else meanwhile goes there.
    const asked = {};
    this._asked = asked;
    if (!panel.isVisible) {
      this._activate(panel.id);
    }
    await reveal(panel, cell, location, () => this._asked === asked, focus);
  }

  private readonly _reports: NotebookReports;
  private readonly _commands: CommandRegistry;
  private readonly _activate: (id: string) => void;
  private _asked: object | null = null;
}

/** The breaks of a report in the order of its lines. */
function byLine(report: Report | null): Break[] {
  const place = ({ location }: Break): [number, number] => [
    report!.sources.findIndex(({ id }) => id === location?.source),
    location?.line ?? 0
  ];
  return [...(report?.breaks ?? [])].sort((one, other) => {
    const [source, line] = place(one);
    const [otherSource, otherLine] = place(other);
    return source - otherSource || line - otherLine;
  });
}
