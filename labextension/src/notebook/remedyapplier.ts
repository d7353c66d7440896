/** Applies remedies of a report to its notebook: edits cells, or inserts a cell with settings. */
import type { Cell, ICodeCellModel } from '@jupyterlab/cells';
import { NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';

import {
  type Applicable,
  applicableAt,
  applyEdits,
  changesFor,
  codeOutside,
  diffOf,
  editsBySource,
  type IDiffLine,
  type ILineChange,
  LineMismatch,
  replacementsFor,
  withChanges
} from '../report/edits';
import { totalOf, withId } from '../report/lookup';
import type { Report } from '../report/types';
import {
  type IApplied,
  onReportEvent,
  type IApplicableRef,
  type IRemedyActions
} from '../view/link';
import { CellIndex, cellName, countInName, findCell } from './cells';
import type { NotebookReports } from './notebookreports';
import type { IRun } from './runs';

/** A cell that explains itself whenever it runs. */
const MAGIC = /^\s*%%compile_explain\b/;

/** Limits on the changes that are shown, and therefore applied, at once. */
const MAX_LINES = 2_000;
const MAX_CHARACTERS = 200_000;

/** The changes of one cell. */
interface ICellChanges {
  readonly cell: ICodeCellModel;
  /** The cell's name in the report. */
  readonly reportName: string;
  /** The text to change; nothing is changed if the cell's text differs by then. */
  readonly before: string;
  readonly changes: readonly ILineChange[];
}

/** All changes of a notebook by remedies. */
interface IPlan {
  readonly edits: readonly ICellChanges[];
  /** The code of a new cell above the explained one; empty if none is inserted. */
  readonly code: string;
}

/** The changes of one cell, as shown before they are applied. */
export interface IShownChange {
  /** The cell and its lines. */
  readonly heading: string;
  readonly groups: readonly (readonly IDiffLine[])[];
}

/** The undo history of a shared cell; the cell's interface lacks it. */
interface IUndoable {
  undoManager?: { stopCapturing?(): void } | null;
}

export interface IRemedyApplierOptions {
  readonly reports: NotebookReports;
  readonly trans: TranslationBundle;
  /** Show the reader all changes, and ask whether to apply them. */
  confirm(changes: readonly IShownChange[]): Promise<boolean>;
  /** Explain the active cell of a notebook, and try remedies. */
  explainAndTry(panel: NotebookPanel): Promise<void>;
  /** Explain the active cell of a notebook. */
  explain(panel: NotebookPanel): Promise<void>;
  /** Run the active cell of a notebook. */
  run(panel: NotebookPanel): Promise<void>;
}

/** A change that was applied to a notebook. */
interface IAppliedChange {
  readonly panel: NotebookPanel;
  readonly edits: readonly ICellChanges[];
  readonly insertedCell: Cell | null;
  readonly code: string;
}

/** The class of a cell that a remedy has inserted; undo has a shortcut in it. */
const INSERTED = 'jp-GraphBreakInserted';

/** Carries out the actions of reports on a notebook, after the reader has confirmed them. */
export class RemedyApplier {
  constructor(options: IRemedyApplierOptions) {
    this._options = options;
    onReportEvent(document, 'graphbreak-ready', ready => {
      const { root } = ready.handle;
      if (root.closest('.jp-Notebook') !== null) {
        ready.actions = this._actionsOf(root);
      }
    });
  }

  /** Whether the last applied change inserted a cell that still exists. */
  get canUndo(): boolean {
    return this._last?.insertedCell?.isDisposed === false;
  }

  /** Undo the last applied change; throws if the notebook has changed since. */
  undoLast(): void {
    if (this._last !== null) {
      this._undo(this._last);
    }
  }

  private _actionsOf(root: HTMLElement): IRemedyActions {
    return {
      apply: refs => this._apply(root, refs),
      tryRemedies: async () => {
        const { panel, run } = this._find(root);
        panel.content.activeCellIndex = run.index;
        await this._options.explainAndTry(panel);
      }
    };
  }

  private async _apply(
    root: HTMLElement,
    refs: readonly IApplicableRef[]
  ): Promise<IApplied> {
    const { trans, confirm } = this._options;
    const { panel, run, report } = this._find(root);
    // Compute and show all changes before applying any.
    const plan = this._planOf(report, run, refs);
    const { edits, code } = plan;
    if (edits.length === 0 && code === '') {
      return {
        message: trans.__(
          'The cell already contains this change; run it to see what is left'
        )
      };
    }
    const shownChanges = this._shownChanges(plan, run);
    if (!(await confirm(shownChanges))) {
      return { message: trans.__('Not applied') };
    }
    this._checkUnchanged(plan, run);
    edits.forEach(applyChanges);
    let insertedCell: Cell | null = null;
    if (code !== '') {
      insertedCell = await insertAbove(panel, run.cell, code);
    } else {
      await showEdit(panel, edits[0]!);
    }
    const change = { panel, edits, insertedCell, code };
    this._last = change;
    const otherCells = edits.map(({ cell }) => cell).filter(cell => cell !== run.cell); // prettier-ignore
    return {
      message: this._nextStep(run, code !== '' || otherCells.length > 0),
      undo: async () => this._undo(change),
      runAgain: async () => {
        if (insertedCell !== null) {
          await this._runCell(panel, insertedCell.model as ICodeCellModel);
        }
        for (const cell of otherCells) {
          await this._runCell(panel, cell);
        }
        await this._runCell(panel, run.cell, true);
      }
    };
  }

  /** Run a cell, and explain it unless it explains itself. */
  private async _runCell(
    panel: NotebookPanel,
    cell: ICodeCellModel,
    mustExplain = false
  ): Promise<void> {
    const { content } = panel;
    const index = indexOfCell(content, cell);
    if (index >= 0) {
      content.activeCellIndex = index;
      const isPlain = mustExplain && !MAGIC.test(cell.sharedModel.getSource());
      await (isPlain ? this._options.explain(panel) : this._options.run(panel));
    }
  }

  /** Revert an applied change as a whole, and describe the result; throws if that is not possible. */
  private _undo(change: IAppliedChange): string {
    const { trans } = this._options;
    const { panel, edits, insertedCell, code } = change;
    const isUndone =
      (insertedCell === null || insertedCell.isDisposed) &&
      edits.every(
        ({ cell, before }) => cell.sharedModel.getSource() === before
      );
    if (isUndone) {
      return trans.__('Already undone');
    }
    const isUnchanged =
      !panel.isDisposed &&
      edits.every(
        ({ cell, before, changes }) =>
          indexOfCell(panel.content, cell) >= 0 &&
          cell.sharedModel.getSource() === withChanges(before, changes)
      ) &&
      (insertedCell === null ||
        (!insertedCell.isDisposed &&
          insertedCell.model.sharedModel.getSource() === code));
    if (!isUnchanged) {
      throw new Error(
        trans.__('Not undone: the notebook has changed in the meantime.')
      );
    }
    for (const { cell, before } of edits) {
      cell.sharedModel.undo();
      if (cell.sharedModel.getSource() !== before) {
        cell.sharedModel.setSource(before);
      }
    }
    if (insertedCell !== null) {
      const index = panel.content.widgets.indexOf(insertedCell);
      const hasFocus = insertedCell.node.contains(document.activeElement);
      panel.content.model!.sharedModel.deleteCell(index);
      if (hasFocus) {
        panel.content.activate();
      }
    }
    this._last = this._last === change ? null : this._last;
    return trans.__('Undone');
  }

  /** The next step for the reader. */
  private _nextStep({ cell }: IRun, isElsewhere: boolean): string {
    const { trans } = this._options;
    if (MAGIC.test(cell.sharedModel.getSource())) {
      return isElsewhere
        ? trans.__('Applied in another cell: run it, then this one')
        : trans.__('Applied; run the cell to see what is left');
    }
    return isElsewhere
      ? trans.__('Applied in another cell: run it, then explain this one')
      : trans.__('Applied; explain the cell to see what is left');
  }

  private _find(root: HTMLElement): {
    panel: NotebookPanel;
    run: IRun;
    report: Report;
  } {
    const { reports, trans } = this._options;
    const panel = reports.notebook;
    const run = reports.runContaining(root);
    if (panel === null || !run?.report) {
      throw new Error(
        trans.__('This report is no longer in the output of a cell.')
      );
    }
    if (!run.cell.trusted) {
      throw new Error(
        trans.__('Not applied: the output of this cell is not trusted.')
      );
    }
    return { panel, run, report: run.report };
  }

  /** The plan of changes; throws if a part of it is impossible, because then nothing is changed. */
  private _planOf(
    report: Report,
    run: IRun,
    refs: readonly IApplicableRef[]
  ): IPlan {
    const { trans } = this._options;
    const remedies = refs.map(({ list, at }) => {
      const remedy = applicableAt(report, list, at);
      if (remedy === undefined || totalOf(remedy.edits) > remedy.edits.length) {
        throw new Error(
          trans.__('Not applied: this report is too large to be read in full.')
        );
      }
      return remedy;
    });
    for (const { edits, patch } of remedies) {
      for (const { source: id } of edits) {
        const source = withId(report.sources, id);
        if (
          source === undefined ||
          (source.kind !== 'cell' && patch === null)
        ) {
          throw new Error(
            trans.__(
              'Not applied: the report does not contain the complete change.'
            )
          );
        }
      }
    }
    return {
      edits: this._editsOf(report, run, remedies),
      code: remedies
        .flatMap((remedy, index) => {
          const code = codeOutside(report, remedy);
          const { list, at } = refs[index]!;
          const id =
            list === 'remedies' ? report.remedies?.[at]?.id : undefined;
          return code === null ? [] : [...commentOf(run, id), code];
        })
        .join('\n')
    };
  }

  /** The changes of cells; throws if a cell is not the one that the remedies are for. */
  private _editsOf(
    report: Report,
    run: IRun,
    remedies: readonly Applicable[]
  ): ICellChanges[] {
    const { reports, trans } = this._options;
    const cells = new CellIndex(reports.cells);
    const byCell = new Map<ICodeCellModel, ICellChanges>();
    for (const [id, edits] of editsBySource(remedies)) {
      const source = withId(report.sources, id)!;
      if (source.kind !== 'cell') {
        continue; // the inserted cell patches it
      }
      const { name } = source;
      const cell = findCell(report, id, run.cell, cells)?.cell;
      if (cell === undefined) {
        throw new Error(
          trans.__('Not applied: %1 is not in this notebook.', name)
        );
      }
      if (cell.getMetadata('editable') === false) {
        throw new Error(trans.__('Not applied: %1 cannot be edited.', name));
      }
      if (byCell.has(cell)) {
        throw new Error(
          trans.__('Not applied: %1 would be changed twice.', name)
        );
      }
      const original = source.segments[0]?.text ?? '';
      const before = cell.sharedModel.getSource();
      try {
        if (before.trimEnd() !== applyEdits(original, edits).trimEnd()) {
          const changes = changesFor(before, edits, original);
          byCell.set(cell, { cell, reportName: name, before, changes });
        }
      } catch (error) {
        if (!(error instanceof LineMismatch)) {
          throw error;
        }
        throw new Error(
          trans.__(
            'Not applied: line %1 of %2 has changed since this was tried. Explain the cell again.',
            error.line,
            name
          )
        );
      }
    }
    return [...byCell.values()];
  }

  /** The complete plan as shown to the reader; throws if it is too long to read. */
  private _shownChanges({ edits, code }: IPlan, run: IRun): IShownChange[] {
    const { trans } = this._options;
    const shownChanges: IShownChange[] = edits.map(edit => ({
      heading: this._headingOf(edit),
      groups: diffOf(edit.before, edit.changes)
    }));
    if (code !== '') {
      const lines = code
        .split('\n')
        .map((text): IDiffLine => ({ sign: '+', number: null, text }));
      shownChanges.unshift({
        heading: trans.__('New cell above %1', this._nameOf(run.cell)),
        groups: [lines]
      });
    }
    let [lines, characters] = [0, 0];
    for (const line of shownChanges.flatMap(({ groups }) => groups.flat())) {
      lines += 1;
      characters += line.text.length;
    }
    if (lines > MAX_LINES || characters > MAX_CHARACTERS) {
      throw new Error(
        trans.__(
          'Not applied: the change is too long to be shown (%1 lines, %2 characters).',
          lines,
          characters
        )
      );
    }
    return shownChanges;
  }

  /** "Cell In[3]: lines 4, 9-10", with the name in the report if that differs. */
  private _headingOf({ cell, reportName, changes }: ICellChanges): string {
    const { trans } = this._options;
    const ranges = changes.map(({ first, last }) =>
      last > first ? `${first}-${last}` : String(first)
    );
    const lines = [...new Set(ranges)].join(', ');
    const name = this._nameOf(cell);
    const hasOtherName =
      countInName(reportName) !== null && reportName !== name;
    const fullName = hasOtherName
      ? trans.__('%1 (%2 in the report)', name, reportName)
      : name;
    return /[-,]/.test(lines)
      ? trans.__('%1: lines %2', fullName, lines)
      : trans.__('%1: line %2', fullName, lines);
  }

  /** The current name of a cell in the notebook. */
  private _nameOf(cell: ICodeCellModel): string {
    const { reports, trans } = this._options;
    const count = cell.executionCount;
    if (count !== null) {
      return cellName(count);
    }
    const index = reports.notebook?.content.widgets.findIndex(
      ({ model }) => model === cell
    );
    return trans.__('Cell %1 of this notebook', (index ?? 0) + 1);
  }

  /** Throws if the cells have changed since the reader confirmed the plan. */
  private _checkUnchanged({ edits }: IPlan, run: IRun): void {
    const { reports, trans } = this._options;
    const cells = new Set(reports.cells);
    const isUnchanged =
      cells.has(run.cell) &&
      edits.every(
        ({ cell, before }) =>
          cells.has(cell) && cell.sharedModel.getSource() === before
      );
    if (!isUnchanged) {
      throw new Error(
        trans.__(
          'Not applied: the notebook has changed in the meantime. Explain the cell again.'
        )
      );
    }
  }

  private readonly _options: IRemedyApplierOptions;
  /** The change that undo reverts. */
  private _last: IAppliedChange | null = null;
}

/** The lines of a comment about what the cell of a remedy does and how to undo it. */
function commentOf(run: IRun, remedy: string | undefined): string[] {
  const rows = run.rows?.sections.find(({ id }) => id === 'remedy')?.rows ?? [];
  const comment = rows.find(({ id }) => id === remedy)?.comment ?? [];
  return comment.map(line => `# ${line.replace(/\s+/g, ' ')}`);
}

/** Insert a cell above another one, and focus it. */
async function insertAbove(
  { content }: NotebookPanel,
  cell: ICodeCellModel,
  code: string
): Promise<Cell | null> {
  content.activeCellIndex = indexOfCell(content, cell);
  NotebookActions.insertAbove(content);
  const insertedCell = content.activeCell;
  insertedCell?.model.sharedModel.setSource(code);
  insertedCell?.addClass(INSERTED);
  await content.scrollToItem(content.activeCellIndex);
  content.mode = 'command';
  content.activate();
  return insertedCell;
}

/** Change a cell so that one undo reverts exactly this change. */
function applyChanges({ cell, before, changes }: ICellChanges): void {
  const { sharedModel } = cell;
  const { undoManager } = sharedModel as IUndoable;
  undoManager?.stopCapturing?.();
  sharedModel.transact(() => {
    for (const { start, end, text } of replacementsFor(before, changes)) {
      sharedModel.updateSource(start, end, text);
    }
  });
  undoManager?.stopCapturing?.();
}

/** Put the cursor on the change, so that the reader sees it and can undo it. */
async function showEdit(
  { content }: NotebookPanel,
  { cell, before, changes }: ICellChanges
): Promise<void> {
  const index = indexOfCell(content, cell);
  content.activeCellIndex = index;
  await content.scrollToItem(index);
  content.mode = 'edit';
  const editor = content.activeCell?.editor;
  const first = replacementsFor(before, changes).at(-1);
  if (editor && first !== undefined) {
    const position = editor.getPositionAt(first.start);
    if (position) {
      editor.setCursorPosition(position);
    }
    editor.focus();
  }
}

function indexOfCell(
  { widgets }: NotebookPanel['content'],
  cell: ICodeCellModel
): number {
  return widgets.findIndex(({ model }) => model === cell);
}
