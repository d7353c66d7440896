/** The tree of the panel on the page: rows in, keys and clicks out. */
import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { IRow } from './tree';

export interface ITreeProps {
  rows: readonly IRow[];
  /** What the tree is called. */
  label: string;
  /** The row that Tab leads to. */
  active: string;
  /** The row that is selected. */
  selected: string;
  /** Moves the keyboard to the active row whenever it is another object. */
  focus: object | null;
  /** The keyboard came to a row. */
  onActive(row: IRow): void;
  /** The keyboard is to go to a row. */
  onMove(row: IRow): void;
  onToggle(row: IRow): void;
  /** The row was chosen; with `go` the keyboard is to go there too. */
  onChoose(row: IRow, go: boolean): void;
  /** A character was typed. */
  onType(character: string): void;
}

/** One tab stop; the arrow keys move within it. */
export function Tree(props: ITreeProps): JSX.Element {
  const { rows, label, active, selected, focus } = props;
  const activeElement = React.useRef<HTMLLIElement>(null);
  React.useEffect(() => {
    if (focus !== null) {
      activeElement.current?.focus({ preventScroll: true });
    }
  }, [focus]);
  React.useEffect(() => {
    activeElement.current?.scrollIntoView({ block: 'nearest' });
  }, [active, focus]);
  const hasActive = rows.some(({ key }) => key === active);
  return (
    <ul
      role="tree"
      aria-label={label}
      className="jp-GraphBreakPanel-tree"
      onKeyDown={event => onKey(event, props)}
    >
      {rows.map((row, index) => {
        const isActive = hasActive ? row.key === active : index === 0;
        return (
          <Row
            key={row.key}
            row={row}
            isActive={isActive}
            isSelected={row.key === selected}
            element={isActive ? activeElement : null}
            tree={props}
          />
        );
      })}
    </ul>
  );
}

function Row(props: {
  row: IRow;
  isActive: boolean;
  isSelected: boolean;
  element: React.RefObject<HTMLLIElement> | null;
  tree: ITreeProps;
}): JSX.Element {
  const { row, isActive, isSelected, element, tree } = props;
  const details = row.details.filter(each => each !== '').join(' · ');
  return (
    <li
      role="treeitem"
      ref={element}
      aria-level={row.level}
      aria-posinset={row.position}
      aria-setsize={row.siblings}
      aria-expanded={row.isOpen ?? undefined}
      aria-selected={isSelected}
      aria-label={spoken(row.name, row.label, details, row.count)}
      tabIndex={isActive ? 0 : -1}
      title={row.more || undefined}
      data-cell={row.run.cellId}
      className={`jp-GraphBreakPanel-item jp-mod-level${row.level} ${row.look
        .split(' ')
        .filter(each => each !== '')
        .map(each => (each.startsWith('jp-') ? each : `jp-mod-${each}`))
        .join(' ')}`}
      onClick={() => tree.onChoose(row, false)}
      onFocus={() => tree.onActive(row)}
    >
      <span
        className="jp-GraphBreakPanel-twisty"
        onClick={event => {
          if (row.isOpen !== null) {
            event.stopPropagation();
            tree.onToggle(row);
          }
        }}
      >
        {row.isOpen === null ? null : row.isOpen ? (
          <caretDownIcon.react tag="span" />
        ) : (
          <caretRightIcon.react tag="span" />
        )}
      </span>
      {row.sign === '' ? null : (
        <span className="jp-GraphBreakPanel-sign">{row.sign}</span>
      )}
      <span className="jp-GraphBreakPanel-text">
        {row.isCode ? (
          <code className="jp-GraphBreakPanel-label">{row.label}</code>
        ) : (
          <span className="jp-GraphBreakPanel-label">{row.label}</span>
        )}
        {details === '' ? null : (
          <span className="jp-GraphBreakPanel-details">{details}</span>
        )}
      </span>
      {row.count === null ? null : (
        <span className="jp-GraphBreakPanel-count">{row.count}</span>
      )}
    </li>
  );
}

function spoken(...parts: (string | number | null)[]): string {
  return parts.filter(each => each !== null && each !== '').join(', ');
}

function onKey(event: React.KeyboardEvent, props: ITreeProps): void {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const { rows } = props;
  const at = Math.max(
    0,
    rows.findIndex(({ key }) => key === props.active)
  );
  const row = rows[at];
  if (row === undefined) {
    return;
  }
  const go = (to: number): void => {
    const target = rows[to];
    if (target !== undefined) {
      props.onMove(target);
    }
  };
  switch (event.key) {
    case 'ArrowDown':
      go(at + 1);
      break;
    case 'ArrowUp':
      go(at - 1);
      break;
    case 'Home':
      go(0);
      break;
    case 'End':
      go(rows.length - 1);
      break;
    case 'ArrowRight':
      if (row.isOpen === false) {
        props.onToggle(row);
      } else if (row.isOpen) {
        go(at + 1);
      }
      break;
    case 'ArrowLeft':
      if (row.isOpen) {
        props.onToggle(row);
      } else {
        go(parentOf(rows, at));
      }
      break;
    case 'Enter':
      props.onChoose(row, true);
      break;
    case ' ':
      props.onChoose(row, false);
      break;
    default:
      if (event.key.length !== 1) {
        return;
      }
      props.onType(event.key);
  }
  event.preventDefault();
  event.stopPropagation();
}

function parentOf(rows: readonly IRow[], at: number): number {
  let parent = at;
  while (parent > 0 && rows[parent]!.level >= rows[at]!.level) {
    parent -= 1;
  }
  return parent;
}
