/** The commands that explain cells, show marks in them and open what they lead to. */
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import type { Explainer } from './explain';
import { graphBreakIcon } from './icon';
import type { Marking } from './marking';
import type { Sources } from './source';

export namespace CellCommandIDs {
  export const explainCell = 'jupyter-graphbreak:explain-cell';
  export const explainAll = 'jupyter-graphbreak:explain-all';
  export const toggleMarks = 'jupyter-graphbreak:toggle-marks';
  export const openSource = 'jupyter-graphbreak:open-source';
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

  commands.addCommand(CellCommandIDs.explainCell, {
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
    commands.notifyCommandChanged(CellCommandIDs.explainCell)
  );

  commands.addCommand(CellCommandIDs.explainAll, {
    label: trans.__('Explain Graph Breaks of All Cells'),
    caption: trans.__(
      'Run all cells and explain what torch.compile does with them'
    ),
    describedBy: { args: NO_ARGS },
    isEnabled: () => notebooks.currentWidget !== null,
    execute: () => run(panel => explainer.explainAll(panel))
  });
}

/** Add the command that shows and hides the marks. */
export function addMarksCommand(
  commands: CommandRegistry,
  marking: Marking,
  trans: TranslationBundle
): void {
  commands.addCommand(CellCommandIDs.toggleMarks, {
    label: trans.__('Show Graph Breaks in Cells'),
    caption: trans.__('Mark graphs and graph breaks in the cells themselves'),
    describedBy: { args: NO_ARGS },
    isToggleable: true,
    isToggled: () => marking.isOn,
    execute: () => {
      marking.isOn = !marking.isOn;
    }
  });
  marking.toggled.connect(() =>
    commands.notifyCommandChanged(CellCommandIDs.toggleMarks)
  );
}

/** Add the command that opens a source that is in no cell. */
export function addSourceCommand(
  commands: CommandRegistry,
  sources: Sources,
  trans: TranslationBundle
): void {
  commands.addCommand(CellCommandIDs.openSource, {
    label: trans.__('Open Source of Report'),
    describedBy: {
      args: {
        type: 'object',
        required: ['cellId', 'source', 'line'],
        properties: {
          cellId: {
            type: 'string',
            description: 'The cell that has the report in its output'
          },
          output: {
            type: 'number',
            description: 'Which output; without it the first with a report'
          },
          source: {
            type: 'string',
            description: 'The id that the source has in the report'
          },
          line: { type: 'number', description: 'The line to show' }
        }
      }
    },
    execute: args => sources.open(args as unknown as Sources.IArgs)
  });
}
