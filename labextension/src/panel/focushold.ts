/** Keeps the focus where the reader has just moved it while a notebook is being opened. */
import type { NotebookPanel } from '@jupyterlab/notebook';

/** The time after a notebook is ready within which it may still take the focus, in milliseconds. */
const LATE_MS = 1000;

/**
 * Take the focus back from a notebook that is being opened, until the reader does something.
 *
 * A notebook focuses its active cell when that cell is ready. This can be long after the reader has opened the notebook
 * and then moved the focus elsewhere.
 *
 * @param currentNotebook - Returns the current notebook.
 * @param takeBack - Called when a notebook got the focus.
 */
export function holdFocus(
  currentNotebook: () => NotebookPanel | null,
  takeBack: () => void
): void {
  const controller = new AbortController();
  const { signal } = controller;
  for (const action of ['keydown', 'pointerdown']) {
    document.addEventListener(action, () => controller.abort(), {
      signal,
      capture: true
    });
  }
  document.addEventListener(
    'focusin',
    ({ target }) => {
      if ((target as Element).closest('.jp-NotebookPanel') !== null) {
        takeBack();
      }
    },
    { signal }
  );
  const stopWhenSettled = async (): Promise<void> => {
    const notebook = currentNotebook();
    await notebook?.revealed.catch(() => undefined);
    await notebook?.content.activeCell?.ready;
    await new Promise(resolve => setTimeout(resolve, LATE_MS));
    if (currentNotebook() === notebook) {
      controller.abort();
    } else {
      await stopWhenSettled();
    }
  };
  void stopWhenSettled();
}
