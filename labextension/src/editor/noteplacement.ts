/** Puts the notes of marks below their lines if there is no room beside them, because they must not cover text. */
import { type EditorView, ViewPlugin } from '@codemirror/view';

import type { IReportLine } from '../report/lines';
import { markAt, markField, setNotesBelow } from './markstate';

/** The space between a line and its note, in pixels. */
const GAP = 24;

/** Measures an editor whenever it changes. */
export const notePlacement = ViewPlugin.define(view => {
  let isGone = false;
  const measure = (): void =>
    view.requestMeasure({
      key: measure,
      read: linesWithoutRoom,
      write: below => {
        // The editor cannot be changed while it is being measured.
        queueMicrotask(() => {
          if (
            !isGone &&
            !areEqual(below, view.state.field(markField).notesBelow)
          ) {
            view.dispatch({ effects: setNotesBelow.of(below) });
          }
        });
      }
    });
  measure();
  return {
    update: ({
      docChanged,
      geometryChanged,
      viewportChanged,
      startState,
      state
    }) => {
      const isChanged =
        docChanged ||
        geometryChanged ||
        viewportChanged ||
        startState.field(markField, false) !== state.field(markField, false);
      if (isChanged) {
        measure();
      }
    },
    destroy: () => (isGone = true)
  };
});

/** The lines beside which their notes do not fit. Notes out of sight cannot be measured and stay where they are. */
function linesWithoutRoom(view: EditorView): ReadonlySet<IReportLine> {
  const { contentDOM, scrollDOM, state } = view;
  const linesWithNotesBelow = new Set(state.field(markField).notesBelow);
  if (scrollDOM.clientWidth === 0) {
    return linesWithNotesBelow; // the editor is hidden
  }
  const start = contentDOM.getBoundingClientRect().left;
  const edge = scrollDOM.getBoundingClientRect().left - scrollDOM.scrollLeft;
  const room = scrollDOM.clientWidth - (start - edge);
  view.dom.style.setProperty('--gb-room', `${room}px`);
  view.dom.style.setProperty('--gb-gutters', `${start - edge}px`);
  for (const note of contentDOM.querySelectorAll<HTMLElement>(
    '.jp-GraphBreakMark-note'
  )) {
    const mark = markAt(state, view.posAtDOM(note));
    const end = mark && view.coordsAtPos(mark.to, -1)?.right;
    if (end !== undefined) {
      // Wrapped lines have room in their next row.
      const fits =
        view.lineWrapping || end - start + GAP + note.scrollWidth <= room;
      if (fits) {
        linesWithNotesBelow.delete(mark!.line);
      } else {
        linesWithNotesBelow.add(mark!.line);
      }
    }
  }
  return linesWithNotesBelow;
}

function areEqual<T>(one: ReadonlySet<T>, other: ReadonlySet<T>): boolean {
  return one.size === other.size && [...one].every(entry => other.has(entry));
}
