/** Where the sources of a report are in the notebook as it stands now. */
import type { Report } from './report';

/** What of a code cell this needs to know. */
export interface ICell {
  readonly executionCount: number | null;
  readonly sharedModel: { getSource(): string };
}

/** A cell that a source of a report was; stale where its text is not that of the report any more. */
export interface IFoundCell<T> {
  cell: T;
  stale: boolean;
}

/**
 * Find the cell that a source of a report was.
 *
 * A cell is known by its text: cells are moved, and counts begin anew with each kernel. Only where no cell has the text
 * any more it is told by its name, "Cell In[3]".
 *
 * @param report - The report.
 * @param sourceId - The source.
 * @param carrier - The cell in whose output the report is.
 * @param cells - All code cells of the notebook.
 * @returns null where the source is no cell, or where its cell is gone.
 */
export function findCell<T extends ICell>(
  report: Report,
  sourceId: string,
  carrier: T,
  cells: Iterable<T>
): IFoundCell<T> | null {
  const source = report.sources.find(({ id }) => id === sourceId);
  if (source?.kind !== 'cell') {
    return null;
  }
  const text = source.segments[0]?.text.trimEnd() ?? '';
  const has = ({ sharedModel }: T): boolean =>
    sharedModel.getSource().trimEnd() === text;
  if (has(carrier)) {
    return { cell: carrier, stale: false };
  }
  const all = Array.from(cells);
  const count = countIn(source.name);
  const named = (cell: T): boolean =>
    count !== null && cell.executionCount === count;
  const same = all.filter(has);
  const exact = same.find(named) ?? same[0];
  if (exact !== undefined) {
    return { cell: exact, stale: false };
  }
  const isOnlyCell =
    report.sources.filter(({ kind }) => kind === 'cell').length === 1;
  // The run of a report is that of its own cell, even where the notebook has lost its counts.
  const edited =
    named(carrier) || isOnlyCell ? carrier : all.find(each => named(each));
  return edited === undefined ? null : { cell: edited, stale: true };
}

/** The execution count in the name of a cell, "Cell In[3]". */
export function countIn(name: string): number | null {
  const match = /^Cell In\[(\d+)\]$/.exec(name);
  return match === null ? null : Number(match[1]);
}
