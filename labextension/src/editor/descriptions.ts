/** What marks say: beside a line, under the pointer, to a screen reader. */
import type { TranslationBundle } from '@jupyterlab/translation';

import type {
  IBreakOnLine,
  INumberedBreak,
  IReportLine
} from '../report/lines';
import { reasonLabel } from '../report/reasons';
import { makeElement } from '../view/elements';
import type { IMark } from './positions';

/** Breaks further down a call that are named beside a line. */
const LEADS_TO = 6;

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
  const parts = line.breaks.map(graphBreak => ({
    text: `${breakSign(graphBreak)} ${typeOf(graphBreak)}`,
    className: 'gb-cut'
  }));
  if (line.leadsTo.length > 0) {
    const more = line.leadsTo.length - LEADS_TO;
    const signs = line.leadsTo.slice(0, LEADS_TO).map(breakSign).join(' ');
    parts.push({
      text: `→ ${signs}${more > 0 ? ` ${trans.__('and %1 more', more)}` : ''}`,
      className: 'gb-cut'
    });
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

/** The sign of a break in the gutter and in notes. */
export function breakSign({ number }: Pick<INumberedBreak, 'number'>): string {
  return `✂${number}`;
}

/** All that is known of a line, in words. */
export function markTitle(
  { line, origin, stale }: IMark,
  trans: TranslationBundle
): string {
  const words = [
    ...line.breaks.map(graphBreak => breakHeading(graphBreak, trans)),
    ...line.leadsTo.map(({ number }) => trans.__('Leads to break %1', number)),
    ...line.graphs.map(({ graph }) => trans.__('Graph %1', graph.id))
  ];
  if (line.eager !== null) {
    words.push(trans.__('Runs eagerly: %1', line.eager.reason));
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
  const reason = reasonLabel(typeOf(numbered), numbered.break.gb_id);
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

/** What is shown of breaks while the pointer is on them. */
export function breakTooltip(
  breaks: readonly IBreakAt[],
  trans: TranslationBundle
): HTMLElement {
  const box = makeElement('div', 'jp-GraphBreakMark-hint gb-colours');
  for (const graphBreak of breaks) {
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
        const paragraph = makeElement('p');
        paragraph.textContent = words;
        box.append(paragraph);
      }
    }
  }
  return box;
}

/** PyTorch's name of a break's reason, without the ticks of its markup. */
function typeOf({ break: { gb_type: type } }: INumberedBreak): string {
  return type.replaceAll('`', '');
}
