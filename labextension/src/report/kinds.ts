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

/** How the id of a note begins that is an effect of a function which was not run again. */
export const EFFECT = 'effect';

/** How many parts of a kind a report has, and how many of them were read. */
export interface IPartCount {
  readonly read: number;
  readonly total: number;
}

/** Count the parts of a kind; cheap, nothing is made. */
export function countParts(report: Report, kind: PartKind): IPartCount {
  const lists = listsOf(report, kind);
  return {
    read: lists.reduce((count, list) => count + list.length, 0),
    total: lists.reduce((count, list) => count + totalOf(list), 0)
  };
}

function listsOf(
  report: Report,
  kind: PartKind
): readonly (readonly unknown[])[] {
  switch (kind) {
    case 'change':
      return [report.changes?.breaks ?? []];
    case 'error':
      return [report.error === null ? [] : [report.error]];
    case 'break':
      return [report.breaks];
    case 'graph':
      return [report.graphs];
    case 'skipped':
      return [report.skipped];
    case 'recompile':
      return [report.recompiles];
    case 'scope':
      return [report.scopes];
    case 'note':
      return [report.effects ?? [], report.diagnostics];
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
      return id.startsWith(EFFECT)
        ? (report.effects?.[Number(id.slice(EFFECT.length))]?.location ?? null)
        : null;
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
