/** Makes data of unknown shape conform to the schema of a report. */
import schema from './schema.json';
import type { Report } from './types';

/** The part of JSON Schema that the schema of a report uses. */
interface ISchema {
  $ref?: string;
  anyOf?: ISchema[];
  enum?: unknown[];
  type?: string;
  items?: ISchema;
  properties?: Record<string, ISchema>;
  default?: unknown;
}

/** The schema's definitions, by the references that lead to them. */
const DEFINITIONS = new Map<string, ISchema>(
  Object.entries(schema.$defs).map(([name, definition]) => [
    `#/$defs/${name}`,
    definition
  ])
);

/** Names the field where data do not conform; the path grows from the inside out. */
export class Misfit extends Error {
  constructor(readonly path: string) {
    super(path);
  }

  /** The same misfit, seen from the field that holds it. */
  in(name: string): Misfit {
    return new Misfit(
      this.path === '' || this.path.startsWith('[')
        ? name + this.path
        : `${name}.${this.path}`
    );
  }
}

/**
 * Copy the part of some data that the schema of a report knows, with defaults for the fields that are missing.
 *
 * @throws Misfit where the data do not conform.
 */
export function conform(data: unknown): Report {
  return conformTo(data, schema) as Report;
}

function conformTo(data: unknown, type: ISchema): unknown {
  if (type.$ref !== undefined) {
    return conformTo(data, DEFINITIONS.get(type.$ref)!);
  }
  if (type.anyOf !== undefined) {
    const alternative = type.anyOf.find(option => hasType(data, option));
    if (alternative === undefined) {
      throw new Misfit('');
    }
    return conformTo(data, alternative);
  }
  if (!hasType(data, type)) {
    throw new Misfit('');
  }
  if (Array.isArray(data) && type.items !== undefined) {
    return conformItems(data, type.items);
  }
  if (isObject(data) && type.properties !== undefined) {
    return conformFields(data, type.properties);
  }
  return data;
}

function conformItems(data: unknown[], type: ISchema): unknown[] {
  let index = 0;
  try {
    const items: unknown[] = [];
    for (; index < data.length; index += 1) {
      items.push(conformTo(data[index], type));
    }
    return items;
  } catch (error) {
    throw error instanceof Misfit ? error.in(`[${index}]`) : error;
  }
}

function conformFields(
  data: Record<string, unknown>,
  types: Record<string, ISchema>
): Record<string, unknown> {
  let name = '';
  try {
    const fields: Record<string, unknown> = {};
    for (name in types) {
      const type = types[name]!;
      // Undefined has no type of the schema, so a field without a default must be there.
      const value = Object.hasOwn(data, name) ? data[name] : type.default;
      fields[name] = conformTo(value, type);
    }
    return fields;
  } catch (error) {
    throw error instanceof Misfit ? error.in(name) : error;
  }
}

function hasType(data: unknown, type: ISchema): boolean {
  if (type.$ref !== undefined) {
    return isObject(data);
  }
  if (type.enum !== undefined) {
    // A later version may know more words.
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

function isObject(data: unknown): data is Record<string, unknown> {
  return typeof data === 'object' && data !== null && !Array.isArray(data);
}
