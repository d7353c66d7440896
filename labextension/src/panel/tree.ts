/** The tree of the panel: runs, groups of parts and parts, filtered and sorted as the reader chooses. */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IRun, ISelection } from '../notebook/runs';
import {
  countParts,
  type IPartCount,
  PART_KINDS,
  type PartKind
} from '../report/kinds';
import { totalOf, withId } from '../report/lookup';
import { reasonLabel } from '../report/reasons';
import { clip } from '../report/shown';
import type { Report } from '../report/types';
import { comparisonHeadline } from './comparison';
import { countLabel, type IPart, type IPartContext, kindLabel } from './part';
import { partsOf } from './parts';

/** The orders of the parts of a run. */
export type Sort = 'fix' | 'line' | 'cost' | 'cause';

/** What the reader has chosen to see. */
export interface ITreeOptions {
  readonly query: string;
  readonly hiddenKinds: ReadonlySet<PartKind>;
  readonly sort: Sort;
}

/** What a node of the tree shows. */
export interface INodeContent {
  readonly label: string;
  /** The name of the node's style; more than one where it has a colour too. */
  readonly look: string;
  /** What selecting the node selects; null for runs and groups. */
  readonly selection: ISelection | null;
  /** What the sign means, for readers who do not see it. */
  readonly name: string;
  readonly sign: string;
  readonly isCode: boolean;
  readonly details: readonly string[];
  readonly more: string;
  readonly count: string | null;
}

/** A node of the tree, and its children where it has any; they are made when the node is opened. */
export interface INode {
  readonly key: string;
  readonly run: IRun;
  /** Whether it is open until the reader opens or closes it. */
  readonly isOpenAtFirst: boolean;
  readonly content: INodeContent;
  readonly children: (() => readonly INode[]) | null;
}

/** Up to so many runs are open at first; more would be long to look through. */
const OPEN_RUNS = 10;

/** How long a word of a later version may be. */
const MOST_OF_WORD = 40;

/** The keys of the nodes around a selection, and the key of its own node last. */
export function keysOf(run: IRun, selection: ISelection): string[] {
  const own = `${runKey(run)}/${selection.kind}/${selection.id}`;
  switch (selection.kind) {
    case 'error':
      return [runKey(run), own];
    case 'break': {
      const graphBreak = withId(run.report?.breaks ?? [], selection.id);
      const cause = reasonLabel(
        graphBreak?.gb_type ?? '',
        graphBreak?.gb_id ?? null
      );
      return [runKey(run), causeKey(run, cause), own];
    }
    default:
      return [runKey(run), `${runKey(run)}/${selection.kind}`, own];
  }
}

/** Make the tree of some runs; runs of which a filter leaves nothing are not in it. */
export function makeTree(
  runs: readonly IRun[],
  options: ITreeOptions,
  trans: TranslationBundle
): INode[] {
  const builder = new TreeBuilder(options, runs.length, trans);
  return runs.flatMap(run => builder.runNodes(run));
}

class TreeBuilder {
  constructor(options: ITreeOptions, runs: number, trans: TranslationBundle) {
    this._options = options;
    this._query = options.query.trim().toLowerCase();
    this._runs = runs;
    this._trans = trans;
  }

  /** The node of a run; none where the filter leaves nothing of it. */
  runNodes(run: IRun): INode[] {
    const { report } = run;
    const content = runContent(run, this._trans);
    const node = { key: runKey(run), run, content };
    if (report === null) {
      return this._matches(content.label, content.more)
        ? [{ ...node, isOpenAtFirst: false, children: null }]
        : [];
    }
    const context = { run, report, trans: this._trans };
    if (this._query !== '') {
      const groups = this._groups(context);
      return groups.length === 0
        ? []
        : [{ ...node, isOpenAtFirst: true, children: () => groups }];
    }
    const isOpenAtFirst =
      this._runs <= OPEN_RUNS &&
      (report.breaks.length > 0 || report.error !== null);
    return [{ ...node, isOpenAtFirst, children: () => this._groups(context) }];
  }

  private _groups(context: IPartContext): INode[] {
    const { report } = context;
    return PART_KINDS.filter(
      kind =>
        !this._options.hiddenKinds.has(kind) &&
        (countParts(report, kind).total > 0 ||
          (kind === 'change' && report.changes))
    ).flatMap(kind => {
      switch (kind) {
        case 'break':
          return this._causes(context);
        case 'error':
          return this._leaves(context, kind);
        default:
          return this._group(context, kind);
      }
    });
  }

  /** The group of a kind; none where the filter leaves nothing of it. */
  private _group(context: IPartContext, kind: PartKind): INode[] {
    const { run, report } = context;
    const matches = this._query === '' ? null : this._leaves(context, kind);
    if (matches?.length === 0) {
      return [];
    }
    const changes = kind === 'change' ? report.changes : null;
    return [
      {
        key: `${runKey(run)}/${kind}`,
        run,
        isOpenAtFirst: false,
        content: makeContent({
          label: kindLabel(kind, this._trans),
          look: 'group',
          count: changes
            ? null
            : matches === null
              ? countLabel(countParts(report, kind), this._trans)
              : String(matches.length),
          details: changes ? [comparisonHeadline(changes, this._trans)] : []
        }),
        children: () => matches ?? this._leaves(context, kind)
      }
    ];
  }

  /** The breaks of a run, those of one cause together. */
  private _causes(context: IPartContext): INode[] {
    const { run } = context;
    const causes = new Map<string, IPart[]>();
    for (const part of this._parts(context, 'break')) {
      const others = causes.get(part.cause) ?? [];
      others.push(part);
      causes.set(part.cause, others);
    }
    const groups = Array.from(causes);
    if (this._options.sort === 'cost') {
      const cost = ([, parts]: [string, IPart[]]): number =>
        parts.reduce((sum, part) => sum + (part.cost ?? 0), 0);
      groups.sort((one, other) => cost(other) - cost(one));
    }
    return groups.map(([cause, parts]) => ({
      key: keysOf(run, selectionOf(run, parts[0]!))[1]!,
      run,
      isOpenAtFirst: true,
      content: makeContent({
        label: cause,
        look: 'cause',
        count: String(parts.length)
      }),
      children: () => parts.map(part => this._leaf(run, part))
    }));
  }

  private _leaves(context: IPartContext, kind: PartKind): INode[] {
    return this._parts(context, kind).map(part =>
      this._leaf(context.run, part)
    );
  }

  private _leaf(run: IRun, part: IPart): INode {
    const { name, sign, look, isCode, label, more, cost } = part;
    const details = part.details.filter(words => words !== '');
    if (
      cost !== null &&
      (this._options.sort === 'cost' || part.kind !== 'break')
    ) {
      details.push(this._trans.__('%1 s', cost.toFixed(2)));
    }
    const selection = selectionOf(run, part);
    return {
      key: keysOf(run, selection).at(-1)!,
      run,
      isOpenAtFirst: false,
      content: makeContent({
        ...{ name, sign, look, isCode, label, more },
        details,
        selection
      }),
      children: null
    };
  }

  /** The parts of a kind that the filter leaves, sorted. */
  private _parts(context: IPartContext, kind: PartKind): IPart[] {
    const parts = partsOf(context, kind).filter(part =>
      this._matches(
        part.sign,
        part.label,
        part.cause,
        part.more,
        ...part.details
      )
    );
    return kind === 'change'
      ? parts
      : sorted(parts, this._options.sort, context.report);
  }

  private _matches(...texts: string[]): boolean {
    return (
      this._query === '' ||
      texts.some(text => text.toLowerCase().includes(this._query))
    );
  }

  private readonly _options: ITreeOptions;
  private readonly _query: string;
  private readonly _runs: number;
  private readonly _trans: TranslationBundle;
}

function runKey(run: Pick<IRun, 'cellId' | 'output'>): string {
  return `${run.cellId}/${run.output}`;
}

/** The key of the node with the breaks of one cause. */
function causeKey(run: IRun, cause: string): string {
  return `${runKey(run)}/cause/${cause}`;
}

function selectionOf(run: IRun, { kind, id }: IPart): ISelection {
  return { cellId: run.cellId, output: run.output, kind, id };
}

function makeContent(
  content: Partial<INodeContent> & Pick<INodeContent, 'label' | 'look'>
): INodeContent {
  return {
    selection: null,
    name: '',
    sign: '',
    isCode: false,
    details: [],
    more: '',
    count: null,
    ...content
  };
}

function runContent(run: IRun, trans: TranslationBundle): INodeContent {
  const { report } = run;
  const count = run.executionCount ?? ' ';
  const breaks = report?.breaks.length ?? 0;
  return makeContent({
    name: trans.__('Cell %1', `[${count}]`),
    sign: `[${count}]`,
    label: run.title,
    isCode: true,
    look:
      report === null
        ? 'unread'
        : breaks > 0 || isLimitSpent(report)
          ? 'broken'
          : lookOf(report),
    details:
      report === null ? [run.problem ?? ''] : runDetails(run, report, trans),
    more: run.problem ?? ''
  });
}

/** The look of a run without breaks; a word of a later version has none. */
function lookOf({ status }: Report): string {
  return ['ok', 'error', 'interrupted'].includes(status) ? status : 'ok';
}

function runDetails(
  { edited }: IRun,
  report: Report,
  trans: TranslationBundle
): string[] {
  const { breaks, graphs, changes } = report;
  return [
    statusLabel(report, trans),
    breaks.length === 0
      ? isLimitSpent(report)
        ? trans.__('no breaks, but functions that now run eagerly')
        : trans.__('no breaks')
      : trans._n('%1 break', '%1 breaks', totalOf(breaks)),
    trans._n('%1 graph', '%1 graphs', totalOf(graphs)),
    unreadLabel(report, trans),
    isLimitSpent(report) ? trans.__('recompile limit reached') : '',
    changes?.breaks.length
      ? trans.__('since the last run: %1', comparisonHeadline(changes, trans))
      : '',
    edited ? trans.__('edited after this run') : ''
  ];
}

/** Of which kinds of parts only the first were read; the empty string where all were. */
function unreadLabel(report: Report, trans: TranslationBundle): string {
  const { sources } = report;
  const counts: [words: string, count: IPartCount][] = [
    ...PART_KINDS.map((kind): [string, IPartCount] => [
      kindLabel(kind, trans),
      countParts(report, kind)
    ]),
    [trans.__('Sources'), { read: sources.length, total: totalOf(sources) }]
  ];
  return counts
    .filter(([, { read, total }]) => read < total)
    .map(
      ([words, count]) =>
      trans.__('only %1 read: %2', countLabel(count, trans), words.toLowerCase()) // prettier-ignore
    )
    .join(', ');
}

/** Whether a function was compiled so often that it runs eagerly now. */
function isLimitSpent({ recompiles }: Report): boolean {
  return recompiles.some(({ limit_hit: isSpent }) => isSpent);
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
      return clip(status, MOST_OF_WORD);
  }
}

function sorted(parts: IPart[], sort: Sort, report: Report): IPart[] {
  if (sort === 'fix' && parts[0]?.kind === 'break') {
    return parts; // in the order in which a person reads them
  }
  const sources = new Map(report.sources.map(({ id }, index) => [id, index]));
  const byLine = (one: IPart, other: IPart): number =>
    compareNumbers(
      sources.get(one.location?.source ?? ''),
      sources.get(other.location?.source ?? '')
    ) || compareNumbers(one.location?.line, other.location?.line);
  const byChoice = (one: IPart, other: IPart): number => {
    switch (sort) {
      case 'cost':
        return (other.cost ?? -1) - (one.cost ?? -1);
      case 'cause':
        return one.cause.localeCompare(other.cause);
      case 'fix':
      case 'line':
        return 0;
    }
  };
  return parts.sort((one, other) => byChoice(one, other) || byLine(one, other));
}

/** Unknown numbers come last. */
function compareNumbers(one = Infinity, other = Infinity): number {
  return one === other ? 0 : one - other;
}
