/** Sources that are open in their own widgets. */
import type { Widget } from '@lumino/widgets';

import type { IRun } from '../notebook/runs';
import { textByLine } from '../report/lines';
import type { Source } from '../report/types';
import { type ISourceOptions, SourceWidget } from './sourcewidget';

/** Opens sources, at most once each. */
export class Sources {
  constructor(options: Sources.IOptions) {
    this._options = options;
  }

  /** Open a source of the current notebook's reports at a line, or go there if it is open. */
  open(args: Sources.IArgs): void {
    const { reports, trans, warn, add, activate } = this._options;
    const run = reports.runs.find(
      ({ cellId, output }) =>
        cellId === args.cellId && output === (args.output ?? output)
    );
    const source = run?.report?.sources.find(({ id }) => id === args.source);
    if (run === undefined || source === undefined) {
      warn(trans.__('The report of this source no longer exists.'));
      return;
    }
    if (textByLine(run.report!, source).size === 0) {
      warn(
        trans.__('The report does not contain the text of %1.', source.name)
      );
      return;
    }
    let widget = this._widgets.get(source);
    if (widget === undefined || widget.isDisposed) {
      widget = this._make(run, source);
      this._widgets.set(source, widget);
      add(widget);
    }
    activate(widget.id);
    widget.showLine(args.line);
  }

  private _make(run: IRun, source: Source): SourceWidget {
    const widget = new SourceWidget(run, source, this._options);
    widget.id = `jp-GraphBreakSource-${(this._count += 1)}`;
    return widget;
  }

  private readonly _options: Sources.IOptions;
  private readonly _widgets = new WeakMap<Source, SourceWidget>();
  private _count = 0;
}

export namespace Sources {
  export interface IOptions extends ISourceOptions {
    /** Add a widget to the application, and bring a widget to the front. */
    add(widget: Widget): void;
    activate(id: string): void;
    /** Tell the reader why a source cannot be shown. */
    warn(message: string): void;
  }

  export interface IArgs {
    cellId: string;
    /** The index of the output with the report; by default the first of the cell. */
    output?: number;
    /** The source's id in the report. */
    source: string;
    line: number;
  }
}
