/** What applying the edits of remedies makes of a text. */
import type { Edit, Remedy, Report } from './types';

/** What can be applied: a remedy, or the statement that compiles something. */
export type Applicable = Pick<Remedy, 'edits' | 'code' | 'patch'>;

/** What is at a place of a report's list, if anything is. */
export function applicableAt(
  report: Report,
  list: 'remedies' | 'compiled',
  at: number
): Applicable | undefined {
  if (list === 'remedies') {
    return report.remedies?.[at];
  }
  const edit = report.compiled?.[at]?.edit ?? null;
  return edit === null ? undefined : { edits: [edit], code: null, patch: null };
}

/** The part of a text that another takes the place of; positions count characters. */
export interface IChange {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** A line of a text is another one than an edit was made for, or two edits are about one line. */
export class LineMismatch extends Error {
  /** @param line - The number of the line. */
  constructor(readonly line: number) {
    super(`line ${line}`);
  }
}

/**
 * Work out what edits change in a text, the last change first, so that each can be made without moving the others.
 *
 * @param text - The text as it is now.
 * @param edits - Edits of one source.
 * @param original - The text that the edits were made for: an edit that only inserts is known by the line that follows.
 * @throws LineMismatch where the text is not what the edits were made for.
 */
export function changesFor(
  text: string,
  edits: readonly Edit[],
  original: string
): IChange[] {
  const lines = text.split('\n');
  const starts: number[] = [];
  let position = 0;
  for (const line of lines) {
    starts.push(position);
    position += line.length + 1;
  }
  // Of two insertions before one line the later is made first, and so stands below the other.
  const ordered = [...edits]
    .reverse()
    .sort(
      (one, other) =>
        other.first_line - one.first_line || other.last_line - one.last_line
    );
  let below = Infinity;
  return ordered.map(edit => {
    const { first_line: first, last_line: last } = edit;
    const isInsertion = last < first;
    const isThere = isInsertion
      ? first <= lines.length + 1 &&
        lines[first - 1] === original.split('\n')[first - 1]
      : lines.slice(first - 1, last).join('\n') === edit.old &&
        last <= lines.length;
    if (!isThere || first < 1 || last >= below) {
      throw new LineMismatch(first);
    }
    below = first;
    if (isInsertion) {
      return first > lines.length
        ? { start: text.length, end: text.length, text: `\n${edit.new}` }
        : { start: starts[first - 1]!, end: starts[first - 1]!, text: `${edit.new}\n` }; // prettier-ignore
    }
    const start = starts[first - 1]!;
    const end = starts[last - 1]! + lines[last - 1]!.length;
    if (edit.new !== '') {
      return { start, end, text: edit.new };
    }
    // With a line goes one line break: that after it, or before it at the end of the text.
    return last < lines.length
      ? { start, end: end + 1, text: '' }
      : { start: Math.max(0, start - 1), end, text: '' };
  });
}

/** What edits of one source make of the text that they were made for. */
export function edited(original: string, edits: readonly Edit[]): string {
  return changesFor(original, edits, original).reduce(
    (text, { start, end, text: made }) =>
      text.slice(0, start) + made + text.slice(end),
    original
  );
}

/** The edits of some remedies, by the id of their source. */
export function editsBySource(
  remedies: readonly Applicable[]
): Map<string, Edit[]> {
  const bySource = new Map<string, Edit[]>();
  for (const edit of remedies.flatMap(({ edits }) => edits)) {
    bySource.set(edit.source, [...(bySource.get(edit.source) ?? []), edit]);
  }
  return bySource;
}

/**
 * What a cell runs to apply what a remedy changes outside of cells: settings, switches, functions of files.
 *
 * @returns null where a remedy changes cells only.
 */
export function codeOutside(
  report: Report,
  { edits, code, patch }: Applicable
): string | null {
  const cells = report.sources.filter(({ kind }) => kind === 'cell');
  const inFiles = edits.some(({ source }) => cells.every(c => c.id !== source));
  const codes = code === null ? [] : [code.trimEnd()];
  if (inFiles && patch !== null) {
    codes.push(patchCode(withoutCells(patch, new Set(cells.map(c => c.name)))));
  }
  return codes.length > 0 ? codes.join('\n') : null;
}

/** The part of a unified diff that changes files. */
function withoutCells(patch: string, cells: ReadonlySet<string>): string {
  return patch
    .split(/^(?=--- a\/)/m)
    .filter(part => {
      const name = /^--- a\/(.*)$/m.exec(part)?.[1] ?? '';
      return !cells.has(name);
    })
    .join('');
}

/** Python that patches the functions of this kernel; the files stay as they are. */
function patchCode(patch: string): string {
  const literal = patch.includes("'''")
    ? JSON.stringify(patch)
    : `r'''${patch}'''`;
  return `import jupyter_graphbreak\njupyter_graphbreak.apply_patch(${literal})`;
}
