import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { INotebookTracker } from '@jupyterlab/notebook';
import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';

import { NotebookReports } from '../../src/notebook/notebookreports';
import { editedRun } from '../../src/notebook/runs';
import { MIME_TYPE } from '../../src/report/mimetype';
import { saved } from '../saved';
import { afterPaint } from '../../src/view/link';

const REPORT = await saved('two_breaks');
const TEXT = REPORT.sources[0]!.segments[0]!.text;

/** A cell that counts how often its outputs are read. */
class Cell {
  constructor(
    readonly id: string,
    public text = TEXT,
    data: object[] = [{ [MIME_TYPE]: REPORT }]
  ) {
    this.data = data;
  }
  readonly type = 'code';
  executionCount: number | null = 7;
  data: object[];
  reads = 0;
  readonly sharedModel = { getSource: (): string => this.text };
  get outputs(): object {
    this.reads += 1;
    return {
      length: this.data.length,
      get: (at: number) => ({ toJSON: () => ({ data: this.data[at] }) })
    };
  }
}

class Notebook {
  constructor(...cells: Cell[]) {
    this.model.cells = cells;
  }
  readonly model = {
    cells: [] as object[],
    contentChanged: new Signal<object, void>({})
  };
  readonly content = {
    model: this.model,
    modelChanged: new Signal<object, void>({})
  };
  readonly disposed = new Signal<object, void>({});
  async change(): Promise<void> {
    this.model.contentChanged.emit();
    await new Promise<void>(resolve => afterPaint(resolve));
  }
}

class Tracker {
  constructor(public currentWidget: Notebook | null = null) {}
  readonly currentChanged = new Signal<object, Notebook | null>({});
  open(notebook: Notebook | null): void {
    this.currentWidget = notebook;
    this.currentChanged.emit(notebook);
  }
}

function reportsOf(tracker: Tracker): {
  reports: NotebookReports;
  emissionCount: () => number;
} {
  const reports = new NotebookReports(
    tracker as unknown as INotebookTracker,
    nullTranslator.load('')
  );
  let emissionCount = 0;
  reports.changed.connect(() => (emissionCount += 1));
  return { reports, emissionCount: () => emissionCount };
}

test('runs are those of the current notebook, in the order of its cells', () => {
  const tracker = new Tracker(
    new Notebook(
      new Cell('a', 'x', []),
      new Cell('b'),
      new Cell('c', TEXT, [
        { [MIME_TYPE]: REPORT },
        { 'text/plain': 'x' },
        { [MIME_TYPE]: 'broken' }
      ])
    )
  );
  const { reports } = reportsOf(tracker);
  reports.watch();
  assert.deepEqual(
    reports.runs.map(run => [run.cellId, run.index, run.output]),
    [
      ['b', 1, 0],
      ['c', 2, 0],
      ['c', 2, 2]
    ]
  );
  assert.equal(reports.runs[0]!.report?.summary.breaks, 2);
  assert.match(reports.runs[2]!.problem!, /not a JSON object/);
  tracker.open(new Notebook(new Cell('d')));
  assert.deepEqual(
    reports.runs.map(run => run.cellId),
    ['d']
  );
  tracker.open(null);
  assert.deepEqual(reports.runs, []);
});

test('simultaneous changes are emitted once, and changes of no run are not emitted', async () => {
  const cell = new Cell('a');
  const notebook = new Notebook(cell);
  const { reports, emissionCount } = reportsOf(new Tracker(notebook));
  reports.watch();
  assert.equal(emissionCount(), 1);
  for (let key = 0; key < 10; key += 1) {
    cell.text += 'x';
    notebook.model.contentChanged.emit();
  }
  await notebook.change();
  assert.equal(emissionCount(), 2);
  assert(reports.runs[0]!.isEdited);
  cell.text += 'y';
  await notebook.change();
  assert.equal(emissionCount(), 2);
  cell.data = [];
  notebook.model.contentChanged.emit();
  assert.deepEqual(reports.runs, [], 'what is asked for is never late');
  await notebook.change();
  assert.equal(emissionCount(), 3);
});

test('a report is read once, not at each change', async () => {
  const cell = new Cell('a');
  const notebook = new Notebook(cell);
  const { reports } = reportsOf(new Tracker(notebook));
  reports.watch();
  const { report } = reports.runs[0]!;
  cell.executionCount = 8;
  await notebook.change();
  assert.equal(reports.runs[0]!.executionCount, 8);
  assert.equal(reports.runs[0]!.report, report);
});

test('without watchers nothing is read, and requests are answered correctly', async () => {
  const cell = new Cell('a');
  const notebook = new Notebook(cell);
  const tracker = new Tracker(notebook);
  const { reports, emissionCount } = reportsOf(tracker);
  const first = reports.watch();
  const second = reports.watch();
  first.dispose();
  assert(reports.isWatched);
  second.dispose();
  second.dispose();
  assert(!reports.isWatched);
  const before = [cell.reads, emissionCount()];
  await notebook.change();
  tracker.open(new Notebook(new Cell('b')));
  assert.deepEqual([cell.reads, emissionCount()], before);
  assert.equal(reports.runs[0]!.cellId, 'b');
});

test('a selection is emitted once, and is removed in another notebook but not in another view', () => {
  const notebook = new Notebook(new Cell('a'));
  const tracker = new Tracker(notebook);
  const { reports } = reportsOf(tracker);
  reports.watch();
  const ids: (string | null)[] = [];
  reports.selectionChanged.connect((_, selection) =>
    ids.push(selection?.id ?? null)
  );
  const selection = {
    cellId: 'a',
    output: 0,
    kind: 'break',
    id: 'b1'
  } as const;
  reports.selection = selection;
  reports.selection = { ...selection };
  assert.equal(reports.runOf(selection)?.cellId, 'a');
  const view = new Notebook();
  Object.assign(view.content, { model: notebook.model });
  tracker.open(view);
  assert.deepEqual(ids, ['b1']);
  tracker.open(new Notebook());
  assert.deepEqual(ids, ['b1', null]);
  assert.equal(reports.runOf(selection), undefined);
});

test('an edit is compared with the last run of the cell', () => {
  const run = new Cell('a');
  const copy = new Cell('b');
  const other = new Cell('c', 'x = 1', []);
  other.executionCount = 3;
  const { reports } = reportsOf(new Tracker(new Notebook(run, copy, other)));
  const edited = (active: Cell): unknown => {
    const target = editedRun(reports.runs, reports.cells, active as never);
    return (
      target && [
        target.run.cellId,
        ...target.editedCells.map(({ before, now }) => [before === TEXT, now])
      ]
    );
  };
  assert.equal(edited(run), null, 'nothing was edited');
  run.text = `${TEXT}  # edited`;
  copy.text = 'edited, too';
  assert.deepEqual(edited(run), ['a', [true, run.text]]);
  assert.deepEqual(edited(copy), ['b', [true, 'edited, too']]);
  assert.equal(edited(other), null, 'no part of a run');
});

test('a run is edited if a cell with one of its functions was', async () => {
  const helper = 'def helper(x):\n    return x + 1';
  const [own] = REPORT.sources;
  const [segment] = own!.segments;
  const further = {
    ...own!,
    id: 'further',
    name: 'Cell In[5]',
    segments: [{ ...segment!, text: helper }]
  };
  const report = { ...REPORT, sources: [own!, further] };
  const functions = new Cell('a', helper, []);
  functions.executionCount = 5;
  const run = new Cell('b', TEXT, [{ [MIME_TYPE]: report }]);
  const notebook = new Notebook(functions, run);
  const { reports } = reportsOf(new Tracker(notebook));
  reports.watch();
  assert(!reports.runs[0]!.isEdited);
  functions.text = `${helper} + 1`;
  await notebook.change();
  assert(reports.runs[0]!.isEdited);
});
