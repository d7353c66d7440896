/** What marks look like and say: of a line, in the gutter, beside it, under the pointer, to a screen reader. */
import { GutterMarker, WidgetType } from '@codemirror/view';
import type { TranslationBundle } from '@jupyterlab/translation';

import { make } from './elements';
import type { IBreakOnLine, ILine } from './lines';
import type { ISelection } from './model';
import type { Break } from './types';

/** What a report says about the text of an editor. */
export interface IMarkedText {
  /** The text that the report is about, in lines. */
  readonly text: readonly string[];
  readonly lines: readonly ILine[];
  /** Where the report is. */
  readonly run: Pick<ISelection, 'cellId' | 'output'>;
  /** What people call the run. */
  readonly name: string;
  /** Whether the code was run again since, without being explained. */
  readonly stale: boolean;
}

/** A line of a report in the editor. */
export interface IPlaced {
  readonly line: ILine;
  readonly of: IMarkedText;
  readonly from: number;
  readonly to: number;
  readonly stale: boolean;
}

/** Letters of graphs in the gutter of one line; of more, the first two and how many more. */
const LETTERS = 3;

/** Breaks further down a call that are named beside a line. */
const LEADS_TO = 6;

export function classOf({ line, stale }: IPlaced, isSelected: boolean): string {
  const classes = ['jp-GraphBreakMark'];
  if (line.breaks.length > 0) {
    classes.push('jp-mod-broken');
  } else if (line.eager !== null) {
    classes.push('jp-mod-eager');
  } else if (line.graphs.length > 0) {
    classes.push('jp-mod-graph', `gb-c${line.graphs[0]!.colour}`);
  }
  if (line.scope !== null) {
    classes.push(line.scope.value ? 'jp-mod-forbidden' : 'jp-mod-allowed');
  }
  if (stale) {
    classes.push('jp-mod-stale');
  }
  if (isSelected) {
    classes.push('jp-mod-selected');
  }
  return classes.join(' ');
}

/** A piece of the note beside a line: its words and their class. */
type Part = readonly [words: string, name: string];

/** What stands beside a line. */
export function parts(
  line: ILine,
  before: ILine | undefined,
  trans: TranslationBundle
): Part[] {
  const found: Part[] = line.breaks.map(each => [
    `${sign(each)} ${typeOf(each.break)}`,
    'gb-cut'
  ]);
  if (line.leadsTo.length > 0) {
    const more = line.leadsTo.length - LEADS_TO;
    const named = line.leadsTo.slice(0, LEADS_TO).map(sign).join(' ');
    found.push([
      `→ ${named}${more > 0 ? ` ${trans.__('and %1 more', more)}` : ''}`,
      'gb-cut'
    ]);
  }
  if (line.eager !== null && line.eager !== before?.eager) {
    found.push([trans.__('runs eagerly'), 'gb-dim']);
  }
  if (line.scope !== null && line.scope !== before?.scope) {
    found.push(
      line.scope.value
        ? [trans.__('breaks are errors'), 'gb-bad']
        : [trans.__('breaks allowed'), 'gb-good']
    );
  }
  return found;
}

/** PyTorch's name of a break, without the ticks of its markup. */
function typeOf(found: Break): string {
  return found.gb_type.replaceAll('`', '');
}

function sign({ number }: { number: number }): string {
  return `✂${number}`;
}

/** All that is known of a line, in words. */
export function title(
  { line, of, stale }: IPlaced,
  trans: TranslationBundle
): string {
  const words = line.breaks.map(each => heading(each, trans));
  words.push(
    ...line.leadsTo.map(each => trans.__('Leads to break %1', each.number)),
    ...line.graphs.map(({ graph }) => trans.__('Graph %1', graph.id))
  );
  if (line.eager !== null) {
    words.push(trans.__('Runs eagerly: %1', line.eager.reason));
  }
  words.push(
    of.stale
      ? trans.__('%1; run again since, not explained', of.name)
      : stale
        ? trans.__('%1; changed since', of.name)
        : of.name
  );
  return words.join('\n');
}

export function heading(
  { number, break: found }: Pick<IBreakOnLine, 'number' | 'break'>,
  trans: TranslationBundle
): string {
  const type = typeOf(found);
  const reason = found.gb_id === null ? type : `${type} (${found.gb_id})`;
  return trans.__('Break %1: %2', number, reason);
}

/** What stands beside a line, in the editor but not in its text. */
export class Note extends WidgetType {
  constructor(
    readonly parts: readonly Part[],
    readonly stale: boolean
  ) {
    super();
  }

  override eq(other: Note): boolean {
    return (
      this.stale === other.stale && String(this.parts) === String(other.parts)
    );
  }

  override toDOM(): HTMLElement {
    const note = make('span', 'jp-GraphBreakMark-note');
    for (const [words, name] of this.parts) {
      const part = make('span', name);
      part.textContent = words;
      note.append(part);
    }
    return note;
  }
}

/** The letters of a line's graphs and the numbers of its breaks. */
export class Marker extends GutterMarker {
  constructor(
    private readonly _line: ILine,
    private readonly _stale: boolean,
    private readonly _title: string
  ) {
    super();
  }

  override eq(other: Marker): boolean {
    return (
      this._line === other._line &&
      this._stale === other._stale &&
      this._title === other._title
    );
  }

  override toDOM(): HTMLElement {
    const { graphs, breaks } = this._line;
    const box = make('span', 'jp-GraphBreakMark-sign');
    box.classList.toggle('jp-mod-stale', this._stale);
    box.title = this._title;
    const shown =
      graphs.length > LETTERS ? graphs.slice(0, LETTERS - 1) : graphs;
    for (const { graph, colour } of shown) {
      const letter = make('span', `gb-letter gb-c${colour}`);
      letter.textContent = graph.id;
      box.append(letter);
    }
    if (shown.length < graphs.length) {
      box.append(`+${graphs.length - shown.length}`);
    }
    for (const each of breaks) {
      const cut = make('span', 'gb-cut');
      cut.textContent = sign(each);
      box.append(cut);
    }
    return box;
  }
}

export function description(
  placed: readonly IPlaced[],
  trans: TranslationBundle
): string {
  const breaks = new Set(
    placed.flatMap(({ line, of }) =>
      line.breaks.map(({ number }) => `${of.name} ${number}`)
    )
  ).size;
  return trans._n('%1 graph break marked', '%1 graph breaks marked', breaks);
}

export interface IBreakAt extends IBreakOnLine {
  from: number;
  to: number;
  stale: boolean;
}

/** What is said of breaks where the pointer rests on them. */
export function hint(
  breaks: readonly IBreakAt[],
  trans: TranslationBundle
): HTMLElement {
  const box = make('div', 'jp-GraphBreakMark-hint gb-colours');
  for (const each of breaks) {
    const { explanation, advice } = each.break;
    const title = make('strong', 'gb-cut');
    title.textContent = heading(each, trans);
    box.append(title);
    const more = [
      explanation,
      advice[0] && trans.__('Do: %1', advice[0].text),
      each.stale && trans.__('The line has changed since.')
    ];
    for (const words of more) {
      if (words) {
        const paragraph = make('p');
        paragraph.textContent = words;
        box.append(paragraph);
      }
    }
  }
  return box;
}
