import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  type IReportLine,
  reportLines,
  textByLine
} from '../../src/report/lines';
import type { Report } from '../../src/report/types';
import { NAMES, saved, savedRows } from '../saved';

const TWO_BREAKS = await saved('two_breaks');
const ROWS = await savedRows('two_breaks');

function linesOf(report: Report, source = 0): Map<number, IReportLine> {
  const lines = reportLines(report, ROWS, report.sources[source]!);
  return new Map(lines.map(line => [line.number, line]));
}

/** A report about the given lines, with the given fields replaced. */
function about(text: string, fields: Partial<Report>): Report {
  const [source] = TWO_BREAKS.sources;
  return {
    ...TWO_BREAKS,
    sources: [{ ...source!, segments: [{ first_line: 1, text }] }],
    breaks: [],
    graphs: [],
    skipped: [],
    scopes: [],
    ...fields
  };
}

const PLACE = TWO_BREAKS.breaks[0]!.location!;

test('each line has the graphs of its operations', () => {
  const lines = linesOf(TWO_BREAKS);
  const letters = [...lines].map(([number, { graphs }]) => [
    number,
    graphs.map(({ graph, colour }) => `${graph.id}${colour}`).join()
  ]);
  assert.deepEqual(
    letters.filter(([, ids]) => ids !== ''),
    [
      [4, 'C2'],
      [6, 'D3'],
      [11, 'A0'],
      [12, 'A0'],
      [14, 'A0'],
      [15, 'B1']
    ]
  );
});

test('a break has the columns and the number of the report', () => {
  const lines = linesOf(TWO_BREAKS);
  const [first] = lines.get(14)!.breaks;
  assert.deepEqual([first!.number, first!.start, first!.end], [1, 11, 20]);
  assert.equal(lines.get(14)!.text.slice(11, 20), 'score > 3');
  assert.deepEqual(
    lines.get(16)!.breaksReachedByCalls.map(({ number }) => number),
    [2]
  );
});

test('the innermost scope counts, and all lines of an eager function are marked', () => {
  const lines = linesOf(TWO_BREAKS);
  const values = [2, 8, 13, 15, 16].map(line => lines.get(line)!.scope?.value);
  assert.deepEqual(values, [false, true, false, false, true]);
  const eager = [...lines].filter(([, line]) => line.eager !== null);
  assert.deepEqual(
    eager.map(([number]) => number),
    [18, 19, 20]
  );
});

test('breaks over several lines, without columns, and after astral characters', () => {
  const [first] = TWO_BREAKS.breaks;
  const report = about('a = "😀"; f(\n    x\n)\n  y  ', {
    breaks: [
      {
        ...first!,
        stack: [],
        occurrences: [],
        location: { ...PLACE, line: 1, end_line: 3, column: 9, end_column: 1 }
      },
      {
        ...first!,
        id: 'b2',
        stack: [],
        occurrences: [],
        location: {
          ...PLACE,
          line: 4,
          end_line: 4,
          column: null,
          end_column: null
        }
      }
    ]
  });
  const marked = reportLines(report, ROWS, report.sources[0]!).map(
    ({ text, breaks: [first] }) => text.slice(first!.start, first!.end)
  );
  assert.deepEqual(marked, ['f(', 'x', ')', 'y']);
});

test('an eager function has the lines that the report names', () => {
  const [skipped] = TWO_BREAKS.skipped;
  const text = 'def f(x):\n    a\n\n    b\n\nf(1)';
  const eagerLines = (line: number, end: number): number[] => {
    const location = { ...PLACE, line, end_line: end, function: 'f' };
    const report = about(text, { skipped: [{ ...skipped!, location }] });
    return [...linesOf(report)]
      .filter(([, { eager }]) => eager?.id === skipped!.id)
      .map(([number]) => number);
  };
  assert.deepEqual(eagerLines(1, 4), [1, 2, 3, 4]);
  assert.deepEqual(eagerLines(3, 4), [3, 4], 'a resume function');
  assert.deepEqual(eagerLines(2, 2), [2]);
});

test('a place of a billion lines marks only existing lines', () => {
  const [scope] = TWO_BREAKS.scopes;
  const report = about('a\nb', {
    scopes: [{ ...scope!, location: { ...PLACE, line: -5, end_line: 1e9 } }]
  });
  assert.deepEqual([...linesOf(report).keys()], [1, 2]);
});

test('every saved report can be marked', async () => {
  for (const name of NAMES) {
    const report = await saved(name);
    for (const source of report.sources) {
      const texts = textByLine(report, source);
      for (const line of reportLines(report, ROWS, source)) {
        assert.equal(line.text, texts.get(line.number));
      }
    }
  }
});
