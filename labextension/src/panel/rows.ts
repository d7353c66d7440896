/** The tree of the panel as rows. The children of closed nodes are not created, so many reports cost little. */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IRun } from '../notebook/runs';
import {
  type INode,
  type INodeContent,
  type ITreeOptions,
  makeTree
} from './tree';

/** The reader's choices, and the nodes opened or closed by hand, by key. */
export interface IRowOptions extends ITreeOptions {
  readonly openNodes: ReadonlyMap<string, boolean>;
}

/** One row of the tree. */
export interface IRow extends INodeContent {
  readonly key: string;
  readonly run: IRun;
  readonly level: 1 | 2 | 3;
  /** The position among its siblings, from 1, and their number. */
  readonly position: number;
  readonly siblingCount: number;
  /** null if the row cannot be opened. */
  readonly isOpen: boolean | null;
}

/** Make the rows of runs. */
export function makeRows(
  runs: readonly IRun[],
  options: IRowOptions,
  trans: TranslationBundle
): IRow[] {
  return rowsOf(makeTree(runs, options, trans), options, 1);
}

function rowsOf(
  nodes: readonly INode[],
  options: IRowOptions,
  level: IRow['level']
): IRow[] {
  return nodes.flatMap((node, index) => {
    const isOpen = isNodeOpen(node, options);
    const row = {
      ...node.content,
      key: node.key,
      run: node.run,
      level,
      position: index + 1,
      siblingCount: nodes.length,
      isOpen
    };
    return isOpen
      ? [row, ...rowsOf(node.children!(), options, (level + 1) as 2 | 3)]
      : [row];
  });
}

function isNodeOpen(
  { key, children, isOpenAtFirst }: INode,
  { query, openNodes }: IRowOptions
): boolean | null {
  if (children === null) {
    return null;
  }
  // With a filter, all nodes have matches, so all are open.
  return query.trim() !== '' || (openNodes.get(key) ?? isOpenAtFirst);
}
