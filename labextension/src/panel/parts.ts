/** The parts of a report as the panel lists them: what each is called, where it is, what it cost. */
import { graphColour } from '../report/colours';
import { EFFECT, locationOf, type PartKind } from '../report/kinds';
import { orderedBreaks, withId } from '../report/lookup';
import { reasonLabel } from '../report/reasons';
import type {
  Break,
  Graph,
  Recompile,
  Resume,
  RunError,
  Scope,
  Skipped
} from '../report/types';
import { comparisonParts } from './comparison';
import {
  briefCode,
  type IPart,
  type IPartContext,
  makePart,
  oneLine,
  placeLabel
} from './part';

/** All parts of a kind, in the order of the report. */
export function partsOf(context: IPartContext, kind: PartKind): IPart[] {
  const { report } = context;
  switch (kind) {
    case 'change':
      return report.changes === null
        ? []
        : comparisonParts(context, report.changes);
    case 'error':
      return report.error === null ? [] : [errorPart(context, report.error)];
    case 'break':
      return orderedBreaks(report).map((graphBreak, index) =>
        breakPart(context, graphBreak, index)
      );
    case 'graph':
      return graphParts(context);
    case 'skipped':
      return report.skipped.map(skipped => skippedPart(context, skipped));
    case 'recompile':
      return recompileParts(context);
    case 'scope':
      return report.scopes.map(scope => scopePart(context, scope));
    case 'note':
      return [...effectParts(context), ...diagnosticParts(context)];
  }
}

function effectParts(context: IPartContext): IPart[] {
  return (context.report.effects ?? []).map((effect, index) =>
    makePart(context, 'note', `${EFFECT}${index}`, {
      look: 'note',
      label: effect.what,
      details: [
        placeLabel(context, effect.location),
        context.trans.__('not run again')
      ],
      cause: effect.kind
    })
  );
}

function diagnosticParts(context: IPartContext): IPart[] {
  return context.report.diagnostics.map(({ level, message }, index) =>
    makePart(context, 'note', String(index), {
      look: 'note',
      label: message,
      details: level === 'info' ? [] : [level],
      cause: level
    })
  );
}

function breakPart(
  context: IPartContext,
  graphBreak: Break,
  index: number
): IPart {
  const { trans } = context;
  const { location, cost } = graphBreak;
  const reason = reasonLabel(graphBreak.gb_type, graphBreak.gb_id);
  const name = location?.function;
  return makePart(context, 'break', graphBreak.id, {
    name: trans.__('Break %1', index + 1),
    sign: String(index + 1),
    look: 'break',
    isCode: true,
    label: briefCode(location?.code ?? name ?? graphBreak.gb_type),
    details: [
      placeLabel(context, location),
      outcomeLabel(context, graphBreak),
      name && name !== '<module>' && location.code !== null
        ? trans.__('in %1', name)
        : ''
    ],
    more: [reason, graphBreak.explanation ?? '', costLabel(context, graphBreak)]
      .join('\n')
      .trim(),
    cause: reason,
    cost: cost?.compile_s ?? null
  });
}

/** What goes when a break goes. */
function costLabel({ trans }: IPartContext, { cost }: Break): string {
  if (cost === null) {
    return '';
  }
  const parts = [
    cost.graphs > 0
      ? trans._n('adds %1 graph', 'adds %1 graphs', cost.graphs)
      : trans.__('adds no graph'),
    cost.eager > 0
      ? trans._n(
          '%1 function runs eagerly',
          '%1 functions run eagerly',
          cost.eager
        )
      : ''
  ];
  return parts.filter(part => part !== '').join(', ');
}

function outcomeLabel(
  context: IPartContext,
  { outcome, resumes: ids }: Break
): string {
  const { report, trans } = context;
  if (outcome === 'error') {
    return trans.__('error');
  }
  if (outcome === 'skipped') {
    return trans.__('runs eagerly');
  }
  const resumes = ids.flatMap(id => withId(report.resumes, id) ?? []);
  const resume = resumes.find(hasRun) ?? resumes[0];
  return resume?.location
    ? trans.__('resumes at %1', placeLabel(context, resume.location))
    : '';
}

function graphParts(context: IPartContext): IPart[] {
  const { report, trans } = context;
  const costs = frameCosts(context);
  const breakNumbers = new Map(
    orderedBreaks(report).map(({ id }, index) => [id, index + 1])
  );
  const operations = ({ ops, lines }: Graph): string =>
    // A very large report leaves its operations out.
    ops.length === 0 && lines.length > 0
      ? ''
      : trans._n('%1 operation', '%1 operations', ops.length);
  return report.graphs.map((graph, index) => {
    const breakNumber = breakNumbers.get(graph.break ?? '');
    return makePart(context, 'graph', graph.id, {
      name: trans.__('Graph %1', graph.id),
      sign: graph.id,
      look: `graph graph${graphColour(index)}`,
      isCode: true,
      label: graph.name,
      details: [
        placeLabel(context, locationOf(report, 'graph', graph.id)),
        operations(graph),
        breakNumber === undefined
          ? ''
          : trans.__('ends at break %1', breakNumber)
      ],
      cause: graph.ends,
      cost: costs.get(graph.frame) ?? null
    });
  });
}

function skippedPart(context: IPartContext, skipped: Skipped): IPart {
  return makePart(context, 'skipped', skipped.id, {
    look: 'eager',
    label: skipped.function,
    isCode: true,
    details: [placeLabel(context, skipped.location), skipped.reason],
    more: skipped.way_out ?? '',
    cause: skipped.kind
  });
}

function recompileParts(context: IPartContext): IPart[] {
  const { report, trans } = context;
  const costs = frameCosts(context);
  return report.recompiles.map((recompile: Recompile, index) => {
    const guards = [...new Set(recompile.reasons.map(({ guard }) => guard))];
    return makePart(context, 'recompile', String(index), {
      look: recompile.limit_hit ? 'error' : 'recompile',
      isCode: true,
      label: recompile.function,
      details: [
        placeLabel(context, recompile.location),
        recompile.limit_hit ? trans.__('recompile limit reached') : '',
        oneLine(guards[0] ?? ''),
        guards.length > 1 ? trans.__('and %1 more', guards.length - 1) : ''
      ],
      more: guards.join('\n'),
      cause: guards[0] ?? '',
      cost: costs.get(recompile.frame) ?? null
    });
  });
}

function scopePart(context: IPartContext, scope: Scope): IPart {
  const { trans } = context;
  const value = scope.value ? 'True' : 'False';
  return makePart(context, 'scope', scope.id, {
    look: scope.value ? 'forbid' : 'allow',
    isCode: true,
    label:
      scope.setting === 'fullgraph'
        ? `fullgraph=${value}`
        : `${scope.setting}(${value})`,
    details: [
      placeLabel(context, scope.location),
      scope.value ? trans.__('breaks are errors') : trans.__('breaks allowed')
    ],
    more: scope.note ?? '',
    cause: scope.setting
  });
}

function errorPart(
  context: IPartContext,
  { type, message, location }: RunError
): IPart {
  return makePart(context, 'error', '0', {
    look: 'error',
    label: oneLine(`${type}: ${message}`),
    details: [placeLabel(context, location)],
    more: message,
    cause: type
  });
}

function hasRun({ frames, no_frame: noFrame }: Resume): boolean {
  return frames.length > 0 || noFrame === 'eager' || noFrame === 'inlined';
}

/** How long every frame took to compile, by its id. */
function frameCosts({ report }: IPartContext): Map<string, number | null> {
  return new Map(report.frames.map(frame => [frame.id, frame.compile_s]));
}
