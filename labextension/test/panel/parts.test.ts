import assert from 'node:assert/strict';
import { test } from 'node:test';

import { nullTranslator } from '@jupyterlab/translation';

import type { IRun } from '../../src/notebook/runs';
import { partsOf } from '../../src/panel/parts';
import { saved } from '../saved';

const REPORT = await saved('two_breaks');

/** The details of the first break when the report has these resume functions, in this order. */
function breakDetails(resumes: typeof REPORT.resumes): readonly string[] {
  const report = {
    ...REPORT,
    resumes,
    breaks: REPORT.breaks.map(graphBreak => ({
      ...graphBreak,
      resumes: resumes.map(({ id }) => id)
    }))
  };
  const run = { ownSource: report.sources[0]! } as IRun;
  const context = { run, report, trans: nullTranslator.load('') };
  return partsOf(context, 'break')[0]!.details;
}

test('a break goes on where the run did, not at the branch that was left', () => {
  const [taken, left] = [15, 16].map(line =>
    REPORT.resumes.find(({ location }) => location?.line === line)!
  );
  for (const resumes of [
    [taken!, left!],
    [left!, taken!]
  ]) {
    assert.ok(breakDetails(resumes).includes('resumes at line 15'));
  }
  const eager = { ...left!, no_frame: 'eager' as const };
  const cached = { ...taken!, frames: [], no_frame: null };
  assert.ok(breakDetails([cached, eager]).includes('resumes at line 16'));
});
