/** The JupyterLab extension: wiring only. */
import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';

import { RANK, rendererFactory } from './output';

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

export default [output];
