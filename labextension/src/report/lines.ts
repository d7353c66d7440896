/** The annotated lines of a source, computed from the report; editors mark these lines. */
import { graphColour } from './colours';
import { endColumn, startColumn } from './columns';
import { orderedBreaks, pushUpTo } from './lookup';
import type {
  Break,
  Graph,
  Location,
  Report,
  Row,
  Rows,
  Scope,
  Skipped,
  Source
} from './types';

/** The maximum number of a line's graphs, or of its breaks; `totalOf` returns their original number. */
const MAX_ON_LINE = 50;

/** The maximum number of lines of a source that all breaks, scopes and functions may span in total. */
const MAX_SPANNED_LINES = 100_000;

/** A break and its number in all views. */
export interface INumberedBreak {
  readonly break: Break;
  readonly number: number;
}

/** The part of a line that a break covers, in an editor's columns. */
export interface IBreakOnLine extends INumberedBreak {
  readonly start: number;
  readonly end: number;
}

/** A graph that contains operations of a line, and its colour. */
export interface IGraphOnLine {
  readonly graph: Graph;
  readonly colour: number;
}

/** A row of a section that is not treated specially. */
export interface INoteOnLine {
  readonly section: string;
  readonly row: Row;
}

/** An annotated line. */
export interface IReportLine {
  /** The line number in the editor. */
  readonly number: number;
  readonly text: string;
  readonly graphs: readonly IGraphOnLine[];
  /** The breaks on the line, from left to right. */
  readonly breaks: readonly IBreakOnLine[];
  /** Breaks reached through a call on this line. */
  readonly breaksReachedByCalls: readonly INumberedBreak[];
  /** The innermost scope around the line. */
  readonly scope: Scope | null;
  /** The function around the line that runs eagerly, if there is one. */
  readonly eager: Skipped | null;
  /** Notes of other sections beside the line. */
  readonly notes: readonly INoteOnLine[];
}

/** The text of every line of a source in a report, by line number. */
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
  for (const { break: graphBreak } of partsIn(report, source).breaks) {
    const { line, code } = graphBreak.location!;
    if (code !== null && !texts.has(line)) {
      texts.set(line, code.split('\n', 1)[0]!);
    }
  }
  return new Map([...texts].sort(([one], [other]) => one - other));
}

/** The sections whose rows are treated specially on lines. */
const SPECIAL_SECTIONS = new Set(['break', 'graph', 'scope', 'skipped']);

/**
 * The annotated lines of a source, in order.
 *
 * @param report - The report.
 * @param rows - The rows of the report.
 * @param source - The source.
 * @param texts - The result of {@link textByLine}.
 */
export function reportLines(
  report: Report,
  rows: Rows,
  source: Source,
  texts: ReadonlyMap<number, string> = textByLine(report, source)
): IReportLine[] {
  const drafts = new LineDrafts(texts);
  const parts = partsIn(report, source);
  addGraphs(parts, drafts);
  addBreaks(parts, drafts);
  addScopes(parts, drafts);
  addEagerFunctions(parts, drafts);
  addNotes(rows, source, drafts);
  return drafts.finish();
}

/** The parts of a report that are about one source, with the lines of calls that lead to breaks. */
interface ISourceParts {
  readonly graphs: (IGraphOnLine & { readonly lines: Set<number> })[];
  readonly breaks: INumberedBreak[];
  readonly calls: (INumberedBreak & { readonly lines: Set<number> })[];
  readonly scopes: Scope[];
  readonly skipped: Skipped[];
}

const PARTS_BY_REPORT = new WeakMap<Report, Map<string, ISourceParts>>();

function partsIn(report: Report, { id }: Source): ISourceParts {
  let bySource = PARTS_BY_REPORT.get(report);
  if (bySource === undefined) {
    bySource = partsBySource(report);
    PARTS_BY_REPORT.set(report, bySource);
  }
  return bySource.get(id) ?? noParts();
}

function noParts(): ISourceParts {
  return { graphs: [], breaks: [], calls: [], scopes: [], skipped: [] };
}

/** Group the parts of a report by source, in one pass. */
function partsBySource(report: Report): Map<string, ISourceParts> {
  const bySource = new Map<string, ISourceParts>();
  const partsOf = (source: string): ISourceParts => {
    const parts = bySource.get(source) ?? noParts();
    bySource.set(source, parts);
    return parts;
  };
  report.graphs.forEach((graph, index) => {
    const colour = graphColour(index);
    const lines = new LinesBySource();
    graph.lines.forEach(({ source, line }) => lines.add(source, line));
    // `lines` lacks lines of libraries, but operations have locations in them.
    graph.ops.forEach(({ location }) => lines.addLocation(location));
    lines.forEach((source, numbers) =>
      partsOf(source).graphs.push({ graph, colour, lines: numbers })
    );
  });
  orderedBreaks(report).forEach((graphBreak, index) => {
    const numberedBreak = { break: graphBreak, number: index + 1 };
    const { location, stack, occurrences } = graphBreak;
    if (location !== null) {
      partsOf(location.source).breaks.push(numberedBreak);
    }
    const lines = new LinesBySource();
    stack.forEach(call => lines.addLocation(call));
    occurrences.forEach(({ stack }) =>
      stack.forEach(call => lines.addLocation(call))
    );
    lines.forEach((source, numbers) =>
      partsOf(source).calls.push({ ...numberedBreak, lines: numbers })
    );
  });
  for (const scope of report.scopes) {
    partsOf(scope.location?.source ?? '').scopes.push(scope);
  }
  for (const skipped of report.skipped) {
    partsOf(skipped.location?.source ?? '').skipped.push(skipped);
  }
  return bySource;
}

/** Unique line numbers, by source. */
class LinesBySource {
  add(source: string, line: number): void {
    const numbers = this._numbers.get(source) ?? new Set();
    this._numbers.set(source, numbers.add(line));
  }

  addLocation(location: Location | null): void {
    if (location !== null) {
      this.add(location.source, location.line);
    }
  }

  forEach(act: (source: string, numbers: Set<number>) => void): void {
    this._numbers.forEach((numbers, source) => act(source, numbers));
  }

  private readonly _numbers = new Map<string, Set<number>>();
}

/** A line under construction. */
interface ILineDraft {
  graphs: IGraphOnLine[];
  breaks: IBreakOnLine[];
  breaksReachedByCalls: INumberedBreak[];
  scope: Scope | null;
  eager: Skipped | null;
  notes: INoteOnLine[];
}

class LineDrafts {
  constructor(readonly texts: ReadonlyMap<number, string>) {
    this._numbers = [...texts.keys()];
  }

  /** The numbers of the source lines that a location spans. */
  span(location: Location | null): number[] {
    if (location === null) {
      return [];
    }
    // A report may claim that something spans a billion lines, so count only lines with text, up to a limit.
    const first = this._countBefore(location.line);
    const end = this._countBefore(location.end_line + 1);
    const numbers = this._numbers.slice(first, Math.min(end, first + this._remainingLines)); // prettier-ignore
    this._remainingLines -= numbers.length;
    return numbers;
  }

  /** The number of lines before a line. */
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
      draft = { graphs: [], breaks: [], breaksReachedByCalls: [], scope: null, eager: null, notes: [] }; // prettier-ignore
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
  /** How many more lines breaks, scopes and functions may span. */
  private _remainingLines = MAX_SPANNED_LINES;
}

function addGraphs({ graphs }: ISourceParts, drafts: LineDrafts): void {
  for (const { graph, colour, lines } of graphs) {
    for (const line of lines) {
      pushUpTo(drafts.at(line).graphs, MAX_ON_LINE, () => ({ graph, colour }));
    }
  }
}

function addBreaks({ breaks, calls }: ISourceParts, drafts: LineDrafts): void {
  const linesByBreak = new Map<number, Set<number>>();
  for (const numberedBreak of breaks) {
    const location = numberedBreak.break.location!;
    const breakLines = new Set(drafts.span(location));
    linesByBreak.set(numberedBreak.number, breakLines);
    for (const line of breakLines) {
      const text = drafts.texts.get(line) ?? '';
      pushUpTo(drafts.at(line).breaks, MAX_ON_LINE, () => {
        const [start, end] = columnsOn(line, text, location);
        return { ...numberedBreak, start, end };
      });
    }
  }
  for (const { lines, ...numberedBreak } of calls) {
    const breakLines = linesByBreak.get(numberedBreak.number);
    for (const line of lines) {
      if (!breakLines?.has(line)) {
        pushUpTo(
          drafts.at(line).breaksReachedByCalls,
          MAX_ON_LINE,
          () => numberedBreak
        );
      }
    }
  }
}

function addScopes({ scopes }: ISourceParts, drafts: LineDrafts): void {
  const height = ({ location }: Scope): number =>
    location === null ? 0 : location.end_line - location.line;
  // The largest scopes come first, so that an inner scope overrides an outer one.
  const scopesBySize = [...scopes].sort(
    (one, other) => height(other) - height(one)
  );
  for (const scope of scopesBySize) {
    for (const line of drafts.span(scope.location)) {
      drafts.at(line).scope = scope;
    }
  }
}

function addEagerFunctions(
  { skipped: functions }: ISourceParts,
  drafts: LineDrafts
): void {
  for (const skipped of functions) {
    for (const line of drafts.span(skipped.location)) {
      drafts.at(line).eager = skipped;
    }
  }
}

function addNotes(
  { sections }: Rows,
  { id: source }: Source,
  drafts: LineDrafts
): void {
  for (const { id: section, rows } of sections) {
    for (const row of SPECIAL_SECTIONS.has(section) ? [] : rows) {
      const { beside, spot } = row;
      if (
        beside !== '' &&
        spot?.source === source &&
        drafts.texts.has(spot.line)
      ) {
        pushUpTo(drafts.at(spot.line).notes, MAX_ON_LINE, () => ({
          section,
          row
        }));
      }
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
