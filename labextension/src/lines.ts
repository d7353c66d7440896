/**
 * The lines of a source with what happened on them, as `views/listing.py` tells it for the report's own view.
 *
 * Editors and the source view mark lines; what there is to mark is worked out here, from the report alone.
 */
import type {
  Break,
  Graph,
  Location,
  Report,
  Scope,
  Skipped,
  Source
} from './types';

/** How many colours the style sheet has for graphs; after the last they start anew. */
const COLOURS = 8;

/** The part of a line that a break stands on, in columns; and the number under which people see the break. */
export interface IBreakOnLine {
  readonly break: Break;
  readonly number: number;
  readonly start: number;
  readonly end: number;
}

/** A graph that holds operations of a line, and the number of its colour. */
export interface IGraphOnLine {
  readonly graph: Graph;
  readonly colour: number;
}

/** A line on which something happened. */
export interface ILine {
  /** As the editor counts it. */
  readonly number: number;
  readonly text: string;
  readonly graphs: readonly IGraphOnLine[];
  /** From left to right. */
  readonly breaks: readonly IBreakOnLine[];
  /** Breaks that were met further down a call on this line. */
  readonly leadsTo: readonly Omit<IBreakOnLine, 'start' | 'end'>[];
  /** The innermost scope around the line. */
  readonly scope: Scope | null;
  /** The function around the line that Dynamo left to Python. */
  readonly eager: Skipped | null;
}

/** What is collected of a line. */
interface IDraft {
  graphs: IGraphOnLine[];
  breaks: IBreakOnLine[];
  leadsTo: ILine['leadsTo'][number][];
  scope: Scope | null;
  eager: Skipped | null;
}

/** The text of each line of a source that a report holds, by its number. */
export function textByLine(
  report: Report,
  source: Source
): Map<number, string> {
  const lines = new Map<number, string>();
  for (const { location } of report.breaks) {
    if (location?.source === source.id && location.code !== null) {
      lines.set(location.line, location.code.split('\n')[0]!);
    }
  }
  for (const { first_line: first, text } of source.segments) {
    text
      .split('\n')
      .forEach((line, at) => lines.set(first + at, line.replace(/\r$/, '')));
  }
  return new Map([...lines].sort(([one], [other]) => one - other));
}

/** The lines of a source on which something happened, in order. */
export function markedLines(report: Report, source: Source): ILine[] {
  const texts = textByLine(report, source);
  const numbers = [...texts.keys()];
  const drafts = new Map<number, IDraft>();
  const at = (number: number): IDraft => {
    let draft = drafts.get(number);
    if (draft === undefined) {
      draft = { graphs: [], breaks: [], leadsTo: [], scope: null, eager: null };
      drafts.set(number, draft);
    }
    return draft;
  };
  // A report may say that something spans a billion lines; there are those of the text.
  const within = ({ line, end_line: last }: Location): number[] =>
    numbers.filter(number => line <= number && number <= last);
  const isHere = (place: Location | null): place is Location =>
    place?.source === source.id;

  report.graphs.forEach((graph, index) => {
    const own = [
      ...graph.lines.filter(({ source: id }) => id === source.id),
      // Lines of libraries are not in `lines`; there the operations tell.
      ...graph.ops.map(({ location }) => location).filter(isHere)
    ];
    for (const number of new Set(own.map(({ line }) => line))) {
      at(number).graphs.push({ graph, colour: index % COLOURS });
    }
  });
  report.breaks.forEach((found, index) => {
    const number = index + 1;
    const own = new Set(isHere(found.location) ? within(found.location) : []);
    for (const line of own) {
      const [start, end] = columns(
        found.location!,
        line,
        texts.get(line) ?? ''
      );
      at(line).breaks.push({ break: found, number, start, end });
    }
    const stacks = [found.stack, ...found.occurrences.map(met => met.stack)];
    const passed = stacks.flat().filter(isHere);
    for (const line of new Set(passed.map(place => place.line))) {
      if (!own.has(line)) {
        at(line).leadsTo.push({ break: found, number });
      }
    }
  });
  // The largest first, so that what lies within them takes their place.
  const scopes = report.scopes.filter(({ location }) => isHere(location));
  scopes.sort((one, other) => height(other.location!) - height(one.location!));
  for (const scope of scopes) {
    for (const line of within(scope.location!)) {
      at(line).scope = scope;
    }
  }
  for (const skipped of report.skipped) {
    const place = eagerPlace(report, skipped, texts);
    for (const line of isHere(place) ? within(place) : []) {
      at(line).eager = skipped;
    }
  }
  return [...drafts]
    .filter(([number]) => texts.has(number))
    .sort(([one], [other]) => one - other)
    .map(([number, draft]) => {
      draft.breaks.sort((one, other) => one.start - other.start);
      return { number, text: texts.get(number)!, ...draft };
    });
}

/**
 * Find where the lines of a text are in another that was made from it by editing.
 *
 * What both begin with and end with is paired; between, lines are paired in order as far as there are any.
 *
 * @returns The number of the other text's line for that of a line, null where it is gone.
 */
export function align(
  before: readonly string[],
  after: readonly string[]
): (line: number) => number | null {
  const most = Math.min(before.length, after.length);
  let head = 0;
  while (head < most && before[head] === after[head]) {
    head += 1;
  }
  let tail = 0;
  while (tail < most - head && before.at(-1 - tail) === after.at(-1 - tail)) {
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

function height(place: Location): number {
  return place.end_line - place.line;
}

/** The part of one line that belongs to a range; without columns all but the indentation. */
function columns(
  place: Location,
  line: number,
  text: string
): [start: number, end: number] {
  // Python counts characters, an editor UTF-16 units.
  const units = (column: number): number =>
    Array.from(text).slice(0, column).join('').length;
  const start =
    place.column !== null && line === place.line
      ? units(place.column)
      : text.length - text.trimStart().length;
  const end =
    place.end_column !== null && line === place.end_line
      ? units(place.end_column)
      : text.trimEnd().length;
  return [start, Math.max(start, end)];
}

/** Where a function that runs eagerly stands, or the rest of one. */
function eagerPlace(
  report: Report,
  skipped: Skipped,
  texts: ReadonlyMap<number, string>
): Location | null {
  const frame = report.frames.find(({ id }) => id === skipped.frame);
  const resumed = report.resumes.find(({ id }) => id === frame?.resume);
  const place = resumed?.location ?? skipped.location;
  return place === null || height(place) > 0
    ? place
    : { ...place, end_line: lastLineAround(texts, place.line, place.function) };
}

/** The last line of the function that stands at or around a line, going by indentation. */
function lastLineAround(
  texts: ReadonlyMap<number, string>,
  line: number,
  name: string | null
): number {
  const plain = name?.split('.').at(-1)?.replace(/\W/g, '') ?? '';
  const opening = new RegExp(`^\\s*(?:async\\s+)?def\\s+${plain || '\\w+'}\\b`);
  for (let first = line; texts.has(first); first -= 1) {
    const isStart =
      opening.test(texts.get(first)!) ||
      (first === line && /^\s*@/.test(texts.get(first)!));
    const last = isStart ? endOfBlock(texts, first) : 0;
    if (last >= line) {
      return last;
    }
  }
  return line;
}

function endOfBlock(texts: ReadonlyMap<number, string>, first: number): number {
  const indent = (text: string): number =>
    text.length - text.trimStart().length;
  const around = indent(texts.get(first)!);
  let last = first;
  let isDefined = /^\s*(?:async\s+)?def\b/.test(texts.get(first)!);
  for (let line = first + 1; texts.has(line); line += 1) {
    const text = texts.get(line)!;
    if (/^\s*(?:#|$)/.test(text)) {
      continue;
    }
    if (indent(text) <= around && !text.trimStart().startsWith(')')) {
      if (isDefined) {
        break;
      }
      isDefined = !text.trimStart().startsWith('@');
    }
    last = line;
  }
  return last;
}
