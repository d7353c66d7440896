/** The JupyterLab extension: wiring only. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { addCommands, CommandIDs } from './commands';
import { Guide } from './guide';
import { INotebookReports, NotebookReports } from './model';
import { RANK, rendererFactory } from './output';
import { GraphBreakPanel } from './panel';
import { followSettings } from './settings';

/** The name of our texts for translators. */
const DOMAIN = 'jupyter_graphbreak';

/** Shows the panel's texts and the settings, by the name of the schema. */
const PLUGIN = 'jupyter-graphbreak:plugin';

/** Third parties' widgets stand between 501 and 899. */
const PANEL_RANK = 610;

const output: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-graphbreak:output',
  description:
    'Shows reports of compile_explain in outputs, also when their kernel is gone.',
  autoStart: true,
  requires: [INotebookTracker],
  activate: (_app: JupyterFrontEnd, notebooks: INotebookTracker): void => {
    const add = (panel: INotebookTracker['currentWidget']): void => {
      const renderers = panel?.content.rendermime;
      renderers?.addFactory(rendererFactory(renderers), RANK);
    };
    notebooks.forEach(add);
    notebooks.widgetAdded.connect((_, panel) => add(panel));
  }
};

const reports: JupyterFrontEndPlugin<NotebookReports> = {
  id: 'jupyter-graphbreak:reports',
  description: 'Reads the reports in the outputs of the current notebook.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ITranslator],
  provides: INotebookReports,
  activate: (
    _app: JupyterFrontEnd,
    notebooks: INotebookTracker,
    translator: ITranslator | null
  ): NotebookReports =>
    new NotebookReports(notebooks, (translator ?? nullTranslator).load(DOMAIN))
};

const panel: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'The panel with all graph breaks of the current notebook.',
  autoStart: true,
  requires: [INotebookReports],
  optional: [ITranslator, ISettingRegistry, ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    reports: NotebookReports,
    translator: ITranslator | null,
    settings: ISettingRegistry | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ): void => {
    const { commands, shell } = app;
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const activate = (id: string): void => shell.activateById(id);
    const guide = new Guide(reports, commands, activate);
    const panel = new GraphBreakPanel({ reports, guide, commands, trans });
    shell.add(panel, 'right', { rank: PANEL_RANK, type: 'Graph Breaks' });
    restorer?.add(panel, panel.id);
    addCommands({
      commands,
      reports,
      guide,
      panel,
      show: () => activate(panel.id),
      contextNode: test => app.contextMenuHitTest(test),
      trans
    });
    for (const command of Object.values(CommandIDs)) {
      palette?.addItem({ command, category: trans.__('Graph Breaks') });
    }
    if (settings !== null) {
      void followSettings(settings, PLUGIN, panel);
    }
  }
};

export default [output, reports, panel];
