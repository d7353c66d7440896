/** Bringing a line of a cell into view, however the notebook draws its cells. */
import { EditorView } from '@codemirror/view';
import type { Cell, ICellModel } from '@jupyterlab/cells';
import type { CodeMirrorEditor } from '@jupyterlab/codemirror';
import { NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';

import { lineNow } from './marks';
import type { Location } from './types';

/** How long to look after the line until it stays in view, in frames of the screen. */
const FRAMES = 60;
const STILL = 3;

/**
 * Scroll a notebook to a cell, or to a line of it, and put the cursor there.
 *
 * @param panel - The notebook.
 * @param model - The cell.
 * @param location - The place in it as a report has it; edits since then are followed. Without one the cell is meant.
 * @param isWanted - Whether the reader still wants to go there.
 * @param focus - Whether the keyboard goes there too.
 */
export async function reveal(
  panel: NotebookPanel,
  model: ICellModel,
  location: Location | null,
  isWanted: () => boolean,
  focus: boolean
): Promise<void> {
  const notebook = panel.content;
  const index = notebook.widgets.findIndex(cell => cell.model === model);
  const cell = notebook.widgets[index];
  if (cell === undefined) {
    return;
  }
  if (cell.isHidden) {
    // It is in a section that is folded.
    NotebookActions.expandParent(cell, notebook);
  }
  notebook.deselectAll();
  notebook.activeCellIndex = index;
  if (location !== null) {
    cell.inputHidden = false;
  }
  // Given up when something else is scrolled to meanwhile; what is wanted then is asked below.
  await notebook.scrollToItem(index, 'smart').catch(() => undefined);
  await cell.ready;
  if (!isWanted() || cell.isDisposed) {
    return;
  }
  if (focus) {
    // Its editor, where a line is meant.
    notebook.mode = location === null ? 'command' : 'edit';
    notebook.activate();
  }
  const view = viewOf(cell);
  if (location !== null && view !== null) {
    const anchor = positionOf(view, location);
    view.dispatch({ selection: { anchor } });
    await keepInView(
      view,
      anchor,
      notebook.outerNode,
      () => isWanted() && !cell.isDisposed
    );
  }
}

/** CodeMirror's view of a cell's editor, once it has one. */
export function viewOf(cell: Cell): EditorView | null {
  return (cell.editor as CodeMirrorEditor | null)?.editor ?? null;
}

/** Where a place of a report is now; without a column, where the line's text starts. */
function positionOf({ state }: EditorView, { line, column }: Location): number {
  const { from, to, text } = state.doc.line(lineNow(state, line));
  // Python counts characters, an editor UTF-16 units.
  const units =
    column === null
      ? text.length - text.trimStart().length
      : Array.from(text).slice(0, column).join('').length;
  return Math.min(from + units, to);
}

/** Scroll until a place stays in view: cells above may be drawn for the first time, and turn out higher than thought. */
async function keepInView(
  view: EditorView,
  position: number,
  outer: HTMLElement,
  isWanted: () => boolean
): Promise<void> {
  let still = 0;
  for (let frame = 0; frame < FRAMES && still < STILL; frame += 1) {
    await new Promise(resolve => requestAnimationFrame(resolve));
    if (!isWanted()) {
      return;
    }
    if (isInView(view, position, outer)) {
      still += 1;
    } else {
      still = 0;
      // Cell editors do not scroll themselves, but CodeMirror scrolls what is around them.
      const effects = EditorView.scrollIntoView(position, { y: 'center' });
      view.dispatch({ effects });
    }
  }
}

function isInView(
  view: EditorView,
  position: number,
  outer: HTMLElement
): boolean {
  const { top, height } = view.lineBlockAt(position);
  const box = outer.getBoundingClientRect();
  const start = view.documentTop + top;
  return (
    view.dom.isConnected && box.top <= start && start + height <= box.bottom
  );
}
