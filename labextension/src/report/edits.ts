/** Applies the edits of remedies to source text. */
import type { Edit, Remedy, Report } from './types';

/** Something that can be applied: a remedy, or a statement that compiles something. */
export type Applicable = Pick<Remedy, 'edits' | 'code' | 'patch'> &
  Partial<Pick<Remedy, 'kind'>>;

/** The entry at an index of a report's list, if it exists. */
export function applicableAt(
  report: Report,
  list: 'remedies' | 'compiled',
  index: number
): Applicable | undefined {
  if (list === 'remedies') {
    return report.remedies?.[index];
  }
  const edit = report.compiled?.[index]?.edit ?? null;
  return edit === null ? undefined : { edits: [edit], code: null, patch: null };
}

/** A replacement of lines; if `last` is before `first`, it is an insertion before that line. */
export interface ILineChange {
  readonly first: number;
  readonly last: number;
  readonly lines: readonly string[];
}

/** The error if a line differs from the line that an edit is for, or two edits change the same line. */
export class LineMismatch extends Error {
  /** @param line - The line number. */
  constructor(readonly line: number) {
    super(`line ${line}`);
  }
}

/**
 * Compute the changes that edits make to source text, from top to bottom.
 *
 * @param text - The current text.
 * @param edits - Edits of one source.
 * @param original - The text that the edits are for; it identifies the line that follows an insertion.
 * @throws LineMismatch if the text is not the one that the edits are for.
 */
export function changesFor(
  text: string,
  edits: readonly Edit[],
  original: string
): ILineChange[] {
  const lines = text.split('\n');
  const originalLines = original.split('\n');
  // Insertions before the same line keep their order, and come before the replacement of that line.
  const orderedEdits = [...edits].sort(
    (one, other) =>
      one.first_line - other.first_line || one.last_line - other.last_line
  );
  let lastChanged = 0;
  return orderedEdits.map(edit => {
    const { first_line: first, last_line: last, old, new: newText } = edit;
    const isInsertion = last < first;
    const isAsExpected = isInsertion
      ? last === first - 1 &&
        old === '' &&
        first <= lines.length + 1 &&
        lines[first - 1] === originalLines[first - 1]
      : last <= lines.length && lines.slice(first - 1, last).join('\n') === old;
    if (!isAsExpected || first <= lastChanged) {
      const differingIndex = old
        .split('\n')
        .findIndex((line, index) => line !== lines[first - 1 + index]);
      throw new LineMismatch(
        isInsertion || differingIndex < 0 ? first : first + differingIndex
      );
    }
    lastChanged = last;
    const isDeletion = newText === '' && !isInsertion;
    return { first, last, lines: isDeletion ? [] : newText.split('\n') };
  });
}

/** A replacement of a part of the text; positions count characters. */
export interface IReplacement {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** The replacements that changes make, the last first, so that none moves the others. */
export function replacementsFor(
  text: string,
  changes: readonly ILineChange[]
): IReplacement[] {
  const lines = text.split('\n');
  const lineStarts: number[] = [];
  let position = 0;
  for (const line of lines) {
    lineStarts.push(position);
    position += line.length + 1;
  }
  return [...changes].reverse().map(({ first, last, lines: newLines }) => {
    const newText = newLines.join('\n');
    if (last < first) {
      return first > lines.length
        ? { start: text.length, end: text.length, text: `\n${newText}` }
        : { start: lineStarts[first - 1]!, end: lineStarts[first - 1]!, text: `${newText}\n` }; // prettier-ignore
    }
    const start = lineStarts[first - 1]!;
    const end = lineStarts[last - 1]! + lines[last - 1]!.length;
    if (newLines.length > 0) {
      return { start, end, text: newText };
    }
    // Removing a line removes one line break: the one after it, or before it at the end of the text.
    return last < lines.length
      ? { start, end: end + 1, text: '' }
      : { start: Math.max(0, start - 1), end, text: '' };
  });
}

/** A text with some of its lines changed. */
export function withChanges(
  text: string,
  changes: readonly ILineChange[]
): string {
  let changedText = text;
  for (const { start, end, text: newText } of replacementsFor(text, changes)) {
    changedText =
      changedText.slice(0, start) + newText + changedText.slice(end);
  }
  return changedText;
}

/** The result of applying edits of one source to their original text. */
export function applyEdits(original: string, edits: readonly Edit[]): string {
  return withChanges(original, changesFor(original, edits, original));
}

/** A removed line, an added line, or an unchanged line for context. */
export interface IDiffLine {
  readonly sign: '-' | '+' | ' ';
  /** The line number before the change; null for an added line. */
  readonly number: number | null;
  readonly text: string;
}

/** The number of unchanged lines that are shown around a change. */
const CONTEXT_LINES = 2;

/**
 * The diff of changes: all removed and added lines, with context.
 *
 * @returns The lines in groups; unchanged lines between groups are left out.
 */
export function diffOf(
  text: string,
  changes: readonly ILineChange[]
): IDiffLine[][] {
  const lines = text.split('\n');
  const groups: IDiffLine[][] = [];
  const add = (sign: '-' | ' ', from: number, to: number): void => {
    const start = Math.max(0, from);
    lines.slice(start, Math.max(start, to)).forEach((line, index) => {
      groups.at(-1)!.push({ sign, number: start + index + 1, text: line });
    });
  };
  let lastChanged = 0;
  for (const { first, last, lines: newLines } of changes) {
    const before = first - 1;
    if (groups.length > 0 && before - lastChanged <= 2 * CONTEXT_LINES) {
      add(' ', lastChanged, before);
    } else {
      if (groups.length > 0) {
        add(' ', lastChanged, lastChanged + CONTEXT_LINES);
      }
      groups.push([]);
      add(' ', before - CONTEXT_LINES, before);
    }
    add('-', before, last);
    for (const line of newLines) {
      groups.at(-1)!.push({ sign: '+', number: null, text: line });
    }
    lastChanged = last;
  }
  if (groups.length > 0) {
    add(' ', lastChanged, lastChanged + CONTEXT_LINES);
  }
  return groups;
}

/** The edits of remedies, by source id. */
export function editsBySource(
  remedies: readonly Applicable[]
): Map<string, Edit[]> {
  const bySource = new Map<string, Edit[]>();
  for (const edit of remedies.flatMap(({ edits }) => edits)) {
    const editsOfSource = bySource.get(edit.source) ?? [];
    editsOfSource.push(edit);
    bySource.set(edit.source, editsOfSource);
  }
  return bySource;
}

/**
 * Code for a new cell that applies what a remedy changes outside the notebook's cells: settings, switches and
 * functions in files.
 *
 * @returns null if the remedy changes only cells.
 */
export function codeOutside(
  report: Report,
  { edits, code, patch, kind }: Applicable
): string | null {
  const cells = new Map(
    report.sources.flatMap(({ id, name, kind }) =>
      kind === 'cell' ? [[id, name]] : []
    )
  );
  const inFiles = edits.some(({ source }) => !cells.has(source));
  // The edits of a mark insert its code before the call.
  const isInserted = kind === 'mark' && edits.length > 0;
  const codes = code === null || isInserted ? [] : [code.trimEnd()];
  if (inFiles && patch !== null) {
    codes.push(patchCode(withoutCells(patch, new Set(cells.values()))));
  }
  return codes.length > 0 ? codes.join('\n') : null;
}

/** The part of a unified diff that changes files. */
function withoutCells(patch: string, cells: ReadonlySet<string>): string {
  return patch
    .split(/^(?=--- a\/.*\n\+\+\+ b\/)/m)
    .filter(part => {
      const name = /^--- a\/(.*)$/m.exec(part)?.[1] ?? '';
      return !cells.has(name);
    })
    .join('');
}

/** Python code that patches functions in this kernel without changing files. */
function patchCode(patch: string): string {
  const isRaw = !/'''|[\0\r]|['\\]$/.test(patch);
  const literal = isRaw ? `r'''${patch}'''` : JSON.stringify(patch);
  return `import jupyter_graphbreak\njupyter_graphbreak.apply_patch(${literal})`;
}
