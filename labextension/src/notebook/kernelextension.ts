/** Loads the Python package into kernels, so that they answer requests to explain cells. */
import type { Kernel } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';

/** The result of loading: null on success, a description of the problem, or '' if loading was interrupted. */
export type LoadResult = string | null;

/** Loads the package into a kernel once, and again after a restart or a failure. */
export class KernelExtension {
  /** @param trans - The language of the reader. */
  constructor(trans: TranslationBundle) {
    this._trans = trans;
  }

  load(kernel: Kernel.IKernelConnection): Promise<LoadResult> {
    let result = this._results.get(kernel);
    if (result === undefined) {
      result = load(kernel, this._trans).catch(() => '');
      this._results.set(kernel, result);
      const forget = (): void => {
        kernel.statusChanged.disconnect(onStatus);
        this._results.delete(kernel);
      };
      const onStatus = (_: unknown, status: Kernel.Status): void => {
        if (status.endsWith('restarting')) {
          forget();
        }
      };
      kernel.statusChanged.connect(onStatus);
      void result.then(problem => problem !== null && forget());
    }
    return result;
  }

  private readonly _trans: TranslationBundle;
  private readonly _results = new WeakMap<
    Kernel.IKernelConnection,
    Promise<LoadResult>
  >();
}

/** This code defines no name in the kernel, and calls only stable functions. */
const LOAD = '__import__("jupyter_graphbreak").answer_requests(get_ipython())';

async function load(
  kernel: Kernel.IKernelConnection,
  trans: TranslationBundle
): Promise<LoadResult> {
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
