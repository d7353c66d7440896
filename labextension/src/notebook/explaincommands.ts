/** The commands that explain cells. */
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import type { Explainer } from './explainer';
import { graphBreakIcon } from './icon';

export namespace ExplainCommandIDs {
  export const explainCell = 'jupyter-graphbreak:explain-cell';
  export const explainAll = 'jupyter-graphbreak:explain-all';
}

const NO_ARGS = { type: 'object', properties: {} } as const;

/** Add the commands that explain cells. */
export function addExplainCommands(
  commands: CommandRegistry,
  notebooks: INotebookTracker,
  explainer: Explainer,
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

  commands.addCommand(ExplainCommandIDs.explainCell, {
    label: trans.__('Explain Graph Breaks of Cell'),
    caption: trans.__(
      'Run the active cell and explain what torch.compile does with it'
    ),
    icon: graphBreakIcon,
    describedBy: { args: NO_ARGS },
    isEnabled: () =>
      notebooks.currentWidget?.content.activeCell?.model.type === 'code',
    execute: () => run(panel => explainer.explainCell(panel))
  });
  notebooks.activeCellChanged.connect(() =>
    commands.notifyCommandChanged(ExplainCommandIDs.explainCell)
  );

  commands.addCommand(ExplainCommandIDs.explainAll, {
    label: trans.__('Explain Graph Breaks of All Cells'),
    caption: trans.__(
      'Run all cells and explain what torch.compile does with them'
    ),
    describedBy: { args: NO_ARGS },
    isEnabled: () => notebooks.currentWidget !== null,
    execute: () => run(panel => explainer.explainAll(panel))
  });
}
