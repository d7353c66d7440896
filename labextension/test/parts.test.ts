import assert from 'node:assert/strict';
import { test } from 'node:test';

import { nullTranslator } from '@jupyterlab/translation';

import type { IRun } from '../src/model';
import { Parts } from '../src/parts';
import { saved } from './saved';

const REPORT = await saved('two_breaks');

/** What is said of the first break when the report has these resume functions, whichever comes first. */
function saidOf(resumes: typeof REPORT.resumes): string[] {
  const report = {
    ...REPORT,
    resumes,
    breaks: REPORT.breaks.map(each => ({
      ...each,
      resumes: resumes.map(({ id }) => id)
    }))
  };
  const parts = new Parts(
    {} as IRun,
    report,
    report.sources[0]!,
    nullTranslator.load('')
  );
  return parts.of('break')[0]!.details;
}

test('a break goes on where the run did, not at the branch that was left', () => {
  const [taken, left] = [15, 16].map(line =>
    REPORT.resumes.find(each => each.location?.line === line)!
  );
  for (const resumes of [
    [taken!, left!],
    [left!, taken!]
  ]) {
    assert.ok(saidOf(resumes).includes('resumes at line 15'));
  }
  const eager = { ...left!, no_frame: 'eager' as const };
  const cached = { ...taken!, frames: [], no_frame: null };
  assert.ok(saidOf([cached, eager]).includes('resumes at line 16'));
});
