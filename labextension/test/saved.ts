/** The reports that are saved for the tests. */
import { readFile } from 'node:fs/promises';

import { readRows } from '../src/report/rows';
import type { Report, Rows } from '../src/report/types';

export const NAMES = [
  'two_breaks',
  'no_breaks',
  'failed',
  'hostile',
  'remedies',
  'cost',
  'checks'
];

export async function saved(name: string): Promise<Report> {
  const text = await readFile(`../tests/reports/${name}.json`, 'utf-8');
  return JSON.parse(text) as Report;
}

/** The rows of a saved report. */
export async function savedRows(name: string): Promise<Rows> {
  const text = await readFile(`../tests/reports/rows/${name}.json`, 'utf-8');
  return readRows({ rows: JSON.parse(text) as unknown }, await saved(name));
}
