/** The appearance of marks: CSS classes of lines and expressions, notes beside lines, signs in the gutter. */
import { type Range, RangeSet } from '@codemirror/state';
import {
  Decoration,
  type DecorationSet,
  GutterMarker,
  WidgetType
} from '@codemirror/view';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { ISelection } from '../notebook/runs';
import type { IReportLine } from '../report/lines';
import { totalOf } from '../report/lookup';
import { clip } from '../report/shown';
import { makeElement } from '../view/elements';
import {
  breakSign,
  type INotePart,
  markTitle,
  noteParts
} from './descriptions';
import { type IMark, containsSelection } from './positions';

/** The number of graphs, or of breaks, that fit in the gutter of one line. */
const GUTTER_SIGNS = 3;

/** The maximum number of characters of a graph's id on the page; the style sheet shows fewer. */
const MAX_ID_LENGTH = 20;

const BROKEN_EXPRESSION = Decoration.mark({ class: 'jp-GraphBreakMark-cut' });

/** The appearance of the marks of an editor, in its text and in its gutter. */
export interface IAppearance {
  readonly decorations: DecorationSet;
  readonly gutter: RangeSet<GutterMarker>;
}

/**
 * Make the decorations of marks.
 *
 * @param marks - The marks.
 * @param selection - The reader's selection.
 * @param notesBelow - The lines beside which there is no room for a note.
 * @param trans - The language of the reader.
 */
export function appearanceOf(
  marks: readonly IMark[],
  selection: ISelection | null,
  notesBelow: ReadonlySet<IReportLine>,
  trans: TranslationBundle
): IAppearance {
  const decorations: Range<Decoration>[] = [];
  const signs: Range<GutterMarker>[] = [];
  marks.forEach((mark, index) => {
    const { line, from, to, isStale } = mark;
    const isSelected = selection !== null && isOnMark(selection, mark);
    decorations.push(
      Decoration.line({ class: lineClass(mark, isSelected) }).range(from)
    );
    for (const [start, end] of isStale ? [] : brokenRanges(line, to - from)) {
      decorations.push(BROKEN_EXPRESSION.range(from + start, from + end));
    }
    const parts = noteParts(mark, marks[index - 1]);
    if (parts.length > 0) {
      const block = notesBelow.has(line);
      const widget = new LineNote(parts, isStale, block);
      decorations.push(Decoration.widget({ widget, side: 1, block }).range(to));
    }
    if (
      line.graphs.length > 0 ||
      line.breaks.length > 0 ||
      line.scope !== null
    ) {
      const sign = new GutterSign(line, isStale, markTitle(mark, trans));
      signs.push(sign.range(from));
    }
  });
  return {
    decorations: Decoration.set(decorations, true),
    gutter: RangeSet.of(signs, true)
  };
}

/** The ranges of the breaks of a line, with overlapping ranges merged because the editor would nest them. */
function brokenRanges(
  { breaks }: IReportLine,
  length: number
): [start: number, end: number][] {
  const ranges: [start: number, end: number][] = [];
  // The breaks are sorted by their starts.
  for (const { start, end } of breaks) {
    const last = ranges.at(-1);
    if (start >= end || end > length) {
      continue;
    }
    if (last !== undefined && start < last[1]) {
      last[1] = Math.max(last[1], end);
    } else {
      ranges.push([start, end]);
    }
  }
  return ranges;
}

/** Whether a mark shows the selected part. */
export function isOnMark(
  selection: ISelection,
  { line, origin }: IMark
): boolean {
  const { kind, id } = selection;
  if (!containsSelection(origin.run, selection)) {
    return false;
  }
  switch (kind) {
    case 'break':
      return line.breaks.some(({ break: { id: breakId } }) => breakId === id);
    case 'graph':
      return line.graphs.some(({ graph }) => graph.id === id);
    case 'skipped':
      return line.eager?.id === id;
    case 'scope':
      return line.scope?.id === id;
    default:
      return line.notes.some(
        ({ section, row }) => section === kind && row.id === id
      );
  }
}

function lineClass({ line, isStale }: IMark, isSelected: boolean): string {
  const classes = ['jp-GraphBreakMark'];
  if (line.breaks.length > 0) {
    classes.push('jp-mod-broken');
  } else if (line.eager !== null) {
    classes.push('jp-mod-eager');
  } else if (line.graphs.length > 0) {
    classes.push('jp-mod-graph', `gb-c${line.graphs[0]!.colour}`);
  }
  if (line.scope !== null) {
    classes.push(line.scope.value ? 'jp-mod-forbidden' : 'jp-mod-allowed');
  }
  if (isStale) {
    classes.push('jp-mod-stale');
  }
  if (isSelected) {
    classes.push('jp-mod-selected');
  }
  return classes.join(' ');
}

/** The note beside or below a line, which is not part of the text. */
class LineNote extends WidgetType {
  constructor(
    private readonly _parts: readonly INotePart[],
    private readonly _isStale: boolean,
    private readonly _isBelow: boolean
  ) {
    super();
  }

  override eq(other: LineNote): boolean {
    return (
      this._isStale === other._isStale &&
      this._isBelow === other._isBelow &&
      this._parts.length === other._parts.length &&
      this._parts.every(({ text, className, kind, id }, index) => {
        const part = other._parts[index]!;
        return (
          text === part.text &&
          className === part.className &&
          kind === part.kind &&
          id === part.id
        );
      })
    );
  }

  /** Let the editor handle clicks on the note. */
  override ignoreEvent(): boolean {
    return false;
  }

  override toDOM(): HTMLElement {
    const note = makeElement('span', 'jp-GraphBreakMark-note');
    note.classList.toggle('jp-mod-below', this._isBelow);
    note.classList.toggle('jp-mod-stale', this._isStale);
    for (const { text, className, kind, id } of this._parts) {
      const part = makeElement('span', className);
      part.textContent = text;
      if (id !== '') {
        part.dataset.kind = kind;
        part.dataset.id = id;
      }
      note.append(part);
    }
    return note;
  }
}

function scopeClass({ scope }: IReportLine): string {
  if (scope === null) {
    return '';
  }
  return scope.value ? 'jp-mod-forbidden' : 'jp-mod-allowed';
}

/** The letters of a line's graphs and the numbers of its breaks. */
class GutterSign extends GutterMarker {
  constructor(
    private readonly _line: IReportLine,
    private readonly _isStale: boolean,
    private readonly _title: string
  ) {
    super();
    this.elementClass = scopeClass(_line);
  }

  /** Shows whether breaks are allowed, at the edge that is always in view. */
  override elementClass: string;

  override eq(other: GutterSign): boolean {
    return (
      this._line === other._line &&
      this._isStale === other._isStale &&
      this._title === other._title
    );
  }

  override toDOM(): HTMLElement {
    const { graphs, breaks } = this._line;
    const box = makeElement('span', 'jp-GraphBreakMark-sign');
    box.classList.toggle('jp-mod-stale', this._isStale);
    box.title = this._title;
    appendSigns(box, graphs, ({ graph, colour }) => {
      const letter = makeElement('span', `gb-letter gb-c${colour}`);
      letter.textContent = clip(graph.id, MAX_ID_LENGTH);
      return letter;
    });
    appendSigns(box, breaks, graphBreak => {
      const sign = makeElement('span', 'gb-cut');
      sign.textContent = breakSign(graphBreak);
      return sign;
    });
    return box;
  }
}

/** Append the signs of the first parts of a line, and the number of the remaining parts. */
function appendSigns<T>(
  box: HTMLElement,
  parts: readonly T[],
  make: (part: T) => HTMLElement
): void {
  const total = totalOf(parts);
  const shownCount = total > GUTTER_SIGNS ? GUTTER_SIGNS - 1 : total;
  box.append(...parts.slice(0, shownCount).map(make));
  if (total > shownCount) {
    box.append(`+${total - shownCount}`);
  }
}
