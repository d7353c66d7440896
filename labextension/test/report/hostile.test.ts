/** Reports that our Python code would never write: too long, with wrong references, with misleading texts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { nullTranslator } from '@jupyterlab/translation';

import type { IRun } from '../../src/notebook/runs';
import { makeRows } from '../../src/panel/rows';
import { MAX_PARTS } from '../../src/report/conform';
import { reportLines, textByLine } from '../../src/report/lines';
import { orderedBreaks, totalOf, withId } from '../../src/report/lookup';
import { unpack } from '../../src/report/packed';
import { readReport } from '../../src/report/reader';
import { readRows, rowOf } from '../../src/report/rows';
import { clip, isKnownPage, visiblePieces } from '../../src/report/shown';
import type { Break, Report, Rows } from '../../src/report/types';
import { saved, savedRows } from '../saved';

const trans = nullTranslator.load('');
const REPORT = await saved('two_breaks');

function read(data: unknown): Report {
  const reading = readReport(data, trans);
  assert('report' in reading, 'problem' in reading ? reading.problem : '');
  return reading.report;
}

function breaksOf(count: number, fields: Partial<Break> = {}): Break[] {
  const [first] = REPORT.breaks;
  return Array.from({ length: count }, (_, at) => ({
    ...first!,
    id: `b${at}`,
    ...fields
  }));
}

function rowsOf(
  report: Report,
  query = '',
  rows: Rows = readRows({}, report)
): ReturnType<typeof makeRows> {
  const run = {
    cellId: 'a',
    output: 0,
    index: 0,
    executionCount: 1,
    title: 'x',
    isEdited: false,
    problem: null,
    report,
    rows
  } as unknown as IRun;
  const options = {
    query,
    hiddenKinds: new Set<never>(),
    sort: 'fix' as const,
    openNodes: new Map(rows.sections.map(({ id }) => [`a/0/${id}`, true]))
  };
  return makeRows([run], options, trans);
}

test('only the beginning of a very long list is read, and its length is kept', () => {
  const order = Array.from({ length: 20_000 }, (_, at) => `b${19_999 - at}`);
  const report = read({ ...REPORT, breaks: breaksOf(20_000), order });
  assert.equal(report.breaks.length, MAX_PARTS);
  const [breaks] = readRows({}, report).sections;
  assert.equal(breaks!.rows.length, MAX_PARTS);
  assert.equal(breaks!.total, 20_000);
  // The markup has the same numbers.
  assert.deepEqual(
    orderedBreaks(report).slice(0, 3).map(({ id }) => id),
    ['b19999', 'b19998', 'b19997']
  ); // prettier-ignore
  const rows = rowsOf(report);
  assert(rows.length < 2 * MAX_PARTS);
});

test('nested lists share one limit', () => {
  const [call] = REPORT.breaks[0]!.stack;
  const stack = Array.from({ length: 300 }, () => call!);
  const breaks = breaksOf(4_000, { stack });
  const report = read({ ...REPORT, breaks });
  const held = report.breaks.reduce((sum, { stack }) => sum + stack.length, 0);
  assert(held <= 400_000, String(held));
  assert.equal(totalOf(report.breaks.at(-1)!.stack), 300);
});

test('only the first part with an id is read', () => {
  const [first, second] = REPORT.breaks;
  const breaks = [first!, { ...second!, id: first!.id }, second!];
  const report = read({ ...REPORT, breaks });
  assert.deepEqual(report.breaks, [first, second]);
  assert.equal(totalOf(report.breaks), 3);
  const keys = rowsOf(report).map(({ key }) => key);
  assert.equal(new Set(keys).size, keys.length);
});

test('finding parts and indexes reads each list once', () => {
  const sources = Array.from({ length: MAX_PARTS }, (_, at) => ({
    ...REPORT.sources[0]!,
    id: `s${at}`
  }));
  const breaks = breaksOf(MAX_PARTS).map((graphBreak, at) => ({
    ...graphBreak,
    location: { ...graphBreak.location!, source: `s${at}` }
  }));
  const report = read({ ...REPORT, sources, breaks });
  let readCount = 0;
  for (const list of [report.sources, report.breaks, report.graphs]) {
    for (const part of list) {
      const { id } = part;
      Object.defineProperty(part, 'id', { get: () => ((readCount += 1), id) });
    }
  }
  const rows = readRows({}, report);
  for (const { id } of [...breaks, ...breaks]) {
    assert.equal(withId(report.breaks, id)?.id, id);
    assert.notEqual(rowOf(rows, 'break', id)?.spot, null);
  }
  for (const source of report.sources) {
    assert.equal(reportLines(report, rows, source).some(l => l.breaks.length), true); // prettier-ignore
  }
  rowsOf(report);
  rowsOf(report, 'score');
  assert(readCount < 40 * MAX_PARTS, String(readCount));
});

test('thousands of breaks on thousands of lines are counted, and few are kept', () => {
  const text = 'x = 1\n'.repeat(5_000);
  const source = {
    ...REPORT.sources[0]!,
    segments: [{ first_line: 1, text }]
  };
  const location = {
    ...REPORT.breaks[0]!.location!,
    source: source.id,
    line: 1,
    end_line: 1e9
  };
  const scopes = REPORT.scopes.slice(0, 1).flatMap(
    scope =>
    Array.from({ length: 5_000 }, (_, at) => ({ ...scope, id: `c${at}`, location })) // prettier-ignore
  );
  const breaks = breaksOf(5_000, { location });
  const report = read({ ...REPORT, sources: [source], breaks, scopes });
  const lines = reportLines(report, readRows({}, report), report.sources[0]!);
  const kept = lines.reduce((sum, line) => sum + line.breaks.length, 0);
  assert(kept <= 100_000, String(kept));
  const onLine = read({
    ...report,
    breaks: breaksOf(5_000, { location: { ...location, end_line: 1 } })
  });
  const [first] = reportLines(onLine, readRows({}, onLine), onLine.sources[0]!);
  assert(first!.breaks.length <= 50);
  assert.equal(totalOf(first!.breaks), 5_000);
});

test('invalid lines, columns and references do no harm', async () => {
  const hostile = await saved('hostile');
  const numbers = [-1e9, -1, 0, 1, 2 ** 31, 1e15, 1e300];
  const strange = ['', '__proto__', 'constructor', 'toString', 's1', '\u202e'];
  for (const base of [REPORT, hostile]) {
    for (const number of numbers) {
      for (const id of strange) {
        const spoil = (value: unknown, name = ''): unknown => {
          if (Array.isArray(value)) {
            return value.map(entry => spoil(entry, name));
          }
          if (typeof value === 'object' && value !== null) {
            return Object.fromEntries(
              Object.entries(value).map(([key, inner]) => [
                key,
                spoil(inner, key)
              ])
            );
          }
          switch (name) {
            case 'line':
            case 'end_line':
            case 'column':
            case 'end_column':
            case 'first_line':
            case 'last_line':
              return number;
            case 'source':
            case 'frame':
            case 'caller':
            case 'parent':
            case 'recompile_of':
            case 'break':
            case 'resume':
            case 'resumes':
            case 'kind':
            case 'change':
            case 'status':
            case 'setting':
              return typeof value === 'string' ? id : value;
            default:
              return value;
          }
        };
        const report = read({ ...(spoil(base) as Report), order: strange });
        const sources = report.sources;
        const rows = readRows({}, report);
        for (const source of sources) {
          textByLine(report, source);
          for (const { text, breaks } of reportLines(report, rows, source)) {
            for (const { start, end } of breaks) {
              assert(0 <= start && start <= end && end <= text.length);
            }
          }
        }
        for (const query of ['', 'x']) {
          for (const row of rowsOf(report, query)) {
            assert.equal(row.details.every(it => typeof it === 'string'), true); // prettier-ignore
          }
        }
      }
    }
  }
});

test('a prototype in the data changes nothing', () => {
  const data = JSON.parse(
    `{"__proto__": {"breaks": [1]}, "status": "ok", "device": {"requested": "auto", "used": "cpu", "__proto__": 1}}`
  ) as object;
  assert.deepEqual(read(data).breaks, []);
  assert.equal(({} as { breaks?: unknown }).breaks, undefined);
});

test('long texts are truncated in rows', () => {
  const long = 'x'.repeat(1_000_000);
  const [first] = REPORT.breaks;
  const report = read({
    ...REPORT,
    breaks: [{ ...first, gb_type: long, explanation: long, location: { ...first!.location, code: long, function: long } }],
    diagnostics: [{ level: 'warning', message: long }],
    status: long
  }); // prettier-ignore
  for (const { label, details, more, sign } of rowsOf(report)) {
    const size = [label, more, sign, ...details].join('').length;
    assert(size < 15_000, `${size}`);
  }
});

test('untrusted rows are truncated, and invalid ones are not read', async () => {
  const long = 'x'.repeat(1_000_000);
  const row = { id: '0', label: long, look: 'note injected', more: [long], details: Array.from({ length: 500 }, () => long) }; // prettier-ignore
  const sections = [
    { id: 'weather', title: long, total: 1, rows: [row, row] },
    { id: 'weather', title: 'again', total: 1, rows: [] }
  ];
  const rows = { version: '9', look: 'strange', status: [long], about: [], sections }; // prettier-ignore
  const read = readRows({ rows }, REPORT);
  assert.equal(read.sections.length, 1);
  assert.equal(read.sections[0]!.rows.length, 1);
  assert.equal(read.sections[0]!.rows[0]!.look, 'note');
  assert(JSON.stringify(read).length < 100_000);
  assert(rowsOf(REPORT, '', read).length > 0);
  const plain = readRows({}, REPORT);
  for (const data of [null, 7, 'x', [], {}, { ...rows, sections: 3 }]) {
    assert.deepEqual(readRows({ rows: data }, REPORT), plain);
  }
  assert.equal(plain.sections[0]!.rows[0]!.label, 'score > 3');
});

test('rows of a later version are drawn', async () => {
  const rows = structuredClone(await savedRows('two_breaks')) as Rows & { more?: object }; // prettier-ignore
  rows.version = '1.7';
  rows.more = { than: 'we know' };
  rows.sections[0]!.rows[0]!.look = 'glowing' as 'note';
  const read = readRows({ rows }, REPORT);
  assert.equal(read.sections[0]!.rows[0]!.look, 'glowing');
  assert(!('more' in read));
});

test('data that unpack to too many bytes are refused', async () => {
  const stream = new Blob([JSON.stringify('x'.repeat(100_000))])
    .stream()
    .pipeThrough(new CompressionStream('gzip'));
  const packed = Buffer.from(await new Response(stream).arrayBuffer());
  const base64 = packed.toString('base64');
  assert.equal((await unpack<string>(base64)).length, 100_000);
  await assert.rejects(unpack(base64, 50_000), /too large/);
});

test('hidden characters are shown by name', () => {
  const text = 'a\u202eb\u200bc\u00a0d\te \u{e0041}';
  assert.deepEqual(
    visiblePieces(text).map(({ text, isHidden }) => (isHidden ? `<${text}>` : text)).join(''),
    'a<U+202E>b<U+200B>c<U+00A0>d\te <U+E0041>'
  ); // prettier-ignore
  for (const code of [0x202a, 0x202b, 0x202c, 0x202d, 0x2066, 0x2067, 0x2068, 0x2069, 0x200c, 0x200d, 0x2060, 0xfeff, 0xad, 0x3164, 0x2800, 0x0d, 0x1b]) {
    const [piece] = visiblePieces(String.fromCodePoint(code));
    assert(piece!.isHidden, code.toString(16));
  } // prettier-ignore
  const plain = 'x = "naïve 漢字 🙂" # ok\t';
  assert.deepEqual(visiblePieces(plain), [{ text: plain, isHidden: false }]);
  assert.equal(clip('abc', 2), 'ab…');
});

test('links lead to PyTorch only', () => {
  for (const address of [
    'https://pytorch.org',
    'https://docs.pytorch.org/docs/stable/x.html#y',
    'https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html'
  ]) {
    assert(isKnownPage(address), address);
  }
  for (const address of [
    'http://pytorch.org/',
    'javascript:alert(1)',
    'data:text/html,x',
    'https://pytorch.org.example.com/',
    'https://pytorch.org@example.com/',
    'https://pytorch.org:8443/',
    'https://notpytorch.org/',
    'https://example.com/pytorch.org/',
    'https://meta-pytorch.github.io/other/',
    'https://meta-pytorch.github.io/compile-graph-break-site.example.com',
    '//pytorch.org/',
    ' https://pytorch.org/',
    '/lab'
  ]) {
    assert(!isKnownPage(address), address);
  }
});
