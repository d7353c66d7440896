/**
 * Marks in an editor: where graphs were cut, which lines went into which, what ran eagerly, what the scopes say.
 *
 * The marks of an editor are a field of its state. They move with the text while it is edited; one whose line has
 * another text than the report is stale, and fresh again when an edit is taken back.
 */
import {
  type ChangeDesc,
  Compartment,
  EditorState,
  type Extension,
  type Range,
  RangeSet,
  StateEffect,
  StateField,
  type Text,
  type Transaction
} from '@codemirror/state';
import {
  Decoration,
  type DecorationSet,
  EditorView,
  type GutterMarker,
  gutter,
  hoverTooltip,
  tooltips
} from '@codemirror/view';
import type { TranslationBundle } from '@jupyterlab/translation';

import { align } from './lines';
import {
  classOf,
  description,
  heading,
  hint,
  type IBreakAt,
  type IMarkedText,
  type IPlaced,
  Marker,
  Note,
  parts,
  title
} from './marklook';
import type { ISelection } from './model';

/** What is marked in an editor: all that the reports say about it, and what of them is selected. */
export interface IMarked {
  /** Of two that mark one line the later one counts. */
  readonly texts: readonly IMarkedText[];
  readonly selection: ISelection | null;
}

/** What marks need to know of the world. */
export interface IMarksOptions {
  readonly trans: TranslationBundle;
  /** Told of what the cursor gets to. */
  select(selection: ISelection): void;
}

/** The marks of an editor as they are now. */
interface IMarks extends IMarked {
  readonly options: IMarksOptions | null;
  readonly placed: readonly IPlaced[];
  /** Whether lines with marks were deleted; undoing that may bring them back. */
  readonly lost: boolean;
  readonly decorations: DecorationSet;
  readonly gutter: RangeSet<GutterMarker>;
  /** What a screen reader says of the editor. */
  readonly description: string;
}

const NONE: IMarks = {
  texts: [],
  selection: null,
  options: null,
  placed: [],
  lost: false,
  decorations: Decoration.none,
  gutter: RangeSet.empty,
  description: ''
};

const setMarks = StateEffect.define<IMarks>();

const field = StateField.define<IMarks>({
  create: () => NONE,
  update: (marks, transaction) => {
    for (const effect of transaction.effects) {
      if (effect.is(setMarks)) {
        return effect.value;
      }
    }
    return transaction.docChanged && marks.placed.length > 0
      ? moved(marks, transaction)
      : marks;
  },
  provide: self =>
    EditorView.decorations.from(self, ({ decorations }) => decorations)
});

/** Empty where there are no marks: a gutter would take room in every editor. */
const slot = new Compartment();

/** The extension of an editor that may get marks. */
export function marksExtension(): Extension {
  return [field, slot.of([])];
}

/** Mark an editor anew, or take its marks away. */
export function mark(
  view: EditorView,
  marked: IMarked,
  options: IMarksOptions
): void {
  const before = view.state.field(field, false);
  if (before === undefined || (before === NONE && marked.texts.length === 0)) {
    return;
  }
  const placed = place(marked.texts, view.state.doc);
  const marks =
    placed.length > 0
      ? decorated({ ...marked, options, lost: false }, placed)
      : NONE;
  const effects: StateEffect<unknown>[] = [setMarks.of(marks)];
  if ((before === NONE) !== (marks === NONE)) {
    effects.push(slot.reconfigure(marks === NONE ? [] : behaviour(options)));
  }
  view.dispatch({ effects });
}

/** Show on the marks of an editor what is selected. */
export function showSelected(
  view: EditorView,
  selection: ISelection | null
): void {
  const marks = view.state.field(field, false);
  const isHere = (each: ISelection | null): boolean =>
    each !== null &&
    (marks?.placed.some(placed => isOf(placed, each)) ?? false);
  if (marks !== undefined && (isHere(marks.selection) || isHere(selection))) {
    const effect = setMarks.of(
      decorated({ ...marks, selection }, marks.placed)
    );
    view.dispatch({ effects: effect });
  }
}

/** Where a line of a report is now; the line itself where it has no mark. */
export function lineNow(state: EditorState, line: number): number {
  const found = state
    .field(field, false)
    ?.placed.find(each => each.line.number === line);
  return found === undefined
    ? Math.max(1, Math.min(line, state.doc.lines))
    : state.doc.lineAt(found.from).number;
}

/** Put the lines of reports where they are in a text. */
function place(texts: readonly IMarkedText[], doc: Text): IPlaced[] {
  const now = texts.length > 0 ? doc.toString().split('\n') : [];
  const placed = new Map<number, IPlaced>();
  for (const of of texts) {
    const find = align(of.text, now);
    for (const line of of.lines) {
      const number = find(line.number);
      if (number !== null && 0 < number && number <= doc.lines) {
        const { from, to, text } = doc.line(number);
        const stale = of.stale || text !== line.text;
        placed.set(number, { line, of, from, to, stale });
      }
    }
  }
  return [...placed.values()].sort((one, other) => one.from - other.from);
}

/** Move marks with the text that they are on; those whose line was deleted go. */
function moved(marks: IMarks, { changes, newDoc }: Transaction): IMarks {
  const { texts, lost } = marks;
  if (isReplaced(changes) || (lost && newDoc.lines === texts[0]!.text.length)) {
    return decorated({ ...marks, lost: false }, place(texts, newDoc));
  }
  const [first, last] = extent(changes);
  const shift = changes.newLength - changes.length;
  let isSame = true;
  const placed = marks.placed.flatMap(each => {
    if (each.to < first) {
      return [each];
    }
    if (each.from > last) {
      return [{ ...each, from: each.from + shift, to: each.to + shift }];
    }
    const at = changes.mapPos(each.from, 1);
    if (each.to > each.from && at >= changes.mapPos(each.to, -1)) {
      isSame = false;
      return [];
    }
    const { from, to, text } = newDoc.lineAt(at);
    const stale = each.of.stale || text !== each.line.text;
    isSame &&= stale === each.stale;
    return [{ ...each, from, to, stale }];
  });
  return isSame
    ? {
        ...marks,
        placed,
        decorations: marks.decorations.map(changes),
        gutter: marks.gutter.map(changes)
      }
    : decorated(
        { ...marks, lost: lost || placed.length < marks.placed.length },
        placed
      );
}

/** The first and the last place of a text that changes touch. */
function extent(changes: ChangeDesc): [first: number, last: number] {
  let first = Infinity;
  let last = 0;
  changes.iterChangedRanges((from, to) => {
    first = Math.min(first, from);
    last = Math.max(last, to);
  });
  return [first, last];
}

/** Whether all of a text was replaced, as formatters do: where its lines went shows only in what they say. */
function isReplaced(changes: ChangeDesc): boolean {
  let isAll = false;
  changes.iterChangedRanges((from, to) => {
    isAll ||= from === 0 && to === changes.length && to > 0;
  });
  return isAll;
}

function decorated(
  marked: IMarked & Pick<IMarks, 'options' | 'lost'>,
  placed: readonly IPlaced[]
): IMarks {
  const { trans } = marked.options!;
  const decorations: Range<Decoration>[] = [];
  const markers: Range<GutterMarker>[] = [];
  placed.forEach((each, index) => {
    const { line, from, to, stale } = each;
    const before = placed[index - 1]?.line;
    const isSelected =
      marked.selection !== null && isOf(each, marked.selection);
    decorations.push(
      Decoration.line({ class: classOf(each, isSelected) }).range(from)
    );
    for (const { start, end } of stale ? [] : line.breaks) {
      if (start < end && end <= to - from) {
        decorations.push(CUT.range(from + start, from + end));
      }
    }
    const note = new Note(parts(line, before, trans), stale);
    if (note.parts.length > 0) {
      decorations.push(Decoration.widget({ widget: note, side: 1 }).range(to));
    }
    if (line.graphs.length > 0 || line.breaks.length > 0) {
      markers.push(new Marker(line, stale, title(each, trans)).range(from));
    }
  });
  return {
    ...marked,
    placed,
    decorations: Decoration.set(decorations, true),
    gutter: RangeSet.of(markers, true),
    description: description(placed, trans)
  };
}

const CUT = Decoration.mark({ class: 'jp-GraphBreakMark-cut' });

/** Whether a selection means something on a line. */
function isOf(
  { line, of }: IPlaced,
  { cellId, output, kind, id }: ISelection
): boolean {
  if (of.run.cellId !== cellId || of.run.output !== output) {
    return false;
  }
  switch (kind) {
    case 'break':
      return line.breaks.some(each => each.break.id === id);
    case 'graph':
      return line.graphs.some(each => each.graph.id === id);
    case 'skipped':
      return line.eager?.id === id;
    case 'scope':
      return line.scope?.id === id;
    default:
      return false;
  }
}

/** What an editor does where it has marks. */
function behaviour(options: IMarksOptions): Extension {
  const { trans } = options;
  return [
    EditorView.editorAttributes.of({ class: 'jp-GraphBreakMarks gb-colours' }),
    EditorView.contentAttributes.compute([field], state => ({
      'aria-description': state.field(field).description
    })),
    gutter({
      class: 'jp-GraphBreakMark-gutter',
      markers: view => view.state.field(field).gutter,
      domEventHandlers: {
        click: (view, block) => {
          const placed = placedAt(view.state, block.from);
          const [first] = placed?.line.breaks ?? [];
          view.focus();
          view.dispatch({
            selection: { anchor: block.from + (first?.start ?? 0) }
          });
          return placed !== undefined;
        }
      }
    }),
    // What reads the screen to the reader reads no gutter.
    EditorState.transactionExtender.of(transaction => {
      const said = transaction.docChanged ? '' : met(transaction, trans);
      return said === '' ? null : { effects: EditorView.announce.of(said) };
    }),
    EditorView.updateListener.of(update => {
      if (update.selectionSet && update.view.hasFocus) {
        const reached = selectionAt(update.state);
        if (reached !== null) {
          options.select(reached);
        }
      }
    }),
    // A cell clips what is in it.
    tooltips({ parent: document.body }),
    hoverTooltip((view, position) => {
      const breaks = breaksAt(view.state, position);
      const [first] = breaks;
      return first === undefined
        ? null
        : {
            pos: first.from,
            end: first.to,
            above: true,
            create: () => ({ dom: hint(breaks, trans) })
          };
    })
  ];
}

function placedAt(state: EditorState, position: number): IPlaced | undefined {
  const { from } = state.doc.lineAt(position);
  return state.field(field).placed.find(each => each.from === from);
}

/** What the cursor is on, the nearest first. */
function selectionAt(state: EditorState): ISelection | null {
  const { head } = state.selection.main;
  const placed = placedAt(state, head);
  if (placed === undefined) {
    return null;
  }
  const { line, of, from } = placed;
  const column = head - from;
  const nearest =
    line.breaks.find(({ start, end }) => start <= column && column <= end) ??
    line.breaks[0] ??
    line.leadsTo[0];
  if (nearest !== undefined) {
    return { ...of.run, kind: 'break', id: nearest.break.id };
  }
  const [first] = line.graphs;
  if (first !== undefined) {
    return { ...of.run, kind: 'graph', id: first.graph.id };
  }
  return line.eager === null
    ? null
    : { ...of.run, kind: 'skipped', id: line.eager.id };
}

/** What to say when the cursor gets to a line on which something broke. */
function met(transaction: Transaction, trans: TranslationBundle): string {
  const { startState, newSelection, newDoc } = transaction;
  const line = newDoc.lineAt(newSelection.main.head);
  const before = startState.doc.lineAt(startState.selection.main.head);
  if (transaction.selection === undefined || line.from === before.from) {
    return '';
  }
  const breaks = placedAt(startState, line.from)?.line.breaks ?? [];
  return breaks.map(each => heading(each, trans)).join('. ');
}

/** The breaks at a place; of a stale line all. */
function breaksAt(state: EditorState, position: number): IBreakAt[] {
  const placed = placedAt(state, position);
  if (placed === undefined) {
    return [];
  }
  const { line, from, to, stale } = placed;
  return line.breaks
    .map(each =>
      stale
        ? { ...each, from, to, stale }
        : { ...each, from: from + each.start, to: from + each.end, stale }
    )
    .filter(each => each.from <= position && position <= each.to);
}
