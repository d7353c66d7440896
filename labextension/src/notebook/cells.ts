/** Finds the current cells of the sources of a report. */
import { withId } from '../report/lookup';
import type { Report, Source } from '../report/types';

/** The properties that identify a code cell. */
export interface ICell {
  readonly executionCount: number | null;
  readonly sharedModel: { getSource(): string };
}

/** The cell of a source; stale if its text differs from the report. */
export interface ICellMatch<T> {
  readonly cell: T;
  readonly isStale: boolean;
}

/** An index of the code cells of a notebook by their identifying properties. */
export class CellIndex<T extends ICell> {
  /** @param cells - The cells, in their order in the notebook. */
  constructor(cells: Iterable<T>) {
    for (const cell of cells) {
      const text = cell.sharedModel.getSource().trimEnd();
      const copies = this._byText.get(text) ?? new Map<number | null, T>();
      this._byText.set(text, copies);
      for (const byCount of [copies, this._byCount]) {
        if (!byCount.has(cell.executionCount)) {
          byCount.set(cell.executionCount, cell);
        }
      }
    }
  }

  /** The cell with the given text; if there are several, the one with the given count or else the first. */
  withText(text: string, count: number | null): T | undefined {
    const copies = this._byText.get(text);
    const [first] = copies?.values() ?? [];
    return (count === null ? undefined : copies?.get(count)) ?? first;
  }

  /** The first cell with a count. */
  withCount(count: number | null): T | undefined {
    return count === null ? undefined : this._byCount.get(count);
  }

  private readonly _byText = new Map<string, Map<number | null, T>>();
  private readonly _byCount = new Map<number | null, T>();
}

/** The sources of a report that are cells of the notebook. */
export function cellSources(report: Report): readonly Source[] {
  let sources = CELL_SOURCES.get(report);
  if (sources === undefined) {
    sources = report.sources.filter(({ kind }) => kind === 'cell');
    CELL_SOURCES.set(report, sources);
  }
  return sources;
}

const CELL_SOURCES = new WeakMap<Report, readonly Source[]>();

/**
 * Find the cell of a source of a report.
 *
 * Cells are identified by text, because they can be moved, and counts restart with each kernel. If no cell has the text,
 * the name is used: "Cell In[3]".
 *
 * @param report - The report.
 * @param sourceId - The source.
 * @param carrier - The cell with the report in its output.
 * @param cells - All code cells of the notebook.
 * @returns null if the source is not a cell, or if its cell was deleted.
 */
export function findCell<T extends ICell>(
  report: Report,
  sourceId: string,
  carrier: T,
  cells: CellIndex<T>
): ICellMatch<T> | null {
  const source = withId(report.sources, sourceId);
  if (source?.kind !== 'cell') {
    return null;
  }
  const text = source.segments[0]?.text.trimEnd() ?? '';
  if (carrier.sharedModel.getSource().trimEnd() === text) {
    return { cell: carrier, isStale: false };
  }
  const count = countInName(source.name);
  const exact = cells.withText(text, count);
  if (exact !== undefined) {
    return { cell: exact, isStale: false };
  }
  // The report belongs to its own cell, even if the notebook has lost its counts.
  const isCarrier =
    (count !== null && carrier.executionCount === count) ||
    cellSources(report).length === 1;
  const editedCell = isCarrier ? carrier : cells.withCount(count);
  return editedCell === undefined ? null : { cell: editedCell, isStale: true };
}

/** A snapshot of a cell. */
export interface ISnapshot<T> extends ICell {
  readonly model: T;
}

/** A snapshot of a cell with its text, which is computed only once for all sources of all reports. */
export function snapshotOf<T extends ICell>(model: T): ISnapshot<T> {
  let text: string | null = null;
  return {
    model,
    executionCount: model.executionCount,
    sharedModel: { getSource: () => (text ??= model.sharedModel.getSource()) }
  };
}

/** The name of a cell by its execution count. */
export function cellName(count: number): string {
  return `Cell In[${count}]`;
}

/** The execution count in the name of a cell, "Cell In[3]". */
export function countInName(name: string): number | null {
  const match = /^Cell In\[(\d+)\]$/.exec(name);
  return match === null ? null : Number(match[1]);
}
