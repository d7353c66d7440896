/** The reports that are saved for the tests. */
import { readFile } from 'node:fs/promises';

import type { Report } from '../src/report/types';

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
