/**
 * Explains cells without changing their source.
 *
 * JupyterLab runs the cells as usual; the metadata of each request asks the kernel to explain the cell.
 */
import type {
  ISessionContext,
  ISessionContextDialogs
} from '@jupyterlab/apputils';
import { type CodeCell, isCodeCellModel } from '@jupyterlab/cells';
import { NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';
import type { ITranslator, TranslationBundle } from '@jupyterlab/translation';

import { KernelExtension } from './kernelextension';
import type { IEditedRun } from './runs';
import { explainingSession, type IExplainRequest } from './sessionproxy';

export interface IExplainOptions {
  /** Lets the reader choose a kernel if there is none. */
  dialogs: ISessionContextDialogs | null;
  translator: ITranslator;
  trans: TranslationBundle;
  /** Tell the reader why nothing could be explained. */
  warn(message: string): void;
}

/** The option of the magic that tries remedies. */
export const TRY_REMEDIES = '--try';

export class Explainer {
  constructor(options: IExplainOptions) {
    this._options = options;
    this._extension = new KernelExtension(options.trans);
  }

  /**
   * Explain the active cell of a notebook.
   *
   * @param panel - The notebook.
   * @param magicOptions - Options of the magic, as written after it.
   */
  async explainCell(panel: NotebookPanel, magicOptions = ''): Promise<void> {
    const { activeCell } = panel.content;
    if (activeCell === null || !isCodeCellModel(activeCell.model)) {
      return;
    }
    await this._run(panel, activeCell as CodeCell, {
      explain: magicOptions,
      only_torch: false
    });
  }

  /**
   * Run a cell as it was at its last run, and try the reader's edits since then on copies, as a remedy.
   *
   * @param panel - The notebook.
   * @param editedRun - The run, and the cells that were edited.
   */
  async tryEdited(
    panel: NotebookPanel,
    { run, editedCells }: IEditedRun
  ): Promise<void> {
    const cell = panel.content.widgets.find(({ model }) => model === run.cell);
    if (cell === undefined) {
      return;
    }
    const request: IExplainRequest = {
      explain: TRY_REMEDIES,
      only_torch: false,
      edited: editedCells.map(({ before, now }) => [before, now])
    };
    const ownEdit = editedCells.find(({ cell }) => cell === run.cell);
    await this._run(panel, cell as CodeCell, request, ownEdit?.before);
  }

  private async _run(
    panel: NotebookPanel,
    cell: CodeCell,
    request: IExplainRequest,
    code?: string
  ): Promise<void> {
    const context = await this._prepare(panel, [cell], request, code);
    if (context !== null && !cell.isDisposed) {
      const { dialogs, translator } = this._options;
      await NotebookActions.runCells(
        panel.content,
        [cell],
        context,
        dialogs ?? undefined,
        translator
      );
    }
  }

  /** Explain all cells of a notebook, up to the first that fails. */
  async explainAll(panel: NotebookPanel): Promise<void> {
    const cells = panel.content.widgets.filter(
      ({ model }) =>
        isCodeCellModel(model) && model.sharedModel.getSource().trim() !== ''
    );
    const context = await this._prepare(panel, cells as CodeCell[], {
      explain: '',
      only_torch: true
    });
    if (context !== null && !panel.isDisposed) {
      const { dialogs, translator } = this._options;
      await NotebookActions.runAll(
        panel.content,
        context,
        dialogs ?? undefined,
        translator
      );
    }
  }

  /** Prepare the kernel to explain cells; if that fails, warn the reader and return null. */
  private async _prepare(
    panel: NotebookPanel,
    cells: readonly CodeCell[],
    request: IExplainRequest,
    code?: string
  ): Promise<ISessionContext | null> {
    const { sessionContext } = panel;
    const { dialogs, trans, warn } = this._options;
    if (sessionContext.hasNoKernel) {
      const mustChoose = await sessionContext.startKernel();
      if (mustChoose && dialogs !== null) {
        await dialogs.selectKernel(sessionContext);
      }
    }
    const kernel = sessionContext.session?.kernel;
    if (!kernel) {
      warn(trans.__('This notebook has no kernel that can explain a cell.'));
      return null;
    }
    // The kernel may be busy; the cell waits for it.
    const waitingCells = cells.map(
      cell => [cell, cell.model.executionCount] as const
    );
    cells.forEach(cell => cell.setPrompt('*'));
    const problem = await this._extension.load(kernel);
    if (problem === null) {
      return explainingSession(sessionContext, request, code);
    }
    for (const [cell, count] of waitingCells) {
      if (!cell.isDisposed) {
        cell.setPrompt(count === null ? '' : String(count));
      }
    }
    if (problem !== '') {
      warn(problem);
    }
    return null;
  }

  private readonly _options: IExplainOptions;
  private readonly _extension: KernelExtension;
}
