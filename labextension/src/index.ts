/** The JupyterLab extension: wiring only. */
import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { INotebookReports, NotebookReports } from './model';
import { RANK, rendererFactory } from './output';

/** The name of our texts for translators. */
const DOMAIN = 'jupyter_graphbreak';

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

export default [output, reports];
