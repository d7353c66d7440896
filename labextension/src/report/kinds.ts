/** The kinds of parts that a report lists: how many parts of a kind there are, and where a part stands in its source. */
import { totalOf, withId } from './lookup';
import type { Location, Report } from './types';

/** A kind of parts of a report. */
export type PartKind =
  | 'break'
  | 'change'
  | 'error'
  | 'graph'
  | 'note'
  | 'recompile'
  | 'scope'
  | 'skipped';

/** The kinds in the order in which a run lists them. */
export const PART_KINDS: readonly PartKind[] = [
  'change',
  'error',
  'break',
  'graph',
  'skipped',
  'recompile',
  'scope',
  'note'
];

/** How many parts of a kind a report has, and how many of them were read. */
export interface IPartCount {
  readonly read: number;
  readonly total: number;
}

/** Count the parts of a kind; cheap, nothing is made. */
export function countParts(report: Report, kind: PartKind): IPartCount {
  if (kind === 'error') {
    const errors = report.error === null ? 0 : 1;
    return { read: errors, total: errors };
  }
  const parts = listOf(report, kind);
  return { read: parts.length, total: totalOf(parts) };
}

function listOf(
  report: Report,
  kind: Exclude<PartKind, 'error'>
): readonly unknown[] {
  switch (kind) {
    case 'change':
      return report.changes?.breaks ?? [];
    case 'break':
      return report.breaks;
    case 'graph':
      return report.graphs;
    case 'skipped':
      return report.skipped;
    case 'recompile':
      return report.recompiles;
    case 'scope':
      return report.scopes;
    case 'note':
      return report.diagnostics;
  }
}

/**
 * The location of a part; null where it has none.
 *
 * @param report - The report.
 * @param kind - The kind of the part.
 * @param id - The id of the part in the report; of a list without ids the index.
 */
export function locationOf(
  report: Report,
  kind: PartKind,
  id: string
): Location | null {
  switch (kind) {
    case 'break':
      return withId(report.breaks, id)?.location ?? null;
    case 'graph':
      return graphLocation(report, id);
    case 'skipped':
      return withId(report.skipped, id)?.location ?? null;
    case 'scope':
      return withId(report.scopes, id)?.location ?? null;
    case 'recompile':
      return report.recompiles[Number(id)]?.location ?? null;
    case 'error':
      return report.error?.location ?? null;
    case 'change': {
      const change = report.changes?.breaks[Number(id)];
      return locationOf(report, 'break', change?.break ?? '');
    }
    case 'note':
      return null;
  }
}

/** The first line of a graph; of a graph without lines its frame's location. */
function graphLocation(report: Report, id: string): Location | null {
  const graph = withId(report.graphs, id);
  const first = graph?.lines[0];
  if (first === undefined) {
    return withId(report.frames, graph?.frame)?.location ?? null;
  }
  return {
    source: first.source,
    line: first.line,
    end_line: first.line,
    column: null,
    end_column: null,
    function: null,
    code: null
  };
}
