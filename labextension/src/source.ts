/** Sources that are in no cell, such as a library's, read-only: what a report holds of their text, with its marks. */
import type { Extension } from '@codemirror/state';
import {
  Decoration,
  EditorView,
  lineNumbers,
  WidgetType
} from '@codemirror/view';
import { MainAreaWidget } from '@jupyterlab/apputils';
import {
  CodeEditor,
  CodeEditorWrapper,
  type IEditorFactoryService
} from '@jupyterlab/codeeditor';
import type { CodeMirrorEditor } from '@jupyterlab/codemirror';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { make } from './elements';
import { graphBreakIcon } from './icon';
import { markedLines, textByLine } from './lines';
import type { IMarkedText } from './marklook';
import {
  type IMarksOptions,
  mark,
  marksExtension,
  showSelected
} from './marks';
import type { IRun, NotebookReports } from './model';
import type { Source } from './types';

export interface ISourceOptions extends IMarksOptions {
  reports: NotebookReports;
  editors: IEditorFactoryService;
}

/** A source as a report holds it. */
export class SourceWidget extends MainAreaWidget<CodeEditorWrapper> {
  /**
   * @param run - The run in whose report the source is.
   * @param source - The source; the report must hold some of its lines.
   * @param options - What the editor and its marks need.
   */
  constructor(run: IRun, source: Source, options: ISourceOptions) {
    const lines = [...textByLine(run.report!, source)];
    const numbers = lines.map(([number]) => number);
    super({
      content: new CodeEditorWrapper({
        factory: options.editors.newDocumentEditor,
        model: new CodeEditor.Model({ mimeType: 'text/x-python' }),
        editorOptions: {
          config: { readOnly: true, lineNumbers: false },
          extensions: [
            EditorView.contentAttributes.of({ 'aria-label': source.name }),
            trueNumbers(numbers),
            gaps(numbers, options.trans),
            marksExtension()
          ]
        }
      })
    });
    this.addClass('jp-GraphBreakSource');
    this._options = options;
    this._numbers = numbers;
    const text = lines.map(([, line]) => line);
    this.content.editor.model.sharedModel.setSource(text.join('\n'));
    this.title.label = source.name;
    this.title.caption = source.path ?? source.name;
    this.title.icon = graphBreakIcon;
    this.title.closable = true;
    this.toolbar.addItem('about', about(run, source, options.trans));
    const lineOf = new Map(numbers.map((number, at) => [number, at + 1]));
    const { cellId, output, executionCount } = run;
    const marked: IMarkedText = {
      text,
      lines: markedLines(run.report!, source).map(line => ({
        ...line,
        number: lineOf.get(line.number)!
      })),
      run: { cellId, output },
      name: nameOf(executionCount, options.trans),
      stale: false
    };
    const { reports } = options;
    mark(
      this._view,
      { texts: [marked], selection: reports.selection },
      options
    );
    reports.selectionChanged.connect(this._onSelectionChanged, this);
  }

  override dispose(): void {
    this._options.reports.selectionChanged.disconnect(
      this._onSelectionChanged,
      this
    );
    super.dispose();
  }

  /** Scroll to a line, by its number in the source; or to the next one that the report holds. */
  showLine(number: number): void {
    const at = this._numbers.findIndex(each => each >= number);
    const view = this._view;
    const { from, text } = view.state.doc.line(
      at < 0 ? this._numbers.length : at + 1
    );
    const anchor = from + text.length - text.trimStart().length;
    requestAnimationFrame(() =>
      view.dispatch({
        selection: { anchor },
        effects: EditorView.scrollIntoView(anchor, { y: 'center' })
      })
    );
  }

  private _onSelectionChanged(): void {
    showSelected(this._view, this._options.reports.selection);
  }

  private get _view(): EditorView {
    return (this.content.editor as CodeMirrorEditor).editor;
  }

  private readonly _options: ISourceOptions;
  private readonly _numbers: readonly number[];
}

/** The sources that are open, each once. */
export class Sources {
  constructor(options: Sources.IOptions) {
    this._options = options;
  }

  /** Open a source of the current notebook's reports at a line, or go there where it is open. */
  open(args: Sources.IArgs): void {
    const { reports, trans, warn, add, activate } = this._options;
    const run = reports.runs.find(
      ({ cellId, output }) =>
        cellId === args.cellId && output === (args.output ?? output)
    );
    const source = run?.report?.sources.find(({ id }) => id === args.source);
    if (run === undefined || source === undefined) {
      warn(trans.__('The report of this source is not there any more.'));
      return;
    }
    if (textByLine(run.report!, source).size === 0) {
      warn(trans.__('The report holds no text of %1.', source.name));
      return;
    }
    let widget = this._open.get(source);
    if (widget === undefined || widget.isDisposed) {
      widget = this._make(run, source);
      this._open.set(source, widget);
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
  private readonly _open = new WeakMap<Source, SourceWidget>();
  private _count = 0;
}

export namespace Sources {
  export interface IOptions extends ISourceOptions {
    /** Put a widget into the application, and bring one to the front. */
    add(widget: Widget): void;
    activate(id: string): void;
    /** Tells the reader why there is nothing to see. */
    warn(message: string): void;
  }

  export interface IArgs {
    cellId: string;
    /** The output that has the report; without it the first of the cell. */
    output?: number;
    /** The source's id in the report. */
    source: string;
    line: number;
  }
}

function nameOf(count: number | null, trans: TranslationBundle): string {
  return count === null ? trans.__('a cell') : `Cell In[${count}]`;
}

function about(run: IRun, source: Source, trans: TranslationBundle): Widget {
  const widget = new Widget();
  widget.addClass('jp-GraphBreakSource-about');
  widget.node.textContent = trans.__(
    '%1, as the run of %2 found it; read-only',
    source.path ?? source.name,
    nameOf(run.executionCount, trans)
  );
  return widget;
}

/** The numbers that the lines have in the source, of which only some are here. */
function trueNumbers(numbers: readonly number[]): Extension {
  return lineNumbers({
    formatNumber: line => String(numbers[line - 1] ?? line)
  });
}

/** Says how many lines are left out, where some are. */
function gaps(numbers: readonly number[], trans: TranslationBundle): Extension {
  return EditorView.decorations.compute(['doc'], ({ doc }) =>
    Decoration.set(
      numbers.flatMap((number, at) => {
        const missing = number - (numbers[at - 1] ?? 0) - 1;
        if (missing <= 0 || at >= doc.lines) {
          return [];
        }
        const words = trans._n(
          '%1 line that is not in the report',
          '%1 lines that are not in the report',
          missing
        );
        return Decoration.widget({
          widget: new Gap(words),
          block: true,
          side: -1
        }).range(doc.line(at + 1).from);
      })
    )
  );
}

class Gap extends WidgetType {
  constructor(private readonly _words: string) {
    super();
  }

  override eq(other: Gap): boolean {
    return this._words === other._words;
  }

  override toDOM(): HTMLElement {
    const gap = make('div', 'jp-GraphBreakSource-gap gb-colours');
    gap.textContent = this._words;
    return gap;
  }
}
