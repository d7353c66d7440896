/** The tree of the panel as rows: what is folded has none, so a notebook of many reports costs what it shows. */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IRun, ISelection, Kind } from './model';
import {
  countOf,
  headline,
  type IPart,
  KINDS,
  kindLabel,
  Parts
} from './parts';
import { findCell } from './places';
import type { Report } from './report';

/** By what the parts of a run are sorted. */
export type Sort = 'line' | 'cost' | 'cause';

/** What the reader has chosen to see. */
export interface IView {
  query: string;
  hidden: ReadonlySet<Kind>;
  sort: Sort;
  /** What was opened or closed by hand, by key. */
  open: ReadonlyMap<string, boolean>;
}

/** One row of the tree. */
export interface IRow {
  key: string;
  level: 1 | 2 | 3;
  /** Its place among its siblings, from 1, and their number. */
  position: number;
  siblings: number;
  /** null where nothing can be opened. */
  isOpen: boolean | null;
  run: IRun;
  /** What selecting the row selects; null for runs and groups. */
  selection: ISelection | null;
  /** What the sign means, for those who do not see it. */
  name: string;
  sign: string;
  look: string;
  isCode: boolean;
  label: string;
  details: string[];
  more: string;
  count: number | null;
}

/** Up to so many runs are open at first; more would be long to look through. */
const OPEN_RUNS = 10;

/** The key of a run. */
export function runKey(run: { cellId: string; output: number }): string {
  return `${run.cellId}/${run.output}`;
}

/** The keys of the rows around what is selected, and its own last. */
export function keysOf(run: IRun, selection: ISelection): string[] {
  const own = `${runKey(run)}/${selection.kind}/${selection.id}`;
  switch (selection.kind) {
    case 'error':
      return [runKey(run), own];
    case 'break': {
      const found = run.report?.breaks.find(({ id }) => id === selection.id);
      const cause = `${found?.gb_type ?? ''} ${found?.gb_id ?? ''}`;
      return [runKey(run), `${runKey(run)}/cause/${cause}`, own];
    }
    default:
      return [runKey(run), `${runKey(run)}/${selection.kind}`, own];
  }
}

/** Make the rows of some runs. */
export function makeRows(
  runs: readonly IRun[],
  view: IView,
  trans: TranslationBundle
): IRow[] {
  const maker = new Rows(view, trans, runs.length);
  return maker.of(runs);
}

/** A row and, where it can be opened, what is in it. */
interface INode {
  key: string;
  isOpen: boolean;
  part: Partial<IRow> & { label: string };
  children: (() => INode[]) | null;
}

class Rows {
  constructor(view: IView, trans: TranslationBundle, runs: number) {
    this._view = view;
    this._trans = trans;
    this._runs = runs;
    this._query = view.query.trim().toLowerCase();
  }

  of(runs: readonly IRun[]): IRow[] {
    const nodes = runs
      .map((run): [IRun, INode | null] => [run, this._run(run)])
      .filter((pair): pair is [IRun, INode] => pair[1] !== null);
    const rows: IRow[] = [];
    nodes.forEach(([run, node], at) =>
      this._add(rows, run, node, 1, at + 1, nodes.length)
    );
    return rows;
  }

  private _add(
    rows: IRow[],
    run: IRun,
    node: INode,
    level: 1 | 2 | 3,
    position: number,
    siblings: number
  ): void {
    const isOpen =
      node.children === null
        ? null
        : // What a filter found is shown.
          this._query !== '' || (this._view.open.get(node.key) ?? node.isOpen);
    rows.push({
      selection: null,
      name: '',
      sign: '',
      look: '',
      isCode: false,
      details: [],
      more: '',
      count: null,
      ...node.part,
      key: node.key,
      level,
      position,
      siblings,
      isOpen,
      run
    });
    if (isOpen) {
      const children = node.children!();
      children.forEach((child, at) =>
        this._add(
          rows,
          run,
          child,
          (level + 1) as 2 | 3,
          at + 1,
          children.length
        )
      );
    }
  }

  /** A run; null where the filter leaves nothing of it. */
  private _run(run: IRun): INode | null {
    const { report } = run;
    const part = { ...this._heading(run), more: run.problem ?? '' };
    if (report === null) {
      const matches = this._matches(part.label, run.problem ?? '');
      return matches
        ? { key: runKey(run), isOpen: false, part, children: null }
        : null;
    }
    const children = (): INode[] => this._groups(run, report);
    if (this._query !== '') {
      const found = children();
      return found.length === 0
        ? null
        : { key: runKey(run), isOpen: true, part, children: () => found };
    }
    const isOpen =
      this._runs <= OPEN_RUNS &&
      (report.breaks.length > 0 || report.error !== null);
    return { key: runKey(run), isOpen, part, children };
  }

  private _heading(run: IRun): Partial<IRow> & { label: string } {
    const trans = this._trans;
    const { report } = run;
    const count = run.executionCount ?? ' ';
    const breaks = report?.breaks.length ?? 0;
    return {
      name: trans.__('Cell %1', `[${count}]`),
      sign: `[${count}]`,
      label: firstLine(run.cell.sharedModel.getSource()),
      isCode: true,
      look: report === null ? 'unread' : breaks > 0 ? 'broken' : report.status,
      details:
        report === null
          ? [run.problem ?? '']
          : [
              statusLabel(report, trans),
              breaks === 0
                ? trans.__('no breaks')
                : trans._n('%1 break', '%1 breaks', breaks),
              trans._n('%1 graph', '%1 graphs', report.graphs.length),
              report.changes?.breaks.length
                ? trans.__(
                    'since the last run: %1',
                    headline(report.changes, trans)
                  )
                : '',
              run.edited ? trans.__('edited after this run') : ''
            ]
    };
  }

  private _groups(run: IRun, report: Report): INode[] {
    const own =
      report.sources.find(
        ({ id }) => findCell(report, id, run.cell, [run.cell]) !== null
      ) ?? null;
    const parts = new Parts(run, report, own, this._trans);
    return KINDS.filter(
      kind =>
        !this._view.hidden.has(kind) &&
        (countOf(report, kind) > 0 || (kind === 'change' && report.changes))
    ).flatMap(kind => {
      if (kind === 'break') {
        return this._causes(parts);
      }
      if (kind === 'error') {
        return this._leaves(parts, kind);
      }
      return this._group(parts, kind, report);
    });
  }

  private _group(parts: Parts, kind: Kind, report: Report): INode[] {
    const leaves = this._query === '' ? null : this._leaves(parts, kind);
    if (leaves?.length === 0) {
      return [];
    }
    const changes = kind === 'change' ? report.changes : null;
    return [
      {
        key: `${runKey(parts.run)}/${kind}`,
        isOpen: false,
        part: {
          label: kindLabel(kind, this._trans),
          look: 'group',
          count: changes ? null : (leaves?.length ?? countOf(report, kind)),
          details: changes ? [headline(changes, this._trans)] : []
        },
        children: () => leaves ?? this._leaves(parts, kind)
      }
    ];
  }

  /** The breaks of a run, those of one cause together. */
  private _causes(parts: Parts): INode[] {
    const found = this._sorted(parts, 'break');
    const causes = new Map<string, IPart[]>();
    for (const part of found) {
      causes.set(part.cause, [...(causes.get(part.cause) ?? []), part]);
    }
    const groups = Array.from(causes);
    if (this._view.sort === 'cost') {
      const sum = ([, members]: [string, IPart[]]): number =>
        members.reduce((cost, each) => cost + (each.cost ?? 0), 0);
      groups.sort((one, other) => sum(other) - sum(one));
    }
    return groups.map(([cause, members]) => ({
      key: keysOf(parts.run, this._selection(parts.run, members[0]!))[1]!,
      isOpen: true,
      part: { label: cause, look: 'cause', count: members.length },
      children: () => members.map(part => this._leaf(parts.run, part))
    }));
  }

  private _leaves(parts: Parts, kind: Kind): INode[] {
    return this._sorted(parts, kind).map(part => this._leaf(parts.run, part));
  }

  private _leaf(run: IRun, part: IPart): INode {
    const { name, sign, look, isCode, label, more, cost } = part;
    const details = part.details.filter(each => each !== '');
    if (
      cost !== null &&
      (this._view.sort === 'cost' || part.kind !== 'break')
    ) {
      details.push(this._trans.__('%1 s', cost.toFixed(2)));
    }
    const selection = this._selection(run, part);
    return {
      key: keysOf(run, selection).at(-1)!,
      isOpen: false,
      part: { name, sign, look, isCode, label, more, details, selection },
      children: null
    };
  }

  private _selection(run: IRun, { kind, id }: IPart): ISelection {
    return { cellId: run.cellId, output: run.output, kind, id };
  }

  private _sorted(parts: Parts, kind: Kind): IPart[] {
    const found = parts
      .of(kind)
      .filter(part =>
        this._matches(
          part.sign,
          part.label,
          part.cause,
          part.more,
          ...part.details
        )
      );
    if (kind === 'change') {
      return found;
    }
    const { sort } = this._view;
    const sources = new Map(
      parts.run.report!.sources.map(({ id }, index) => [id, index])
    );
    const byLine = (one: IPart, other: IPart): number =>
      compare(
        sources.get(one.location?.source ?? ''),
        sources.get(other.location?.source ?? '')
      ) || compare(one.location?.line, other.location?.line);
    return found.sort((one, other) => {
      if (sort === 'cost') {
        return (other.cost ?? -1) - (one.cost ?? -1) || byLine(one, other);
      }
      if (sort === 'cause') {
        return one.cause.localeCompare(other.cause) || byLine(one, other);
      }
      return byLine(one, other);
    });
  }

  private _matches(...texts: string[]): boolean {
    return (
      this._query === '' ||
      texts.some(text => text.toLowerCase().includes(this._query))
    );
  }

  private readonly _view: IView;
  private readonly _trans: TranslationBundle;
  private readonly _runs: number;
  private readonly _query: string;
}

/** What is not known comes last. */
function compare(one = Infinity, other = Infinity): number {
  return one === other ? 0 : one - other;
}

function statusLabel({ status }: Report, trans: TranslationBundle): string {
  switch (status) {
    case 'ok':
      return '';
    case 'error':
      return trans.__('failed');
    case 'interrupted':
      return trans.__('interrupted');
    default:
      // A word of a later version.
      return status;
  }
}

/** The line by which a person knows a cell: the first that is not a magic, a comment or an import. */
function firstLine(source: string): string {
  const lines = source
    .split('\n')
    .map(line => line.trim())
    .filter(line => line !== '');
  const telling = lines.find(line => !/^([%#@]|import |from )/.test(line));
  return (telling ?? lines[0] ?? '').slice(0, 120);
}
