/**
 * The marks of an editor, as a field of its state.
 *
 * The marks move with the text during edits. A mark is stale while the text of its line differs from the report, and
 * after the cell has run again without being explained.
 */
import {
  Annotation,
  type EditorState,
  RangeSet,
  StateEffect,
  StateField,
  type Transaction
} from '@codemirror/state';
import { Decoration, EditorView } from '@codemirror/view';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { ISelection } from '../notebook/runs';
import type { IReportLine } from '../report/lines';
import { appearanceOf, type IAppearance, isOnMark } from './decorations';
import { editorDescription } from './descriptions';
import {
  type IMark,
  type IReportedText,
  containsSelection,
  isReplacement,
  moveMarks,
  placeMarks
} from './positions';

/** The current marks of an editor. */
export interface IMarkState extends IAppearance {
  /** The editor's text in each report about it, the latest last. */
  readonly reported: readonly IReportedText[];
  readonly selection: ISelection | null;
  /** The language of the reader. */
  readonly trans: TranslationBundle | null;
  readonly marks: readonly IMark[];
  /** The lines with their notes below them, because there is no room beside them. */
  readonly notesBelow: ReadonlySet<IReportLine>;
  /** Whether lines with marks were deleted, which undo may restore. */
  readonly hasLostLines: boolean;
  /** The description for screen readers. */
  readonly description: string;
}

/** The state of an editor without marks. */
export const NO_MARKS: IMarkState = {
  reported: [],
  selection: null,
  trans: null,
  marks: [],
  notesBelow: new Set(),
  hasLostLines: false,
  decorations: Decoration.none,
  gutter: RangeSet.empty,
  description: ''
};

/** Marks a move of the cursor to the target of a link or a row; such a move changes no selection. */
export const isReveal = Annotation.define<boolean>();

/** Replaces the marks of an editor. */
export const setMarkState = StateEffect.define<IMarkState>();

/** Replaces the set of lines that have no room for a note beside them. */
export const setNotesBelow = StateEffect.define<ReadonlySet<IReportLine>>();

export const markField = StateField.define<IMarkState>({
  create: () => NO_MARKS,
  update: (state, transaction) => {
    for (const effect of transaction.effects) {
      if (effect.is(setMarkState)) {
        return effect.value;
      }
      if (effect.is(setNotesBelow) && state.marks.length > 0) {
        return withMarks({ ...state, notesBelow: effect.value }, state.marks);
      }
    }
    return transaction.docChanged && state.marks.length > 0
      ? afterEdit(state, transaction)
      : state;
  },
  provide: field =>
    EditorView.decorations.from(field, ({ decorations }) => decorations)
});

/** Make the marks of reports in an editor. */
export function makeMarkState(
  reported: readonly IReportedText[],
  selection: ISelection | null,
  { doc }: EditorState,
  trans: TranslationBundle
): IMarkState {
  const marks = placeMarks(reported, selection, doc);
  return marks.length > 0
    ? withMarks({ ...NO_MARKS, reported, selection, trans }, marks)
    : NO_MARKS;
}

/** The marks with a different selection; null if neither selection is in the editor. */
export function withSelection(
  state: IMarkState,
  selection: ISelection | null,
  { doc }: EditorState
): IMarkState | null {
  const { reported } = state;
  const isInOtherRun = reported.some(
    ({ run }) =>
      containsSelection(run, selection) !==
      containsSelection(run, state.selection)
  );
  const marks =
    isInOtherRun && reported.length > 1
      ? placeMarks(reported, selection, doc)
      : state.marks;
  const isOnAnyMark = (other: ISelection | null): boolean =>
    other !== null && marks.some(mark => isOnMark(other, mark));
  return marks !== state.marks ||
    isOnAnyMark(state.selection) ||
    isOnAnyMark(selection)
    ? withMarks({ ...state, selection }, marks)
    : null;
}

/** The mark of the line at a position. */
export function markAt(
  state: EditorState,
  position: number
): IMark | undefined {
  const { from } = state.doc.lineAt(position);
  return state.field(markField).marks.find(mark => mark.from === from);
}

/** The current number of a line of a report; the same number if the line has no mark. */
export function currentLine(state: EditorState, line: number): number {
  const mark = state
    .field(markField, false)
    ?.marks.find(({ line: { number } }) => number === line);
  return mark === undefined
    ? Math.max(1, Math.min(line, state.doc.lines))
    : state.doc.lineAt(mark.from).number;
}

function afterEdit(state: IMarkState, transaction: Transaction): IMarkState {
  const { reported, hasLostLines } = state;
  const { changes, newDoc } = transaction;
  const mayRegainLines =
    hasLostLines && newDoc.lines === reported[0]!.text.length;
  if (isReplacement(changes) || mayRegainLines) {
    return withMarks(
      { ...state, hasLostLines: false },
      placeMarks(reported, state.selection, newDoc)
    );
  }
  const { marks, areUnchanged } = moveMarks(state.marks, transaction);
  return areUnchanged
    ? {
        ...state,
        marks,
        decorations: state.decorations.map(changes),
        gutter: state.gutter.map(changes)
      }
    : withMarks(
        {
          ...state,
          hasLostLines: hasLostLines || marks.length < state.marks.length
        },
        marks
      );
}

function withMarks(state: IMarkState, marks: readonly IMark[]): IMarkState {
  const trans = state.trans!;
  return {
    ...state,
    ...appearanceOf(marks, state.selection, state.notesBelow, trans),
    marks,
    description: editorDescription(marks, trans)
  };
}
