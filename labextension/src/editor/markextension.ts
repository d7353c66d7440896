/** The editor extension that can show marks, and functions that change what it shows. */
import {
  Compartment,
  type Extension,
  type StateEffect
} from '@codemirror/state';
import type { EditorView } from '@codemirror/view';

import type { ISelection } from '../notebook/runs';
import { type IMarkOptions, interaction } from './interaction';
import {
  makeMarkState,
  markField,
  NO_MARKS,
  setMarkState,
  withSelection
} from './markstate';
import type { IReportedText } from './positions';

/** Empty if the editor has no marks, because `interaction` adds a gutter, which takes space. */
const interactionSlot = new Compartment();

/** The extension of an editor that may get marks. */
export function markExtension(): Extension {
  return [markField, interactionSlot.of([])];
}

/**
 * Set the marks of an editor, or remove them.
 *
 * @param view - The editor.
 * @param reported - The editor's text in each report about it, the latest last.
 * @param selection - The reader's selection.
 * @param options - Further dependencies of the marks.
 */
export function showMarks(
  view: EditorView,
  reported: readonly IReportedText[],
  selection: ISelection | null,
  options: IMarkOptions
): void {
  const before = view.state.field(markField, false);
  if (before === undefined || (before === NO_MARKS && reported.length === 0)) {
    return;
  }
  const after = makeMarkState(reported, selection, view.state, options.trans);
  const effects: StateEffect<unknown>[] = [setMarkState.of(after)];
  if ((before === NO_MARKS) !== (after === NO_MARKS)) {
    effects.push(
      interactionSlot.reconfigure(
        after === NO_MARKS ? [] : interaction(options)
      )
    );
  }
  view.dispatch({ effects });
}

/** Show the selection on the marks of an editor. */
export function showSelection(
  view: EditorView,
  selection: ISelection | null
): void {
  const before = view.state.field(markField, false);
  const after = before && withSelection(before, selection, view.state);
  if (after) {
    view.dispatch({ effects: setMarkState.of(after) });
  }
}
