/** What changed since the run before: as a headline, and as parts of the report. */
import type { TranslationBundle } from '@jupyterlab/translation';

import { reasonLabel } from '../report/reasons';
import type { Change, Changes, Place } from '../report/types';
import { type IPart, type IPartContext, makePart, oneLine } from './part';

/** The id of the part that holds the figures before and after. */
export const FIGURES_ID = 'figures';

/** What became of the breaks since the run before, in few words. */
export function comparisonHeadline(
  changes: Changes,
  trans: TranslationBundle
): string {
  const count = (kind: Change['change']): number =>
    changes.breaks.filter(({ change }) => change === kind).length;
  const [gone, fresh, moved] = [count('gone'), count('new'), count('moved')];
  const unknown = count('unknown');
  const counts = [
    gone > 0 ? trans.__('%1 gone', gone) : '',
    fresh > 0 ? trans.__('%1 new', fresh) : '',
    moved > 0 ? trans.__('%1 moved', moved) : '',
    unknown > 0 ? trans.__('cannot compare %1', unknown) : ''
  ].filter(words => words !== '');
  if (counts.length > 0) {
    return counts.join(', ');
  }
  return changes.reused.length > 0
    ? trans.__('the same breaks in what both runs compiled')
    : trans.__('the same breaks');
}

/** The figures before and after, and every break that changed. */
export function comparisonParts(
  context: IPartContext,
  changes: Changes
): IPart[] {
  const { trans } = context;
  const figures = makePart(context, 'change', FIGURES_ID, {
    look: 'figures',
    label: figureLabels(changes, trans).join(', '),
    details:
      changes.reused.length > 0 ? [trans.__('of what both runs compiled')] : []
  });
  const breaks = changes.breaks.map((change, index) => {
    const reason = reasonLabel(change.gb_type, change.gb_id);
    return makePart(context, 'change', String(index), {
      look: lookOf(change),
      isCode: change.code !== null,
      label: oneLine(change.code ?? change.gb_type),
      details: [changeLabel(change, trans), placesLabel(change, trans)],
      more: reason,
      cause: reason
    });
  });
  return [figures, ...breaks];
}

/** Breaks, graphs and the time spent compiling, before and after. */
function figureLabels(
  { before, after }: Changes,
  trans: TranslationBundle
): string[] {
  const step = (old: number | string, current: number | string): string =>
    old === current ? String(current) : `${old} → ${current}`;
  const labels = [
    trans.__('breaks %1', step(before.summary.breaks, after.summary.breaks)),
    trans.__('graphs %1', step(before.summary.graphs, after.summary.graphs))
  ];
  const [old, current] = [before.timing.compile_s, after.timing.compile_s];
  if (old !== null && current !== null) {
    const seconds = step(`${old.toFixed(2)} s`, `${current.toFixed(2)} s`);
    labels.push(trans.__('compiling %1', seconds));
  }
  return labels;
}

/** The look of a change; a word of a later version has that of what is not known. */
function lookOf({ change }: Change): string {
  return ['gone', 'new', 'moved'].includes(change) ? change : 'unknown';
}

function changeLabel(
  { change, before }: Change,
  trans: TranslationBundle
): string {
  switch (change) {
    case 'gone':
      return trans.__('gone');
    case 'new':
      return trans.__('new');
    case 'moved':
      return trans.__('moved');
    case 'unknown':
      return before === null
        ? trans.__('not compiled in the run before')
        : trans.__('not compiled again: PyTorch still had the code');
    default:
      // A word of a later version.
      return change;
  }
}

function placesLabel(
  { change, before, after }: Change,
  trans: TranslationBundle
): string {
  const label = (place: Place | null): string =>
    place === null
      ? ''
      : place.name === null
        ? trans.__('line %1', place.line)
        : `${place.name}:${place.line}`;
  return change === 'moved'
    ? `${label(before)} → ${label(after)}`
    : label(after ?? before);
}
