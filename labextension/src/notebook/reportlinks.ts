/** Keeps what is selected in the reports of outputs the same as what is selected everywhere else. */
import { orderedBreaks } from '../report/order';
import type { Report } from '../report/types';
import { hear, type IReportHandle, type ISelected } from '../view/link';
import type { NotebookReports } from './notebookreports';
import type { ISelection } from './runs';

/** What the ids of the markup begin with, by the kind of the part. */
const LETTERS = { break: 'b', graph: 'g', skipped: 'k', scope: 'c' } as const;

type LinkedKind = keyof typeof LETTERS;

export class ReportLinks {
  /** @param reports - The reports of the current notebook, and what of them is selected. */
  constructor(reports: NotebookReports) {
    this._reports = reports;
    hear(document, 'graphbreak-ready', ({ handle }) => this._add(handle));
    hear(document, 'graphbreak-selected', (selected, root) =>
      this._onSelected(selected, root)
    );
    hear(document, 'graphbreak-following', ({ isFollowing }) => {
      reports.isFollowing = isFollowing;
    });
    reports.selectionChanged.connect(this._onSelectionChanged, this);
    reports.followingChanged.connect(() =>
      this._handles.forEach(handle => handle.setFollowing(reports.isFollowing))
    );
  }

  /** Show conclusions only, because the cells themselves show their source; or sources beside them. */
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
  }

  /** The reports that are in the page. */
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
    const run = this._reports.runAround(root);
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
      // When the marks have followed.
      requestAnimationFrame(() => this._quoteIfHidden(root));
    }
  }

  /** Let a report show the line of its selected break where no editor shows it. */
  private _quoteIfHidden(root: HTMLElement): void {
    const outer = root.closest('.jp-WindowedPanel-outer, .jp-Notebook');
    const line = outer?.querySelector('.jp-GraphBreakMark.jp-mod-selected');
    const view = outer?.getBoundingClientRect();
    const box = line?.getBoundingClientRect();
    if (!view || !box || box.top < view.top || box.bottom > view.bottom) {
      const own = Array.from(this._live()).find(handle => handle.root === root);
      own?.quote();
    }
  }

  private _onSelectionChanged(_: unknown, selection: ISelection | null): void {
    for (const handle of this._live()) {
      const run = this._reports.runAround(handle.root);
      const isHere =
        run !== undefined &&
        run.cellId === selection?.cellId &&
        run.output === selection.output;
      const reference = isHere ? referenceTo(run.report!, selection!) : '';
      handle.highlight(reference, !this._isPointer);
    }
  }

  private readonly _reports: NotebookReports;
  private readonly _handles = new Set<IReportHandle>();
  private _isColumn = false;
  private _isPointer = false;
}

/** The part of a report that a reference of its markup is about; null where that is nothing that can be selected. */
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

/** The reference that the markup of a report has for a part; the empty string where it has none. */
export function referenceTo(
  report: Report,
  { kind, id }: Pick<ISelection, 'kind' | 'id'>
): string {
  if (!(kind in LETTERS)) {
    return '';
  }
  const linked = kind as LinkedKind;
  const index = partsOf(report, linked).findIndex(part => part.id === id);
  return index < 0
    ? ''
    : `${LETTERS[linked]}${index + (kind === 'break' ? 1 : 0)}`;
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
