/**
 * The renderer of our MIME type in JupyterLab.
 *
 * JupyterLab shows one representation of an output, the one with the lowest rank, and never falls back: a saved widget
 * whose kernel is gone would read "Error displaying widget" with good HTML beside it. So our own type ranks first, and
 * its renderer chooses: the widget while its model lives, otherwise the HTML, which the output carries for this.
 */
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Panel, type Widget } from '@lumino/widgets';

import { JOB_TYPE, MIME_TYPE } from '../report/mimetype';
import { onReportEvent, type IReportData, isolateReports } from '../view/link';
import { keepKeys } from '../view/roving';
import { addBehaviour } from '../view/view';
import { dataOf, dataOfProcess, NO_DATA } from './outputdata';

export const WIDGET_VIEW = 'application/vnd.jupyter.widget-view+json';

/** Lower than the rank of ipywidgets' factory, -10, because the lowest rank wins. */
export const RANK = -20;

/** The part of a notebook's registry that the renderer needs. */
export interface IRenderers {
  createRenderer(mimeType: string): IRenderMime.IRenderer;
  readonly mimeTypes: readonly string[];
}

/**
 * Make the factory for the outputs of one notebook.
 *
 * @param renderers - The registry of the notebook.
 * @param hasKernel - Whether the notebook is connected to a kernel now.
 */
export function rendererFactory(
  renderers: IRenderers,
  hasKernel: () => boolean
): IRenderMime.IRendererFactory {
  return {
    // The widget is shown only in trusted outputs; otherwise JupyterLab's sanitiser processes the HTML.
    safe: true,
    mimeTypes: [MIME_TYPE, JOB_TYPE],
    defaultRank: RANK,
    createRenderer: () => new ReportOutput(renderers, hasKernel)
  };
}

/** The time that the widget of a kernel may take to appear before the HTML is shown instead, in milliseconds. */
const PATIENCE_MS = 500;

/** An output with a report, or with those of several processes. */
export class ReportOutput extends Panel implements IRenderMime.IRenderer {
  /**
   * @param renderers - The registry of the notebook with the output.
   * @param hasKernel - Whether the notebook is connected to a kernel now.
   */
  constructor(renderers: IRenderers, hasKernel: () => boolean) {
    super();
    this.addClass('jp-GraphBreakOutput');
    this._renderers = renderers;
    this._hasKernel = hasKernel;
    // A live view needs no kernel for data in the output.
    onReportEvent(this.node, 'graphbreak-ready', ready => {
      ready.data = this._data;
    });
    // An untrusted report has no behaviour, but it can still get the focus.
    keepKeys(this.node);
  }

  override dispose(): void {
    this._clear();
    super.dispose();
  }

  /** Show the live widget if it exists, otherwise the HTML. */
  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._clear();
    const output = outputOf(model);
    const { data } = output;
    this._data = JOB_TYPE in data ? dataOfProcess(data, 0) : dataOf(data);
    const hasWidget =
      model.trusted &&
      data[WIDGET_VIEW] !== undefined &&
      this._renderers.mimeTypes.includes(WIDGET_VIEW);
    if (!hasWidget) {
      await this._showStatic(output);
      return;
    }
    const live = this._renderers.createRenderer(WIDGET_VIEW);
    live.hide();
    this.addWidget(live);
    // Do not wait for it, because it may wait for a kernel forever.
    void live.renderModel(modelOf(WIDGET_VIEW, data[WIDGET_VIEW]!, output));
    const initialText = live.node.textContent;
    const choose = (): void => {
      if (this._live !== live) {
        return;
      }
      // ipywidgets adds the view as a child. Until then it shows a message, and a different one if it has no model. Both can
      // change later: when the widgets of a notebook are restored, or when one is closed.
      const isAlive = live.node.childElementCount > 0;
      live.setHidden(!isAlive);
      if (isAlive) {
        this._hideStatic();
      } else if (
        this._static === null &&
        (this._isLate || live.node.textContent !== initialText)
      ) {
        void this._showStatic(output);
      }
    };
    this._live = live;
    this._watch = new MutationObserver(choose);
    this._watch.observe(live.node, { childList: true });
    const stopWaiting = (): void => {
      this._isLate = true;
      choose();
    };
    this._isLate = false;
    if (this._hasKernel()) {
      this._timer = setTimeout(stopWaiting, PATIENCE_MS);
    } else {
      // A notebook that is being opened shows the saved HTML, and the widget as soon as a kernel has restored it.
      stopWaiting();
    }
  }

  private async _showStatic(output: IOutput): Promise<void> {
    const { data, trusted } = output;
    const type = data['text/html'] === undefined ? 'text/plain' : 'text/html';
    const fallback = this._renderers.createRenderer(type);
    this._static = fallback;
    this.addWidget(fallback);
    await fallback.renderModel(modelOf(type, data[type] ?? '', output));
    // An untrusted output lacks the attributes that behaviour needs, so it stays static.
    if (this._static !== fallback || !trusted) {
      return;
    }
    const roots = fallback.node.querySelectorAll<HTMLElement>(
      '.graphbreak[data-prefix]'
    );
    const detach = Array.from(roots, (root, index) => {
      // The kernel's own report comes first. Reports of other processes are not connected to the notebook.
      const isOwn = index === 0 && MIME_TYPE in data;
      if (!isOwn) {
        isolateReports(root.parentElement!);
      }
      try {
        return addBehaviour(
          root,
          isOwn ? this._data : dataOfProcess(data, index)
        );
      } catch {
        // Leave markup outside reports unchanged.
        return () => undefined;
      }
    });
    this._detach = () => detach.forEach(release => release());
  }

  private _hideStatic(): void {
    this._detach();
    this._detach = () => undefined;
    this._static?.dispose();
    this._static = null;
  }

  private _clear(): void {
    clearTimeout(this._timer);
    this._watch?.disconnect();
    this._live?.dispose();
    this._live = null;
    this._hideStatic();
  }

  private readonly _renderers: IRenderers;
  private readonly _hasKernel: () => boolean;
  private _data: IReportData = NO_DATA;
  private _live: Widget | null = null;
  private _static: Widget | null = null;
  private _watch: MutationObserver | null = null;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _isLate = false;
  private _detach: () => void = () => undefined;
}

/** The data of an output by MIME type. */
type IOutput = Pick<IRenderMime.IMimeModel, 'data' | 'metadata' | 'trusted'>;

/** An output model with a JSON form that shares its data. */
interface IOutputModel extends IRenderMime.IMimeModel {
  toJSON?(): { data?: IOutput['data'] };
}

/** The data of an output model; its `data` property would create a copy on each access. */
function outputOf(model: IOutputModel): IOutput {
  const { metadata, trusted } = model;
  return { data: model.toJSON?.().data ?? model.data, metadata, trusted };
}

/** A model of one representation of an output, whose data can be read repeatedly without a copy. */
function modelOf(
  type: string,
  value: IOutput['data'][string],
  { metadata, trusted }: IOutput
): IRenderMime.IMimeModel {
  return {
    data: { [type]: value! },
    metadata,
    trusted,
    setData: () => undefined
  };
}
