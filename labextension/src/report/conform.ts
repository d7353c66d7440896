/**
 * Makes data of unknown shape conform to the schema of a report, and no larger than can be shown.
 *
 * It goes as deep as the schema does, however deep the data are.
 */
import { setTotal } from './lookup';
import schema from './schema.json';
import type { Report, Rows } from './types';

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

/** How many entries are read of each of a report's own lists, such as its breaks. */
export const MOST_PARTS = 5_000;

/** How many entries are read of a list within these, such as the operations of a graph, and of all of them together. */
const MOST_WITHIN_PART = 20_000;
const MOST_WITHIN = 400_000;

/** Parts that are referred to by their ids, so that each id is read once. Others are referred to by their places. */
const KNOWN_BY_ID = new Set(
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

/** What may still be read of lists within lists. */
interface IBudget {
  left: number;
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
 * Of very long lists only the beginning is read; `totalOf` says how long they are.
 *
 * @throws Misfit where the data do not conform.
 */
export function conform(data: unknown): Report {
  const budget = { left: MOST_WITHIN };
  return conformTo(withFirstBreaks(data), schema, budget, true) as Report;
}

/** The same for the rows that come with a report. */
export function conformRows(data: unknown): Rows {
  const budget = { left: MOST_WITHIN };
  return conformTo(data, { $ref: '#/$defs/Rows' }, budget, true) as Rows;
}

function conformTo(
  data: unknown,
  type: ISchema,
  budget: IBudget,
  isReport = false
): unknown {
  if (type.$ref !== undefined) {
    const definition = DEFINITIONS.get(type.$ref)!;
    return conformTo(data, definition, budget, isReport);
  }
  if (type.anyOf !== undefined) {
    const alternative = type.anyOf.find(option => hasType(data, option));
    if (alternative === undefined) {
      throw new Misfit('');
    }
    return conformTo(data, alternative, budget, isReport);
  }
  if (!hasType(data, type)) {
    throw new Misfit('');
  }
  if (Array.isArray(data) && type.items !== undefined) {
    const most = isReport
      ? MOST_PARTS
      : Math.min(MOST_WITHIN_PART, budget.left);
    return conformItems(data, type.items, budget, most);
  }
  if (isObject(data) && type.properties !== undefined) {
    return conformFields(data, type.properties, budget, isReport);
  }
  return data;
}

function conformItems(
  data: unknown[],
  type: ISchema,
  budget: IBudget,
  most: number
): unknown[] {
  const isKnownById = KNOWN_BY_ID.has(type.$ref ?? '');
  const ids = new Set<string>();
  const items: unknown[] = [];
  let index = 0;
  try {
    for (; index < data.length && items.length < most; index += 1) {
      budget.left -= 1;
      const item = conformTo(data[index], type, budget);
      if (isKnownById) {
        const { id } = item as { id: string };
        if (ids.has(id)) {
          continue;
        }
        ids.add(id);
      }
      items.push(item);
    }
  } catch (error) {
    throw error instanceof Misfit ? error.in(`[${index}]`) : error;
  }
  setTotal(items, data.length);
  return items;
}

function conformFields(
  data: Record<string, unknown>,
  types: Record<string, ISchema>,
  budget: IBudget,
  isReport: boolean
): Record<string, unknown> {
  let name = '';
  try {
    const fields: Record<string, unknown> = {};
    for (name in types) {
      const type = types[name]!;
      // Undefined has no type of the schema, so a field without a default must be there.
      const value = Object.hasOwn(data, name) ? data[name] : type.default;
      fields[name] = conformTo(
        value,
        type,
        budget,
        isReport && holdsList(type)
      );
    }
    return fields;
  } catch (error) {
    throw error instanceof Misfit ? error.in(name) : error;
  }
}

/** Whether a field of a report is a list of its parts. */
function holdsList({ type, anyOf }: ISchema): boolean {
  return (
    type === 'array' ||
    (anyOf?.some(option => option.type === 'array') ?? false)
  );
}

/**
 * The same data, without breaks that come too late in the order in which people read them: the numbers of those that
 * are left are then the same as everywhere else.
 */
function withFirstBreaks(data: unknown): unknown {
  if (!isObject(data) || !Array.isArray(data.breaks)) {
    return data;
  }
  const { breaks, order } = data;
  if (breaks.length <= MOST_PARTS || !Array.isArray(order)) {
    return data;
  }
  const first = new Set<unknown>(order.slice(0, MOST_PARTS));
  const isFirst = (graphBreak: unknown): boolean =>
    isObject(graphBreak) && first.has(graphBreak.id);
  const others = breaks.filter(graphBreak => !isFirst(graphBreak));
  return { ...data, breaks: [...breaks.filter(isFirst), ...others] };
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
