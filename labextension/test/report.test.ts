import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { isReport, MIME_TYPE } from '../src/report';

const REPORTS = '../tests/reports/';

for (const name of ['two_breaks', 'no_breaks', 'failed', 'hostile']) {
  test(`the saved report ${name} passes the guard`, async () => {
    const data: unknown = JSON.parse(
      await readFile(`${REPORTS}${name}.json`, 'utf-8')
    );
    assert(isReport(data));
    assert.equal(data.summary.breaks, data.breaks.length);
  });
}

test('nothing else passes it', () => {
  for (const data of [null, 1, 'x', [], {}, { schema_version: '1.0' }]) {
    assert(!isReport(data));
  }
});

test('a report of another major version does not pass', async () => {
  const data = JSON.parse(
    await readFile(`${REPORTS}no_breaks.json`, 'utf-8')
  ) as Record<string, unknown>;
  assert(!isReport({ ...data, schema_version: '2.0' }));
  assert(isReport({ ...data, schema_version: '1.7' }));
});

test('Python has the same mime type', async () => {
  const source = await readFile('../jupyter_graphbreak/report.py', 'utf-8');
  assert(source.includes(`MIME_TYPE = "${MIME_TYPE}"`));
});
