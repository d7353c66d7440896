import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { partOf, referenceTo } from '../../src/notebook/reportlinks';
import { conform } from '../../src/report/conform';
import { reportLines } from '../../src/report/lines';
import { orderedBreaks } from '../../src/report/lookup';
import { readRows } from '../../src/report/rows';

const REPORT = conform({
  ...(JSON.parse(
    await readFile('../tests/reports/two_breaks.json', 'utf-8')
  ) as object),
  order: ['b2', 'b1']
});

test('breaks are numbered in reading order in all views', () => {
  assert.deepEqual(orderedBreaks(REPORT).map(({ id }) => id), ['b2', 'b1']); // prettier-ignore
  const numbers = reportLines(
    REPORT,
    readRows({}, REPORT),
    REPORT.sources[0]!
  ).flatMap(({ number, breaks }) =>
    breaks.map(numbered => [number, numbered.break.id, numbered.number])
  );
  assert.deepEqual(numbers, [
    [5, 'b2', 1],
    [14, 'b1', 2]
  ]);
});

test('a report without an order lists its breaks as they occurred', () => {
  const older = { ...REPORT, order: [] };
  assert.deepEqual(orderedBreaks(older).map(({ id }) => id), ['b1', 'b2']); // prettier-ignore
});

test('references of the markup match the parts of the report', () => {
  for (const [reference, kind, id] of [
    ['b1', 'break', 'b2'],
    ['b2', 'break', 'b1'],
    ['g0', 'graph', 'A'],
    ['k0', 'skipped', 'k1'],
    ['c2', 'scope', 'c3']
  ] as const) {
    assert.deepEqual(partOf(REPORT, reference), { kind, id });
    assert.equal(referenceTo(REPORT, { kind, id }), reference);
  }
  for (const reference of ['', 'b9', 'l0-14', 'f0']) {
    assert.equal(partOf(REPORT, reference), null);
  }
  assert.equal(referenceTo(REPORT, { kind: 'note', id: '0' }), '');
});
