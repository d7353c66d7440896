/** Random changes of reports: they are read or refused, and what is shown stays text of limited size. */
import assert from 'node:assert/strict';
import { gzipSync } from 'node:zlib';
import { test } from 'node:test';

import { nullTranslator } from '@jupyterlab/translation';

import { breakHint, hintTooltip } from '../../src/editor/descriptions';
import type { IMark } from '../../src/editor/positions';
import { dataOf, dataOfProcess } from '../../src/notebook/outputdata';
import type { IRun } from '../../src/notebook/runs';
import { makeRows } from '../../src/panel/rows';
import { MAX_PARTS } from '../../src/report/conform';
import {
  changesFor,
  codeOutside,
  diffOf,
  editsBySource,
  LineMismatch
} from '../../src/report/edits';
import { reportLines, textByLine } from '../../src/report/lines';
import { JOB_TYPE, MIME_TYPE, REST_TYPE } from '../../src/report/mimetype';
import { readReport } from '../../src/report/reader';
import { NAMES, saved, savedRows } from '../saved';

/** The number of changed reports; a longer run is `FUZZ=5000 npm test`. */
const COUNT = Number(process.env['FUZZ'] ?? 60);
const SEED = Number(process.env['FUZZ_SEED'] ?? 1);

const trans = nullTranslator.load('');
const HTML = '<img src=x onerror=alert(1)><b id="injected">';
const REPORTS = await Promise.all(
  NAMES.map(async name => ({ ...(await saved(name)), rows: await savedRows(name) })) // prettier-ignore
);

/** A generator of pseudo-random whole numbers below a limit (mulberry32). */
function generator(seed: number): (limit: number) => number {
  let state = seed;
  return limit => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit;
  };
}

type Random = ReturnType<typeof generator>;
type Parent = Record<string, unknown>;

/** Every object and list in the given data, with the keys of its entries. */
function places(data: unknown, found: [Parent, string][] = []): [Parent, string][] {
  if (typeof data === 'object' && data !== null) {
    for (const key of Object.keys(data)) {
      found.push([data as Parent, key]);
      places((data as Parent)[key], found);
    }
  }
  return found;
} // prettier-ignore

const STRINGS = [
  '', HTML, `\`${HTML}\``, '</script><script>alert(1)</script>', 'javascript:alert(1)', '\u0000\u0007\u001b[31m\r\n\u2028',
  '\u202eabc\u2066', '\ud800', '__proto__', 'constructor', 'toString', 'x'.repeat(100_000), '`'.repeat(999), '2.0', '%1 %2 $&'
]; // prettier-ignore
const NUMBERS = [-1, 0, 0.5, 1e9, -1e9, 2 ** 31, 2 ** 53, 1e300, NaN, Infinity];

function deep(depth: number): unknown {
  let data: unknown = 1;
  for (let level = 0; level < depth; level += 1) {
    data = level % 2 === 0 ? [data] : { rows: data };
  }
  return data;
}

/** A value of any kind, or a variation of the value that was there. */
function anyValue(random: Random, before: unknown): unknown {
  const pick = <T>(list: readonly T[]): T => list[random(list.length)]!;
  switch (random(30)) {
    case 0:
      return pick([null, undefined, true, false, [], {}, [[]], [null]]);
    case 1:
      return pick(NUMBERS);
    case 2:
      return deep(random(2_000));
    case 3:
      return JSON.parse('{"__proto__": {"id": 1}, "constructor": 1, "length": 3}') as unknown; // prettier-ignore
    case 4: {
      // As many entries as would be slow.
      const entry: unknown = Array.isArray(before) ? before[0] : before;
      const isSmall = (JSON.stringify(entry) ?? '').length < 2_000;
      return Array.from({ length: isSmall ? 10_000 : 2 }, () => entry);
    }
    case 5: // an entry twice, or in a different order
      return Array.isArray(before) ? [...before, ...before].reverse() : before;
    default:
      return typeof before === 'string'
        ? pick([pick(STRINGS), before + pick(STRINGS)])
        : typeof before === 'number'
          ? pick(NUMBERS)
          : pick([...STRINGS, before]);
  }
}

function spoil(data: object, random: Random): Parent {
  const spoilt = structuredClone(data) as Parent;
  const all = places(spoilt);
  for (let count = 1 + random(6); count > 0; count -= 1) {
    const [parent, key] = all[random(all.length)]!;
    if (random(15) === 0) {
      delete parent[key];
    } else {
      parent[key] = anyValue(random, parent[key]);
    }
  }
  return spoilt;
}

/** Show a report in every way that the panel and the editor have. */
function show(data: unknown): void {
  const reading = readReport(data, trans);
  const problem = 'problem' in reading ? reading.problem : null;
  const { report = null, rows = null } = 'report' in reading ? reading : {};
  const run = {
    cellId: 'a', output: 0, index: 0, executionCount: 1, title: HTML, isEdited: false, problem, report, rows, own: true, name: HTML
  } as unknown as IRun; // prettier-ignore
  const sections = rows?.sections ?? [];
  assert(sections.length <= 100);
  for (const query of ['', 'x']) {
    const tree = makeRows(
      [run],
      {
        query, hiddenKinds: new Set<never>(), sort: 'fix',
        openNodes: new Map(sections.map(({ id }) => [`a/0/${id}`, true]))
      },
      trans
    ); // prettier-ignore
    assert(tree.length <= 2 + sections.length + 100 * MAX_PARTS);
    for (const { name, label, more, sign, look, details } of tree) {
      const texts: unknown[] = [name, label, more, sign, look, ...details];
      // React shows strings as text, whatever they contain.
      assert(texts.every(text => typeof text === 'string'));
      assert.match(look, /^[a-z0-9 ]*$/);
    }
    const longest = Math.max(0, ...tree.map(row => row.label.length + row.more.length)); // prettier-ignore
    assert(longest < 100_000, `a row of ${longest} characters`);
  }
  if (report === null || rows === null) {
    return;
  }
  for (const source of report.sources.slice(0, 3)) {
    const text = [...textByLine(report, source).values()].join('\n');
    for (const line of reportLines(report, rows, source).slice(0, 100)) {
      const origin = { report, rows, isStale: false, runName: HTML };
      const mark = { line, from: 0, to: 9, isStale: false, origin } as unknown as IMark; // prettier-ignore
      const hints = line.breaks.map(it => breakHint(mark, it, trans));
      assertIsText(hintTooltip(hints, hints.length, 100).outerHTML);
    }
    for (const remedy of (report.remedies ?? []).slice(0, 5)) {
      codeOutside(report, remedy);
      for (const edits of editsBySource([remedy]).values()) {
        try {
          diffOf(text, changesFor(text, edits, text));
        } catch (error) {
          assert(error instanceof LineMismatch, String(error));
        }
      }
    }
  }
}

function assertIsText(markup: string): void {
  assert.doesNotMatch(markup, /<(?:img|script|b) |<script|javascript:[^&"]*"/u);
}

test('reports with random changes are read or refused, and shown as text', () => {
  const random = generator(SEED);
  for (let count = 0; count < COUNT; count += 1) {
    const data = spoil(REPORTS[random(REPORTS.length)]!, random);
    try {
      show(data);
    } catch (error) {
      throw new Error(`change ${count} of seed ${SEED}`, { cause: error });
    }
    assert.equal(({} as { id?: unknown }).id, undefined, 'the prototype');
  }
});

test('packed data with random changes give data or a rejected promise', async () => {
  const random = generator(SEED);
  const gzip = (data: unknown): string =>
    gzipSync(JSON.stringify(data) ?? '').toString('base64');
  for (let count = 0; count < COUNT / 3; count += 1) {
    const output = {
      [MIME_TYPE]: REPORTS[0],
      [JOB_TYPE]: { processes: [{ report: REPORTS[0] }] },
      [REST_TYPE]: { gzip: gzip(anyValue(random, {})), processes: [{ gzip: gzip(anyValue(random, {})) }] },
      'text/plain': 'x'
    }; // prettier-ignore
    const data = spoil(output, random) as Parameters<typeof dataOf>[0];
    for (const report of [dataOf(data), dataOfProcess(data, 0)]) {
      await Promise.allSettled([
        report.omittedItems(),
        report.text(),
        report.json()
      ]);
    }
  }
});
