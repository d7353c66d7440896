/** The tree of the panel: shows rows, and turns keys and clicks into actions. */
import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { IRow } from './rows';

/** The reader's actions in the tree. */
export interface ITreeActions {
  /** A row got the focus. */
  onActive(row: IRow): void;
  /** Move the focus to a row. */
  onMove(row: IRow): void;
  onToggle(row: IRow): void;
  /** The pointer is at a row, which may have moved below it. */
  onPoint(row: IRow, event: MouseEvent): void;
  /** The row was chosen; with `focus`, its line gets the focus. */
  onChoose(row: IRow, focus: boolean): void;
  /** A character was typed. */
  onType(character: string): void;
}

interface ITreeProps {
  rows: readonly IRow[];
  /** The accessible name of the tree. */
  label: string;
  /** The row that Tab focuses. */
  activeKey: string;
  selectedKey: string;
  actions: ITreeActions;
}

/** The tree is one tab stop; the arrow keys move within it. */
export function Tree(props: ITreeProps): JSX.Element {
  const { rows, label, activeKey, selectedKey, actions } = props;
  const activeElement = React.useRef<HTMLLIElement>(null);
  React.useEffect(() => {
    activeElement.current?.scrollIntoView({ block: 'nearest' });
  }, [activeKey]);
  const hasActive = rows.some(({ key }) => key === activeKey);
  return (
    <ul
      role="tree"
      aria-label={label}
      className="jp-GraphBreakPanel-tree"
      onKeyDown={event => onKey(event, props)}
      onClick={event => {
        // Otherwise, a click below the rows would leave the focus nowhere.
        if (event.target === event.currentTarget) {
          activeElement.current?.focus({ preventScroll: true });
        }
      }}
    >
      {rows.map((row, index) => {
        const isActive = hasActive ? row.key === activeKey : index === 0;
        return (
          <Row
            key={row.key}
            row={row}
            isActive={isActive}
            isSelected={row.key === selectedKey}
            element={isActive ? activeElement : null}
            actions={actions}
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
  actions: ITreeActions;
}): JSX.Element {
  const { row, isActive, isSelected, element, actions } = props;
  const details = row.details
    .filter(detail => detail !== '')
    .reduce(
      (text, detail) =>
        `${text}${text === '' ? '' : text.endsWith('.') ? ' ' : ' · '}${detail}`,
      ''
    );
  return (
    <li
      role="treeitem"
      ref={element}
      aria-level={row.level}
      aria-posinset={row.position}
      aria-setsize={row.siblingCount}
      aria-expanded={row.isOpen ?? undefined}
      aria-selected={isSelected}
      aria-label={announcement(row.name, row.label, details, row.count)}
      tabIndex={isActive ? 0 : -1}
      title={row.more || undefined}
      data-cell={row.run.cellId}
      className={`jp-GraphBreakPanel-item jp-mod-level${row.level} ${row.look
        .split(' ')
        .filter(name => name !== '')
        .map(name => `jp-mod-${name}`)
        .join(' ')}`}
      onClick={() => actions.onChoose(row, false)}
      onFocus={() => actions.onActive(row)}
      onPointerEnter={event => actions.onPoint(row, event.nativeEvent)}
    >
      <span
        className="jp-GraphBreakPanel-twisty"
        onClick={event => {
          if (row.isOpen !== null) {
            event.stopPropagation();
            actions.onToggle(row);
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
          <span className="jp-GraphBreakPanel-label">
            {withCode(row.label)}
          </span>
        )}
        {details === '' ? null : (
          <span className="jp-GraphBreakPanel-details">
            {withCode(details)}
          </span>
        )}
      </span>
      {row.count === null ? null : (
        <span className="jp-GraphBreakPanel-count">{row.count}</span>
      )}
    </li>
  );
}

/** A text in which words between backticks are code. */
function withCode(text: string): React.ReactNode {
  const parts = text.split('`');
  return parts.length % 2 === 0
    ? text
    : parts.map((part, index) =>
        index % 2 === 1 ? <code key={index}>{part}</code> : part
      );
}

function announcement(...parts: (string | number | null)[]): string {
  return parts
    .filter(part => part !== null && part !== '')
    .join(', ')
    .replaceAll('`', '');
}

function onKey(event: React.KeyboardEvent, props: ITreeProps): void {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const { rows, actions } = props;
  const index = Math.max(
    0,
    rows.findIndex(({ key }) => key === props.activeKey)
  );
  const row = rows[index];
  if (row === undefined) {
    return;
  }
  const moveTo = (position: number): void => {
    const target = rows[position];
    if (target !== undefined) {
      actions.onMove(target);
    }
  };
  switch (event.key) {
    case 'ArrowDown':
      moveTo(index + 1);
      break;
    case 'ArrowUp':
      moveTo(index - 1);
      break;
    case 'Home':
      moveTo(0);
      break;
    case 'End':
      moveTo(rows.length - 1);
      break;
    case 'ArrowRight':
      if (row.isOpen === false) {
        actions.onToggle(row);
      } else if (row.isOpen) {
        moveTo(index + 1);
      }
      break;
    case 'ArrowLeft':
      if (row.isOpen) {
        actions.onToggle(row);
      } else {
        moveTo(parentOf(rows, index));
      }
      break;
    case 'Enter':
      actions.onChoose(row, true);
      break;
    case ' ':
      actions.onChoose(row, false);
      break;
    default:
      if (event.key.length !== 1) {
        return;
      }
      actions.onType(event.key);
  }
  event.preventDefault();
  event.stopPropagation();
}

function parentOf(rows: readonly IRow[], index: number): number {
  let parent = index;
  while (parent > 0 && rows[parent]!.level >= rows[index]!.level) {
    parent -= 1;
  }
  return parent;
}
