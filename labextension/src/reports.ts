/**
 * Reading reports where the world is untyped: a notebook may have been made elsewhere, by another version, by hand.
 *
 * What is read here has every field of the schema in the schema's shape, so nothing later has to ask again. Only
 * references between its parts, such as the source of a location, may lead nowhere.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import { MIME_TYPE, type Report } from './report';
import schema from './report.schema.json';

/** A report, or why there is none, in words. */
export type Reading = { report: Report } | { problem: string };

/** The mime types of reports of any major version. */
const ANY_VERSION = /^application\/vnd\.graphbreak\.report\.v(\d+)\+json$/;

/** Whether the data of an output, by mime type, say that it carries a report. */
export function carriesReport(data: object): boolean {
  return Object.keys(data).some(type => ANY_VERSION.test(type));
}

/**
 * Read the report that an output carries.
 *
 * @param data - What the output holds, by mime type.
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
  const type = Object.keys(data).find(each => ANY_VERSION.test(each));
  return type === undefined
    ? null
    : { problem: otherVersion(ANY_VERSION.exec(type)![1]!, trans) };
}

/** Read what stands under our mime type. Fields that older versions did not have get their defaults. */
export function readReport(data: unknown, trans: TranslationBundle): Reading {
  const version = isObject(data) ? data.schema_version : undefined;
  if (typeof version === 'string' && !/^1(\.|$)/.test(version)) {
    return { problem: otherVersion(version, trans) };
  }
  try {
    return { report: conform(data, schema, '') as Report };
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

function otherVersion(version: string, trans: TranslationBundle): string {
  return trans.__(
    'This report has version %1 of the format, and only version 1 can be read here. A newer jupyter_graphbreak may read it.',
    version.slice(0, 20)
  );
}

/** What of JSON Schema the schema of a report uses. */
interface ISchema {
  $ref?: string;
  anyOf?: ISchema[];
  enum?: unknown[];
  type?: string;
  items?: ISchema;
  properties?: Record<string, ISchema>;
  default?: unknown;
}

const DEFINITIONS = schema.$defs as Record<string, ISchema>;

/** Tells where some data is not what its schema says. */
class Misfit extends Error {
  constructor(readonly path: string) {
    super(path);
  }
}

/** Copy some data as far as its schema knows it, with the defaults of what it lacks. */
function conform(data: unknown, to: ISchema, path: string): unknown {
  if (to.$ref !== undefined) {
    return conform(data, DEFINITIONS[to.$ref.slice('#/$defs/'.length)]!, path);
  }
  if (to.anyOf !== undefined) {
    const fitting = to.anyOf.find(each => typeFits(data, each));
    if (fitting === undefined) {
      throw new Misfit(path);
    }
    return conform(data, fitting, path);
  }
  if (!typeFits(data, to)) {
    throw new Misfit(path);
  }
  if (Array.isArray(data) && to.items !== undefined) {
    const { items } = to;
    return data.map((item, index) => conform(item, items, `${path}[${index}]`));
  }
  if (isObject(data) && to.properties !== undefined) {
    return Object.fromEntries(
      Object.entries(to.properties).map(([name, property]) => [
        name,
        conform(
          // What is undefined fits no type, so a field without a default must be there.
          Object.hasOwn(data, name) ? data[name] : property.default,
          property,
          path === '' ? name : `${path}.${name}`
        )
      ])
    );
  }
  return data;
}

function typeFits(data: unknown, to: ISchema): boolean {
  if (to.$ref !== undefined) {
    return isObject(data);
  }
  if (to.enum !== undefined) {
    // A later version may know more words.
    return typeof data === 'string';
  }
  switch (to.type) {
    case 'array':
      return Array.isArray(data);
    case 'object':
      return isObject(data);
    case 'null':
      return data === null;
    case 'integer':
      return Number.isInteger(data);
    case undefined:
      return data !== undefined;
    default:
      return typeof data === to.type;
  }
}

function isObject(data: unknown): data is Record<string, unknown> {
  return typeof data === 'object' && data !== null && !Array.isArray(data);
}
