/** Renders the state of the panel. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import {
  type IPanelState,
  PAGE_SIZE,
  rowLimit,
  selectedKey
} from './panelmodel';
import type { IRow } from './rows';
import { countLabel, type Sort } from './tree';
import { type ITreeActions, Tree } from './treeview';

/** The reader's actions in the panel. */
export interface IPanelActions extends ITreeActions {
  onQuery(query: string): void;
  /** Move the focus from the filter to the tree. */
  onLeaveFilter(): void;
  onSort(sort: Sort): void;
  onToggleKind(kind: string): void;
  onShowMore(): void;
  onExplain(): void;
  /** Explain the active cell, and try remedies. */
  onTry(): void;
  /** Try the edits since the run of the active cell. */
  onTryEdited(): void;
  /** Find out whether PyTorch can compile in the notebook's kernel. */
  onCheckInstallation(): void;
}

interface IPanelProps {
  state: IPanelState;
  /** The rows of the state. */
  rows: readonly IRow[];
  actions: IPanelActions;
  trans: TranslationBundle;
}

export function PanelView(props: IPanelProps): JSX.Element {
  const { state, rows, actions, trans } = props;
  if (state.runs.length === 0) {
    return state.progress !== '' ? (
      <div role="status" className="jp-GraphBreakPanel-status">
        {state.progress}
      </div>
    ) : state.hasNotebook ? (
      <NoReports {...props} />
    ) : (
      <NoNotebook {...props} />
    );
  }
  const limit = rowLimit(state, rows);
  return (
    <>
      <Tools {...props} />
      {editResults(state).map(({ key, label, look }) => (
        <p
          key={key}
          className={`jp-GraphBreakPanel-edit jp-mod-${look}`}
          role="status"
        >
          {label}
        </p>
      ))}
      {state.canTryEdited ? (
        <button
          className="jp-mod-styled jp-GraphBreakPanel-edited"
          onClick={() => actions.onTryEdited()}
        >
          {trans.__('Try the edited cell')}
        </button>
      ) : null}
      <div role="status" className="jp-GraphBreakPanel-status">
        {state.progress || state.message || filterResult(state, rows, trans)}
      </div>
      <Tree
        rows={rows.slice(0, limit)}
        label={trans.__('Reports of this notebook')}
        activeKey={state.activeKey}
        selectedKey={selectedKey(state)}
        actions={actions}
      />
      {rows.length > limit ? (
        <button
          className="jp-GraphBreakPanel-more"
          onClick={() => actions.onShowMore()}
        >
          {trans.__('Show more: %1 of %2', PAGE_SIZE, rows.length - limit)}
        </button>
      ) : null}
      {state.runs.some(({ report }) => report?.status === 'error') ? (
        <CheckInstallation {...props} />
      ) : null}
    </>
  );
}

function CheckInstallation({
  state,
  actions,
  trans
}: IPanelProps): JSX.Element | null {
  return state.canExplain ? (
    <button
      className="jp-GraphBreakPanel-more"
      onClick={() => actions.onCheckInstallation()}
    >
      {trans.__('Can PyTorch compile here?')}
    </button>
  ) : null;
}

function NoNotebook({ trans }: IPanelProps): JSX.Element {
  return (
    <div className="jp-GraphBreakPanel-empty">
      <p>{trans.__('Open a notebook to see its graph breaks here.')}</p>
    </div>
  );
}

function NoReports(props: IPanelProps): JSX.Element {
  const { state, actions, trans } = props;
  return (
    <div className="jp-GraphBreakPanel-empty">
      <h2>{trans.__('No reports yet')}</h2>
      <p>
        {trans.__(
          'Run a cell that uses torch.compile with this in its first line:'
        )}
      </p>
      <pre>%%compile_explain</pre>
      <p>{trans.__('Load the magic once per notebook, in a separate cell:')}</p>
      <pre>%load_ext jupyter_graphbreak</pre>
      {state.canExplain ? (
        <>
          <p>{trans.__('Or explain the active cell unchanged:')}</p>
          <button
            className="jp-mod-styled jp-mod-accept"
            onClick={() => actions.onExplain()}
          >
            {trans.__('Explain the active cell')}
          </button>{' '}
          <button className="jp-mod-styled" onClick={() => actions.onTry()}>
            {trans.__('and try remedies')}
          </button>
        </>
      ) : null}
      <CheckInstallation {...props} />
    </div>
  );
}

function Tools({ state, actions, trans }: IPanelProps): JSX.Element {
  return (
    <div className="jp-GraphBreakPanel-tools">
      <div className="jp-GraphBreakPanel-row">
        <input
          type="search"
          className="jp-GraphBreakPanel-filter"
          placeholder={trans.__('Filter')}
          aria-label={trans.__('Filter by text')}
          value={state.query}
          onChange={event => actions.onQuery(event.target.value)}
          onKeyDown={event => onFilterKey(event, state, actions)}
        />
        <label className="jp-GraphBreakPanel-sort">
          {trans.__('Sort')}{' '}
          <select
            value={state.sort}
            onChange={event => actions.onSort(event.target.value as Sort)}
          >
            <option value="fix">{trans.__('what to fix first')}</option>
            <option value="line">{trans.__('by line')}</option>
            <option value="cost">{trans.__('by cost')}</option>
            <option value="cause">{trans.__('by cause')}</option>
          </select>
        </label>
      </div>
      <div
        className="jp-GraphBreakPanel-row"
        role="group"
        aria-label={trans.__('Show')}
      >
        {sectionCounts(state).map(({ id, title, read, total }) => (
          <button
            key={id}
            className="jp-GraphBreakPanel-kind"
            aria-pressed={!state.hiddenKinds.has(id)}
            onClick={() => actions.onToggleKind(id)}
          >
            {title} <b>{countLabel(read, total)}</b>
          </button>
        ))}
      </div>
    </div>
  );
}

/** A section that can be hidden, with its total number of rows in all runs. */
interface ISectionCount {
  readonly id: string;
  readonly title: string;
  read: number;
  total: number;
}

/** Merge the sections of all runs in reading order. */
function sectionCounts({ runs }: IPanelState): readonly ISectionCount[] {
  const counts: ISectionCount[] = [];
  for (const { rows } of runs) {
    let position = -1;
    for (const { id, title, form, rows: read, total } of rows?.sections ?? []) {
      if (form === 'plain' || total === 0) {
        continue;
      }
      const known = counts.findIndex(count => count.id === id);
      position = known >= 0 ? known : position + 1;
      if (known < 0) {
        counts.splice(position, 0, { id, title, read: 0, total: 0 });
      }
      counts[position]!.read += read.length;
      counts[position]!.total += total;
    }
  }
  return counts;
}

/** The results of trying the reader's edits, for each run with such a trial. */
function editResults({
  runs
}: IPanelState): { key: string; label: string; look: string }[] {
  return runs.flatMap(({ cellId, output, rows }) =>
    (rows?.about ?? [])
      .filter(({ id }) => id === 'edit')
      .map(({ label, look }) => ({ key: `${cellId}/${output}`, label, look }))
  );
}

function filterResult(
  { query }: IPanelState,
  rows: readonly IRow[],
  trans: TranslationBundle
): string {
  if (query.trim() === '') {
    return '';
  }
  const matchCount = rows.filter(({ selection }) => selection !== null).length;
  return matchCount === 0
    ? trans.__('Nothing matches')
    : trans._n('%1 found', '%1 found', matchCount);
}

function onFilterKey(
  event: React.KeyboardEvent,
  { query }: IPanelState,
  actions: IPanelActions
): void {
  if (event.key === 'Escape' && query !== '') {
    actions.onQuery('');
  } else if (event.key === 'ArrowDown' || event.key === 'Escape') {
    actions.onLeaveFilter();
  } else {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
}
