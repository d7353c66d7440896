/**
 * Reads reports from untyped data: a notebook may have been made elsewhere, by another version, or by hand.
 *
 * A report that was read has every field of the schema in the schema's shape, so no other module checks again. Only
 * references between its parts, such as the source of a location, may lead nowhere.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import { conform, Misfit } from './conform';
import { MIME_TYPE } from './mimetype';
import { readRows } from './rows';
import type { Report, Rows } from './types';

/** A report with its rows, or why there is none, in words. */
export type Reading = { report: Report; rows: Rows } | { problem: string };

/** The mime types of reports of any major version. */
const ANY_VERSION = /^application\/vnd\.graphbreak\.report\.v(\d+)\+json$/;

/** Whether the data of an output, by mime type, carry a report. */
export function carriesReport(data: object): boolean {
  return Object.keys(data).some(type => ANY_VERSION.test(type));
}

/**
 * Read the report that an output carries.
 *
 * @param data - The data of the output, by mime type.
 * @param trans - The language of the reader.
 * @returns null where the output has nothing to do with reports.
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

/** Read the data under our mime type. Fields that older versions did not have get their defaults. */
export function readReport(data: unknown, trans: TranslationBundle): Reading {
  const version = versionOf(data);
  if (version !== null && !/^1(\.|$)/.test(version)) {
    return { problem: versionProblem(version, trans) };
  }
  try {
    const report = conform(data);
    return { report, rows: readRows(data, report) };
  } catch (error) {
    if (!(error instanceof Misfit)) {
      throw error;
    }
    return {
      problem:
        error.path === ''
          ? trans.__('This report cannot be read: it is not a JSON object.')
          : trans.__(
              'This report cannot be read: its field "%1" is missing or is not what the format says.',
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
    'This report has version %1 of the format, and only version 1 can be read here. A newer jupyter_graphbreak may read it.',
    version.slice(0, 20)
  );
}
