"""The graphs, breaks, scopes and eager regions of source lines."""

from __future__ import annotations

from typing import Any

from jupyter_graphbreak.report.location import Location, Segment, Source
from jupyter_graphbreak.report.schema import (
    Break,
    Device,
    Graph,
    GraphLine,
    Occurrence,
    Report,
    Scope,
    Skipped,
)
from jupyter_graphbreak.views.words.lines import BreakMark, Line, annotated_lines, break_numbers, graph_colors

CELL = """%%compile_explain
@torch.compile
def step(x):
    y = x @ x
    if (y.sum()
            > 3):
        y = y + 1

    return y

step(torch.ones(2, 2))"""


def report(text: str = CELL, **fields: Any) -> Report:
    cell = Source("s1", "Cell In[1]", "cell", segments=[Segment(1, text)])
    return Report(status="ok", device=Device("auto", "cpu"), sources=[cell], **fields)


def lines(report_: Report) -> dict[int, Line]:
    return {line.number: line for line in annotated_lines(report_, report_.sources[0])}


def location(line: int, end_line: int | None = None, **fields: Any) -> Location:
    return Location("s1", line, end_line or line, **fields)


def test_lines_are_numbered_as_the_editor_counts_them() -> None:
    lines_by_number = lines(report())
    assert list(lines_by_number) == list(range(1, 12))
    assert lines_by_number[3].text == "def step(x):"
    assert not lines_by_number[3].is_annotated


def test_only_a_line_feed_ends_a_line() -> None:
    lines_by_number = lines(report("a\x0cb\u2028c\r\nd"))
    assert [line.text for line in lines_by_number.values()] == ["a\x0cb\u2028c", "d"]


def test_the_lines_of_a_file_keep_their_gaps() -> None:
    source = Source("s2", "f.py", "file", segments=[Segment(40, "def b(): ..."), Segment(7, "def a():\n    ...")])
    assert [line.number for line in annotated_lines(report(), source)] == [7, 8, 40]


def test_a_break_outside_the_known_lines_still_shows_its_code() -> None:
    break_ = Break("b", None, "t", Location("lib", 332, 333, code="keys = {\n  1}"), "skipped")
    library_lines = annotated_lines(report(breaks=[break_]), Source("lib", "lib.py", "library"))
    assert library_lines == [Line(332, "keys = {", breaks=(BreakMark("b", 1, 0, 8, is_last=False),))]


def test_a_break_over_two_lines_marks_a_part_of_each() -> None:
    break_ = Break("b", None, "branch", location(5, 6, column=7, end_column=15), "resumed")
    lines_by_number = lines(report(breaks=[break_]))
    assert lines_by_number[5].breaks == (BreakMark("b", 1, 7, 15, is_last=False),)
    assert lines_by_number[6].breaks == (BreakMark("b", 1, 12, 15, is_last=True),)


def test_columns_outside_the_line_are_clamped() -> None:
    break_ = Break("b", None, "branch", location(4, column=90, end_column=95), "resumed")
    assert lines(report(breaks=[break_]))[4].breaks == (BreakMark("b", 1, 13, 13, is_last=True),)


def test_without_columns_the_line_is_marked_after_its_indentation() -> None:
    break_ = Break("b", None, "branch", location(4), "resumed")
    assert lines(report(breaks=[break_]))[4].breaks == (BreakMark("b", 1, 4, 13, is_last=True),)


def test_the_graphs_of_a_line_have_the_order_of_the_report() -> None:
    graphs = [
        Graph("A", "step", "0/0", lines=[GraphLine("s1", 4, 1)]),
        Graph("B", "step", "1/0", lines=[GraphLine("s1", 4, 1), GraphLine("s1", 7, 1), GraphLine("other", 9, 1)]),
    ]
    lines_by_number = lines(report(graphs=graphs))
    assert lines_by_number[4].graphs == ("A", "B")
    assert lines_by_number[7].graphs == ("B",)
    assert lines_by_number[9].graphs == ()


def test_the_callers_of_a_break_are_marked_but_not_its_own_line() -> None:
    break_location = Location("lib", 90, 90)
    stacks = [[location(11), location(4), break_location], [location(9), break_location]]
    break_ = Break(
        "b",
        None,
        "t",
        break_location,
        "resumed",
        stack=stacks[0],
        occurrences=[Occurrence("0/0", 0, stacks[1], "resumed")],
    )
    break_on_line_4 = Break("c", None, "t", location(4), "resumed", stack=[location(11), location(4)])
    lines_by_number = lines(report(breaks=[break_, break_on_line_4]))
    assert lines_by_number[11].leads_to == (1, 2)
    assert lines_by_number[9].leads_to == (1,)
    assert lines_by_number[4].leads_to == (1,)


def test_a_line_has_its_innermost_scope_in_any_order_of_the_list() -> None:
    inner = Scope("in", "error_on_graph_break", False, "with", location(5, 7))
    outer = Scope("out", "fullgraph", True, "decorator", location(2, 9))
    for scopes in ([inner, outer], [outer, inner]):
        lines_by_number = lines(report(scopes=scopes))
        assert [lines_by_number[number].scope for number in (1, 2, 6, 8, 10)] == [None, outer, inner, outer, None]


def test_a_skipped_function_is_eager_on_the_lines_that_the_report_names() -> None:
    lines_by_number = lines(report(skipped=[Skipped("k", "0/0", "step", location(3, 9), "why")]))
    assert [number for number, line in lines_by_number.items() if line.eager] == [3, 4, 5, 6, 7, 8, 9]


def test_eager_lines_that_the_source_lacks_are_left_out() -> None:
    segments = [Segment(1, "class A:\n    @wrapped\n    def f("), Segment(9, "        if x:\n            y = 1")]
    source = Source("s1", "lib.py", "library", segments=segments)
    report_with_gap = report(skipped=[Skipped("k", "0/0", "f", location(2, 10**9), "why")])
    assert [line.number for line in annotated_lines(report_with_gap, source) if line.eager] == [2, 3, 9, 10]


def test_breaks_are_numbered_and_graphs_coloured_in_the_order_of_the_report() -> None:
    graphs = [Graph(str(index), "f", "0/0") for index in range(9)]
    breaks = [Break(name, None, "t", None, "resumed") for name in "xy"]
    report_with_graphs = report(graphs=graphs, breaks=breaks)
    assert break_numbers(report_with_graphs) == {"x": 1, "y": 2}
    assert list(graph_colors(report_with_graphs).values()) == [0, 1, 2, 3, 4, 5, 6, 7, 0]
