/** Applies remedies of a report to its notebook: edits its cells, or inserts one that sets what is to be set. */
import type { ICodeCellModel } from '@jupyterlab/cells';
import { NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';

import {
  type Applicable,
  applicableAt,
  changesFor,
  codeOutside,
  edited,
  editsBySource,
  type IChange,
  LineMismatch
} from '../report/edits';
import type { Report } from '../report/types';
import { hear, type IPlace, type IRemedyActions } from '../view/link';
import { findCell } from './cells';
import type { NotebookReports } from './notebookreports';
import type { IRun } from './runs';

/** A cell that explains itself whenever it runs. */
const MAGIC = /^\s*%%compile_explain\b/;

/** Changes of one cell. */
interface ICellChanges {
  readonly cell: ICodeCellModel;
  readonly changes: readonly IChange[];
}

/** The part of a shared cell's undo history that is not in its interface. */
interface IUndoable {
  undoManager?: { stopCapturing?(): void } | null;
}

export interface IApplyingOptions {
  readonly reports: NotebookReports;
  readonly trans: TranslationBundle;
  /** Explain the active cell of a notebook, and try remedies. */
  explainAndTry(panel: NotebookPanel): Promise<void>;
}

/** Does what the reports of a notebook ask for. */
export class Applying {
  constructor(options: IApplyingOptions) {
    this._options = options;
    hear(document, 'graphbreak-ready', ready => {
      const { root } = ready.handle;
      if (root.closest('.jp-Notebook') !== null) {
        ready.actions = this._actionsOf(root);
      }
    });
  }

  private _actionsOf(root: HTMLElement): IRemedyActions {
    return {
      apply: places => this._apply(root, places),
      tryRemedies: async () => {
        const { panel, run } = this._find(root);
        panel.content.activeCellIndex = run.index;
        await this._options.explainAndTry(panel);
      }
    };
  }

  private async _apply(
    root: HTMLElement,
    places: readonly IPlace[]
  ): Promise<string> {
    const { panel, run, report } = this._find(root);
    const remedies = places
      .map(({ list, at }) => applicableAt(report, list, at))
      .filter((it): it is Applicable => it !== undefined);
    // All of it is worked out before anything is changed.
    const edits = this._editsOf(report, run, remedies);
    const code = remedies
      .flatMap(remedy => codeOutside(report, remedy) ?? [])
      .join('\n');
    if (edits.length === 0 && code === '') {
      return this._options.trans.__(
        'The cell reads like this already; run it to see what is gone'
      );
    }
    edits.forEach(applyChanges);
    if (code !== '') {
      await this._insert(panel, run, code);
    } else {
      await showEdit(panel, edits[0]!);
    }
    const isElsewhere =
      code !== '' || edits.some(({ cell }) => cell !== run.cell);
    return this._nextStep(run, isElsewhere);
  }

  /** What the reader does next to see what is gone. */
  private _nextStep({ cell }: IRun, isElsewhere: boolean): string {
    const { trans } = this._options;
    if (MAGIC.test(cell.sharedModel.getSource())) {
      return isElsewhere
        ? trans.__('Applied in another cell: run it, then this one')
        : trans.__('Applied; run the cell to see what is gone');
    }
    return isElsewhere
      ? trans.__('Applied in another cell: run it, then explain this one')
      : trans.__('Applied; explain the cell to see what is gone');
  }

  private _find(root: HTMLElement): {
    panel: NotebookPanel;
    run: IRun;
    report: Report;
  } {
    const { reports, trans } = this._options;
    const panel = reports.notebook;
    const run = reports.runAround(root);
    if (panel === null || !run?.report) {
      throw new Error(
        trans.__('This report is not in the output of a cell any more.')
      );
    }
    return { panel, run, report: run.report };
  }

  /** What the remedies change in cells; an error where a cell is not what they were made for. */
  private _editsOf(
    report: Report,
    run: IRun,
    remedies: readonly Applicable[]
  ): ICellChanges[] {
    const { reports, trans } = this._options;
    const made: ICellChanges[] = [];
    for (const [id, edits] of editsBySource(remedies)) {
      const source = report.sources.find(listed => listed.id === id);
      if (source?.kind !== 'cell') {
        continue; // the cell that is inserted patches it
      }
      const cell = findCell(report, id, run.cell, reports.cells)?.cell;
      if (cell === undefined) {
        throw new Error(
          trans.__('Not applied: %1 is not in this notebook.', source.name)
        );
      }
      if (cell.getMetadata('editable') === false) {
        throw new Error(
          trans.__('Not applied: %1 cannot be edited.', source.name)
        );
      }
      const original = source.segments[0]?.text ?? '';
      const text = cell.sharedModel.getSource();
      if (text.trimEnd() === edited(original, edits).trimEnd()) {
        continue;
      }
      try {
        made.push({ cell, changes: changesFor(text, edits, original) });
      } catch (error) {
        if (!(error instanceof LineMismatch)) {
          throw error;
        }
        throw new Error(
          trans.__(
            'Not applied: line %1 of %2 is another one than when this was tried. Explain the cell again.',
            error.line,
            source.name
          )
        );
      }
    }
    return made;
  }

  /** Put a cell above the one that ran, and select it. */
  private async _insert(
    { content }: NotebookPanel,
    run: IRun,
    code: string
  ): Promise<void> {
    content.activeCellIndex = run.index;
    NotebookActions.insertAbove(content);
    content.activeCell?.model.sharedModel.setSource(code);
    await content.scrollToItem(content.activeCellIndex);
  }

  private readonly _options: IApplyingOptions;
}

/** Change a cell; one undo takes back all of it, and nothing else. */
function applyChanges({ cell, changes }: ICellChanges): void {
  const { sharedModel } = cell;
  const { undoManager } = sharedModel as IUndoable;
  undoManager?.stopCapturing?.();
  sharedModel.transact(() => {
    for (const { start, end, text } of changes) {
      sharedModel.updateSource(start, end, text);
    }
  });
  undoManager?.stopCapturing?.();
}

/** Put the cursor where a cell was changed, so that the reader sees it and can undo it. */
async function showEdit(
  { content }: NotebookPanel,
  { cell, changes }: ICellChanges
): Promise<void> {
  const index = content.widgets.findIndex(({ model }) => model === cell);
  content.activeCellIndex = index;
  await content.scrollToItem(index);
  content.mode = 'edit';
  const editor = content.activeCell?.editor;
  const first = changes.at(-1);
  if (editor && first !== undefined) {
    const position = editor.getPositionAt(first.start);
    if (position) {
      editor.setCursorPosition(position);
    }
    editor.focus();
  }
}
