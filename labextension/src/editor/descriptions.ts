/** What marks say: beside a line, under the pointer, to a screen reader. */
import type { TranslationBundle } from '@jupyterlab/translation';

import type {
  IBreakOnLine,
  INumberedBreak,
  IReportLine
} from '../report/lines';
import { totalOf } from '../report/lookup';
import { reasonLabel } from '../report/reasons';
import { clip } from '../report/shown';
import { makeElement } from '../view/elements';
import type { IMark } from './positions';

/** Breaks of a line that are named beside it, and breaks further down a call: more would cover the line. */
const MOST_BESIDE = 2;
const MOST_LEADS_TO = 6;

/** Breaks and graphs that are named while the pointer is on a line. */
const MOST_UNDER_POINTER = 10;

/** How long a reason and an explanation may be. */
const MOST_OF_REASON = 200;
const MOST_OF_EXPLANATION = 2_000;

/** A piece of the note beside a line, and its class. */
export interface INotePart {
  readonly text: string;
  readonly className: string;
}

/**
 * The note beside a line.
 *
 * @param line - The line.
 * @param previous - The line above that is marked; a note does not repeat what is said there.
 * @param trans - The language of the reader.
 */
export function noteParts(
  line: IReportLine,
  previous: IReportLine | undefined,
  trans: TranslationBundle
): INotePart[] {
  const parts = firstOf(
    line.breaks,
    MOST_BESIDE,
    trans,
    graphBreak => `${breakSign(graphBreak)} ${typeOf(graphBreak)}`
  ).map(text => ({ text, className: 'gb-cut' }));
  if (line.leadsTo.length > 0) {
    const signs = firstOf(line.leadsTo, MOST_LEADS_TO, trans, breakSign);
    parts.push({ text: `→ ${signs.join(' ')}`, className: 'gb-cut' });
  }
  if (line.eager !== null && line.eager !== previous?.eager) {
    parts.push({ text: trans.__('runs eagerly'), className: 'gb-dim' });
  }
  if (line.scope !== null && line.scope !== previous?.scope) {
    parts.push(
      line.scope.value
        ? { text: trans.__('breaks are errors'), className: 'gb-bad' }
        : { text: trans.__('breaks allowed'), className: 'gb-good' }
    );
  }
  return parts;
}

/** Words for the first parts of a list, and how many more there are. */
function firstOf<T>(
  parts: readonly T[],
  most: number,
  trans: TranslationBundle,
  words: (part: T) => string
): string[] {
  const first = parts.slice(0, most).map(words);
  const more = totalOf(parts) - first.length;
  return more > 0 ? [...first, trans.__('and %1 more', more)] : first;
}

/** The sign of a break in the gutter and in notes. */
export function breakSign({ number }: Pick<INumberedBreak, 'number'>): string {
  return `✂${number}`;
}

/** All that is known of a line, in words. */
export function markTitle(
  { line, origin, stale }: IMark,
  trans: TranslationBundle
): string {
  const most = MOST_UNDER_POINTER;
  const words = [
    ...firstOf(line.breaks, most, trans, it => breakHeading(it, trans)),
    ...firstOf(line.leadsTo, most, trans, ({ number }) =>
      trans.__('Leads to break %1', number)
    ),
    ...firstOf(line.graphs, most, trans, ({ graph }) =>
      trans.__('Graph %1', clip(graph.id, MOST_OF_REASON))
    )
  ];
  if (line.eager !== null) {
    const reason = clip(line.eager.reason, MOST_OF_EXPLANATION);
    words.push(trans.__('Runs eagerly: %1', reason));
  }
  words.push(
    origin.stale
      ? trans.__('%1; run again since, not explained', origin.runName)
      : stale
        ? trans.__('%1; changed since', origin.runName)
        : origin.runName
  );
  return words.join('\n');
}

export function breakHeading(
  numbered: INumberedBreak,
  trans: TranslationBundle
): string {
  const reason = clip(
    reasonLabel(typeOf(numbered), numbered.break.gb_id),
    MOST_OF_REASON
  );
  return trans.__('Break %1: %2', numbered.number, reason);
}

/** What a screen reader says of an editor with marks. */
export function editorDescription(
  marks: readonly IMark[],
  trans: TranslationBundle
): string {
  const breaks = new Set(
    marks.flatMap(({ line, origin }) =>
      line.breaks.map(({ number }) => `${origin.runName} ${number}`)
    )
  ).size;
  return trans._n('%1 graph break marked', '%1 graph breaks marked', breaks);
}

/** A break at its position in an editor. */
export interface IBreakAt extends IBreakOnLine {
  readonly from: number;
  readonly to: number;
  readonly stale: boolean;
}

/**
 * What is shown of breaks while the pointer is on them.
 *
 * @param breaks - The breaks.
 * @param total - How many breaks there are; only the first are shown of many.
 * @param trans - The language of the reader.
 */
export function breakTooltip(
  breaks: readonly IBreakAt[],
  total: number,
  trans: TranslationBundle
): HTMLElement {
  const box = makeElement('div', 'jp-GraphBreakMark-hint gb-colours');
  const shown = breaks.slice(0, MOST_UNDER_POINTER);
  for (const graphBreak of shown) {
    const { explanation, advice } = graphBreak.break;
    const heading = makeElement('strong', 'gb-cut');
    heading.textContent = breakHeading(graphBreak, trans);
    box.append(heading);
    const paragraphs = [
      explanation,
      advice[0] && trans.__('Do: %1', advice[0].text),
      graphBreak.stale && trans.__('The line has changed since.')
    ];
    for (const words of paragraphs) {
      if (words) {
        box.append(paragraphOf(clip(words, MOST_OF_EXPLANATION)));
      }
    }
  }
  if (shown.length < total) {
    const words = trans.__('%1 of %2 breaks shown', shown.length, total);
    box.append(paragraphOf(words));
  }
  return box;
}

function paragraphOf(words: string): HTMLElement {
  const paragraph = makeElement('p');
  paragraph.textContent = words;
  return paragraph;
}

/** PyTorch's name of a break's reason, without the ticks of its markup. */
function typeOf({ break: { gb_type: type } }: INumberedBreak): string {
  return clip(type, MOST_OF_REASON).replaceAll('`', '');
}
