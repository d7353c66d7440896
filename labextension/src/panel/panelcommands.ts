/** The commands of the panel. */
import { Clipboard, Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { graphBreakIcon } from '../notebook/icon';
import type { NotebookReports } from '../notebook/notebookreports';
import type { IRun } from '../notebook/runs';
import type { BreakNavigator } from './breaknavigator';
import type { GraphBreakPanel } from './panel';

export namespace PanelCommandIDs {
  export const showPanel = 'jupyter-graphbreak:show-panel';
  export const nextBreak = 'jupyter-graphbreak:next-break';
  export const previousBreak = 'jupyter-graphbreak:previous-break';
  export const copyReport = 'jupyter-graphbreak:copy-report';
  export const compare = 'jupyter-graphbreak:compare';
  export const follow = 'jupyter-graphbreak:follow-pointer';
}

/** The cell of a command, if it is not the active one. */
const CELL_ARGS = {
  type: 'object',
  properties: {
    cellId: {
      type: 'string',
      description: 'The id of a cell with a report; by default the active cell'
    }
  }
} as const;

export interface IPanelCommandOptions {
  commands: CommandRegistry;
  reports: NotebookReports;
  breakNavigator: BreakNavigator;
  panel: GraphBreakPanel;
  /** Brings the panel to the front. */
  show(): void;
  /** The element of the open context menu. */
  contextNode(test: (node: HTMLElement) => boolean): HTMLElement | undefined;
  trans: TranslationBundle;
}

/** Add the commands of the panel. */
export function addPanelCommands(options: IPanelCommandOptions): void {
  const { commands, reports, breakNavigator, panel, trans } = options;

  const hasBreaks = (): boolean =>
    reports.runs.some(({ report }) => (report?.breaks.length ?? 0) > 0);

  /** The last run of a command's cell. */
  const runFor = (args: { cellId?: unknown }): IRun | undefined => {
    const cellId =
      args.cellId ??
      options.contextNode(node => node.dataset.cell !== undefined)?.dataset
        .cell ??
      reports.notebook?.content.activeCell?.model.id;
    return reports.runs.filter(run => run.cellId === cellId).at(-1);
  };

  commands.addCommand(PanelCommandIDs.showPanel, {
    label: trans.__('Show Graph Breaks'),
    caption: trans.__('Show the graph breaks of the current notebook'),
    icon: graphBreakIcon,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () => options.show()
  });

  commands.addCommand(PanelCommandIDs.nextBreak, {
    label: trans.__('Go to Next Graph Break'),
    describedBy: { args: { type: 'object', properties: {} } },
    isEnabled: hasBreaks,
    execute: () => breakNavigator.step(1)
  });

  commands.addCommand(PanelCommandIDs.previousBreak, {
    label: trans.__('Go to Previous Graph Break'),
    describedBy: { args: { type: 'object', properties: {} } },
    isEnabled: hasBreaks,
    execute: () => breakNavigator.step(-1)
  });

  commands.addCommand(PanelCommandIDs.copyReport, {
    label: trans.__('Copy Graph Break Report'),
    caption: trans.__('Copy the report of this cell as text'),
    describedBy: { args: CELL_ARGS },
    isEnabled: args => runFor(args) !== undefined,
    execute: args => {
      const run = runFor(args);
      if (run === undefined) {
        return;
      }
      // A running cell has no output yet.
      const text = run.cell.outputs.get(run.output)?.data['text/plain'];
      Clipboard.copyToSystem(
        Array.isArray(text) ? text.join('') : String(text ?? '')
      );
      Notification.success(trans.__('Report copied'), { autoClose: 2000 });
    }
  });

  commands.addCommand(PanelCommandIDs.follow, {
    label: trans.__('Let the Pointer Select Graph Breaks'),
    caption: trans.__(
      'Highlight the part under the pointer in report, panel and cells'
    ),
    describedBy: { args: { type: 'object', properties: {} } },
    isToggleable: true,
    isToggled: () => reports.isFollowing,
    execute: () => {
      reports.isFollowing = !reports.isFollowing;
    }
  });
  reports.followingChanged.connect(() =>
    commands.notifyCommandChanged(PanelCommandIDs.follow)
  );

  commands.addCommand(PanelCommandIDs.compare, {
    label: trans.__('Compare with Previous Run'),
    caption: trans.__(
      'Show which graph breaks are new or gone since the previous run of this cell'
    ),
    describedBy: { args: CELL_ARGS },
    isEnabled: args => runFor(args) !== undefined,
    execute: args => {
      const run = runFor(args);
      if (run !== undefined) {
        options.show();
        panel.showChanges(run);
      }
    }
  });
}
