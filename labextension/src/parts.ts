/** The parts of a report as the panel lists them: what each is called, where it is, what it cost. */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IRun, Kind } from './model';
import type {
  Break,
  Change,
  Changes,
  Location,
  Place,
  Report,
  Resume,
  Scope,
  Source
} from './types';

/** How many colours graphs have; `views/listing.py` gives them the same ones. */
const COLOURS = 8;

/** One thing of a report that can be listed and selected. */
export interface IPart {
  kind: Kind;
  /** As the report has it; of a list without ids the index. */
  id: string;
  /** "Break 1", "Graph A". */
  name: string;
  /** The number of a break, the letter of a graph. */
  sign: string;
  /** What the sign looks like. */
  look: string;
  /** Text of the program is set in its own type. */
  isCode: boolean;
  label: string;
  details: string[];
  /** More about it, for a tooltip. */
  more: string;
  location: Location | null;
  /** By what breaks are grouped, and by what things can be sorted. */
  cause: string;
  /** Seconds; null where nothing was measured. */
  cost: number | null;
}

/** The kinds in the order in which a run lists them. */
export const KINDS: readonly Kind[] = [
  'change',
  'error',
  'break',
  'graph',
  'skipped',
  'recompile',
  'scope',
  'note'
];

/** What a kind is called, of many. */
export function kindLabel(kind: Kind, trans: TranslationBundle): string {
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
      return trans.__('Skipped');
    case 'recompile':
      return trans.__('Recompiles');
    case 'scope':
      return trans.__('Scopes');
    case 'note':
      return trans.__('Notes');
  }
}

/** How many parts of a kind a report has; cheap, nothing is made. */
export function countOf(report: Report, kind: Kind): number {
  switch (kind) {
    case 'change':
      return report.changes?.breaks.length ?? 0;
    case 'error':
      return report.error === null ? 0 : 1;
    case 'break':
      return report.breaks.length;
    case 'graph':
      return report.graphs.length;
    case 'skipped':
      return report.skipped.length;
    case 'recompile':
      return report.recompiles.length;
    case 'scope':
      return report.scopes.length;
    case 'note':
      return report.diagnostics.length;
  }
}

/** The place of a part in its source; null where it has none. */
export function locationOf(
  report: Report,
  kind: Kind,
  id: string
): Location | null {
  switch (kind) {
    case 'break':
      return report.breaks.find(each => each.id === id)?.location ?? null;
    case 'graph': {
      const graph = report.graphs.find(each => each.id === id);
      const line = graph?.lines[0];
      return line === undefined
        ? (report.frames.find(frame => frame.id === graph?.frame)?.location ??
            null)
        : atLine(line.source, line.line);
    }
    case 'skipped':
      return report.skipped.find(each => each.id === id)?.location ?? null;
    case 'scope':
      return report.scopes.find(each => each.id === id)?.location ?? null;
    case 'recompile':
      return report.recompiles[Number(id)]?.location ?? null;
    case 'error':
      return report.error?.location ?? null;
    case 'change':
      return locationOf(
        report,
        'break',
        report.changes?.breaks[Number(id)]?.break ?? ''
      );
    case 'note':
      return null;
  }
}

/** What became of the breaks since the run before, in few words. */
export function headline(changes: Changes, trans: TranslationBundle): string {
  const count = (kind: Change['change']): number =>
    changes.breaks.filter(({ change }) => change === kind).length;
  const [gone, fresh, moved] = [count('gone'), count('new'), count('moved')];
  const parts = [
    gone > 0 ? trans.__('%1 gone', gone) : '',
    fresh > 0 ? trans.__('%1 new', fresh) : '',
    moved > 0 ? trans.__('%1 moved', moved) : ''
  ].filter(part => part !== '');
  return parts.length > 0 ? parts.join(', ') : trans.__('the same breaks');
}

/** Makes the parts of one run. */
export class Parts {
  /**
   * @param run - The run.
   * @param report - Its report.
   * @param own - The source that is the run's own cell; lines in it need no name.
   * @param trans - The language of the reader.
   */
  constructor(
    run: IRun,
    report: Report,
    own: Source | null,
    trans: TranslationBundle
  ) {
    this.run = run;
    this._report = report;
    this._own = own;
    this._trans = trans;
  }

  readonly run: IRun;

  /** All parts of a kind, in the order of the report. */
  of(kind: Kind): IPart[] {
    const report = this._report;
    switch (kind) {
      case 'change':
        return report.changes === null ? [] : this._changes(report.changes);
      case 'error':
        return report.error === null ? [] : [this._error(report)];
      case 'break':
        return report.breaks.map((each, index) => this._break(each, index));
      case 'graph':
        return this._graphs();
      case 'skipped':
        return report.skipped.map(each =>
          this._part(kind, each.id, {
            look: 'eager',
            label: each.function,
            isCode: true,
            details: [this.place(each.location), each.reason],
            more: each.way_out ?? '',
            cause: each.kind
          })
        );
      case 'recompile':
        return this._recompiles();
      case 'scope':
        return report.scopes.map(each => this._scope(each));
      case 'note':
        return report.diagnostics.map((each, index) =>
          this._part(kind, String(index), {
            look: 'note',
            label: each.message,
            details: each.level === 'info' ? [] : [each.level],
            cause: each.level
          })
        );
    }
  }

  /** A place in words; a line of the run's own cell needs no name. */
  place(location: Location | null): string {
    if (location === null) {
      return '';
    }
    const source = this._report.sources.find(
      ({ id }) => id === location.source
    );
    return source === undefined || source === this._own
      ? this._trans.__('line %1', location.line)
      : `${source.name}:${location.line}`;
  }

  private _break(each: Break, index: number): IPart {
    const { location } = each;
    const frames = this._report.frames.filter(
      frame => frame.resume !== null && each.resumes.includes(frame.resume)
    );
    return this._part('break', each.id, {
      name: this._trans.__('Break %1', index + 1),
      sign: String(index + 1),
      look: 'cut',
      isCode: true,
      label: oneLine(location?.code ?? location?.function ?? each.gb_type),
      details: [
        this.place(location),
        this._outcome(each),
        this._inFunction(location)
      ],
      more: [reason(each.gb_type, each.gb_id), each.explanation ?? '']
        .join('\n')
        .trim(),
      cause: reason(each.gb_type, each.gb_id),
      cost: total(frames.map(frame => frame.compile_s))
    });
  }

  private _outcome({ outcome, resumes }: Break): string {
    const trans = this._trans;
    if (outcome === 'error') {
      return trans.__('error');
    }
    if (outcome === 'skipped') {
      return trans.__('runs eagerly');
    }
    const all = this._report.resumes.filter(({ id }) => resumes.includes(id));
    const resumed = all.find(hasRun) ?? all[0];
    return resumed?.location
      ? trans.__('resumes at %1', this.place(resumed.location))
      : '';
  }

  private _graphs(): IPart[] {
    const trans = this._trans;
    const frames = new Map(this._report.frames.map(each => [each.id, each]));
    const breaks = new Map(
      this._report.breaks.map((each, index) => [each.id, index + 1])
    );
    return this._report.graphs.map((each, index) =>
      this._part('graph', each.id, {
        name: trans.__('Graph %1', each.id),
        sign: each.id,
        look: `graph jp-mod-graph${index % COLOURS}`,
        isCode: true,
        label: each.name,
        details: [
          this.place(locationOf(this._report, 'graph', each.id)),
          // A very large report leaves them out.
          each.ops.length === 0 && each.lines.length > 0
            ? ''
            : trans._n('%1 operation', '%1 operations', each.ops.length),
          each.break !== null && breaks.has(each.break)
            ? trans.__('ends at break %1', breaks.get(each.break)!)
            : ''
        ],
        cause: each.ends,
        cost: frames.get(each.frame)?.compile_s ?? null
      })
    );
  }

  private _recompiles(): IPart[] {
    const trans = this._trans;
    const frames = new Map(this._report.frames.map(each => [each.id, each]));
    return this._report.recompiles.map((each, index) => {
      const guards = each.reasons.map(({ guard }) => guard);
      return this._part('recompile', String(index), {
        look: each.limit_hit ? 'error' : 'recompile',
        isCode: true,
        label: each.function,
        details: [
          this.place(each.location),
          each.limit_hit ? trans.__('recompile limit reached') : '',
          oneLine(guards[0] ?? '')
        ],
        more: guards.join('\n'),
        cause: guards[0] ?? '',
        cost: frames.get(each.frame)?.compile_s ?? null
      });
    });
  }

  private _scope(each: Scope): IPart {
    const trans = this._trans;
    const value = each.value ? 'True' : 'False';
    return this._part('scope', each.id, {
      look: each.value ? 'forbid' : 'allow',
      isCode: true,
      label:
        each.setting === 'fullgraph'
          ? `fullgraph=${value}`
          : `${each.setting}(${value})`,
      details: [
        this.place(each.location),
        each.value
          ? trans.__('breaks are errors')
          : trans.__('breaks are allowed')
      ],
      more: each.note ?? '',
      cause: each.setting
    });
  }

  private _error({ error }: Report): IPart {
    return this._part('error', '0', {
      look: 'error',
      label: oneLine(`${error!.type}: ${error!.message}`),
      details: [this.place(error!.location)],
      more: error!.message,
      cause: error!.type
    });
  }

  private _changes(changes: Changes): IPart[] {
    const figures = this._part('change', 'figures', {
      look: 'figures',
      label: this._figures(changes).join(', ')
    });
    const breaks = changes.breaks.map((each, index) =>
      this._part('change', String(index), {
        look: each.change,
        isCode: each.code !== null,
        label: oneLine(each.code ?? each.gb_type),
        details: [this._change(each), this._moved(each)],
        more: reason(each.gb_type, each.gb_id),
        cause: reason(each.gb_type, each.gb_id)
      })
    );
    return [figures, ...breaks];
  }

  /** Breaks, graphs and the time spent compiling, before and after. */
  private _figures({ before, after }: Changes): string[] {
    const trans = this._trans;
    const step = (old: number | string, now: number | string): string =>
      old === now ? String(now) : `${old} → ${now}`;
    const lines = [
      trans.__('breaks %1', step(before.summary.breaks, after.summary.breaks)),
      trans.__('graphs %1', step(before.summary.graphs, after.summary.graphs))
    ];
    const [old, now] = [before.timing.compile_s, after.timing.compile_s];
    if (old !== null && now !== null) {
      lines.push(
        trans.__(
          'compiling %1',
          step(`${old.toFixed(2)} s`, `${now.toFixed(2)} s`)
        )
      );
    }
    return lines;
  }

  private _change({ change }: Change): string {
    switch (change) {
      case 'gone':
        return this._trans.__('gone');
      case 'new':
        return this._trans.__('new');
      case 'moved':
        return this._trans.__('moved');
    }
  }

  private _moved({ change, before, after }: Change): string {
    const at = (place: Place | null): string =>
      place === null
        ? ''
        : place.name === null
          ? this._trans.__('line %1', place.line)
          : `${place.name}:${place.line}`;
    return change === 'moved'
      ? `${at(before)} → ${at(after)}`
      : at(after ?? before);
  }

  private _inFunction(location: Location | null): string {
    const name = location?.function;
    return name && name !== '<module>' && location.code !== null
      ? this._trans.__('in %1', name)
      : '';
  }

  private _part(
    kind: Kind,
    id: string,
    fields: Partial<IPart> & { label: string; look: string }
  ): IPart {
    return {
      kind,
      id,
      name: '',
      sign: '',
      isCode: false,
      details: [],
      more: '',
      location: locationOf(this._report, kind, id),
      cause: '',
      cost: null,
      ...fields
    };
  }

  private readonly _report: Report;
  private readonly _own: Source | null;
  private readonly _trans: TranslationBundle;
}

function reason(type: string, id: string | null): string {
  return id === null ? type : `${type} (${id})`;
}

function atLine(source: string, line: number): Location {
  return {
    source,
    line,
    end_line: line,
    column: null,
    end_column: null,
    function: null,
    code: null
  };
}

function hasRun({ frames, no_frame }: Resume): boolean {
  return frames.length > 0 || no_frame === 'eager';
}

function oneLine(text: string): string {
  return text.replace(/\s+/g, ' ').trim().slice(0, 200);
}

function total(costs: (number | null)[]): number | null {
  const known = costs.filter(cost => cost !== null);
  return known.length === 0 ? null : known.reduce((sum, cost) => sum + cost, 0);
}
