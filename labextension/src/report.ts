/** The report as other programs read it: its mime type and a guard at the border to the untyped world. */
import type { Report } from './types';

export type { Report } from './types';

/** The mime type under which an output carries a report; its number is the schema's major version. */
export const MIME_TYPE = 'application/vnd.graphbreak.report.v1+json';

/** The lists of a report; what they hold is taken as the schema says. */
const LISTS = [
  'sources',
  'frames',
  'graphs',
  'breaks',
  'resumes',
  'skipped',
  'scopes',
  'recompiles',
  'diagnostics'
] as const;

/** Whether some data is a report of the version that this code reads. */
export function isReport(data: unknown): data is Report {
  if (typeof data !== 'object' || data === null) {
    return false;
  }
  const fields = data as Record<string, unknown>;
  return (
    typeof fields.schema_version === 'string' &&
    /^1\.\d+$/.test(fields.schema_version) &&
    typeof fields.status === 'string' &&
    typeof fields.summary === 'object' &&
    LISTS.every(name => Array.isArray(fields[name]))
  );
}
