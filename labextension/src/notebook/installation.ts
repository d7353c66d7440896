/** Shows whether PyTorch can compile in a notebook's kernel, by running `graphbreak doctor`. */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, KernelMessage } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { makeElement } from '../view/elements';

/** Python code that runs the command in a separate process, so the kernel stays unchanged, and defines no name. */
const DOCTOR =
  '(lambda done: print(done.stdout or done.stderr, end=""))(__import__("subprocess").run(' +
  '[__import__("sys").executable, "-m", "jupyter_graphbreak", "doctor"], capture_output=True, text=True))';

/** Ask the kernel of a notebook, and show the answer in a dialog. */
export async function showInstallation(
  panel: NotebookPanel,
  trans: TranslationBundle,
  warn: (message: string) => void
): Promise<void> {
  await panel.sessionContext.ready;
  const kernel = panel.sessionContext.session?.kernel;
  if (!kernel) {
    warn(
      trans.__('This notebook has no kernel, so there is nothing to check.')
    );
    return;
  }
  const text = makeElement('pre');
  text.setAttribute('role', 'status');
  text.tabIndex = 0;
  text.textContent = trans.__(
    'Compiling a small function on each device. The first time, this takes about ten seconds.'
  );
  const body = makeElement('div', 'jp-GraphBreakInstallation');
  body.append(text);
  void runDoctor(kernel).then(output => {
    text.textContent =
      output || trans.__('The kernel "%1" gave no answer.', kernel.name);
  });
  await showDialog({
    title: trans.__('Can PyTorch compile here?'),
    body: new Widget({ node: body }),
    buttons: [Dialog.okButton({ label: trans.__('Close') })]
  });
}

/** Run the command in a kernel, and return its output. */
async function runDoctor(kernel: Kernel.IKernelConnection): Promise<string> {
  const future = kernel.requestExecute({
    code: DOCTOR,
    silent: true,
    store_history: false,
    stop_on_error: false
  });
  let output = '';
  future.onIOPub = message => {
    if (message.header.msg_type === 'stream') {
      output += (message.content as KernelMessage.IStreamMsg['content']).text;
    }
  };
  const { content } = await future.done;
  return content.status === 'error'
    ? `${content.ename}: ${content.evalue}`
    : output;
}
