/**
 * The rows of a report, which come with it. No other module describes parts of a report in words.
 *
 * A report from a different program may have no rows; then its parts are listed in PyTorch's words.
 */
import { graphColour } from './colours';
import { conformRows, ConformError, MAX_PARTS } from './conform';
import { orderedBreaks, totalOf } from './lookup';
import { clip } from './shown';
import type { Location, Report, Row, Rows, Section, Spot } from './types';

/** The maximum number of characters in a sign. */
const MAX_SIGN_LENGTH = 20;

/** The maximum number of characters in a label or a detail. */
const MAX_LABEL_LENGTH = 1_000;

/** The maximum number of characters in a paragraph. */
const MAX_PARAGRAPH_LENGTH = 2_000;

/** The maximum number of rows about the whole report, and of details or paragraphs of a row. */
const MAX_TEXTS = 40;

/** The maximum number of sections. */
const MAX_SECTIONS = 100;

/** A valid style name. */
const LOOK = /^[a-z]{1,20}$/;

/** Read the rows of a report; if there are no readable rows, list its parts. */
export function readRows(data: unknown, report: Report): Rows {
  const rows = (data as { rows?: unknown }).rows;
  if (rows === undefined) {
    return bounded(plainRows(report));
  }
  try {
    return bounded(conformRows(rows));
  } catch (error) {
    if (!(error instanceof ConformError)) {
      throw error;
    }
    return bounded(plainRows(report));
  }
}

/** The section with an id. */
export function sectionOf(rows: Rows, id: string): Section | undefined {
  return rows.sections.find(section => section.id === id);
}

/** The row of a part of a report, by section and id. */
export function rowOf(
  rows: Rows,
  section: string,
  id: string
): Row | undefined {
  let index = INDEXES.get(rows);
  if (index === undefined) {
    index = new Map(
      rows.sections.map(section => [
        section.id,
        new Map(section.rows.map(row => [row.id, row]))
      ])
    );
    INDEXES.set(rows, index);
  }
  return index.get(section)?.get(id);
}

const INDEXES = new WeakMap<Rows, Map<string, Map<string, Row>>>();

/** A row in one line: "Break 1: Branch on a tensor's value (GB0170)". */
export function headingOf({ name, label, group }: Row): string {
  return [name === '' ? label : name, group]
    .filter(part => part !== '')
    .join(': ');
}

/** A text on one line. */
function oneLine(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}

/** Rows for the parts of a report that has none. */
function plainRows(report: Report): Rows {
  const sections = [
    sectionFrom(
      'break',
      'Breaks',
      orderedBreaks(report),
      totalOf(report.breaks),
      (part, index) => ({
        look: 'break',
        sign: String(index + 1),
        name: String(index + 1),
        label: part.location?.code ?? part.gb_type,
        group: part.gb_type,
        beside: `✂${index + 1} ${part.gb_type.replaceAll('`', '')}`,
        more: part.explanation === null ? [] : [part.explanation],
        spot: spotOf(part.location)
      })
    ),
    sectionFrom(
      'graph',
      'Graphs',
      report.graphs,
      totalOf(report.graphs),
      (part, index) => ({
        look: 'graph',
        sign: part.id,
        name: part.id,
        label: part.name,
        colour: graphColour(index),
        spot: spotOf(part.lines[0] ?? null)
      })
    ),
    sectionFrom(
      'skipped',
      'Eager',
      report.skipped,
      totalOf(report.skipped),
      part => ({
        look: 'eager',
        label: part.function,
        group: part.reason,
        details: [part.reason],
        spot: spotOf(part.location)
      })
    ),
    sectionFrom(
      'scope',
      'Scopes',
      report.scopes,
      totalOf(report.scopes),
      part => ({
        look: part.value ? 'forbid' : 'allow',
        label: `${part.setting} ${part.value}`,
        spot: spotOf(part.location)
      })
    )
  ].filter(({ total }) => total > 0);
  return {
    version: '',
    look: report.breaks.length > 0 ? 'bad' : 'plain',
    status: [
      report.status,
      ...sections.map(({ title, total }) => `${title} ${total}`)
    ],
    about: [],
    title: '',
    sections
  };
}

function sectionFrom<T extends { readonly id: string }>(
  id: string,
  title: string,
  parts: readonly T[],
  total: number,
  make: (part: T, index: number) => Partial<Row> & Pick<Row, 'label'>
): Section {
  const rows = parts.map((part, index) => ({
    ...EMPTY_ROW,
    id: part.id,
    ...make(part, index)
  }));
  const form = id === 'break' ? 'groups' : 'list';
  return { id, title, rows, total, details: [], form };
}

const EMPTY_ROW: Omit<Row, 'id' | 'label'> = {
  look: 'note',
  name: '',
  sign: '',
  is_code: true,
  details: [],
  more: [],
  group: '',
  beside: '',
  spot: null,
  cost: null,
  colour: null,
  comment: []
};

function spotOf(
  location: Pick<Location, 'source' | 'line'> | null
): Spot | null {
  return location === null
    ? null
    : {
        source: location.source,
        line: location.line,
        column: (location as Partial<Location>).column ?? null
      };
}

/** The same rows, limited in number and length. */
function bounded({ status, about, sections, ...rows }: Rows): Rows {
  return {
    ...rows,
    status: clipAll(status),
    title: oneLine(clip(rows.title, MAX_LABEL_LENGTH)),
    about: about.slice(0, MAX_TEXTS).map(boundedRow),
    sections: sections.slice(0, MAX_SECTIONS).map(section => ({
      ...section,
      title: clip(section.title, MAX_LABEL_LENGTH),
      details: clipAll(section.details),
      rows: section.rows.slice(0, MAX_PARTS).map(boundedRow)
    }))
  };
}

function boundedRow(row: Row): Row {
  const { colour, look } = row;
  return {
    ...row,
    look: LOOK.test(look) ? look : 'note',
    name: clip(row.name, MAX_LABEL_LENGTH),
    sign: clip(row.sign, MAX_SIGN_LENGTH),
    label: oneLine(clip(row.label, MAX_LABEL_LENGTH)),
    details: clipAll(row.details),
    more: row.more
      .slice(0, MAX_TEXTS)
      .map(text => clip(text, MAX_PARAGRAPH_LENGTH)),
    group: clip(row.group, MAX_LABEL_LENGTH),
    beside: clip(row.beside, MAX_LABEL_LENGTH),
    colour: colour === null ? null : graphColour(Math.abs(colour))
  };
}

function clipAll(texts: readonly string[]): string[] {
  return texts.slice(0, MAX_TEXTS).map(text => clip(text, MAX_LABEL_LENGTH));
}
