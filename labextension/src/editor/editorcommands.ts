/** The commands that show marks in cells and open sources outside cells. */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import type { CellMarks } from './cellmarks';
import type { Sources } from './sources';

export namespace EditorCommandIDs {
  export const toggleMarks = 'jupyter-graphbreak:toggle-marks';
  export const openSource = 'jupyter-graphbreak:open-source';
}

/** Add the command that shows and hides the marks. */
export function addMarksCommand(
  commands: CommandRegistry,
  marks: CellMarks,
  trans: TranslationBundle
): void {
  commands.addCommand(EditorCommandIDs.toggleMarks, {
    label: trans.__('Show Graph Breaks in Cells'),
    caption: trans.__('Mark graphs and graph breaks in the cells themselves'),
    describedBy: { args: { type: 'object', properties: {} } },
    isToggleable: true,
    isToggled: () => marks.isOn,
    execute: () => {
      marks.isOn = !marks.isOn;
    }
  });
  marks.toggled.connect(() =>
    commands.notifyCommandChanged(EditorCommandIDs.toggleMarks)
  );
}

/** Add the command that opens a source outside cells. */
export function addSourceCommand(
  commands: CommandRegistry,
  sources: Sources,
  trans: TranslationBundle
): void {
  commands.addCommand(EditorCommandIDs.openSource, {
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
            description:
              'The index of the output; by default the first with a report'
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
