/** Brings a line of a cell into view, however the notebook renders its cells. */
import { EditorView } from '@codemirror/view';
import type { Cell, ICellModel } from '@jupyterlab/cells';
import type { CodeMirrorEditor } from '@jupyterlab/codemirror';
import { NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';

import { startColumn } from '../report/columns';
import type { Spot } from '../report/types';
import { currentLine, isReveal } from './markstate';

/** The maximum number of animation frames to wait. */
const MAX_FRAMES = 60;

/** The number of consecutive frames for which a position must be in view. */
const STABLE_FRAMES = 3;

/**
 * Scroll a notebook to a cell, or to a line of it, and put the cursor there.
 *
 * @param panel - The notebook.
 * @param model - The cell.
 * @param spot - The line in the report, and its column; null for the cell as a whole.
 * @param isWanted - Whether the reader still wants to go there.
 * @param focus - Whether the line or the cell gets the keyboard focus.
 */
export async function reveal(
  panel: NotebookPanel,
  model: ICellModel,
  spot: Spot | null,
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
    // The cell is in a folded section.
    NotebookActions.expandParent(cell, notebook);
  }
  notebook.deselectAll();
  notebook.activeCellIndex = index;
  if (spot !== null) {
    cell.inputHidden = false;
  }
  // This fails if something else is scrolled to meanwhile; `isWanted` is checked below.
  await notebook.scrollToItem(index, 'smart').catch(() => undefined);
  await cell.ready;
  if (!isWanted() || cell.isDisposed) {
    return;
  }
  if (focus) {
    // With a line, the editor gets the focus.
    notebook.mode = spot === null ? 'command' : 'edit';
    notebook.activate();
  }
  const view = viewOf(cell);
  if (spot !== null && view !== null) {
    const anchor = positionOf(view, spot);
    view.dispatch({ selection: { anchor }, annotations: isReveal.of(true) });
    await keepInView(
      view,
      anchor,
      notebook.outerNode,
      () => isWanted() && !cell.isDisposed
    );
  }
}

/** The CodeMirror view of a cell's editor, if it exists. */
export function viewOf(cell: Cell): EditorView | null {
  return (cell.editor as CodeMirrorEditor | null)?.editor ?? null;
}

/** The current position of a line and column of a report; without a column, the start of the line's text. */
function positionOf({ state }: EditorView, { line, column }: Spot): number {
  const { from, to, text } = state.doc.line(currentLine(state, line));
  return Math.min(from + startColumn(text, column), to);
}

/** Scroll until a position stays in view: cells above it may be rendered late, and higher than estimated. */
async function keepInView(
  view: EditorView,
  position: number,
  outer: HTMLElement,
  isWanted: () => boolean
): Promise<void> {
  let stable = 0;
  for (
    let frame = 0;
    frame < MAX_FRAMES && stable < STABLE_FRAMES;
    frame += 1
  ) {
    await new Promise(resolve => requestAnimationFrame(resolve));
    if (!isWanted()) {
      return;
    }
    if (isInView(view, position, outer)) {
      stable += 1;
    } else {
      stable = 0;
      // Cell editors do not scroll, but CodeMirror scrolls their containers.
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
