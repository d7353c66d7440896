/**
 * Reads reports from untyped data: a notebook may come from elsewhere, from a different version, or be edited by hand.
 *
 * A report that was read conforms to the schema, so no other module validates it. Only references between its parts,
 * such as the source of a location, may be dangling.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import { conform, ConformError } from './conform';
import { MIME_TYPE } from './mimetype';
import { readRows } from './rows';
import type { Report, Rows } from './types';

/** A report with its rows, or the reason why it cannot be read. */
export type Reading = { report: Report; rows: Rows } | { problem: string };

/** The MIME types of reports of any major version. */
const ANY_VERSION = /^application\/vnd\.graphbreak\.report\.v(\d+)\+json$/;

/** Whether the data of an output, by MIME type, contain a report. */
export function carriesReport(data: object): boolean {
  return Object.keys(data).some(type => ANY_VERSION.test(type));
}

/**
 * Read the report in an output.
 *
 * @param data - The data of the output, by MIME type.
 * @param trans - The language of the reader.
 * @returns null if the output contains no report.
 */
export function readOutput(
  data: Readonly<Record<string, unknown>>,
  trans: TranslationBundle
): Reading | null {
  if (MIME_TYPE in data) {
    return readReport(data[MIME_TYPE], trans);
  }
  const [version] = Object.keys(data).flatMap(
    type => ANY_VERSION.exec(type)?.[1] ?? []
  );
  return version === undefined
    ? null
    : { problem: versionProblem(version, trans) };
}

/** Read the data of our MIME type. Missing fields get their defaults. */
export function readReport(data: unknown, trans: TranslationBundle): Reading {
  const version = versionOf(data);
  if (version !== null && !/^1(\.|$)/.test(version)) {
    return { problem: versionProblem(version, trans) };
  }
  try {
    const report = conform(data);
    return { report, rows: readRows(data, report) };
  } catch (error) {
    if (!(error instanceof ConformError)) {
      throw error;
    }
    return {
      problem:
        error.path === ''
          ? trans.__('This report cannot be read: it is not a JSON object.')
          : trans.__(
              'This report cannot be read: its field "%1" is missing or invalid.',
              error.path
            )
    };
  }
}

function versionOf(data: unknown): string | null {
  const version = (data as { schema_version?: unknown } | null | undefined)
    ?.schema_version;
  return typeof version === 'string' ? version : null;
}

function versionProblem(version: string, trans: TranslationBundle): string {
  return trans.__(
    'This report has format version %1, but only version 1 can be read here. A newer jupyter_graphbreak may be able to read it.',
    version.slice(0, 20)
  );
}
