/** Where the lines of reports are in the text of an editor, also after the text was edited. */
import type { ChangeDesc, Text, Transaction } from '@codemirror/state';

import type { ISelection } from '../notebook/runs';
import type { IReportLine } from '../report/lines';
import type { Rows } from '../report/types';

/** What one report says about the text of an editor. */
export interface IReportedText {
  /** The text that the report is about, in lines. */
  readonly text: readonly string[];
  readonly lines: readonly IReportLine[];
  /** What the report says. */
  readonly rows: Rows;
  /** Where the report is. */
  readonly run: Pick<ISelection, 'cellId' | 'output'>;
  /** What people call the run. */
  readonly runName: string;
  /** Whether the code was run again since, without being explained. */
  readonly stale: boolean;
}

/** A line of a report at its position in an editor; stale where the line has another text than the report. */
export interface IMark {
  readonly line: IReportLine;
  readonly origin: IReportedText;
  readonly from: number;
  readonly to: number;
  readonly stale: boolean;
}

/** Place the lines of reports in a text; of two reports about one line the later one counts. */
export function placeMarks(
  reported: readonly IReportedText[],
  doc: Text
): IMark[] {
  const current = reported.length > 0 ? doc.toString().split('\n') : [];
  const marks = new Map<number, IMark>();
  for (const origin of reported) {
    const lineAfter = align(origin.text, current);
    for (const line of origin.lines) {
      const number = lineAfter(line.number);
      if (number !== null && 0 < number && number <= doc.lines) {
        const { from, to, text } = doc.line(number);
        const stale = origin.stale || text !== line.text;
        marks.set(number, { line, origin, from, to, stale });
      }
    }
  }
  return [...marks.values()].sort((one, other) => one.from - other.from);
}

/** The marks after an edit. */
export interface IMovedMarks {
  readonly marks: IMark[];
  /** Whether all marks are still there, and as stale or fresh as before. */
  readonly lookSame: boolean;
}

/** Move marks with the text that they are on; those whose line was deleted go. */
export function moveMarks(
  marks: readonly IMark[],
  { changes, newDoc }: Pick<Transaction, 'changes' | 'newDoc'>
): IMovedMarks {
  const [first, last] = extentOf(changes);
  const shift = changes.newLength - changes.length;
  let lookSame = true;
  const moved = marks.flatMap(mark => {
    if (mark.to < first) {
      return [mark];
    }
    if (mark.from > last) {
      return [{ ...mark, from: mark.from + shift, to: mark.to + shift }];
    }
    // The text of a line may move while its indentation stays: Enter before the first word leaves blanks behind.
    const indentation = Math.min(indentationOf(mark.line.text), mark.to - mark.from); // prettier-ignore
    const position = changes.mapPos(mark.from + indentation, 1);
    if (mark.to > mark.from && position >= changes.mapPos(mark.to, -1)) {
      lookSame = false;
      return [];
    }
    const { from, to, text } = newDoc.lineAt(position);
    const stale = mark.origin.stale || text !== mark.line.text;
    // What is drawn at the beginning of a line stays there, and not with the text.
    lookSame &&= stale === mark.stale && from === changes.mapPos(mark.from, -1);
    return [{ ...mark, from, to, stale }];
  });
  return { marks: moved, lookSame };
}

/** Whether all of a text was replaced, as formatters do; only the texts show where its lines went. */
export function isReplacement(changes: ChangeDesc): boolean {
  let isAll = false;
  changes.iterChangedRanges((from, to) => {
    isAll ||= from === 0 && to === changes.length && to > 0;
  });
  return isAll;
}

/**
 * Find where the lines of a text are in another text that was made from it by editing.
 *
 * The lines that both texts begin with and end with are paired; between them, lines are paired in order as far as there
 * are any.
 *
 * @returns The number of the other text's line for the number of a line, null where the line is gone.
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

/** The first and the last position of a text that changes touch. */
function extentOf(changes: ChangeDesc): [first: number, last: number] {
  let first = Infinity;
  let last = 0;
  changes.iterChangedRanges((from, to) => {
    first = Math.min(first, from);
    last = Math.max(last, to);
  });
  return [first, last];
}
