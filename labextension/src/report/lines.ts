/** What happened on each line of a source, worked out from the report alone; editors mark these lines. */
import { graphColour } from './colours';
import { endColumn, startColumn } from './columns';
import { orderedBreaks } from './order';
import type {
  Break,
  Graph,
  Location,
  Report,
  Scope,
  Skipped,
  Source
} from './types';

/** A break, and the number under which people see it. */
export interface INumberedBreak {
  readonly break: Break;
  readonly number: number;
}

/** The part of a line that a break stands on, in an editor's columns. */
export interface IBreakOnLine extends INumberedBreak {
  readonly start: number;
  readonly end: number;
}

/** A graph that holds operations of a line, and the number of its colour. */
export interface IGraphOnLine {
  readonly graph: Graph;
  readonly colour: number;
}

/** A line on which something happened. */
export interface IReportLine {
  /** As the editor counts it. */
  readonly number: number;
  readonly text: string;
  readonly graphs: readonly IGraphOnLine[];
  /** From left to right. */
  readonly breaks: readonly IBreakOnLine[];
  /** Breaks further down a call on this line. */
  readonly leadsTo: readonly INumberedBreak[];
  /** The innermost scope around the line. */
  readonly scope: Scope | null;
  /** The function around the line that runs eagerly, where there is one. */
  readonly eager: Skipped | null;
}

/** The text of every line of a source that a report holds, by the line's number. */
export function textByLine(
  report: Report,
  source: Source
): Map<number, string> {
  const texts = new Map<number, string>();
  for (const { first_line: first, text } of source.segments) {
    text
      .split('\n')
      .forEach((line, index) =>
        texts.set(first + index, line.endsWith('\r') ? line.slice(0, -1) : line)
      );
  }
  for (const { location } of report.breaks) {
    if (
      location?.source === source.id &&
      location.code !== null &&
      !texts.has(location.line)
    ) {
      texts.set(location.line, location.code.split('\n')[0]!);
    }
  }
  return new Map([...texts].sort(([one], [other]) => one - other));
}

/**
 * The lines of a source on which something happened, in order.
 *
 * @param texts - As {@link textByLine} returns them.
 */
export function reportLines(
  report: Report,
  source: Source,
  texts: ReadonlyMap<number, string> = textByLine(report, source)
): IReportLine[] {
  const drafts = new LineDrafts(source, texts);
  addGraphs(report, drafts);
  addBreaks(report, drafts);
  addScopes(report, drafts);
  addEagerFunctions(report, drafts);
  return drafts.finish();
}

/** A line to which more is being added. */
interface ILineDraft {
  graphs: IGraphOnLine[];
  breaks: IBreakOnLine[];
  leadsTo: INumberedBreak[];
  scope: Scope | null;
  eager: Skipped | null;
}

class LineDrafts {
  constructor(
    readonly source: Source,
    readonly texts: ReadonlyMap<number, string>
  ) {
    this._numbers = [...texts.keys()];
  }

  /** Whether a location is in the source. */
  contains(location: Location | null): location is Location {
    return location?.source === this.source.id;
  }

  /** The numbers of the lines that a location spans. */
  span(location: Location | null): number[] {
    // A report may say that something spans a billion lines, so only lines with a text count.
    return this.contains(location)
      ? this._numbers.slice(
          this._countBefore(location.line),
          this._countBefore(location.end_line + 1)
        )
      : [];
  }

  /** How many of the lines stand before a line. */
  private _countBefore(line: number): number {
    let [low, high] = [0, this._numbers.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this._numbers[middle]! < line) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  at(number: number): ILineDraft {
    let draft = this._drafts.get(number);
    if (draft === undefined) {
      draft = { graphs: [], breaks: [], leadsTo: [], scope: null, eager: null };
      this._drafts.set(number, draft);
    }
    return draft;
  }

  finish(): IReportLine[] {
    return this._numbers.flatMap(number => {
      const draft = this._drafts.get(number);
      draft?.breaks.sort((one, other) => one.start - other.start);
      return draft === undefined
        ? []
        : [{ number, text: this.texts.get(number)!, ...draft }];
    });
  }

  private readonly _numbers: readonly number[];
  private readonly _drafts = new Map<number, ILineDraft>();
}

function addGraphs(report: Report, drafts: LineDrafts): void {
  report.graphs.forEach((graph, index) => {
    const numbers = new Set([
      ...graph.lines
        .filter(({ source }) => source === drafts.source.id)
        .map(({ line }) => line),
      // Lines of libraries are not in `lines`, but the operations name them.
      ...graph.ops
        .map(({ location }) => location)
        .filter(location => drafts.contains(location))
        .map(({ line }) => line)
    ]);
    for (const number of numbers) {
      drafts.at(number).graphs.push({ graph, colour: graphColour(index) });
    }
  });
}

function addBreaks(report: Report, drafts: LineDrafts): void {
  orderedBreaks(report).forEach((graphBreak, index) => {
    const numbered = { break: graphBreak, number: index + 1 };
    const own = new Set(drafts.span(graphBreak.location));
    for (const line of own) {
      const text = drafts.texts.get(line) ?? '';
      const [start, end] = columnsOn(line, text, graphBreak.location!);
      drafts.at(line).breaks.push({ ...numbered, start, end });
    }
    const calls = [
      graphBreak.stack,
      ...graphBreak.occurrences.map(({ stack }) => stack)
    ]
      .flat()
      .filter(location => drafts.contains(location));
    for (const line of new Set(calls.map(location => location.line))) {
      if (!own.has(line)) {
        drafts.at(line).leadsTo.push(numbered);
      }
    }
  });
}

function addScopes(report: Report, drafts: LineDrafts): void {
  const height = ({ location }: Scope): number =>
    location === null ? 0 : location.end_line - location.line;
  // The largest first, so that a scope within another takes its place.
  const scopes = [...report.scopes].sort(
    (one, other) => height(other) - height(one)
  );
  for (const scope of scopes) {
    for (const line of drafts.span(scope.location)) {
      drafts.at(line).scope = scope;
    }
  }
}

function addEagerFunctions(report: Report, drafts: LineDrafts): void {
  for (const skipped of report.skipped) {
    for (const line of drafts.span(skipped.location)) {
      drafts.at(line).eager = skipped;
    }
  }
}

/** The columns of one line that belong to a location. */
function columnsOn(
  line: number,
  text: string,
  location: Location
): [start: number, end: number] {
  const start = startColumn(
    text,
    line === location.line ? location.column : null
  );
  const end = endColumn(
    text,
    line === location.end_line ? location.end_column : null
  );
  return [start, Math.max(start, end)];
}
