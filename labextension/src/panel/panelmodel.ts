/** The state of the panel and everything that changes it. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { type ISignal, Signal } from '@lumino/signaling';

import { type IRun, isSameSelection, type ISelection } from '../notebook/runs';
import { type IRow, type IRowOptions, makeRows } from './rows';
import { keysOf, type Sort } from './tree';

/** The number of rows on the page at first; each button press adds as many. */
export const PAGE_SIZE = 500;

/** The state of the panel, which is immutable. */
export interface IPanelState extends IRowOptions {
  readonly hasNotebook: boolean;
  readonly runs: readonly IRun[];
  /** Whether there is a command that explains the active cell. */
  readonly canExplain: boolean;
  /** Whether there is an edit since the last run that can be tried. */
  readonly canTryEdited: boolean;
  readonly selection: ISelection | null;
  /** The row with the focus, or the row that Tab focuses. */
  readonly activeKey: string;
  /** The number of rows on the page; there are more if the active row comes later. */
  readonly limit: number;
  /** A message instead of the filter's result. */
  readonly message: string;
  /** The activity of the running cell; empty if none is running. */
  readonly progress: string;
}

const INITIAL: IPanelState = {
  hasNotebook: false,
  runs: [],
  canExplain: false,
  canTryEdited: false,
  query: '',
  hiddenKinds: new Set(),
  sort: 'fix',
  openNodes: new Map(),
  selection: null,
  activeKey: '',
  limit: PAGE_SIZE,
  message: '',
  progress: ''
};

export class PanelModel {
  /** @param trans - The language of the reader. */
  constructor(trans: TranslationBundle) {
    this._trans = trans;
  }

  get state(): IPanelState {
    return this._state;
  }

  /** Emitted when the state changes. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Emitted when the reader changes the order. */
  get sortChosen(): ISignal<this, Sort> {
    return this._sortChosen;
  }

  /** The rows of the state, whether on the page or not. */
  get rows(): readonly IRow[] {
    const { runs, query, hiddenKinds, sort, openNodes } = this._state;
    const inputs = [runs, query, hiddenKinds, sort, openNodes];
    if (inputs.some((input, index) => input !== this._rowInputs[index])) {
      this._rows = makeRows(runs, this._state, this._trans);
      this._rowInputs = inputs;
    }
    return this._rows;
  }

  setRuns(runs: readonly IRun[], hasNotebook: boolean): void {
    this._update({ runs, hasNotebook });
  }

  setCanExplain(canExplain: boolean): void {
    this._update({ canExplain });
  }

  setCanTryEdited(canTryEdited: boolean): void {
    this._update({ canTryEdited });
  }

  /** Show a new selection: make its row active and visible. */
  setSelection(selection: ISelection | null, run: IRun | undefined): void {
    if (isSameSelection(selection, this._state.selection)) {
      return;
    }
    if (selection === null || run === undefined) {
      this._update({ selection });
      return;
    }
    const keys = keysOf(run, selection);
    const activeKey = keys.pop()!;
    if (activeKey === this._state.activeKey) {
      this._update({ selection });
      return;
    }
    const openNodes = new Map(this._state.openNodes);
    keys.forEach(key => openNodes.set(key, true));
    this._update({ selection, activeKey, openNodes });
    const { query, hiddenKinds } = this._state;
    const mayBeHidden = query !== '' || hiddenKinds.has(selection.kind);
    if (mayBeHidden && !this.rows.some(({ key }) => key === activeKey)) {
      this.revealKind(selection.kind);
    }
  }

  setQuery(query: string): void {
    this._update({ query, limit: PAGE_SIZE, message: '' });
  }

  setSort(sort: Sort): void {
    this._update({ sort });
  }

  /** Set the order as the reader chose it. */
  chooseSort(sort: Sort): void {
    this.setSort(sort);
    this._sortChosen.emit(sort);
  }

  /** Hide a section, or show it again. */
  toggleKind(kind: string): void {
    const hiddenKinds = new Set(this._state.hiddenKinds);
    if (!hiddenKinds.delete(kind)) {
      hiddenKinds.add(kind);
    }
    this._update({ hiddenKinds });
  }

  /** Show all rows of a section, regardless of filters. */
  revealKind(kind: string): void {
    const hiddenKinds = new Set(this._state.hiddenKinds);
    hiddenKinds.delete(kind);
    this._update({ hiddenKinds, query: '' });
  }

  setActive({ key }: IRow): void {
    this._update({ activeKey: key });
  }

  /** Open or close a row. */
  toggleRow({ key, isOpen }: IRow): void {
    const openNodes = new Map(this._state.openNodes).set(key, !isOpen);
    this._update({ openNodes, activeKey: key });
  }

  /** Add more rows to the page. */
  showMore(): void {
    this._update({ limit: rowLimit(this._state, this.rows) + PAGE_SIZE });
  }

  setMessage(message: string): void {
    this._update({ message });
  }

  setProgress(progress: string): void {
    this._update({ progress });
  }

  private _update(changes: Partial<IPanelState>): void {
    const fields = Object.keys(changes) as (keyof IPanelState)[];
    if (fields.some(field => changes[field] !== this._state[field])) {
      this._state = { ...this._state, ...changes };
      this._changed.emit();
    }
  }

  private readonly _trans: TranslationBundle;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _sortChosen = new Signal<this, Sort>(this);
  private _state = INITIAL;
  private _rows: readonly IRow[] = [];
  /** The state from which the rows were built. */
  private _rowInputs: readonly unknown[] = [];
}

/** The number of rows on the page, which always includes the active one. */
export function rowLimit(
  { limit, activeKey }: IPanelState,
  rows: readonly IRow[]
): number {
  return Math.max(limit, rows.findIndex(({ key }) => key === activeKey) + 1);
}

/** The key of the selected row, or an empty string. */
export function selectedKey({ selection, runs }: IPanelState): string {
  const run = runs.find(
    ({ cellId, output }) =>
      cellId === selection?.cellId && output === selection.output
  );
  return selection && run ? keysOf(run, selection).at(-1)! : '';
}
