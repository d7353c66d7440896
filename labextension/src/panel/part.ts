/** A part of a report as the panel lists it, and the words that parts of all kinds share. */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IRun } from '../notebook/runs';
import { type IPartCount, locationOf, type PartKind } from '../report/kinds';
import { withId } from '../report/lookup';
import { clip } from '../report/shown';
import type { Location, Report } from '../report/types';

/** One part of a report that can be listed and selected. */
export interface IPart {
  readonly kind: PartKind;
  /** As the report has it; of a list without ids the index. */
  readonly id: string;
  /** "Break 1", "Graph A". */
  readonly name: string;
  /** The number of a break, the letter of a graph. */
  readonly sign: string;
  /** The name of the part's style; more than one where it has a colour too. */
  readonly look: string;
  /** Whether the label is text of the program, which is set in its own type. */
  readonly isCode: boolean;
  readonly label: string;
  readonly details: readonly string[];
  /** More about it, for a tooltip. */
  readonly more: string;
  readonly location: Location | null;
  /** Breaks are grouped by it, and all parts can be sorted by it. */
  readonly cause: string;
  /** Seconds; null where nothing was measured. */
  readonly cost: number | null;
}

/** What the parts of one run are made from. */
export interface IPartContext {
  readonly run: IRun;
  readonly report: Report;
  readonly trans: TranslationBundle;
}

/** How much of a text is shown: of a sign, of a label or a detail, of a tooltip. */
const MOST_OF_SIGN = 20;
const MOST_OF_LABEL = 1_000;
const MOST_OF_MORE = 4_000;

/** Make a part of a report; all that is not given is empty. */
export function makePart(
  { report }: IPartContext,
  kind: PartKind,
  id: string,
  fields: Partial<IPart> & Pick<IPart, 'label' | 'look'>
): IPart {
  const {
    name = '',
    sign = '',
    label,
    details = [],
    more = '',
    cause = ''
  } = fields;
  return {
    isCode: false,
    location: locationOf(report, kind, id),
    cost: null,
    ...fields,
    kind,
    id,
    name: clip(name, MOST_OF_LABEL),
    sign: clip(sign, MOST_OF_SIGN),
    label: clip(label, MOST_OF_LABEL),
    details: details.map(words => clip(words, MOST_OF_LABEL)),
    more: clip(more, MOST_OF_MORE),
    cause: clip(cause, MOST_OF_LABEL)
  };
}

/** How many parts there are; of more than were read, how many were. */
export function countLabel(
  { read, total }: IPartCount,
  trans: TranslationBundle
): string {
  return read < total ? trans.__('%1 of %2', read, total) : String(total);
}

/** A location in words; a line of the run's own cell needs no name. */
export function placeLabel(
  { run, report, trans }: IPartContext,
  location: Location | null
): string {
  if (location === null) {
    return '';
  }
  const source = withId(report.sources, location.source);
  return source === undefined || source.id === run.ownSource?.id
    ? trans.__('line %1', location.line)
    : `${source.name}:${location.line}`;
}

/** What a kind is called, of many parts. */
export function kindLabel(kind: PartKind, trans: TranslationBundle): string {
  switch (kind) {
    case 'change':
      return trans.__('Since the last run');
    case 'error':
      return trans.__('Errors');
    case 'break':
      return trans.__('Breaks');
    case 'graph':
      return trans.__('Graphs');
    case 'skipped':
      return trans.__('Eager');
    case 'recompile':
      return trans.__('Recompiles');
    case 'scope':
      return trans.__('Scopes');
    case 'note':
      return trans.__('Notes');
  }
}

/** The text of an expression on one line; of one that goes on below, its beginning and an ellipsis. */
export function briefCode(code: string): string {
  const [first = '', ...further] = code.split('\n');
  let shown = first.trim();
  // A bracket alone says nothing, and no more does the keyword before it.
  for (const line of further) {
    if (/\w/.test(shown.replace(/^(if|elif|while|assert|return)\b/, ''))) {
      return oneLine(`${shown} …`);
    }
    shown = `${shown} ${line.trim()}`.trim();
  }
  return oneLine(shown);
}

/** A text on one line, not too long for a label. */
export function oneLine(text: string): string {
  return text.replace(/\s+/g, ' ').trim().slice(0, 200);
}
