import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';

import { dataOf, dataOfProcess } from '../../src/notebook/outputdata';
import { JOB_TYPE, MIME_TYPE, REST_TYPE } from '../../src/report/mimetype';
import { saved } from '../saved';

const REPORT = await saved('two_breaks');

function packed(data: object): string {
  return gzipSync(JSON.stringify(data)).toString('base64');
}

test('the code of graphs that an output has in compressed form is in the JSON of its report', async () => {
  const graphs = REPORT.graphs.map((graph, index) => ({
    ...graph,
    code: index === 0 ? '' : graph.code
  }));
  const code = { [graphs[0]!.id]: 'def forward(self, x):\n    return x' };
  const data = dataOf({
    [MIME_TYPE]: { ...REPORT, graphs, rows: { sections: [] } } as never,
    [REST_TYPE]: { gzip: packed({ rest: { breaks: ['<li>'] }, code }) }
  });
  const expected = [
    { ...graphs[0], code: code[graphs[0]!.id] },
    ...graphs.slice(1)
  ];
  assert.deepEqual(JSON.parse(await data.json()), {
    ...REPORT,
    graphs: expected
  });
  assert.deepEqual(await data.omittedItems('breaks'), { breaks: ['<li>'] });
});

test('a report without compressed data is its own JSON', async () => {
  const data = dataOf({
    [MIME_TYPE]: REPORT as never,
    'text/plain': ['2 ', 'breaks']
  });
  assert.deepEqual(
    JSON.parse(await data.json()),
    JSON.parse(JSON.stringify(REPORT))
  );
  assert.deepEqual(
    [await data.text(), await data.omittedItems('')],
    ['2 breaks', {}]
  );
});

test('each process of a job has its own compressed data', async () => {
  const processes = [{ report: null }, { report: REPORT }] as never;
  const data = dataOfProcess(
    {
      [JOB_TYPE]: { processes },
      [REST_TYPE]: {
        processes: [
          { gzip: packed({}) },
          { gzip: packed({ rest: {}, text: 'rank 1' }) }
        ]
      }
    },
    1
  );
  assert.equal(await data.text(), 'rank 1');
  assert.deepEqual(
    JSON.parse(await data.json()),
    JSON.parse(JSON.stringify(REPORT))
  );
});
