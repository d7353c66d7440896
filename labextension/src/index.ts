/** The JupyterLab extension: wiring only. */
import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  ICommandPalette,
  ISessionContextDialogs,
  Notification
} from '@jupyterlab/apputils';
import { IEditorServices } from '@jupyterlab/codeeditor';
import {
  EditorExtensionRegistry,
  IEditorExtensionRegistry
} from '@jupyterlab/codemirror';
import {
  INotebookTracker,
  NotebookActions,
  type NotebookPanel
} from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import {
  ITranslator,
  nullTranslator,
  type TranslationBundle
} from '@jupyterlab/translation';

import { CellMarks } from './editor/cellmarks';
import {
  addMarksCommand,
  addSourceCommand,
  EditorCommandIDs
} from './editor/editorcommands';
import type { IMarkOptions } from './editor/interaction';
import { Sources } from './editor/sources';
import { confirmChanges } from './notebook/changedialog';
import {
  addExplainCommands,
  addUndoCommand,
  ExplainCommandIDs
} from './notebook/explaincommands';
import { Explainer, TRY_REMEDIES } from './notebook/explainer';
import { INotebookReports, NotebookReports } from './notebook/notebookreports';
import { PreviousReports } from './notebook/previousreports';
import { RANK, rendererFactory } from './notebook/renderer';
import { RemedyApplier } from './notebook/remedyapplier';
import { ReportLinks } from './notebook/reportlinks';
import { AutoOpen } from './panel/autoopen';
import { BreakNavigator } from './panel/breaknavigator';
import { GraphBreakPanel } from './panel/panel';
import { addPanelCommands, PanelCommandIDs } from './panel/panelcommands';
import {
  followMarksSetting,
  followOpenSetting,
  followSortSetting
} from './panel/settings';

/** The domain of our strings for translation. */
const DOMAIN = 'jupyter_graphbreak';

/** The plugin with the settings; its name is that of their schema. */
const PLUGIN = 'jupyter-graphbreak:plugin';

/** Widgets of other extensions have ranks between 501 and 899. */
const PANEL_RANK = 610;

const output: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-graphbreak:output',
  description:
    'Shows reports of compile_explain in outputs, even without a kernel.',
  autoStart: true,
  requires: [INotebookTracker],
  activate: (_app: JupyterFrontEnd, notebooks: INotebookTracker): void => {
    const add = (panel: INotebookTracker['currentWidget']): void => {
      const renderers = panel?.content.rendermime;
      const hasKernel = (): boolean =>
        panel?.sessionContext.session?.kernel?.connectionStatus === 'connected';
      renderers?.addFactory(rendererFactory(renderers, hasKernel), RANK);
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
    const breakNavigator = new BreakNavigator(reports, commands, activate);
    const panel = new GraphBreakPanel({
      reports,
      breakNavigator,
      commands,
      trans
    });
    shell.add(panel, 'right', { rank: PANEL_RANK, type: 'Graph Breaks' });
    restorer?.add(panel, panel.id);
    addPanelCommands({
      commands,
      reports,
      breakNavigator,
      panel,
      show: () => activate(panel.id),
      contextNode: test => app.contextMenuHitTest(test),
      trans
    });
    for (const command of Object.values(PanelCommandIDs)) {
      palette?.addItem({ command, category: trans.__('Graph Breaks') });
    }
    const autoOpen = new AutoOpen(reports, NotebookActions.executed, () => {
      if (!panel.isVisible) {
        panel.openQuietly(() => activate(panel.id));
      }
    });
    if (settings !== null) {
      void followSortSetting(settings, PLUGIN, panel.model);
      void followOpenSetting(settings, PLUGIN, isOn => {
        autoOpen.isOn = isOn;
      });
    }
  }
};

const explain: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-graphbreak:explain',
  description:
    'Runs cells under compile_explain without changing their source, and applies remedies.',
  autoStart: true,
  requires: [INotebookTracker, INotebookReports],
  optional: [ITranslator, ISessionContextDialogs, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    notebooks: INotebookTracker,
    reports: NotebookReports,
    translator: ITranslator | null,
    dialogs: ISessionContextDialogs | null,
    palette: ICommandPalette | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const explainer = new Explainer({
      dialogs,
      translator: translator ?? nullTranslator,
      trans,
      warn
    });
    addExplainCommands(
      app.commands,
      notebooks,
      reports,
      explainer,
      warn,
      trans
    );
    const applier = new RemedyApplier({
      reports,
      trans,
      confirm: changes => confirmChanges(changes, trans),
      explainAndTry: panel => explainer.explainCell(panel, TRY_REMEDIES),
      explain: panel => explainer.explainCell(panel),
      run: async ({ content, sessionContext }) => {
        await NotebookActions.run(content, sessionContext);
      }
    });
    addUndoCommand(app.commands, applier, warn, trans);
    for (const command of Object.values(ExplainCommandIDs)) {
      palette?.addItem({ command, category: trans.__('Graph Breaks') });
    }
  }
};

const marks: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-graphbreak:marks',
  description: 'Marks graphs and graph breaks in the cells themselves.',
  autoStart: true,
  requires: [INotebookTracker, INotebookReports, IEditorExtensionRegistry],
  optional: [ITranslator, ISettingRegistry, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    notebooks: INotebookTracker,
    reports: NotebookReports,
    editors: IEditorExtensionRegistry,
    translator: ITranslator | null,
    settings: ISettingRegistry | null,
    palette: ICommandPalette | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const marks = new CellMarks(reports, markOptions(reports, trans));
    editors.addExtension({
      name: 'jupyter-graphbreak:marks',
      factory: ({ model }) => {
        const extension = marks.extensionFor(model);
        return (
          extension &&
          EditorExtensionRegistry.createImmutableExtension(extension)
        );
      }
    });
    const follow = ({ content }: NotebookPanel): void => {
      const start = (): void => {
        if (content.model !== null) {
          marks.follow(content.model);
        }
      };
      content.modelChanged.connect(start);
      start();
    };
    notebooks.forEach(follow);
    notebooks.widgetAdded.connect((_, panel) => follow(panel));
    new PreviousReports(NotebookActions);
    const links = new ReportLinks(reports, NotebookActions);
    const showColumns = (): void => {
      links.isColumn = marks.isOn;
    };
    marks.toggled.connect(showColumns);
    showColumns();
    addMarksCommand(app.commands, marks, trans);
    palette?.addItem({
      command: EditorCommandIDs.toggleMarks,
      category: trans.__('Graph Breaks')
    });
    if (settings !== null) {
      void followMarksSetting(settings, PLUGIN, marks);
    }
  }
};

const source: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-graphbreak:source',
  description:
    'Opens the copies of sources that a report contains, for sources outside cells.',
  autoStart: true,
  requires: [INotebookReports, IEditorServices],
  optional: [ITranslator, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    reports: NotebookReports,
    editors: IEditorServices,
    translator: ITranslator | null,
    labShell: ILabShell | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const sources = new Sources({
      ...markOptions(reports, trans),
      reports,
      editors: editors.factoryService,
      // If the notebook is the whole page, only the area below has space.
      add: widget => app.shell.add(widget, labShell === null ? 'down' : 'main'),
      activate: id => app.shell.activateById(id),
      warn
    });
    addSourceCommand(app.commands, sources, trans);
  }
};

function markOptions(
  reports: NotebookReports,
  trans: TranslationBundle
): IMarkOptions {
  return {
    trans,
    select: selection => {
      reports.selection = selection;
    },
    isFollowing: () => reports.isFollowing
  };
}

function warn(message: string): void {
  Notification.warning(message, { autoClose: false });
}

export default [output, reports, panel, explain, marks, source];
