"""Two runs compared: which breaks are gone, new or elsewhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_graphbreak.report.diff import Changes, Place
from jupyter_graphbreak.report.figures import Summary, Timing
from jupyter_graphbreak.report.location import Location, Segment, Source
from jupyter_graphbreak.report.schema import Break, Device
from jupyter_graphbreak.results import Report

CELL = """%%compile_explain
def f(x):
    print(x)
    y = x + 1
    if y.sum() > 0:
        y = y * 2
    print(y)
    return y
f(x)"""
PRINT, BRANCH = "Failed to trace builtin operator", "Data-dependent branching"


def report(text: str, *breaks: tuple[str, str], name: str = "Cell In[1]", **fields: Any) -> Report:
    """Return a report of a cell, each break given by its reason and its expression, found in the text in order."""
    lines = text.split("\n")
    found = []
    for number, (reason, code) in enumerate(breaks, start=1):
        seen = [line for line, each in enumerate(lines, start=1) if code in each]
        same = [other for other in breaks[: number - 1] if other == (reason, code)]
        found.append(_break(number, reason, Location("s1", seen[len(same)], seen[len(same)], None, None, "f", code)))
    return _report(found, Source("s1", name, "cell", segments=[Segment(1, text)]), **fields)


def _break(number: int, reason: str, location: Location | None) -> Break:
    return Break(id=f"b{number}", gb_id=None, gb_type=reason, location=location, outcome="resumed")


def _report(breaks: list[Break], *sources: Source, **fields: Any) -> Report:
    summary = Summary(breaks=len(breaks), graphs=len(breaks) + 1)
    return Report(
        status="ok", device=Device("auto", "cpu"), sources=[*sources], breaks=breaks, summary=summary, **fields
    )


def outline(changes: Changes) -> list[tuple[str, int | None, int | None, str | None]]:
    return [(each.change, _line(each.before), _line(each.after), each.code) for each in changes.breaks]


def _line(place: Place | None) -> int | None:
    return place.line if place is not None else None


def test_the_same_run_has_no_changes() -> None:
    run = report(CELL, (PRINT, "print(x)"), (BRANCH, "y.sum() > 0"), (PRINT, "print(y)"))
    changes = run.diff(run)
    assert (changes.breaks, changes.same) == ([], ["b1", "b2", "b3"])
    assert changes.to_text() == "since Cell In[1]: the same 3 breaks\n    breaks 3, graphs 4"


def test_a_break_that_was_taken_out_is_gone_and_what_stood_below_has_moved() -> None:
    before = report(CELL, (PRINT, "print(x)"), (BRANCH, "y.sum() > 0"), (PRINT, "print(y)"))
    after = report(CELL.replace("    print(x)\n", ""), (BRANCH, "y.sum() > 0"), (PRINT, "print(y)"), name="Cell In[2]")
    changes = before.diff(after)
    assert outline(changes) == [
        ("gone", 3, None, "print(x)"),
        ("moved", 5, 4, "y.sum() > 0"),
        ("moved", 7, 6, "print(y)"),
    ]
    assert [each.break_ for each in changes.breaks] == [None, "b1", "b2"]
    assert (changes.before.name, changes.after.name) == ("Cell In[1]", "Cell In[2]")
    assert changes.to_text().split("\n") == [
        "since Cell In[1]: 1 break gone, 2 moved",
        "    breaks 3 -> 2, graphs 4 -> 3",
        "    gone  line 3 in f   print(x)   Failed to trace builtin operator",
        "    moved line 5 -> line 4 in f   y.sum() > 0   Data-dependent branching",
        "    moved line 7 -> line 6 in f   print(y)   Failed to trace builtin operator",
    ]


def test_a_rewritten_line_that_breaks_for_the_same_reason_has_the_same_break() -> None:
    after = report(CELL.replace("print(y)", "print(y.shape, y)"), (PRINT, "print(y.shape, y)"))
    assert report(CELL, (PRINT, "print(y)")).diff(after).same == ["b1"]


def test_another_reason_at_the_same_line_is_another_break() -> None:
    changes = report(CELL, (BRANCH, "y.sum() > 0")).diff(report(CELL, ("Tensor.item()", "y.sum() > 0")))
    assert outline(changes) == [("gone", 5, None, "y.sum() > 0"), ("new", None, 5, "y.sum() > 0")]


def test_of_two_equal_expressions_the_one_whose_line_is_gone_is_gone() -> None:
    twice = CELL.replace("print(y)", "print(x)")
    before = report(twice, (PRINT, "print(x)"), (PRINT, "print(x)"))
    changes = before.diff(report(twice.replace("    print(x)\n", "", 1), (PRINT, "print(x)")))
    assert outline(changes) == [("gone", 3, None, "print(x)"), ("moved", 7, 6, "print(x)")]


def test_a_break_is_followed_into_another_function_by_its_expression() -> None:
    moved = "%%compile_explain\ndef g(y):\n    print(y)\n\n" + CELL.split("\n", 1)[1].replace("print(y)", "g(y)")
    after = report(moved, (PRINT, "print(y)"))
    assert outline(report(CELL, (PRINT, "print(y)")).diff(after)) == [("moved", 7, 3, "print(y)")]


def test_a_file_is_known_by_its_path_and_a_line_that_is_not_there_is_no_place() -> None:
    def run(line: int, text: str) -> Report:
        source = Source("s9", "model.py", "file", "/x/model.py", [Segment(10, text)])
        return _report([_break(1, PRINT, Location("s9", line, line, function="g", code="print(x)"))], source)

    changes = run(11, "def g(x):\n    print(x)").diff(run(12, "def g(x):\n    x = -x\n    print(x)"))
    assert outline(changes) == [("moved", 11, 12, "print(x)")]
    assert "model.py:11 -> model.py:12 in g" in changes.to_text()
    nowhere = _report([_break(1, PRINT, None)])
    assert nowhere.diff(nowhere).same == ["b1"]
    assert outline(nowhere.diff(run(11, "def g(x):\n    print(x)"))) == [
        ("gone", None, None, None),
        ("new", None, 11, "print(x)"),
    ]


@pytest.mark.parametrize("lines", [1, 7])
def test_lines_added_above_move_every_break_and_change_none(lines: int) -> None:
    breaks = ((PRINT, "print(x)"), (BRANCH, "y.sum() > 0"), (PRINT, "print(y)"))
    changes = report(CELL, *breaks).diff(report("# note\n" * lines + CELL, *breaks))
    assert outline(changes) == [
        ("moved", 3, 3 + lines, "print(x)"),
        ("moved", 5, 5 + lines, "y.sum() > 0"),
        ("moved", 7, 7 + lines, "print(y)"),
    ]


def test_times_and_outcome_are_compared() -> None:
    before = report(CELL, timing=Timing(compile_s=0.5))
    after = report(CELL, timing=Timing(compile_s=0.25))
    assert before.diff(after).to_text().split("\n") == [
        "since Cell In[1]: no break then or now",
        "    graphs 1, compiling 0.50 s -> 0.25 s",
    ]


def test_hostile_text_stays_text() -> None:
    code = "<img src=x onerror=alert(1)>\x1b[2J"
    changes = report(code, (PRINT, code)).diff(report("f(x)"))
    assert "\x1b" not in changes.to_text()
    html = changes.to_html()
    assert "<img" not in html
    assert "&lt;img src=x" in html
    assert "\x1b" not in html


def test_a_report_with_changes_goes_to_json_and_back_and_shows_them() -> None:
    before = report(CELL, (PRINT, "print(x)"), (PRINT, "print(y)"))
    after = report(CELL, (PRINT, "print(x)"))
    shown = msgspec.structs.replace(after, changes=before.diff(after))
    assert Report.from_json(shown.to_json()) == shown
    assert "since Cell In[1]: 1 break gone" in shown.to_text()
    assert "Since Cell In[1]: <b>1 break gone</b>" in shown.to_html()
    assert "<td>line 7 in f</td><td><code>print(y)</code></td>" in shown.to_html()
