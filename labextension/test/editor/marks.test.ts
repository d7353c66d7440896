import assert from 'node:assert/strict';
import { test } from 'node:test';

import { EditorView } from '@codemirror/view';
import { nullTranslator } from '@jupyterlab/translation';

import { hintsAt } from '../../src/editor/interaction';
import {
  markExtension,
  showMarks,
  showSelection
} from '../../src/editor/markextension';
import { currentLine, isReveal } from '../../src/editor/markstate';
import type { IReportedText } from '../../src/editor/positions';
import type { ISelection } from '../../src/notebook/runs';
import { reportLines } from '../../src/report/lines';
import { saved, savedRows } from '../saved';

const REPORT = await saved('two_breaks');
const ROWS = await savedRows('two_breaks');
const HOSTILE = await saved('hostile');
const HOSTILE_ROWS = await savedRows('hostile');
const RUN = { cellId: 'one', output: 0 };
const BREAK: ISelection = { ...RUN, kind: 'break', id: 'b1' };
const OPTIONS = {
  trans: nullTranslator.load('jupyter_graphbreak'),
  select: (): void => undefined
};

function textOf(report = REPORT, isStale = false, rows = ROWS): IReportedText {
  const [source] = report.sources;
  return {
    text: source!.segments[0]!.text.split('\n'),
    lines: reportLines(report, rows, source!),
    rows,
    run: RUN,
    runName: 'Cell In[7]',
    isStale
  };
}

function editor(
  reported = textOf(),
  doc = reported.text.join('\n')
): EditorView {
  const view = new EditorView({
    doc,
    extensions: markExtension(),
    parent: document.body
  });
  showMarks(view, [reported], null, OPTIONS);
  return view;
}

/** The numbers of the lines that have a class. */
function lines(view: EditorView, name: string): number[] {
  return Array.from(view.contentDOM.querySelectorAll('.cm-line'))
    .map((line, at) => (line.classList.contains(name) ? at + 1 : 0))
    .filter(number => number > 0);
}

function brokenExpressions(view: EditorView): string[] {
  return Array.from(
    view.contentDOM.querySelectorAll('.jp-GraphBreakMark-cut'),
    element => element.textContent ?? ''
  );
}

function insert(view: EditorView, at: number, text: string, to = at): void {
  view.dispatch({ changes: { from: at, to, insert: text } });
}

test('marks are at the positions of the report', () => {
  const view = editor();
  assert.deepEqual(lines(view, 'jp-mod-broken'), [5, 14]);
  assert.deepEqual(brokenExpressions(view), ['log_stats(x)', 'score > 3']);
  assert.deepEqual(lines(view, 'jp-mod-graph'), [4, 6, 11, 12, 15]);
  assert.deepEqual(lines(view, 'jp-mod-eager'), [18, 19, 20]);
  assert.deepEqual(lines(view, 'jp-mod-stale'), []);
  const notes = Array.from(
    view.contentDOM.querySelectorAll('.jp-GraphBreakMark-note > *'),
    note => note.textContent
  );
  assert.ok(notes.includes("✂1 Branch on a tensor's value"));
  assert.ok(notes.includes('→ ✂2'));
  assert.ok(notes.includes('runs eagerly'));
  assert.ok(notes.includes('breaks are errors'));
  assert.equal(view.state.doc.toString(), textOf().text.join('\n'));
});

test('a mark stays if the line above it is deleted', () => {
  const view = editor();
  const { from } = view.state.doc.line(14);
  insert(view, from, '# comment\n');
  assert.deepEqual(lines(view, 'jp-mod-broken'), [5, 15]);
  insert(view, from, '', from + '# comment\n'.length);
  assert.deepEqual(lines(view, 'jp-mod-broken'), [5, 14]);
});

test('of breaks inside others, the innermost is selected, unless the outer one was chosen', () => {
  const selected: string[] = [];
  const reported = textOf();
  const line = reported.lines.find(({ number }) => number === 14)!;
  const [outer] = line.breaks;
  const inner = {
    ...outer!,
    break: { ...outer!.break, id: 'inner' },
    start: outer!.start,
    end: outer!.end - 4
  };
  const nested = { ...line, breaks: [outer!, inner] };
  const view = new EditorView({
    doc: reported.text.join('\n'),
    extensions: markExtension(),
    parent: document.body
  });
  showMarks(
    view,
    [{ ...reported, lines: [nested] }],
    { ...RUN, kind: 'break', id: outer!.break.id },
    {
      ...OPTIONS,
      isFollowing: () => false,
      select: ({ id }) => selected.push(id)
    }
  );
  view.focus();
  const anchor = view.state.doc.line(14).from + outer!.start;
  view.dispatch({ selection: { anchor } });
  view.dispatch({ selection: { anchor: anchor + 1 }, userEvent: 'select' });
  view.dispatch({
    selection: { anchor: anchor + outer!.end - outer!.start },
    userEvent: 'select'
  });
  view.dispatch({ selection: { anchor }, annotations: isReveal.of(true) });
  assert.deepEqual(selected, [outer!.break.id, 'inner', outer!.break.id]);
});

test('the tooltip of a note says where a call leads, and why a function runs eagerly', () => {
  const { state } = editor();
  const titlesAt = (line: number, column?: number): string[] => {
    const { from, to } = state.doc.line(line);
    const position = column === undefined ? to : from + column;
    const { hints } = hintsAt(state, position, OPTIONS.trans);
    return hints.map(({ title, paragraphs }) => `${title} | ${paragraphs[0]}`);
  };
  const [call] = titlesAt(16);
  assert.match(
    call!,
    /^Break 2: .* \| A call on this line leads to this break: log_stats\(x\), /
  );
  assert.deepEqual(titlesAt(16, 4), []);
  assert.match(titlesAt(18).join(), /^Runs eagerly/);
});

test('an editor without marks has no gutter', () => {
  const view = new EditorView({ doc: 'x', extensions: markExtension() });
  assert.equal(view.dom.querySelector('.cm-gutters'), null);
  const marked = editor();
  assert.ok(marked.dom.querySelector('.jp-GraphBreakMark-gutter'));
  showMarks(marked, [], null, OPTIONS);
  assert.equal(marked.dom.querySelector('.cm-gutters'), null);
  assert.deepEqual(lines(marked, 'jp-GraphBreakMark'), []);
});

test('marks follow edits above and below them', () => {
  const view = editor();
  insert(view, 0, 'first\nsecond\n');
  insert(view, view.state.doc.length, '\nlast');
  assert.deepEqual(lines(view, 'jp-mod-broken'), [7, 16]);
  assert.deepEqual(brokenExpressions(view), ['log_stats(x)', 'score > 3']);
  assert.deepEqual(lines(view, 'jp-mod-stale'), []);
  assert.equal(currentLine(view.state, 14), 16);
});

test('a mark becomes stale when its line is edited, and fresh after undo', () => {
  const view = editor();
  const { from } = view.state.doc.line(14);
  insert(view, from, '#');
  assert.deepEqual(lines(view, 'jp-mod-stale'), [14]);
  assert.deepEqual(brokenExpressions(view), ['log_stats(x)']);
  insert(view, from, '', from + 1);
  assert.deepEqual(lines(view, 'jp-mod-stale'), []);
  assert.deepEqual(brokenExpressions(view), ['log_stats(x)', 'score > 3']);
});

test('a mark follows a line that moves down with its indentation', () => {
  const view = editor();
  const { from } = view.state.doc.line(14);
  insert(view, from + 8, '\n        ');
  assert.deepEqual(lines(view, 'jp-mod-broken'), [5, 15]);
  assert.deepEqual(brokenExpressions(view), ['log_stats(x)', 'score > 3']);
  insert(view, from, '\n');
  assert.deepEqual(lines(view, 'jp-mod-broken'), [5, 16]);
  assert.deepEqual(lines(view, 'jp-mod-stale'), []);
});

test('deleting a line removes its mark, and undo restores it', () => {
  const view = editor();
  const { from, to, text } = view.state.doc.line(14);
  insert(view, from, '', to + 1);
  assert.deepEqual(lines(view, 'jp-mod-broken'), [5]);
  assert.deepEqual(lines(view, 'jp-mod-stale'), []);
  insert(view, from, `${text}\n`);
  assert.deepEqual(lines(view, 'jp-mod-broken'), [5, 14]);
});

test('a replaced text keeps the marks of unchanged lines', () => {
  const view = editor();
  const text = view.state.doc.toString();
  insert(view, 0, `# formatted\n${text}`, text.length);
  assert.deepEqual(lines(view, 'jp-mod-broken'), [6, 15]);
  assert.deepEqual(lines(view, 'jp-mod-stale'), []);
});

test('marks follow lines that were edited before marking', () => {
  const doc = textOf().text.join('\n').replace('    y = x @ w\n', '');
  const view = editor(textOf(), doc);
  assert.deepEqual(lines(view, 'jp-mod-broken'), [5, 13]);
  assert.deepEqual(lines(view, 'jp-mod-stale'), []);
});

test('all marks of a cell that was run again are stale, and say so', () => {
  const view = editor(textOf(REPORT, true));
  assert.deepEqual(
    lines(view, 'jp-mod-stale'),
    lines(view, 'jp-GraphBreakMark')
  );
  const [sign] = view.dom.querySelectorAll<HTMLElement>(
    '.jp-GraphBreakMark-sign'
  );
  assert.match(sign!.title, /run again since, not explained/);
});

test('the selection is highlighted', () => {
  const view = editor();
  showSelection(view, BREAK);
  assert.deepEqual(lines(view, 'jp-mod-selected'), [14]);
  insert(view, 0, '\n');
  assert.deepEqual(lines(view, 'jp-mod-selected'), [15]);
  showSelection(view, { ...BREAK, cellId: 'other' });
  assert.deepEqual(lines(view, 'jp-mod-selected'), []);
});

test('the later of two reports about one line counts', () => {
  const view = editor();
  const later = { ...textOf(), runName: 'Cell In[8]' };
  showMarks(view, [textOf(), later], null, OPTIONS);
  const signs = view.dom.querySelectorAll<HTMLElement>(
    '.jp-GraphBreakMark-sign'
  );
  assert.ok(signs.length > 0);
  assert.ok(Array.from(signs).every(({ title }) => title.endsWith('In[8]')));
});

test('an unknown section adds notes beside its lines', () => {
  const row = {
    ...ROWS.sections[0]!.rows[0]!,
    id: 'w1',
    look: 'note' as const,
    beside: 'it rains',
    name: 'Rain',
    group: 'a cloud',
    spot: { source: REPORT.sources[0]!.id, line: 15, column: null }
  };
  const section = { ...ROWS.sections[1]!, id: 'weather', rows: [row] };
  const rows = { ...ROWS, sections: [...ROWS.sections, section] };
  const view = editor(textOf(REPORT, false, rows));
  const notes = Array.from(
    view.contentDOM.querySelectorAll('.jp-GraphBreakMark-note > *'),
    note => note.textContent
  );
  assert.ok(notes.includes('it rains'));
  showSelection(view, { ...RUN, kind: 'weather', id: 'w1' });
  assert.deepEqual(lines(view, 'jp-mod-selected'), [15]);
});

test('text of a report is never interpreted as markup', () => {
  const view = editor(textOf(HOSTILE, false, HOSTILE_ROWS));
  assert.equal(
    view.dom.querySelectorAll('img:not(.cm-widgetBuffer), script').length,
    0
  );
  assert.match(view.contentDOM.textContent!, /✂1 <\/script>/);
});

test('of several reports about a line, the one with the selection is marked', () => {
  const view = editor();
  const other = { ...RUN, output: 1 };
  const later = { ...textOf(), run: other };
  showMarks(view, [textOf(), later], null, OPTIONS);
  assert.deepEqual(lines(view, 'jp-mod-selected'), []);
  for (const run of [RUN, other, RUN]) {
    showSelection(view, { ...run, kind: 'break', id: 'b1' });
    assert.deepEqual(lines(view, 'jp-mod-selected'), [14]);
  }
  insert(view, 0, `# formatted\n${view.state.doc.toString()}`, view.state.doc.length); // prettier-ignore
  assert.deepEqual(lines(view, 'jp-mod-selected'), [15]);
  showSelection(view, null);
  assert.deepEqual(lines(view, 'jp-mod-selected'), []);
});
