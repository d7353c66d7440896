/** Makes the texts about marks: notes beside lines, tooltips, descriptions for screen readers. */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IBreakOnLine, INumberedBreak } from '../report/lines';
import { totalOf } from '../report/lookup';
import { headingOf, rowOf } from '../report/rows';
import { clip } from '../report/shown';
import type { Row } from '../report/types';
import { makeElement } from '../view/elements';
import type { IMark } from './positions';

/** The maximum number of a line's breaks to list beside it. */
const MAX_BESIDE = 2;

/** The maximum number of breaks to list beside a line because its calls lead to them. */
const MAX_LEADS_TO = 6;

/** The maximum number of breaks, or of graphs, that a tooltip lists. */
const MAX_IN_TOOLTIP = 10;

/** The maximum number of characters in a heading or in a note beside a line. */
const MAX_HEADING_LENGTH = 200;

/** A piece of the note beside a line, its class, and the selection that a click on it sets. */
export interface INotePart {
  readonly text: string;
  readonly className: string;
  readonly kind: string;
  readonly id: string;
}

/**
 * The note beside a line.
 *
 * @param mark - The line.
 * @param previous - The marked line above; the note does not repeat the scope or the eager function of that line.
 */
export function noteParts(
  mark: IMark,
  previous: IMark | undefined
): INotePart[] {
  const { line } = mark;
  const previousLine = previous?.line;
  const parts: INotePart[] = firstLabels(
    line.breaks,
    MAX_BESIDE,
    it => noteOf(breakRow(mark, it)) || breakSign(it)
  ).map((text, index) => ({
    text,
    className: 'gb-cut',
    kind: 'break',
    // The part "+3" selects the first break that is not listed.
    id: line.breaks[index]?.break.id ?? ''
  }));
  firstLabels(line.breaksReachedByCalls, MAX_LEADS_TO, breakSign).forEach(
    (sign, index) =>
      parts.push({
        text: index === 0 ? `→ ${sign}` : sign,
        className: 'gb-cut',
        kind: 'break',
        id: line.breaksReachedByCalls[index]?.break.id ?? ''
      })
  );
  const { eager, scope } = line;
  if (eager !== null && eager !== previousLine?.eager) {
    const [kind, { id }] = ['skipped', eager];
    parts.push({ text: noteOf(rowFor(mark, kind, id)), className: 'gb-dim', kind, id }); // prettier-ignore
  }
  if (scope !== null && scope !== previousLine?.scope) {
    const [kind, { id }] = ['scope', scope];
    const className = scope.value ? 'gb-bad' : 'gb-good';
    parts.push({ text: noteOf(rowFor(mark, kind, id)), className, kind, id });
  }
  parts.push(
    ...firstLabels(line.notes, MAX_BESIDE, ({ row }) => noteOf(row)).map(
      (text, index) => {
        const note = line.notes[index];
        const [kind, id] = [note?.section ?? '', note?.row.id ?? ''];
        return { text, className: 'gb-dim', kind, id };
      }
    )
  );
  return parts.filter(({ text }) => text !== '');
}

/** Labels for the first parts of a list, and the number of the remaining parts. */
function firstLabels<T>(
  parts: readonly T[],
  limit: number,
  labelOf: (part: T) => string
): string[] {
  const first = parts.slice(0, limit).map(labelOf);
  const more = totalOf(parts) - first.length;
  return more > 0 ? [...first, `+${more}`] : first;
}

/** The sign of a break in the gutter and in notes. */
export function breakSign({ number }: Pick<INumberedBreak, 'number'>): string {
  return `✂${number}`;
}

function noteOf(row: Row | undefined): string {
  return clip(row?.beside ?? '', MAX_HEADING_LENGTH);
}

/** The row for one part of a mark's report. */
function rowFor(
  { origin }: Pick<IMark, 'origin'>,
  section: string,
  id: string
): Row | undefined {
  return rowOf(origin.rows, section, id);
}

function breakRow(
  mark: Pick<IMark, 'origin'>,
  numbered: INumberedBreak
): Row | undefined {
  return rowFor(mark, 'break', numbered.break.id);
}

function heading(row: Row | undefined): string {
  return row === undefined ? '' : clip(headingOf(row), MAX_HEADING_LENGTH);
}

/** A description of everything on a line. */
export function markTitle(mark: IMark, trans: TranslationBundle): string {
  const { line, origin, isStale } = mark;
  const limit = MAX_IN_TOOLTIP;
  const { eager } = line;
  const words = [
    ...firstLabels(line.breaks, limit, it => breakHeading(mark, it)),
    ...firstLabels(
      line.breaksReachedByCalls,
      limit,
      it => `→ ${breakHeading(mark, it)}`
    ),
    ...firstLabels(line.graphs, limit, ({ graph }) =>
      heading(rowFor(mark, 'graph', graph.id))
    ),
    eager === null ? '' : heading(rowFor(mark, 'skipped', eager.id)),
    ...firstLabels(line.notes, limit, ({ row }) => heading(row)),
    origin.isStale
      ? trans.__('%1; run again since, not explained', origin.runName)
      : isStale
        ? trans.__('%1; changed since', origin.runName)
        : origin.runName
  ];
  return words.filter(text => text !== '').join('\n');
}

/** The heading of a break: "Break 1: Branch on a tensor's value (GB0170)". */
export function breakHeading(
  mark: Pick<IMark, 'origin'>,
  numbered: INumberedBreak
): string {
  return heading(breakRow(mark, numbered)) || breakSign(numbered);
}

/** The description of an editor with marks for screen readers. */
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

/** The part of a tooltip about one part of a line, and the range that this part covers. */
export interface IHint {
  readonly title: string;
  readonly className: string;
  readonly paragraphs: readonly string[];
  readonly from: number;
  readonly to: number;
}

/** The part of a tooltip about a break on a line. */
export function breakHint(
  mark: IMark,
  graphBreak: IBreakOnLine,
  trans: TranslationBundle
): IHint {
  const { from, to, isStale } = mark;
  return {
    title: breakHeading(mark, graphBreak),
    className: 'gb-cut',
    paragraphs: [
      ...(breakRow(mark, graphBreak)?.more ?? []),
      ...(isStale ? [trans.__('The line has changed since.')] : [])
    ],
    from: isStale ? from : from + graphBreak.start,
    to: isStale ? to : from + graphBreak.end
  };
}

/** The parts of the tooltip about the note beside a line, except those about breaks on the line itself. */
export function noteHints(mark: IMark, trans: TranslationBundle): IHint[] {
  const { line, to } = mark;
  const { breaksReachedByCalls, eager, scope, notes } = line;
  const hint = (row: Row, className = 'gb-dim'): IHint => ({
    title: heading(row),
    className,
    paragraphs: [
      [row.label, ...row.details]
        .filter(text => !headingOf(row).includes(text))
        .join(', '),
      ...row.more
    ],
    from: to,
    to
  });
  const calls = breaksReachedByCalls.map((numbered): IHint => {
    const row = breakRow(mark, numbered);
    const location = [row?.label ?? '', ...(row?.details ?? []).slice(0, 1)].join(', '); // prettier-ignore
    return {
      title: breakHeading(mark, numbered),
      className: 'gb-cut',
      paragraphs: [
        trans.__('A call on this line leads to this break: %1', location),
        ...(breaksReachedByCalls.length === 1 ? (row?.more ?? []) : [])
      ],
      from: to,
      to
    };
  });
  const otherRows = [
    eager && rowFor(mark, 'skipped', eager.id),
    scope && rowFor(mark, 'scope', scope.id),
    ...notes.map(({ row }) => row)
  ];
  return [...calls, ...otherRows.flatMap(row => (row ? [hint(row)] : []))];
}

/**
 * The tooltip about parts of a line.
 *
 * @param hints - The parts.
 * @param total - The number of parts; only the first are shown.
 * @param space - The width that is available, in pixels.
 */
export function hintTooltip(
  hints: readonly IHint[],
  total: number,
  space: number
): HTMLElement {
  const box = makeElement('div', 'jp-GraphBreakMark-hint gb-colours');
  box.style.setProperty('--gb-space', `${space}px`);
  const shownHints = hints.slice(0, MAX_IN_TOOLTIP);
  for (const { title, className, paragraphs } of shownHints) {
    const strong = makeElement('strong', className);
    strong.append(...withCode(title));
    box.append(strong, ...paragraphs.filter(Boolean).map(paragraphOf));
  }
  if (shownHints.length < total) {
    box.append(paragraphOf(`${shownHints.length}/${total}`));
  }
  return box;
}

function paragraphOf(text: string): HTMLElement {
  const paragraph = makeElement('p');
  paragraph.append(...withCode(text));
  return paragraph;
}

/** The parts of a sentence; words between backticks become code elements. */
function withCode(text: string): (string | HTMLElement)[] {
  const parts = text.split('`');
  if (parts.length % 2 === 0) {
    return [text];
  }
  return parts.map((part, index) => {
    if (index % 2 === 0) {
      return part;
    }
    const code = makeElement('code');
    code.textContent = part;
    return code;
  });
}
