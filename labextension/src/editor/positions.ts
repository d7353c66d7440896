/** The positions of report lines in the text of an editor, adjusted for edits. */
import {
  type ChangeDesc,
  MapMode,
  type Text,
  type Transaction
} from '@codemirror/state';

import type { ISelection } from '../notebook/runs';
import type { IReportLine } from '../report/lines';
import type { Rows } from '../report/types';

/** The text of an editor as one report knows it, and the annotations of its lines. */
export interface IReportedText {
  /** The text that the report is about, in lines. */
  readonly text: readonly string[];
  readonly lines: readonly IReportLine[];
  /** The rows of the report. */
  readonly rows: Rows;
  /** The cell and the output with the report. */
  readonly run: Pick<ISelection, 'cellId' | 'output'>;
  /** The display name of the run. */
  readonly runName: string;
  /** Whether the code was run again since, without being explained. */
  readonly isStale: boolean;
}

/** A line of a report at its position in an editor; stale if its text differs from the report. */
export interface IMark {
  readonly line: IReportLine;
  readonly origin: IReportedText;
  readonly from: number;
  readonly to: number;
  readonly isStale: boolean;
}

/**
 * Place the lines of reports in the text of an editor.
 *
 * If two reports are about the same line, the one with the selection takes precedence, otherwise the later one.
 */
export function placeMarks(
  reported: readonly IReportedText[],
  selection: ISelection | null,
  doc: Text
): IMark[] {
  const current = reported.length > 0 ? doc.toString().split('\n') : [];
  const marks = new Map<number, IMark>();
  const selectedTexts = reported.filter(({ run }) =>
    containsSelection(run, selection)
  );
  for (const origin of [...reported, ...selectedTexts]) {
    const lineAfter = align(origin.text, current);
    for (const line of origin.lines) {
      const number = lineAfter(line.number);
      if (number !== null && 0 < number && number <= doc.lines) {
        const { from, to, text } = doc.line(number);
        const isStale = origin.isStale || text !== line.text;
        marks.set(number, { line, origin, from, to, isStale });
      }
    }
  }
  return [...marks.values()].sort((one, other) => one.from - other.from);
}

/** Whether a run contains a selection. */
export function containsSelection(
  { cellId, output }: IReportedText['run'],
  selection: ISelection | null
): boolean {
  return cellId === selection?.cellId && output === selection.output;
}

/** The marks after an edit. */
export interface IMovedMarks {
  readonly marks: IMark[];
  /** Whether no mark was removed or became stale or current. */
  readonly areUnchanged: boolean;
}

/** Move marks with their text, and remove those whose line was deleted. */
export function moveMarks(
  marks: readonly IMark[],
  { changes, newDoc }: Pick<Transaction, 'changes' | 'newDoc'>
): IMovedMarks {
  const [first, last] = extentOf(changes);
  const shift = changes.newLength - changes.length;
  let areUnchanged = true;
  const movedMarks = marks.flatMap(mark => {
    if (mark.to < first) {
      return [mark];
    }
    if (mark.from > last) {
      return [{ ...mark, from: mark.from + shift, to: mark.to + shift }];
    }
    // A line's text may move without its indentation: Enter before the first word leaves the blanks where they were.
    const indentation = Math.min(indentationOf(mark.line.text), mark.to - mark.from); // prettier-ignore
    const position = changes.mapPos(mark.from + indentation, 1);
    if (mark.to > mark.from && position >= changes.mapPos(mark.to, -1)) {
      areUnchanged = false;
      return [];
    }
    const { from, to, text } = newDoc.lineAt(position);
    const isStale = mark.origin.isStale || text !== mark.line.text;
    // Decorations at the beginning of a line do not move with the text, and vanish with the line break before them.
    const decorationStart = changes.mapPos(mark.from, -1, MapMode.TrackBefore);
    areUnchanged &&= isStale === mark.isStale && from === decorationStart;
    return [{ ...mark, from, to, isStale }];
  });
  return { marks: movedMarks, areUnchanged };
}

/** Whether a whole text was replaced, as formatters do; then lines are matched by text. */
export function isReplacement(changes: ChangeDesc): boolean {
  let isAll = false;
  changes.iterChangedRanges((from, to) => {
    isAll ||= from === 0 && to === changes.length && to > 0;
  });
  return isAll;
}

/**
 * Match the lines of a text to the lines of its edited version.
 *
 * Common lines at the beginning and at the end are paired; the lines between them are paired in order.
 *
 * @returns A function from a line number to the number in the edited text, null if the line was deleted.
 */
export function align(
  before: readonly string[],
  after: readonly string[]
): (line: number) => number | null {
  const shorter = Math.min(before.length, after.length);
  let head = 0;
  while (head < shorter && before[head] === after[head]) {
    head += 1;
  }
  let tail = 0;
  while (
    tail < shorter - head &&
    before.at(-1 - tail) === after.at(-1 - tail)
  ) {
    tail += 1;
  }
  const shift = after.length - before.length;
  return line => {
    if (line > before.length - tail) {
      return line <= before.length ? line + shift : null;
    }
    return line <= Math.max(head, after.length - tail) ? line : null;
  };
}

function indentationOf(text: string): number {
  return text.length - text.trimStart().length;
}

/** The first and the last position in the text that changes affect. */
function extentOf(changes: ChangeDesc): [first: number, last: number] {
  let first = Infinity;
  let last = 0;
  changes.iterChangedRanges((from, to) => {
    first = Math.min(first, from);
    last = Math.max(last, to);
  });
  return [first, last];
}
