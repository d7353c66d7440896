/**
 * Running cells under the magic while their source stays as it is.
 *
 * The cells run as JupyterLab runs them; only the metadata of each request asks the kernel to explain the cell, and the
 * kernel's side of this is in `cell.py`.
 */
import type {
  ISessionContext,
  ISessionContextDialogs
} from '@jupyterlab/apputils';
import { type CodeCell, isCodeCellModel } from '@jupyterlab/cells';
import { NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import type { ITranslator, TranslationBundle } from '@jupyterlab/translation';

/** What is asked of the kernel: `Asked` in `cell.py`. */
interface IAsked {
  explain: string;
  skip_definitions: boolean;
}

export interface IExplainOptions {
  /** Lets the reader choose a kernel where there is none. */
  dialogs: ISessionContextDialogs | null;
  translator: ITranslator;
  trans: TranslationBundle;
  /** Tells the reader why nothing could be explained. */
  warn(message: string): void;
}

export class Explainer {
  constructor(options: IExplainOptions) {
    this._options = options;
  }

  /** Explain the active cell of a notebook. */
  async explainCell(panel: NotebookPanel): Promise<void> {
    const { activeCell } = panel.content;
    if (activeCell === null || !isCodeCellModel(activeCell.model)) {
      return;
    }
    const context = await this._prepare(panel, [activeCell as CodeCell], false);
    if (context !== null && !activeCell.isDisposed) {
      const { dialogs, translator } = this._options;
      await NotebookActions.runCells(
        panel.content,
        [activeCell],
        context,
        dialogs ?? undefined,
        translator
      );
    }
  }

  /** Explain all cells of a notebook, up to the first that fails. */
  async explainAll(panel: NotebookPanel): Promise<void> {
    const cells = panel.content.widgets.filter(
      ({ model }) =>
        isCodeCellModel(model) && model.sharedModel.getSource().trim() !== ''
    );
    const context = await this._prepare(panel, cells as CodeCell[], true);
    if (context !== null && !panel.isDisposed) {
      const { dialogs, translator } = this._options;
      await NotebookActions.runAll(
        panel.content,
        context,
        dialogs ?? undefined,
        translator
      );
    }
  }

  /** Get the kernel ready to explain; null where that cannot be, which the reader is told. */
  private async _prepare(
    panel: NotebookPanel,
    cells: readonly CodeCell[],
    isAll: boolean
  ): Promise<ISessionContext | null> {
    const { sessionContext } = panel;
    const { dialogs, trans, warn } = this._options;
    if (sessionContext.hasNoKernel) {
      const mustChoose = await sessionContext.startKernel();
      if (mustChoose && dialogs !== null) {
        await dialogs.selectKernel(sessionContext);
      }
    }
    const kernel = sessionContext.session?.kernel;
    if (!kernel) {
      warn(trans.__('This notebook has no kernel that could explain a cell.'));
      return null;
    }
    // The kernel may be busy; the cell waits for it.
    const waiting = cells.map(
      cell => [cell, cell.model.executionCount] as const
    );
    cells.forEach(cell => cell.setPrompt('*'));
    const problem = await this._load(kernel);
    if (problem === null) {
      return asking(sessionContext, {
        explain: '',
        skip_definitions: isAll
      });
    }
    for (const [cell, count] of waiting) {
      if (!cell.isDisposed) {
        cell.setPrompt(count === null ? '' : String(count));
      }
    }
    if (problem !== '') {
      warn(problem);
    }
    return null;
  }

  /** Load the extension into a kernel once; what went wrong in words, '' where the reader ended it. */
  private _load(kernel: Kernel.IKernelConnection): Promise<string | null> {
    let loading = this._loading.get(kernel);
    if (loading === undefined) {
      loading = load(kernel, this._options.trans).catch(() => '');
      this._loading.set(kernel, loading);
      const forget = (): void => {
        kernel.statusChanged.disconnect(onStatus);
        this._loading.delete(kernel);
      };
      const onStatus = (_: unknown, status: Kernel.Status): void => {
        if (status.endsWith('restarting')) {
          forget();
        }
      };
      kernel.statusChanged.connect(onStatus);
      void loading.then(problem => problem !== null && forget());
    }
    return loading;
  }

  private readonly _options: IExplainOptions;
  private readonly _loading = new WeakMap<
    Kernel.IKernelConnection,
    Promise<string | null>
  >();
}

/** Leaves no name behind and asks for nothing that a later version could not do. */
const LOAD =
  '__import__("jupyter_graphbreak").answer_requests(get_ipython())';

async function load(
  kernel: Kernel.IKernelConnection,
  trans: TranslationBundle
): Promise<string | null> {
  const { language_info: language } = await kernel.info;
  if (language.name !== 'python') {
    return trans.__(
      'compile_explain explains Python, and this kernel runs %1.',
      language.name
    );
  }
  const { content } = await kernel.requestExecute({
    code: LOAD,
    silent: true,
    store_history: false,
    stop_on_error: false
  }).done;
  if (content.status === 'ok') {
    return null;
  }
  if (content.status !== 'error') {
    return '';
  }
  const { ename, evalue } = content;
  switch (evalue.includes('jupyter_graphbreak') ? ename : '') {
    case 'ModuleNotFoundError':
      return trans.__(
        'The kernel "%1" does not have jupyter-graphbreak: run pip install jupyter-graphbreak in its environment.',
        kernel.name
      );
    case 'AttributeError':
      return trans.__(
        'The kernel "%1" has an older jupyter-graphbreak: run pip install --upgrade jupyter-graphbreak in its environment.',
        kernel.name
      );
    default:
      return trans.__(
        'The kernel "%1" cannot explain cells: %2',
        kernel.name,
        `${ename}: ${evalue}`
      );
  }
}

/** The same session, but every request to run a cell asks for something. */
function asking(context: ISessionContext, asked: IAsked): ISessionContext {
  return withOther(
    context,
    'session',
    session =>
      session &&
      withOther(
        session,
        'kernel',
        kernel =>
          kernel &&
          withOther(
            kernel,
            'requestExecute',
            requestExecute => (content, dispose, metadata) =>
              requestExecute.call(kernel, content, dispose, {
                ...metadata,
                graphbreak: { ...asked }
              })
          )
      )
  );
}

/** An object as it is, with one property made into another. */
function withOther<T extends object, K extends keyof T>(
  target: T,
  name: K,
  other: (value: T[K]) => T[K]
): T {
  return new Proxy(target, {
    get: (_, key) => {
      // Not of the proxy: what the object does with itself is none of our business.
      const value: unknown = Reflect.get(target, key, target);
      if (key === name) {
        return other(value as T[K]);
      }
      return typeof value === 'function' ? value.bind(target) : value;
    }
  });
}
