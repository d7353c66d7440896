/** A read-only source outside cells, such as a library's: its lines in the report, with marks. */
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

import { cellName } from '../notebook/cells';
import { graphBreakIcon } from '../notebook/icon';
import type { NotebookReports } from '../notebook/notebookreports';
import type { IRun } from '../notebook/runs';
import { reportLines, textByLine } from '../report/lines';
import type { Source } from '../report/types';
import { makeElement } from '../view/elements';
import type { IMarkOptions } from './interaction';
import { markExtension, showMarks, showSelection } from './markextension';
import type { IReportedText } from './positions';

export interface ISourceOptions extends IMarkOptions {
  reports: NotebookReports;
  editors: IEditorFactoryService;
}

/** A source as the report contains it. */
export class SourceWidget extends MainAreaWidget<CodeEditorWrapper> {
  /**
   * @param run - The run whose report contains the source.
   * @param source - The source; the report must contain some of its lines.
   * @param options - Dependencies of the editor and its marks.
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
            sourceLineNumbers(numbers),
            gaps(numbers, options.trans),
            markExtension()
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
    this.toolbar.addItem('about', makeAbout(run, source, options.trans));
    const lineOf = new Map(numbers.map((number, index) => [number, index + 1]));
    const { cellId, output, executionCount } = run;
    const reported: IReportedText = {
      text,
      lines: reportLines(run.report!, run.rows!, source).map(line => ({
        ...line,
        number: lineOf.get(line.number)!
      })),
      rows: run.rows!,
      run: { cellId, output },
      runName: nameOf(executionCount, options.trans),
      isStale: false
    };
    const { reports } = options;
    showMarks(this._view, [reported], reports.selection, options);
    reports.selectionChanged.connect(this._onSelectionChanged, this);
  }

  override dispose(): void {
    this._options.reports.selectionChanged.disconnect(
      this._onSelectionChanged,
      this
    );
    super.dispose();
  }

  /** Scroll to a line by its number in the source, or to the next line in the report. */
  showLine(number: number): void {
    const index = this._numbers.findIndex(other => other >= number);
    const view = this._view;
    const { from, text } = view.state.doc.line(
      index < 0 ? this._numbers.length : index + 1
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
    showSelection(this._view, this._options.reports.selection);
  }

  private get _view(): EditorView {
    return (this.content.editor as CodeMirrorEditor).editor;
  }

  private readonly _options: ISourceOptions;
  private readonly _numbers: readonly number[];
}

function nameOf(count: number | null, trans: TranslationBundle): string {
  return count === null ? trans.__('a cell') : cellName(count);
}

function makeAbout(
  run: IRun,
  source: Source,
  trans: TranslationBundle
): Widget {
  const widget = new Widget();
  widget.addClass('jp-GraphBreakSource-about');
  widget.node.textContent = trans.__(
    '%1, as it was when %2 ran; read-only',
    source.path ?? source.name,
    nameOf(run.executionCount, trans)
  );
  return widget;
}

/** Shows the line numbers of the complete source. */
function sourceLineNumbers(numbers: readonly number[]): Extension {
  return lineNumbers({
    formatNumber: line => String(numbers[line - 1] ?? line)
  });
}

/** Shows how many lines are left out in a gap. */
function gaps(numbers: readonly number[], trans: TranslationBundle): Extension {
  return EditorView.decorations.compute(['doc'], ({ doc }) =>
    Decoration.set(
      numbers.flatMap((number, index) => {
        const missingCount = number - (numbers[index - 1] ?? 0) - 1;
        if (missingCount <= 0 || index >= doc.lines) {
          return [];
        }
        const words = trans._n(
          '%1 line that is not in the report',
          '%1 lines that are not in the report',
          missingCount
        );
        return Decoration.widget({
          widget: new Gap(words),
          block: true,
          side: -1
        }).range(doc.line(index + 1).from);
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
    const gap = makeElement('div', 'jp-GraphBreakSource-gap gb-colours');
    gap.textContent = this._words;
    return gap;
  }
}
