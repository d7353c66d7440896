import assert from 'node:assert/strict';
import { test } from 'node:test';

import { nullTranslator } from '@jupyterlab/translation';

import { MIME_TYPE } from '../../src/report/mimetype';
import { readOutput, readReport } from '../../src/report/reader';
import type { Report } from '../../src/report/types';
import { NAMES, saved } from '../saved';

const trans = nullTranslator.load('jupyter_graphbreak');

function problemOf(data: unknown): string {
  const reading = readReport(data, trans);
  assert('problem' in reading, 'it was read');
  return reading.problem;
}

function reportOf(data: unknown): Report {
  const reading = readReport(data, trans);
  assert('report' in reading, 'it was not read');
  return reading.report;
}

for (const name of NAMES) {
  test(`the saved report ${name} is read unchanged`, async () => {
    const report = await saved(name);
    assert.deepEqual(reportOf(report), report);
  });
}

test('an output without a report is not read', () => {
  assert.equal(readOutput({ 'text/plain': 'x' }, trans), null);
});

test('invalid data are reported as unreadable', () => {
  for (const data of [null, undefined, 1, 'broken {', [], [{}]]) {
    assert.match(problemOf(data), /it is not a JSON object/);
    assert('problem' in readOutput({ [MIME_TYPE]: data }, trans)!);
  }
  assert.match(problemOf({}), /field "status"/);
});

test('a report of a different major version is reported with its version', async () => {
  const report = await saved('no_breaks');
  assert.match(
    problemOf({ ...report, schema_version: '2.0' }),
    /format version 2\.0/
  );
  assert.match(problemOf({ schema_version: '10.1' }), /version 10\.1/);
  const other = { 'application/vnd.graphbreak.report.v2+json': {} };
  const reading = readOutput(other, trans)!;
  assert('problem' in reading && /format version 2,/.test(reading.problem));
});

test('a report of a newer minor version is read without its new fields', async () => {
  const report = await saved('two_breaks');
  const newer = structuredClone(report) as Report & { more?: object };
  newer.schema_version = '1.7';
  newer.more = { than: 'we know' };
  newer.skipped[0]!.kind = 'a new kind' as 'other';
  const read = reportOf(newer);
  assert(!('more' in read));
  assert.equal(read.skipped[0]!.kind, 'a new kind');
});

test('missing fields of an older minor version get defaults that reports do not share', async () => {
  const { status, device } = await saved('two_breaks');
  const old = { status, device: { requested: 'auto', used: device.used } };
  const read = reportOf(old);
  assert.deepEqual(read.breaks, []);
  assert.equal(read.device.note, null);
  assert.equal(read.summary.breaks, 0);
  assert.equal(read.timing.wall_s, null);
  read.breaks.push(null!);
  assert.deepEqual(reportOf(old).breaks, []);
});

test('each invalid field is named', async () => {
  const broken: [path: string, spoil: (report: Report) => void][] = [
    ['breaks', report => (report.breaks = {} as [])],
    ['breaks[1]', report => (report.breaks[1] = null!)],
    ['breaks[0].location.line', report => (report.breaks[0]!.location!.line = 1.5)],
    ['breaks[0].location', report => (report.breaks[0]!.location = [] as never)],
    ['breaks[0].gb_type', report => delete (report.breaks[0] as Partial<Report['breaks'][0]>).gb_type],
    ['graphs[0].ops', report => (report.graphs[0]!.ops = 'x' as never)],
    ['sources[0].segments[0].text', report => (report.sources[0]!.segments[0]!.text = 3 as never)],
    ['summary.breaks', report => (report.summary.breaks = '2' as never)],
    ['status', report => (report.status = 7 as never)],
    ['config', report => (report.config = [] as never)]
  ]; // prettier-ignore
  for (const [path, spoil] of broken) {
    const report = await saved('two_breaks');
    spoil(report);
    assert(problemOf(report).includes(`"${path}"`), path);
  }
});
