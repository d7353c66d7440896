/** Which cells of a notebook, as it is now, the sources of a report are. */
import type { Report } from '../report/types';

/** The properties of a code cell by which it is found. */
export interface ICell {
  readonly executionCount: number | null;
  readonly sharedModel: { getSource(): string };
}

/** The cell that a source of a report is; stale where its text is not that of the report any more. */
export interface ICellMatch<T> {
  readonly cell: T;
  readonly stale: boolean;
}

/**
 * Find the cell that a source of a report is.
 *
 * A cell is known by its text: cells are moved, and counts begin anew with each kernel. Only where no cell has the text
 * any more is the cell known by its name, "Cell In[3]".
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
): ICellMatch<T> | null {
  const source = report.sources.find(({ id }) => id === sourceId);
  if (source?.kind !== 'cell') {
    return null;
  }
  const text = source.segments[0]?.text.trimEnd() ?? '';
  const hasText = ({ sharedModel }: T): boolean =>
    sharedModel.getSource().trimEnd() === text;
  if (hasText(carrier)) {
    return { cell: carrier, stale: false };
  }
  const all = Array.from(cells);
  const count = countInName(source.name);
  const hasCount = (cell: T): boolean =>
    count !== null && cell.executionCount === count;
  const copies = all.filter(hasText);
  const exact = copies.find(hasCount) ?? copies[0];
  if (exact !== undefined) {
    return { cell: exact, stale: false };
  }
  const isOnlyCell =
    report.sources.filter(({ kind }) => kind === 'cell').length === 1;
  // The run of a report is that of its own cell, even where the notebook has lost its counts.
  const edited = hasCount(carrier) || isOnlyCell ? carrier : all.find(hasCount);
  return edited === undefined ? null : { cell: edited, stale: true };
}

/** A cell as it is now, whose text is put together once though every source of every report asks for it. */
export function snapshotOf<T extends ICell>(model: T): ICell & { model: T } {
  let text: string | null = null;
  return {
    model,
    executionCount: model.executionCount,
    sharedModel: { getSource: () => (text ??= model.sharedModel.getSource()) }
  };
}

/** The name of a cell with an execution count. */
export function cellName(count: number): string {
  return `Cell In[${count}]`;
}

/** The execution count in the name of a cell, "Cell In[3]". */
export function countInName(name: string): number | null {
  const match = /^Cell In\[(\d+)\]$/.exec(name);
  return match === null ? null : Number(match[1]);
}
