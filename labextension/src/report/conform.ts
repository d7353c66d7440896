/**
 * Makes data of unknown shape conform to the schema of a report, and limits their size.
 *
 * The recursion is limited by the depth of the schema, not of the data.
 */
import { setTotal } from './lookup';
import schema from './schema.json';
import type { Report, Rows } from './types';

/** The subset of JSON Schema that the schema of a report uses. */
interface ISchema {
  $ref?: string;
  anyOf?: ISchema[];
  enum?: unknown[];
  type?: string;
  items?: ISchema;
  properties?: Record<string, ISchema>;
  default?: unknown;
}

/** The maximum number of entries of each top-level list, such as the breaks. */
export const MAX_PARTS = 5_000;

/** The maximum number of entries in one nested list, such as the operations of a graph. */
const MAX_NESTED = 20_000;

/** The maximum number of entries in all nested lists together. */
const MAX_ALL_NESTED = 400_000;

/**
 * The types of parts to which others refer by id, so that parts with duplicate ids are dropped. The other parts are
 * referred to by index.
 */
const TYPES_WITH_IDS = new Set(
  [
    'Break',
    'Graph',
    'Resume',
    'Row',
    'Scope',
    'Section',
    'Skipped',
    'Source'
  ].map(name => `#/$defs/${name}`)
);

/** The number of entries of nested lists that may still be read. */
interface IBudget {
  remaining: number;
}

/** The schema's definitions, by reference. */
const DEFINITIONS = new Map<string, ISchema>(
  Object.entries(schema.$defs).map(([name, definition]) => [
    `#/$defs/${name}`,
    definition
  ])
);

/** An error that names the field that does not conform; its path is built from the inside out. */
export class ConformError extends Error {
  constructor(readonly path: string) {
    super(path);
  }

  /** The same error, with the name of the containing field. */
  in(name: string): ConformError {
    return new ConformError(
      this.path === '' || this.path.startsWith('[')
        ? name + this.path
        : `${name}.${this.path}`
    );
  }
}

/**
 * Copy the data that the schema of a report knows, with defaults for missing fields.
 *
 * Only the beginning of very long lists is read; `totalOf` returns their original lengths.
 *
 * @throws ConformError if the data do not conform.
 */
export function conform(data: unknown): Report {
  const budget = { remaining: MAX_ALL_NESTED };
  return conformTo(withFirstBreaks(data), schema, budget, true) as Report;
}

/** Copy the rows of a report in the same way. */
export function conformRows(data: unknown): Rows {
  const budget = { remaining: MAX_ALL_NESTED };
  return conformTo(data, { $ref: '#/$defs/Rows' }, budget, true) as Rows;
}

function conformTo(
  data: unknown,
  type: ISchema,
  budget: IBudget,
  isTopLevel = false
): unknown {
  if (type.$ref !== undefined) {
    const definition = DEFINITIONS.get(type.$ref)!;
    return conformTo(data, definition, budget, isTopLevel);
  }
  if (type.anyOf !== undefined) {
    const alternative = type.anyOf.find(option => hasType(data, option));
    if (alternative === undefined) {
      throw new ConformError('');
    }
    return conformTo(data, alternative, budget, isTopLevel);
  }
  if (!hasType(data, type)) {
    throw new ConformError('');
  }
  if (Array.isArray(data) && type.items !== undefined) {
    const limit = isTopLevel
      ? MAX_PARTS
      : Math.min(MAX_NESTED, budget.remaining);
    return conformItems(data, type.items, budget, limit);
  }
  if (isObject(data) && type.properties !== undefined) {
    return conformFields(data, type.properties, budget, isTopLevel);
  }
  return data;
}

function conformItems(
  data: unknown[],
  type: ISchema,
  budget: IBudget,
  limit: number
): unknown[] {
  const isReferredById = TYPES_WITH_IDS.has(type.$ref ?? '');
  const ids = new Set<string>();
  const items: unknown[] = [];
  let index = 0;
  try {
    for (; index < data.length && items.length < limit; index += 1) {
      budget.remaining -= 1;
      const item = conformTo(data[index], type, budget);
      if (isReferredById) {
        const { id } = item as { id: string };
        if (ids.has(id)) {
          continue;
        }
        ids.add(id);
      }
      items.push(item);
    }
  } catch (error) {
    throw error instanceof ConformError ? error.in(`[${index}]`) : error;
  }
  setTotal(items, data.length);
  return items;
}

function conformFields(
  data: Record<string, unknown>,
  types: Record<string, ISchema>,
  budget: IBudget,
  isTopLevel: boolean
): Record<string, unknown> {
  let name = '';
  try {
    const fields: Record<string, unknown> = {};
    for (name in types) {
      const type = types[name]!;
      // Undefined matches no type of the schema, so a field without a default is required.
      const value = Object.hasOwn(data, name) ? data[name] : type.default;
      fields[name] = conformTo(
        value,
        type,
        budget,
        isTopLevel && containsList(type)
      );
    }
    return fields;
  } catch (error) {
    throw error instanceof ConformError ? error.in(name) : error;
  }
}

/** Whether a field of a report is a list of parts. */
function containsList({ type, anyOf }: ISchema): boolean {
  return (
    type === 'array' ||
    (anyOf?.some(option => option.type === 'array') ?? false)
  );
}

/**
 * The same data, with the breaks that come first in reading order at the beginning, so that these are the ones that are
 * read, and have the same numbers in all views.
 */
function withFirstBreaks(data: unknown): unknown {
  if (!isObject(data) || !Array.isArray(data.breaks)) {
    return data;
  }
  const { breaks, order } = data;
  if (breaks.length <= MAX_PARTS || !Array.isArray(order)) {
    return data;
  }
  const first = new Set<unknown>(order.slice(0, MAX_PARTS));
  const isFirst = (graphBreak: unknown): boolean =>
    isObject(graphBreak) && first.has(graphBreak.id);
  const otherBreaks = breaks.filter(graphBreak => !isFirst(graphBreak));
  return { ...data, breaks: [...breaks.filter(isFirst), ...otherBreaks] };
}

function hasType(data: unknown, type: ISchema): boolean {
  if (type.$ref !== undefined) {
    return isObject(data);
  }
  if (type.enum !== undefined) {
    // A later version may have more values.
    return typeof data === 'string';
  }
  switch (type.type) {
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
      return typeof data === type.type;
  }
}

/** Whether data are a JSON object. */
export function isObject(data: unknown): data is Record<string, unknown> {
  return typeof data === 'object' && data !== null && !Array.isArray(data);
}
