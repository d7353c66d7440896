import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  changesFor,
  codeOutside,
  diffOf,
  editsBySource,
  LineMismatch,
  withChanges
} from '../../src/report/edits';
import { conform } from '../../src/report/conform';
import type { IDiffLine } from '../../src/report/edits';
import type { Edit } from '../../src/report/types';
import { saved } from '../saved';

const TEXT = 'one\ntwo\nthree\nfour';

function edit(first: number, last: number, old: string, text: string): Edit {
  return { source: 's1', first_line: first, last_line: last, old, new: text };
}

/** The text after all edits; checks that the diff leads to the same text. */
function applied(text: string, edits: Edit[], original = text): string {
  const changes = changesFor(text, edits, original);
  const result = withChanges(text, changes);
  assert.equal(patched(text, diffOf(text, changes).flat()), result);
  return result;
}

/** Apply a diff to text; throws if the lines of the diff are not those of the text. */
function patched(text: string, diff: IDiffLine[]): string {
  const lines = text.split('\n');
  const result: string[] = [];
  let above = 0;
  for (const [at, { sign, number, text: line }] of diff.entries()) {
    if (sign === '+') {
      // Added lines go before the next old line of the diff.
      const next = diff.slice(at).find(({ number: n }) => n !== null)?.number;
      result.push(...lines.slice(above, next ? next - 1 : undefined), line);
      above = next ? next - 1 : lines.length;
    } else {
      assert.equal(lines[number! - 1], line);
      result.push(...lines.slice(above, number! - 1));
      above = number!;
      if (sign === ' ') {
        result.push(line);
      }
    }
  }
  return [...result, ...lines.slice(above)].join('\n');
}

test('lines are replaced, deleted and inserted', () => {
  for (const [edits, expected] of [
    [[edit(2, 3, 'two\nthree', '2')], 'one\n2\nfour'],
    [[edit(1, 1, 'one', '')], 'two\nthree\nfour'],
    [[edit(4, 4, 'four', '')], 'one\ntwo\nthree'],
    [[edit(1, 4, TEXT, '')], ''],
    [[edit(1, 0, '', 'zero')], `zero\n${TEXT}`],
    [[edit(5, 4, '', 'five')], `${TEXT}\nfive`],
    [
      [edit(2, 2, 'two', '2'), edit(1, 0, '', 'import a\nimport b')],
      'import a\nimport b\none\n2\nthree\nfour'
    ],
    [
      [edit(3, 2, '', 'x'), edit(3, 2, '', 'y'), edit(2, 2, 'two', '2')],
      'one\n2\nx\ny\nthree\nfour'
    ],
    [[edit(4, 4, 'four', ''), edit(3, 3, 'three', '3')], 'one\ntwo\n3']
  ] as [Edit[], string][]) {
    // prettier-ignore
    assert.equal(applied(TEXT, edits), expected);
  }
});

test('text that has changed is not edited', () => {
  for (const [text, edits, line] of [
    ['one\n2\nthree', [edit(2, 2, 'two', 'x')], 2],
    ['one', [edit(2, 2, 'two', 'x')], 2],
    ['one\ntwo\n3\nfour', [edit(2, 4, 'two\nthree\nfour', 'x')], 3],
    ['zero\none\ntwo', [edit(2, 1, '', 'x')], 2],
    [TEXT, [edit(2, 3, 'two\nthree', 'x'), edit(3, 4, 'three\nfour', 'y')], 3],
    [TEXT, [edit(3, 1, '', 'x')], 3],
    [TEXT, [edit(3, 2, 'three', 'x')], 3],
    [TEXT, [edit(-1, -2, '', 'x')], -1],
    [TEXT, [edit(9, 8, '', 'x')], 9],
    [TEXT, [edit(0, 0, '', 'x')], 0]
  ] as [string, Edit[], number][]) {
    assert.throws(
      () => changesFor(text, edits, TEXT),
      (error: unknown) => error instanceof LineMismatch && error.line === line
    );
  }
});

test('an insertion checks only the line that follows', () => {
  const longer = `${TEXT}\nfive`;
  assert.equal(applied(longer, [edit(2, 1, '', 'x')], TEXT), 'one\nx\ntwo\nthree\nfour\nfive'); // prettier-ignore
});

test('a cell applies settings and patches outside cells', async () => {
  const report = conform(await saved('remedies'));
  const remedies = report.remedies ?? [];
  const cell = report.sources.find(({ kind }) => kind === 'cell')!;
  const file = report.sources.find(({ kind }) => kind !== 'cell')!;
  const base = { ...remedies[0]!, code: null };
  const patchOf = (name: string): string =>
    `--- a/${name}\n+++ b/${name}\n@@ -1,1 +1,1 @@\n-one\n+'two'\n`;
  const inCell = { ...edit(1, 1, 'one', "'two'"), source: cell.id };
  const inFile = { ...inCell, source: file.id };
  const ofCell = { ...base, edits: [inCell], patch: patchOf(cell.name) };
  assert.equal(codeOutside(report, ofCell), null);
  const mark = { ...ofCell, kind: 'mark' as const, code: 'mark(x)' };
  assert.equal(codeOutside(report, mark), null);
  const ofBoth = {
    ...base,
    edits: [inCell, inFile],
    patch: patchOf(cell.name) + patchOf('lib/a.py'),
    code: 'import torch\n'
  };
  assert.equal(
    codeOutside(report, ofBoth),
    `import torch\nimport jupyter_graphbreak\njupyter_graphbreak.apply_patch(r'''${patchOf('lib/a.py')}''')`
  );
  assert.deepEqual([...editsBySource(remedies).keys()], ['s1', 's2']);
});
