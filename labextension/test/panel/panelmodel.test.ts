import assert from 'node:assert/strict';
import { test } from 'node:test';

import { nullTranslator } from '@jupyterlab/translation';

import type { IRun, ISelection } from '../../src/notebook/runs';
import {
  PAGE_SIZE,
  PanelModel,
  rowLimit,
  selectedKey
} from '../../src/panel/panelmodel';
import { saved, savedRows } from '../saved';

const REPORT = await saved('two_breaks');
const ROWS = await savedRows('two_breaks');

function makeRun(cellId: string, rows = ROWS): IRun {
  const report = REPORT;
  return {
    cell: {} as IRun['cell'],
    cellId,
    index: 0,
    output: 0,
    executionCount: 7,
    title: 'def step(x, w):',
    isEdited: false,
    report,
    rows,
    problem: null
  };
}

const RUN = makeRun('a');
const GRAPH: ISelection = { cellId: 'a', output: 0, kind: 'graph', id: 'B' };

function makeModel(runs: readonly IRun[] = [RUN]): PanelModel {
  const model = new PanelModel(nullTranslator.load(''));
  model.setRuns(runs, true);
  return model;
}

function labels(model: PanelModel): string[] {
  return model.rows.map(({ level, label }) => `${level} ${label}`);
}

test('a state is replaced, not changed', () => {
  const model = makeModel();
  const before = model.state;
  const copy = structuredClone({ ...before, runs: [] });
  model.toggleKind('graph');
  model.toggleRow(model.rows[0]!);
  model.setQuery('x');
  model.setSelection(GRAPH, RUN);
  assert.notEqual(model.state, before);
  assert.deepEqual({ ...before, runs: [] }, copy);
});

test('a change without effect is not emitted', () => {
  const model = makeModel();
  let emissionCount = 0;
  model.changed.connect(() => (emissionCount += 1));
  model.setSort('fix');
  model.setMessage('');
  model.setRuns(model.state.runs, true);
  assert.equal(emissionCount, 0);
  model.setSort('cost');
  assert.equal(emissionCount, 1);
});

test('rows are recomputed only if their state changes', () => {
  const model = makeModel();
  const { rows } = model;
  model.setActive(rows[1]!);
  model.setMessage('done');
  assert.equal(model.rows, rows);
  model.setSort('cause');
  assert.notEqual(model.rows, rows);
});

test('rows are runs, groups and parts, and a closed group shows no parts', () => {
  const [breaks, ...others] = ROWS.sections;
  const rows = [...breaks!.rows, { ...breaks!.rows[1]!, id: 'b3' }];
  const sections = [{ ...breaks!, rows, total: 3 }, ...others];
  const model = makeModel([makeRun('a', { ...ROWS, sections })]);
  assert.deepEqual(labels(model), [
    '1 def step(x, w):',
    '2 score > 3',
    '2 `torch._dynamo.graph_break()` (GB0025)',
    '3 log_stats(x)',
    '3 log_stats(x)',
    '2 Graphs',
    '2 Eager',
    '2 Scopes'
  ]);
  assert.equal(
    model.rows[1]!.details[0],
    "Branch on a tensor's value (GB0170)",
    'a single row shows its reason'
  );
  const group = model.rows.find(({ label }) => label === 'Graphs')!;
  assert.equal(group.isOpen, false);
  assert.equal(group.count, String(REPORT.graphs.length));
  const before = model.rows.length;
  model.toggleRow(group);
  assert.equal(model.rows.length, before + REPORT.graphs.length);
  assert.equal(model.state.activeKey, group.key);
});

test('the selected row becomes active, and its group is opened', () => {
  const model = makeModel();
  model.setSelection(GRAPH, RUN);
  const row = model.rows.find(({ key }) => key === model.state.activeKey)!;
  assert.deepEqual(row.selection, GRAPH);
  assert.equal(selectedKey(model.state), row.key);
  model.setSelection(null, undefined);
  assert.equal(selectedKey(model.state), '');
  assert.equal(model.state.activeKey, row.key, 'the keyboard stays');
});

test('a selection clears a filter only if it hides the row', () => {
  const model = makeModel();
  model.toggleKind('graph');
  model.setQuery('log_stats');
  const breakOnStats: ISelection = { ...GRAPH, kind: 'break', id: 'b2' };
  model.setSelection(breakOnStats, RUN);
  assert.equal(model.state.query, 'log_stats');
  assert(model.state.hiddenKinds.has('graph'));
  model.setSelection(GRAPH, RUN);
  assert.equal(model.state.query, '');
  assert(!model.state.hiddenKinds.has('graph'));
  assert(model.rows.some(({ key }) => key === model.state.activeKey));
});

test('a filter keeps and opens matches', () => {
  const model = makeModel([RUN, makeRun('b', { ...ROWS, sections: [] })]);
  model.setQuery(' SCORE > 3 ');
  const parts = model.rows.filter(({ selection }) => selection !== null);
  assert.deepEqual(
    parts.map(({ selection }) => [selection!.cellId, selection!.kind]),
    [['a', 'break']]
  );
  model.setQuery('nothing like it');
  assert.deepEqual(model.rows, []);
});

test('the active row is on the page, however far down it is', () => {
  const runs = Array.from({ length: PAGE_SIZE + 20 }, (_, index) =>
    makeRun(`cell${index}`)
  );
  const model = makeModel(runs);
  assert.equal(rowLimit(model.state, model.rows), PAGE_SIZE);
  model.setActive(model.rows.at(-1)!);
  assert.equal(rowLimit(model.state, model.rows), PAGE_SIZE + 20);
  model.setActive(model.rows[0]!);
  model.showMore();
  assert.equal(rowLimit(model.state, model.rows), 2 * PAGE_SIZE);
});

test('only an order chosen by the reader is emitted', () => {
  const model = makeModel();
  const choices: string[] = [];
  model.sortChosen.connect((_, sort) => choices.push(sort));
  model.setSort('cost');
  model.chooseSort('cause');
  assert.deepEqual(choices, ['cause']);
  assert.equal(model.state.sort, 'cause');
});
