/** The behaviour of an editor with marks: gutter, tooltips, announcements, and selection by the cursor. */
import { EditorState, type Extension, Transaction } from '@codemirror/state';
import { EditorView, gutter, hoverTooltip, tooltips } from '@codemirror/view';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { ISelection } from '../notebook/runs';
import { totalOf } from '../report/lookup';
import {
  breakHeading,
  breakHint,
  hintTooltip,
  type IHint,
  noteHints
} from './descriptions';
import { isReveal, markAt, markField } from './markstate';
import { notePlacement } from './noteplacement';
import { containsSelection } from './positions';

/** The maximum number of breaks to announce when the cursor reaches their line. */
const MAX_ANNOUNCED = 5;

/** The dependencies of the marks of an editor. */
export interface IMarkOptions {
  readonly trans: TranslationBundle;
  /** Called with the part at the cursor. */
  select(selection: ISelection): void;
  /** Whether the pointer selects as well. */
  isFollowing(): boolean;
}

/** The extension of an editor that has marks. */
export function interaction({
  trans,
  select,
  isFollowing
}: IMarkOptions): Extension {
  let pointer = '';
  return [
    EditorView.editorAttributes.of({ class: 'jp-GraphBreakMarks gb-colours' }),
    EditorView.contentAttributes.compute([markField], state => ({
      'aria-description': state.field(markField).description
    })),
    gutter({
      class: 'jp-GraphBreakMark-gutter',
      markers: view => view.state.field(markField).gutter,
      domEventHandlers: {
        click: (view, { from }) => {
          const mark = markAt(view.state, from);
          const [first] = mark?.line.breaks ?? [];
          view.focus();
          view.dispatch({ selection: { anchor: from + (first?.start ?? 0) } });
          return mark !== undefined;
        }
      }
    }),
    notePlacement,
    // Screen readers do not read the gutter.
    EditorState.transactionExtender.of(transaction => {
      const announcement = announcementFor(transaction);
      return announcement === ''
        ? null
        : { effects: EditorView.announce.of(announcement) };
    }),
    EditorView.updateListener.of(update => {
      const { state, transactions } = update;
      const isRevealed = transactions.some(it => it.annotation(isReveal));
      if (update.selectionSet && update.view.hasFocus && !isRevealed) {
        const isByReader = transactions.some(
          transaction =>
            transaction.annotation(Transaction.userEvent) !== undefined
        );
        const selection = selectionAt(
          state,
          state.selection.main.head,
          isByReader ? null : state.field(markField).selection
        );
        if (selection !== null) {
          select(selection);
        }
      }
    }),
    EditorView.domEventHandlers({
      mousedown: (event, view) => {
        const part = (event.target as Element).closest<HTMLElement>('.jp-GraphBreakMark-note > [data-id]'); // prettier-ignore
        const mark = part && markAt(view.state, view.posAtDOM(part));
        if (!part || !mark || event.button !== 0) {
          return false;
        }
        const { kind = '', id = '' } = part.dataset;
        const clickedBreak = mark.line.breaks.find(({ break: { id: breakId } }) => breakId === id); // prettier-ignore
        event.preventDefault();
        view.focus();
        const anchor = Math.min(
          mark.from + (clickedBreak?.start ?? 0),
          mark.to
        );
        view.dispatch({ selection: { anchor } });
        select({ ...mark.origin.run, kind, id });
        return true;
      },
      mousemove: ({ clientX: x, clientY: y, screenX, screenY }, view) => {
        // Scrolling below a resting pointer sends events as well.
        const before = pointer;
        pointer = `${screenX} ${screenY}`;
        const isMove = pointer !== before;
        const position =
          isMove && isFollowing() ? view.posAtCoords({ x, y }) : null;
        const selection =
          position === null ? null : selectionAt(view.state, position);
        if (selection !== null) {
          select(selection);
        }
      }
    }),
    // A cell clips its contents, and a wide tooltip would cover what is beside the notebook.
    tooltips({ parent: document.body, tooltipSpace: areaAround }),
    hoverTooltip((view, position) => {
      const { hints, total } = hintsAt(view.state, position, trans);
      const [first] = hints;
      return first === undefined
        ? null
        : {
            pos: first.from,
            end: first.to,
            above: true,
            create: () => {
              const { left, right } = areaAround(view);
              return { dom: hintTooltip(hints, total, right - left) };
            }
          };
    })
  ];
}

/** The visible area of the notebook or document around an editor. */
function areaAround({ dom }: EditorView): DOMRect {
  const area = dom.closest('.jp-WindowedPanel-outer, .jp-MainAreaWidget');
  return (area ?? dom).getBoundingClientRect();
}

/**
 * The nearest part at a position; of nested breaks, as in `print(x.item())`, the innermost one.
 *
 * @param state - The state of the editor.
 * @param position - A position in its text.
 * @param current - The current selection; a break stays selected if its expression contains the position.
 */
export function selectionAt(
  state: EditorState,
  position: number,
  current: ISelection | null = null
): ISelection | null {
  const mark = markAt(state, position);
  if (mark === undefined) {
    return null;
  }
  const { line, origin, from } = mark;
  const column = position - from;
  const enclosingBreaks = line.breaks
    .filter(({ start, end }) => start <= column && column <= end)
    .sort((one, other) => one.end - one.start - (other.end - other.start));
  const isCurrent =
    current?.kind === 'break' && containsSelection(origin.run, current);
  const nearest =
    enclosingBreaks.find(it => isCurrent && it.break.id === current.id) ??
    enclosingBreaks[0] ??
    line.breaks[0] ??
    line.breaksReachedByCalls[0];
  if (nearest !== undefined) {
    return { ...origin.run, kind: 'break', id: nearest.break.id };
  }
  const [first] = line.graphs;
  if (first !== undefined) {
    return { ...origin.run, kind: 'graph', id: first.graph.id };
  }
  if (line.eager !== null) {
    return { ...origin.run, kind: 'skipped', id: line.eager.id };
  }
  const [note] = line.notes;
  return note === undefined
    ? null
    : { ...origin.run, kind: note.section, id: note.row.id };
}

/** The announcement when the cursor reaches a line with breaks; otherwise empty. */
function announcementFor(transaction: Transaction): string {
  const { docChanged, startState, selection, newSelection, newDoc } =
    transaction;
  if (docChanged || selection === undefined) {
    return '';
  }
  const line = newDoc.lineAt(newSelection.main.head);
  const previous = startState.doc.lineAt(startState.selection.main.head);
  if (line.from === previous.from) {
    return '';
  }
  const mark = markAt(startState, line.from);
  return mark === undefined
    ? ''
    : mark.line.breaks
        .slice(0, MAX_ANNOUNCED)
        .map(graphBreak => breakHeading(mark, graphBreak))
        .join('. ');
}

/** The parts of a tooltip, and their total number, including those beyond the limits of the line. */
interface IHints {
  readonly hints: readonly IHint[];
  readonly total: number;
}

/**
 * The parts of the tooltip at a position: its breaks, the innermost first, or all breaks of a stale line.
 *
 * At the end of a line, where its note is, this is everything about the line if no break contains the position.
 */
export function hintsAt(
  state: EditorState,
  position: number,
  trans: TranslationBundle
): IHints {
  const mark = markAt(state, position);
  if (mark === undefined) {
    return { hints: [], total: 0 };
  }
  const { breaks, breaksReachedByCalls, notes } = mark.line;
  const breakHints = breaks.map(it => breakHint(mark, it, trans));
  const hintsAtPosition = breakHints
    .filter(({ from, to }) => from <= position && position <= to)
    .sort((one, other) => one.to - one.from - (other.to - other.from));
  const isNote = hintsAtPosition.length === 0 && position === mark.to;
  const hints = isNote
    ? [...breakHints, ...noteHints(mark, trans)]
    : hintsAtPosition;
  const hidden = [breaks, ...(isNote ? [breaksReachedByCalls, notes] : [])].map(
    parts => totalOf(parts) - parts.length
  );
  return { hints, total: hidden.reduce((sum, it) => sum + it, hints.length) };
}
