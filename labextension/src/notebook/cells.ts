/** Which cells of a notebook, as it is now, the sources of a report are. */
import { withId } from '../report/lookup';
import type { Report, Source } from '../report/types';

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

/** The code cells of a notebook by the properties by which they are found, looked at once. */
export class CellIndex<T extends ICell> {
  /** @param cells - In their order in the notebook. */
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

  /** A cell with a text; of several that with the count, else the first. */
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

/** The sources of a report that are cells. */
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
  cells: CellIndex<T>
): ICellMatch<T> | null {
  const source = withId(report.sources, sourceId);
  if (source?.kind !== 'cell') {
    return null;
  }
  const text = source.segments[0]?.text.trimEnd() ?? '';
  if (carrier.sharedModel.getSource().trimEnd() === text) {
    return { cell: carrier, stale: false };
  }
  const count = countInName(source.name);
  const exact = cells.withText(text, count);
  if (exact !== undefined) {
    return { cell: exact, stale: false };
  }
  // The run of a report is that of its own cell, even where the notebook has lost its counts.
  const isCarrier =
    (count !== null && carrier.executionCount === count) ||
    cellSources(report).length === 1;
  const edited = isCarrier ? carrier : cells.withCount(count);
  return edited === undefined ? null : { cell: edited, stale: true };
}

/** A cell as it was when it was looked at. */
export interface ISnapshot<T> extends ICell {
  readonly model: T;
}

/** A cell as it is now, whose text is put together once though every source of every report asks for it. */
export function snapshotOf<T extends ICell>(model: T): ISnapshot<T> {
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
