/** Synchronizes the selection in reports of outputs with other views, and scrolls to a new report. */
import type { Cell } from '@jupyterlab/cells';
import type { ISignal } from '@lumino/signaling';

import { indexOf, orderedBreaks } from '../report/lookup';
import type { Report } from '../report/types';
import {
  onReportEvent,
  type IReportHandle,
  type ISelected
} from '../view/link';
import type { NotebookReports } from './notebookreports';
import type { ISelection } from './runs';

/** The letters of references in the markup, by kind of part. */
const LETTERS = { break: 'b', graph: 'g', skipped: 'k', scope: 'c' } as const;

/** The margin around a report that is scrolled into view, in pixels. */
const MARGIN = 8;

/** The time after the end of a run within which its report may appear, in milliseconds. */
const LATE_MS = 2000;

/** How often to scroll again because heights changed. */
const PASSES = 4;

type LinkedKind = keyof typeof LETTERS;

/** The signals of JupyterLab's notebook actions at the start and at the end of a cell's run. */
export interface IRunSignals {
  readonly executionScheduled: ISignal<unknown, { cell: Cell }>;
  readonly executed: ISignal<unknown, { cell: Cell }>;
}

export class ReportLinks {
  /**
   * @param reports - The reports of the current notebook, and the selection.
   * @param actions - Emit signals when a cell starts and ends.
   */
  constructor(reports: NotebookReports, actions: IRunSignals) {
    this._reports = reports;
    onReportEvent(document, 'graphbreak-ready', ({ handle }) =>
      this._add(handle)
    );
    onReportEvent(document, 'graphbreak-selected', (selected, root) =>
      this._onSelected(selected, root)
    );
    onReportEvent(document, 'graphbreak-following', ({ isFollowing }) => {
      reports.isFollowing = isFollowing;
    });
    actions.executionScheduled.connect((_, { cell }) => {
      this._running.add(cell);
      // The next report has different parts.
      if (reports.selection?.cellId === cell.model.id) {
        reports.selection = null;
      }
    });
    actions.executed.connect((_, { cell }) => {
      setTimeout(() => this._running.delete(cell), LATE_MS);
    });
    reports.selectionChanged.connect(this._onSelectionChanged, this);
    reports.followingChanged.connect(() =>
      this._handles.forEach(handle => handle.setFollowing(reports.isFollowing))
    );
  }

  /** Whether reports show only their conclusions, because cells show the sources. */
  set isColumn(isColumn: boolean) {
    this._isColumn = isColumn;
    this._live().forEach(handle => handle.setColumn(isColumn));
  }

  private _add(handle: IReportHandle): void {
    if (handle.root.closest('.jp-Notebook') === null) {
      return;
    }
    this._live();
    this._handles.add(handle);
    handle.setColumn(this._isColumn);
    handle.setFollowing(this._reports.isFollowing);
    const cell = this._reports.notebook?.content.activeCell;
    if (cell?.node.contains(handle.root) && this._running.has(cell)) {
      showBreaks(handle.root);
    }
  }

  /** The reports on the page. */
  private _live(): Set<IReportHandle> {
    for (const handle of this._handles) {
      if (!handle.root.isConnected) {
        this._handles.delete(handle);
      }
    }
    return this._handles;
  }

  private _onSelected(
    { reference, isPointer }: ISelected,
    root: HTMLElement
  ): void {
    const run = this._reports.runContaining(root);
    if (run === undefined) {
      return;
    }
    const part = partOf(run.report!, reference);
    if (reference === '' || part !== null) {
      this._isPointer = isPointer;
      const { cellId, output } = run;
      this._reports.selection = part && { cellId, output, ...part };
      this._isPointer = false;
    }
    if (part?.kind === 'break' && !isPointer && this._isColumn) {
      // By the next frame, the marks have been updated.
      requestAnimationFrame(() => this._quoteIfHidden(root));
    }
  }

  /** Let a report show the line of its selected break if no editor shows it. */
  private _quoteIfHidden(root: HTMLElement): void {
    const outer = root.closest('.jp-WindowedPanel-outer, .jp-Notebook');
    const line = outer?.querySelector('.jp-GraphBreakMark.jp-mod-selected');
    const view = outer?.getBoundingClientRect();
    const box = line?.getBoundingClientRect();
    if (!view || !box || box.top < view.top || box.bottom > view.bottom) {
      const hiddenHandle = Array.from(this._live()).find(
        handle => handle.root === root
      );
      hiddenHandle?.quote();
    }
  }

  private _onSelectionChanged(_: unknown, selection: ISelection | null): void {
    const { runs } = this._reports;
    for (const handle of this._live()) {
      const run = this._reports.runContaining(handle.root, runs);
      const isInReport =
        run !== undefined &&
        run.cellId === selection?.cellId &&
        run.output === selection.output;
      const reference = isInReport ? referenceTo(run.report!, selection!) : '';
      handle.highlight(reference, !this._isPointer);
    }
  }

  private readonly _reports: NotebookReports;
  private readonly _handles = new Set<IReportHandle>();
  /** Cells that are running, or ended a moment ago. */
  private readonly _running = new WeakSet<Cell>();
  private _isColumn = false;
  private _isPointer = false;
}

/** Scroll the breaks of a report into view, repeatedly because heights may change. */
function showBreaks(root: HTMLElement, passes = PASSES): void {
  requestAnimationFrame(() =>
    requestAnimationFrame(() => {
      const outer = root.closest('.jp-WindowedPanel-outer');
      const by = outer === null ? 0 : hiddenBelow(root, outer);
      if (by > 0 && passes > 0) {
        outer!.scrollTop += by;
        showBreaks(root, passes - 1);
      }
    })
  );
}

/**
 * The distance to scroll to show the breaks of a report without hiding its top.
 *
 * If the cell's end is out of sight, the reader has scrolled elsewhere, and nothing moves.
 */
function hiddenBelow(root: HTMLElement, outer: Element): number {
  const code = root.closest('.jp-Cell')?.querySelector('.jp-InputArea');
  const rows = root.querySelectorAll(
    '[data-list=breaks] > .gb-item > details > summary, [data-list=breaks] > .gb-group > p'
  );
  const last = rows[rows.length - 1];
  if (!code || last === undefined) {
    return 0;
  }
  const view = outer.getBoundingClientRect();
  const end = code.getBoundingClientRect().bottom;
  if (end < view.top || end > view.bottom) {
    return 0;
  }
  const [bottom, panel] = [last, root.querySelector('.gb-panel')!].map(
    element => element.getBoundingClientRect().bottom
  );
  const scrollToBottom = Math.min(bottom!, panel!) + MARGIN - view.bottom;
  const scrollToTop = root.getBoundingClientRect().top - MARGIN - view.top;
  return Math.min(scrollToBottom, scrollToTop);
}

/** The part of a report for a reference of its markup; null if it cannot be selected. */
export function partOf(
  report: Report,
  reference: string
): Pick<ISelection, 'kind' | 'id'> | null {
  const kinds = Object.keys(LETTERS) as LinkedKind[];
  const kind = kinds.find(name => LETTERS[name] === reference[0]);
  if (kind === undefined) {
    return null;
  }
  const index = Number(reference.slice(1)) - (kind === 'break' ? 1 : 0);
  const id = partsOf(report, kind)[index]?.id;
  return id === undefined ? null : { kind, id };
}

/** The reference of a part in the markup of a report; empty if it has none. */
export function referenceTo(
  report: Report,
  { kind, id }: Pick<ISelection, 'kind' | 'id'>
): string {
  if (!(kind in LETTERS)) {
    return '';
  }
  const linkedKind = kind as LinkedKind;
  const index = indexOf(partsOf(report, linkedKind), id);
  return index < 0
    ? ''
    : `${LETTERS[linkedKind]}${index + (kind === 'break' ? 1 : 0)}`;
}

function partsOf(
  report: Report,
  kind: LinkedKind
): readonly { readonly id: string }[] {
  switch (kind) {
    case 'break':
      return orderedBreaks(report);
    case 'graph':
      return report.graphs;
    case 'skipped':
      return report.skipped;
    case 'scope':
      return report.scopes;
  }
}
