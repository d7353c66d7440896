/** The tree of the panel: runs, sections and rows, filtered and sorted as the reader chooses. */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IRun, ISelection } from '../notebook/runs';
import { totalOf } from '../report/lookup';
import { rowOf, sectionOf } from '../report/rows';
import type { Row, Rows, Section } from '../report/types';

/** The orders of the rows of a section. */
export type Sort = 'fix' | 'line' | 'cost' | 'cause';

/** The reader's choices. */
export interface ITreeOptions {
  readonly query: string;
  /** The ids of hidden sections. */
  readonly hiddenKinds: ReadonlySet<string>;
  readonly sort: Sort;
}

/** The content of a tree node. */
export interface INodeContent {
  readonly label: string;
  /** The CSS class of the node, or several if it has a colour. */
  readonly look: string;
  /** The selection of the node; null for runs and groups. */
  readonly selection: ISelection | null;
  /** The meaning of the sign, for screen readers. */
  readonly name: string;
  readonly sign: string;
  readonly isCode: boolean;
  readonly details: readonly string[];
  readonly more: string;
  readonly count: string | null;
}

/** A node of the tree; its children are created when it is opened. */
export interface INode {
  readonly key: string;
  readonly run: IRun;
  /** Whether it is open until the reader opens or closes it. */
  readonly isOpenAtFirst: boolean;
  readonly content: INodeContent;
  readonly children: (() => readonly INode[]) | null;
}

/** If there are more runs than this, none is open initially. */
const MAX_OPEN_RUNS = 10;

/** The keys of the nodes around a selection, with its own node last. */
export function keysOf(run: IRun, { kind, id }: ISelection): string[] {
  const own = `${runKey(run)}/${kind}/${id}`;
  const { rows } = run;
  const form = rows === null ? undefined : sectionOf(rows, kind)?.form;
  switch (form) {
    case 'plain':
      return [runKey(run), own];
    case 'groups':
      return [runKey(run), groupKey(run, kind, rowOf(rows!, kind, id)?.group ?? ''), own]; // prettier-ignore
    default:
      return [runKey(run), `${runKey(run)}/${kind}`, own];
  }
}

/** The number of rows; if only some were read, their number and the total, as in `50/120`. */
export function countLabel(read: number, total: number): string {
  return read < total ? `${read}/${total}` : String(total);
}

/** Make the tree of runs, without runs in which the filter matches nothing. */
export function makeTree(
  runs: readonly IRun[],
  options: ITreeOptions,
  trans: TranslationBundle
): INode[] {
  const builder = new TreeBuilder(options, runs.length, trans);
  return runs.flatMap(run => builder.runNodes(run));
}

class TreeBuilder {
  constructor(
    options: ITreeOptions,
    runCount: number,
    trans: TranslationBundle
  ) {
    this._options = options;
    this._query = options.query.trim().toLowerCase();
    this._runCount = runCount;
    this._trans = trans;
  }

  /** The node of a run, unless the filter matches nothing in it. */
  runNodes(run: IRun): INode[] {
    const { rows } = run;
    const content = runContent(run, this._trans);
    const node = { key: runKey(run), run, content };
    if (rows === null) {
      return this._matches(content.label, content.more)
        ? [{ ...node, isOpenAtFirst: false, children: null }]
        : [];
    }
    if (this._query !== '') {
      const children = this._sections(run, rows);
      return children.length === 0
        ? []
        : [{ ...node, isOpenAtFirst: true, children: () => children }];
    }
    const isOpenAtFirst =
      this._runCount <= MAX_OPEN_RUNS &&
      (rows.look === 'bad' || rows.look === 'error');
    return [
      { ...node, isOpenAtFirst, children: () => this._sections(run, rows) }
    ];
  }

  private _sections(run: IRun, { sections }: Rows): INode[] {
    return sections
      .filter(({ id }) => !this._options.hiddenKinds.has(id))
      .flatMap(section => {
        switch (section.form) {
          case 'groups':
            return this._groups(run, section);
          case 'plain':
            return this._leaves(run, section);
          default:
            return this._section(run, section);
        }
      });
  }

  /** The node of a section, unless the filter matches nothing in it. */
  private _section(run: IRun, section: Section): INode[] {
    const matches = this._query === '' ? null : this._leaves(run, section);
    if (matches?.length === 0) {
      return [];
    }
    const { id, title, details, rows, total } = section;
    return [
      {
        key: `${runKey(run)}/${id}`,
        run,
        isOpenAtFirst: false,
        content: makeContent({
          label: title,
          look: 'group',
          // The details of the title already contain the count.
          count:
            details.length > 0
              ? null
              : matches === null
                ? countLabel(rows.length, total)
                : String(matches.length),
          details
        }),
        children: () => matches ?? this._leaves(run, section)
      }
    ];
  }

  /** The rows of a section by group. */
  private _groups(run: IRun, section: Section): INode[] {
    const groups = new Map<string, Row[]>();
    for (const row of this._rows(run, section)) {
      const rowsOfGroup = groups.get(row.group) ?? [];
      rowsOfGroup.push(row);
      groups.set(row.group, rowsOfGroup);
    }
    const entries = Array.from(groups);
    if (this._options.sort === 'cost') {
      const cost = ([, rows]: [string, Row[]]): number =>
        rows.reduce((sum, row) => sum + (row.cost ?? 0), 0);
      entries.sort((one, other) => cost(other) - cost(one));
    }
    return entries.map(([group, rows]) =>
      rows.length === 1
        ? this._leaf(run, section, rows[0]!, [group])
        : {
            key: groupKey(run, section.id, group),
            run,
            isOpenAtFirst: true,
            content: makeContent({
              label: group,
              look: 'cause',
              count: String(rows.length)
            }),
            children: () => rows.map(row => this._leaf(run, section, row))
          }
    );
  }

  private _leaves(run: IRun, section: Section): INode[] {
    return this._rows(run, section).map(row => this._leaf(run, section, row));
  }

  /**
   * The node of a row.
   *
   * @param run - Its run.
   * @param section - Its section.
   * @param row - The row.
   * @param firstDetails - Details that no node above it shows; they come first.
   */
  private _leaf(
    run: IRun,
    { id: kind, form }: Section,
    row: Row,
    firstDetails: readonly string[] = []
  ): INode {
    const { name, sign, look, label, more, cost, colour } = row;
    const details = [...firstDetails, ...row.details];
    if (cost !== null && (this._options.sort === 'cost' || form !== 'groups')) {
      details.push(`${cost.toFixed(2)} s`);
    }
    const selection = { ...positionOf(run), kind, id: row.id };
    return {
      key: keysOf(run, selection).at(-1)!,
      run,
      isOpenAtFirst: false,
      content: makeContent({
        name,
        sign,
        label,
        details,
        selection,
        isCode: row.is_code,
        look: colour === null ? look : `${look} ${look}${colour}`,
        more: [form === 'groups' ? row.group : '', ...more].join('\n').trim()
      }),
      children: null
    };
  }

  /** The rows of a section that match the filter, sorted. */
  private _rows(run: IRun, section: Section): Row[] {
    const rows = section.rows.filter(row =>
      this._matches(row.sign, row.label, row.group, ...row.more, ...row.details)
    );
    return sorted(rows, this._options.sort, section, run);
  }

  private _matches(...texts: string[]): boolean {
    return (
      this._query === '' ||
      texts.some(text => text.toLowerCase().includes(this._query))
    );
  }

  private readonly _options: ITreeOptions;
  private readonly _query: string;
  private readonly _runCount: number;
  private readonly _trans: TranslationBundle;
}

function positionOf({
  cellId,
  output
}: IRun): Pick<ISelection, 'cellId' | 'output'> {
  return { cellId, output };
}

function runKey(run: Pick<IRun, 'cellId' | 'output'>): string {
  return `${run.cellId}/${run.output}`;
}

/** The key of the node with the rows of one group. */
function groupKey(run: IRun, section: string, group: string): string {
  return `${runKey(run)}/${section}/group/${group}`;
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
  const { rows, isEdited, problem } = run;
  const count = run.executionCount ?? ' ';
  return makeContent({
    name: trans.__('Cell %1', `[${count}]`),
    sign: `[${count}]`,
    label: run.title,
    isCode: true,
    look: rows === null ? 'unread' : (LOOKS[rows.look] ?? ''),
    details:
      rows === null
        ? [problem ?? '']
        : [
            ...rows.status,
            unreadLabel(run, trans),
            isEdited ? trans.__('Edited after this run') : ''
          ],
    more: problem ?? rows?.about.map(({ label }) => label).join('\n') ?? ''
  });
}

/** The lists that were read only in part; empty if all were read in full. */
function unreadLabel({ report, rows }: IRun, trans: TranslationBundle): string {
  const counts = [
    ...rows!.sections.map(({ title, rows, total }) => ({
      title,
      read: rows.length,
      total
    })),
    {
      title: trans.__('Sources'),
      read: report!.sources.length,
      total: totalOf(report!.sources)
    }
  ];
  return counts
    .filter(({ read, total }) => read < total)
    .map(({ title, read, total }) =>
      trans.__('only %1 of %2 read: %3', read, total, title.toLowerCase())
    )
    .join(', ');
}

/** The styles of runs, by their look; a look that only a later version knows has no style. */
const LOOKS: Readonly<Record<string, string>> = {
  bad: 'broken',
  good: 'ok',
  error: 'error'
};

function sorted(
  rows: Row[],
  sort: Sort,
  { id, form }: Section,
  run: IRun
): Row[] {
  // Changes, breaks and sentences are already in reading order.
  const isOrdered =
    id === 'change' ||
    (sort === 'fix' && form === 'groups') ||
    rows.every(({ spot }) => spot === null);
  if (isOrdered) {
    return rows;
  }
  const sources = new Map(
    run.report!.sources.map(({ id }, index) => [id, index])
  );
  const byLine = (one: Row, other: Row): number =>
    compareNumbers(
      sources.get(one.spot?.source ?? ''),
      sources.get(other.spot?.source ?? '')
    ) || compareNumbers(one.spot?.line, other.spot?.line);
  const byChoice = (one: Row, other: Row): number => {
    switch (sort) {
      case 'cost':
        return (other.cost ?? -1) - (one.cost ?? -1);
      case 'cause':
        return one.group.localeCompare(other.group);
      case 'fix':
      case 'line':
        return 0;
    }
  };
  return rows.sort((one, other) => byChoice(one, other) || byLine(one, other));
}

/** Compare numbers, with unknown ones last. */
function compareNumbers(one = Infinity, other = Infinity): number {
  return one === other ? 0 : one - other;
}
