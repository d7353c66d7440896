/** The commands that explain cells. */
import { isCodeCellModel } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { reasonOf } from '../view/elements';
import { type Explainer, TRY_REMEDIES } from './explainer';
import { graphBreakIcon } from './icon';
import { showInstallation } from './installation';
import type { NotebookReports } from './notebookreports';
import type { RemedyApplier } from './remedyapplier';
import { editedRun, type IEditedRun } from './runs';

export namespace ExplainCommandIDs {
  export const explainCell = 'jupyter-graphbreak:explain-cell';
  export const explainAndTry = 'jupyter-graphbreak:explain-and-try';
  export const tryEdited = 'jupyter-graphbreak:try-edited';
  export const explainAll = 'jupyter-graphbreak:explain-all';
  export const checkInstallation = 'jupyter-graphbreak:check-installation';
}

/** This command has a shortcut in the cell that a remedy has inserted, so it is in no menu. */
const UNDO_REMEDY = 'jupyter-graphbreak:undo-remedy';

const NO_ARGS = { type: 'object', properties: {} } as const;

/** Add the commands that explain cells. */
export function addExplainCommands(
  commands: CommandRegistry,
  notebooks: INotebookTracker,
  reports: NotebookReports,
  explainer: Explainer,
  warn: (message: string) => void,
  trans: TranslationBundle
): void {
  const run = async (
    explain: (panel: NotebookPanel) => Promise<void>
  ): Promise<void> => {
    const panel = notebooks.currentWidget;
    if (panel !== null) {
      await explain(panel);
    }
  };

  const isCode = (): boolean =>
    notebooks.currentWidget?.content.activeCell?.model.type === 'code';

  commands.addCommand(ExplainCommandIDs.explainCell, {
    label: trans.__('Explain Graph Breaks of Cell'),
    caption: trans.__(
      'Run the active cell and explain what torch.compile does with it'
    ),
    icon: graphBreakIcon,
    describedBy: { args: NO_ARGS },
    isEnabled: isCode,
    execute: () => run(panel => explainer.explainCell(panel))
  });

  commands.addCommand(ExplainCommandIDs.explainAndTry, {
    label: trans.__('Explain Graph Breaks and Try Remedies'),
    caption: trans.__(
      'Run the active cell, explain what torch.compile does with it, and try changes that remove its graph breaks'
    ),
    describedBy: { args: NO_ARGS },
    isEnabled: isCode,
    execute: () => run(panel => explainer.explainCell(panel, TRY_REMEDIES))
  });

  /** The edits since the last run of the active cell or of its functions. */
  const findEditedRun = (): IEditedRun | null => {
    const model = notebooks.currentWidget?.content.activeCell?.model;
    return model !== undefined && isCodeCellModel(model)
      ? editedRun(reports.runs, reports.cells, model)
      : null;
  };

  commands.addCommand(ExplainCommandIDs.tryEdited, {
    label: trans.__('Try the Edited Cell'),
    caption: trans.__(
      'Run the cell as in its report, and try your edits since then on copies: does the result stay the same, and is a graph break gone?'
    ),
    describedBy: { args: NO_ARGS },
    isEnabled: () => findEditedRun() !== null,
    execute: () =>
      run(async panel => {
        const target = findEditedRun();
        if (target !== null) {
          await explainer.tryEdited(panel, target);
        }
      })
  });
  notebooks.activeCellChanged.connect(() => {
    commands.notifyCommandChanged(ExplainCommandIDs.explainCell);
    commands.notifyCommandChanged(ExplainCommandIDs.explainAndTry);
    commands.notifyCommandChanged(ExplainCommandIDs.tryEdited);
  });

  commands.addCommand(ExplainCommandIDs.explainAll, {
    label: trans.__('Explain Graph Breaks of All Cells'),
    caption: trans.__(
      'Run all cells and explain what torch.compile does with them'
    ),
    describedBy: { args: NO_ARGS },
    isEnabled: () => notebooks.currentWidget !== null,
    execute: () => run(panel => explainer.explainAll(panel))
  });

  commands.addCommand(ExplainCommandIDs.checkInstallation, {
    label: trans.__('Check Whether PyTorch Can Compile'),
    caption: trans.__(
      "Compile a small function with the notebook's Python, and say what is missing if that fails"
    ),
    describedBy: { args: NO_ARGS },
    isEnabled: () => notebooks.currentWidget !== null,
    execute: () => run(panel => showInstallation(panel, trans, warn))
  });
}

/** Add the command that undoes an applied remedy. */
export function addUndoCommand(
  commands: CommandRegistry,
  applier: RemedyApplier,
  warn: (message: string) => void,
  trans: TranslationBundle
): void {
  commands.addCommand(UNDO_REMEDY, {
    label: trans.__('Undo Applying the Remedy'),
    describedBy: { args: NO_ARGS },
    isEnabled: () => applier.canUndo,
    execute: () => {
      try {
        applier.undoLast();
      } catch (error) {
        warn(reasonOf(error));
      }
    }
  });
}
