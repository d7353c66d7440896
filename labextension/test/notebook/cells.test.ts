import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  CellIndex,
  findCell as find,
  type ICell,
  type ICellMatch
} from '../../src/notebook/cells';
import type { Report } from '../../src/report/types';
import { saved } from '../saved';

function cell(text: string, executionCount: number | null = null): ICell {
  return { executionCount, sharedModel: { getSource: () => text } };
}

function findCell(
  report: Report,
  source: string,
  carrier: ICell,
  cells: ICell[]
): ICellMatch<ICell> | null {
  return find(report, source, carrier, new CellIndex(cells));
}

const REPORT = await saved('two_breaks');
const OWN = REPORT.sources[0]!.segments[0]!.text;
const DEFS = 'def helper(): ...';

/** The report of a run that went through another cell as well, and a library. */
function withHelper(): Report {
  const segment = { first_line: 1, text: DEFS };
  return {
    ...REPORT,
    sources: [
      ...REPORT.sources,
      { id: 's2', name: 'Cell In[3]', kind: 'cell', path: null, segments: [segment] },
      { id: 's3', name: 'nn.py', kind: 'library', path: '/nn.py', segments: [segment] }
    ]
  }; // prettier-ignore
}

test('a source is matched to the cell with its text, wherever it is', () => {
  const carrier = cell(`${OWN}\n`, 7);
  const helper = cell(DEFS, 12);
  const cells = [cell('other', 3), carrier, helper];
  const report = withHelper();
  assert.deepEqual(findCell(report, 's1', carrier, cells), { cell: carrier, isStale: false }); // prettier-ignore
  assert.deepEqual(findCell(report, 's2', carrier, cells), { cell: helper, isStale: false }); // prettier-ignore
});

test('of two cells with the same text, the one with the right count or else the first matches', () => {
  const carrier = cell(OWN, 7);
  const first = cell(DEFS, 1);
  const second = cell(DEFS, 3);
  const report = withHelper();
  assert.equal(
    findCell(report, 's2', carrier, [first, carrier, second])?.cell,
    second
  );
  assert.equal(findCell(report, 's2', carrier, [first, cell(DEFS)])?.cell, first); // prettier-ignore
});

test('the cell with the report takes precedence over another cell with its text', () => {
  const carrier = cell(OWN, 9);
  const copy = cell(OWN, 7);
  assert.equal(findCell(REPORT, 's1', carrier, [copy, carrier])?.cell, carrier);
});

test('a cell that was edited is found by its count, and is stale', () => {
  const carrier = cell(`${OWN} # edited`, 7);
  const helper = cell('def helper(): pass', 3);
  const report = withHelper();
  const cells = [helper, carrier];
  assert.deepEqual(findCell(report, 's1', carrier, cells), { cell: carrier, isStale: true }); // prettier-ignore
  assert.deepEqual(findCell(report, 's2', carrier, cells), { cell: helper, isStale: true }); // prettier-ignore
});

test('a report with one cell is matched to the cell with the report, regardless of counts', () => {
  const carrier = cell('edited');
  assert.deepEqual(findCell(REPORT, 's1', carrier, [carrier]), { cell: carrier, isStale: true }); // prettier-ignore
});

test('a source that is not a cell, or whose cell was deleted, has no match', () => {
  const carrier = cell(OWN, 7);
  const report = withHelper();
  for (const source of ['s2', 's3', 'unheard of']) {
    assert.equal(findCell(report, source, carrier, [carrier]), null);
  }
});

test('the text of a cell is computed once for all sources', () => {
  let reads = 0;
  const counted = (text: string, count: number): ICell => ({
    executionCount: count,
    sharedModel: { getSource: () => ((reads += 1), text) }
  });
  const sources = Array.from({ length: 3000 }, (_, at) => ({
    id: `s${at}`,
    name: `Cell In[${at}]`,
    kind: 'cell' as const,
    path: null,
    segments: [{ first_line: 1, text: `x = ${at}` }],
    functions: []
  }));
  const report: Report = { ...REPORT, sources };
  const cells = sources.map((_, at) => counted(`x = ${2999 - at}`, at));
  const carrier = cell('other');
  const index = new CellIndex(cells);
  for (const { id } of sources) {
    const at = 2999 - Number(id.slice(1));
    assert.equal(find(report, id, carrier, index)!.cell, cells[at]);
  }
  assert.equal(reads, cells.length);
});
