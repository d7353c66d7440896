"""A comparison of two runs lists the breaks that are gone, new or moved."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_graphbreak.report.diff import BreakPlace, Changes
from jupyter_graphbreak.report.location import Location, Segment, Source
from jupyter_graphbreak.report.schema import Break, CachedFunction, Device, Frame, Graph, Occurrence, Skipped
from jupyter_graphbreak.report.summary import Summary, Timing
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
    """Return a report of a cell; each break is a reason and an expression, in the order of the cell's lines."""
    lines = text.split("\n")
    reported_breaks: list[Break] = []
    for number, (reason, code) in enumerate(breaks, start=1):
        line_numbers = [index for index, text_line in enumerate(lines, start=1) if code in text_line]
        earlier_equal_breaks = [other for other in breaks[: number - 1] if other == (reason, code)]
        line = line_numbers[len(earlier_equal_breaks)]
        reported_breaks.append(_break(number, reason, Location("s1", line, line, None, None, "f", code)))
    return _report(reported_breaks, Source("s1", name, "cell", segments=[Segment(1, text)]), **fields)


def _break(number: int, reason: str, location: Location | None) -> Break:
    return Break(id=f"b{number}", gb_id=None, gb_type=reason, location=location, outcome="resumed")


def _report(breaks: list[Break], *sources: Source, **fields: Any) -> Report:
    summary = Summary(breaks=len(breaks), graphs=len(breaks) + 1)
    return Report(
        status="ok", device=Device("auto", "cpu"), sources=[*sources], breaks=breaks, summary=summary, **fields
    )


LIBRARY = "lib/norms.py"
LAYERS = (("norm", 3), ("scale", 20))


def library_run(
    *broken_functions: str,
    text: str = CELL,
    held: tuple[str, ...] = (),
    call: str = "f(x)",
    cell_outcome: str | None = None,
) -> Report:
    """Return the report of a cell that calls library functions; those in `broken` were compiled and break."""
    lines = dict(LAYERS)
    cell = Source("s1", "Cell In[1]", "cell", segments=[Segment(1, text)])
    library = Source("s2", "norms.py", "library", LIBRARY)
    frames, graphs, breaks = [], [], []
    entry = Location("s1", 9, 9, 0, 8, "<module>", call)
    if cell_outcome is not None:
        frames.append(Frame("9/0", "f", Location("s1", 2, 2, function="f"), "entry", cell_outcome))  # type: ignore[arg-type]
    for number, name in enumerate(broken_functions):
        location = Location("s2", lines[name] + 1, lines[name] + 1, function=name, code="print(x)")
        frame = Frame(f"{number}/0", name, Location("s2", lines[name], lines[name]), "call", "compiled", compile_s=2.0)
        frame_ids = [frame.id] if cell_outcome is None else ["9/0", frame.id]
        occurrences = [Occurrence(ident, 0, [entry, location], "resumed") for ident in frame_ids]
        frames.append(frame)
        graphs.append(Graph(f"G{number}", name, frame.id))
        breaks.append(Break(f"b{number + 1}", None, PRINT, location, "resumed", occurrences=occurrences))
    return Report(
        status="ok",
        device=Device("auto", "cpu"),
        sources=[cell, library],
        frames=frames,
        graphs=graphs,
        breaks=breaks,
        summary=Summary(frames=len(frames), graphs=len(graphs), breaks=len(breaks)),
        timing=Timing(compile_s=2.0 * len(broken_functions)),
        held=[CachedFunction(name, LIBRARY, lines[name]) for name in held],
    )


def test_a_break_in_code_compiled_earlier_is_neither_gone_nor_new() -> None:
    two_breaks, one_break = library_run("norm", "scale"), library_run("scale", held=("norm",))
    changes = two_breaks.diff(one_break)
    assert [(change.change, change.function, change.break_) for change in changes.breaks] == [("unknown", "norm", None)]
    assert (changes.same, [(reused.function, reused.run) for reused in changes.reused]) == (["b1"], [("norm", "after")])
    assert changes.to_text().split("\n") == [
        "since Cell In[1]: the same break; cannot compare 1 break: this run did not compile norm (PyTorch",
        "still had the code)",
        "    of what both runs compiled: breaks 1, graphs 1, compiling 2.00 s",
        "    unknown norms.py:4 in norm   print(x)   Call to a builtin that Dynamo does not trace",
    ]
    reverse = one_break.diff(two_breaks)
    assert [(change.change, change.function, change.break_) for change in reverse.breaks] == [("unknown", "norm", "b1")]
    assert reverse.to_text().startswith(
        "since Cell In[1]: the same break; cannot compare 1 break: the previous run did not compile norm"
    )
    assert "graphs 1, compiling 2.00 s" in reverse.to_text()
    assert "Cannot" not in reverse.to_html()
    assert "cannot compare 1 break" in reverse.to_html()


def test_a_break_in_a_function_that_pytorch_had_not_cached_is_gone() -> None:
    changes = library_run("norm", "scale").diff(library_run("scale"))
    assert [change.change for change in changes.breaks] == ["gone"]
    assert changes.to_text().startswith("since Cell In[1]: 1 break gone\n    breaks 2 -> 1, graphs 2 -> 1")


def test_a_break_in_a_function_that_the_edited_cell_no_longer_calls_is_gone() -> None:
    before = library_run("norm", "scale", text=CELL.replace("\nf(x)", "\nmodel(x)"), call="model(x)")
    changes = before.diff(library_run("scale", text=CELL.replace("\nf(x)", "\ny = x"), held=("norm",)))
    assert [change.change for change in changes.breaks] == ["gone"]
    assert changes.reused == []
    still_calling = library_run("scale", text=CELL.replace("\nf(x)", "\ny = model (x + 1)"), held=("norm",))
    assert [change.change for change in before.diff(still_calling).breaks] == ["unknown"]


@pytest.mark.parametrize(("outcome", "change"), [("compiled", "gone"), ("skipped", "unknown"), ("error", "unknown")])
def test_a_caller_that_was_traced_to_its_end_would_have_reached_the_break(outcome: str, change: str) -> None:
    before = library_run("norm", cell_outcome="compiled")
    changes = before.diff(library_run(held=("norm",), cell_outcome=outcome))
    assert [change.change for change in changes.breaks] == [change]


def test_a_new_version_of_a_function_does_not_hide_breaks_of_earlier_versions() -> None:
    recompiled_run = library_run("norm", held=("norm",))
    changes = library_run("norm").diff(msgspec.structs.replace(recompiled_run, breaks=[]))
    assert [change.change for change in changes.breaks] == ["unknown"]


def test_runs_that_compiled_nothing_in_common_are_not_compared() -> None:
    changes = library_run("norm").diff(library_run(held=("norm",)))
    text = changes.to_text()
    assert text.startswith("since Cell In[1]: cannot compare 1 break: this run did not compile norm")
    assert "nothing was compiled in either run" in text
    run_without_breaks = msgspec.structs.replace(library_run("norm"), breaks=[])
    assert (
        run_without_breaks.diff(library_run(held=("norm",)))
        .to_text()
        .startswith("since Cell In[1]: cannot compare: this run")
    )


def test_without_a_list_of_cached_functions_any_function_may_have_been_cached() -> None:
    run_without_list = msgspec.structs.replace(library_run("scale"), held=None)
    assert [change.change for change in library_run("norm", "scale").diff(run_without_list).breaks] == ["unknown"]


def test_a_break_in_a_skipped_function_is_gone_only_if_pytorch_had_not_cached_it() -> None:
    location = Location("s2", 3, 5, function="norm")
    skipped_run = msgspec.structs.replace(
        library_run(),
        breaks=[Break("b1", None, "Attempt to trace generator", location, "skipped", occurrences=[
            Occurrence(None, 0, [location], "skipped")
        ])],
        skipped=[Skipped("k1", None, "norm", location, "a generator", "b1")],
    )  # fmt: skip
    changes = skipped_run.diff(library_run(held=("norm",)))
    assert [change.change for change in changes.breaks] == ["unknown"]
    assert changes.before.summary.skipped == 0
    assert [change.change for change in skipped_run.diff(library_run()).breaks] == ["gone"]


def changed_lines(changes: Changes) -> list[tuple[str, int | None, int | None, str | None]]:
    return [(change.change, line_of(change.before), line_of(change.after), change.code) for change in changes.breaks]


def line_of(location: BreakPlace | None) -> int | None:
    return location.line if location is not None else None


def test_the_same_run_has_no_changes() -> None:
    run = report(CELL, (PRINT, "print(x)"), (BRANCH, "y.sum() > 0"), (PRINT, "print(y)"))
    changes = run.diff(run)
    assert (changes.breaks, changes.same) == ([], ["b1", "b2", "b3"])
    assert changes.to_text() == "since Cell In[1]: the same 3 breaks\n    breaks 3, graphs 4"


def test_a_removed_break_is_gone_and_breaks_below_have_moved() -> None:
    before = report(CELL, (PRINT, "print(x)"), (BRANCH, "y.sum() > 0"), (PRINT, "print(y)"))
    after = report(CELL.replace("    print(x)\n", ""), (BRANCH, "y.sum() > 0"), (PRINT, "print(y)"), name="Cell In[2]")
    changes = before.diff(after)
    assert changed_lines(changes) == [
        ("gone", 3, None, "print(x)"),
        ("moved", 5, 4, "y.sum() > 0"),
        ("moved", 7, 6, "print(y)"),
    ]
    assert [change.break_ for change in changes.breaks] == [None, "b1", "b2"]
    assert (changes.before.name, changes.after.name) == ("Cell In[1]", "Cell In[2]")
    assert changes.to_text().split("\n") == [
        "since Cell In[1]: 1 break gone, 2 moved",
        "    breaks 3 -> 2, graphs 4 -> 3",
        "    gone  line 3 in f   print(x)   Call to a builtin that Dynamo does not trace",
        "    moved line 5 -> line 4 in f   y.sum() > 0   Branch on a tensor's value",
        "    moved line 7 -> line 6 in f   print(y)   Call to a builtin that Dynamo does not trace",
    ]


def test_a_rewritten_line_that_breaks_for_the_same_reason_has_the_same_break() -> None:
    after = report(CELL.replace("print(y)", "print(y.shape, y)"), (PRINT, "print(y.shape, y)"))
    assert report(CELL, (PRINT, "print(y)")).diff(after).same == ["b1"]


def test_a_different_cause_on_the_same_line_is_a_different_break() -> None:
    changes = report(CELL, (BRANCH, "y.sum() > 0")).diff(report(CELL, ("Tensor.item()", "y.sum() > 0")))
    assert changed_lines(changes) == [("gone", 5, None, "y.sum() > 0"), ("new", None, 5, "y.sum() > 0")]


def test_with_two_equal_expressions_the_break_on_the_deleted_line_is_gone() -> None:
    text_with_equal_prints = CELL.replace("print(y)", "print(x)")
    before = report(text_with_equal_prints, (PRINT, "print(x)"), (PRINT, "print(x)"))
    changes = before.diff(report(text_with_equal_prints.replace("    print(x)\n", "", 1), (PRINT, "print(x)")))
    assert changed_lines(changes) == [("gone", 3, None, "print(x)"), ("moved", 7, 6, "print(x)")]


def test_a_break_is_recognized_in_a_different_function_by_its_expression() -> None:
    text_with_moved_print = "%%compile_explain\ndef g(y):\n    print(y)\n\n" + CELL.split("\n", 1)[1].replace(
        "print(y)", "g(y)"
    )
    after = report(text_with_moved_print, (PRINT, "print(y)"))
    assert changed_lines(report(CELL, (PRINT, "print(y)")).diff(after)) == [("moved", 7, 3, "print(y)")]


def test_a_file_is_recognized_by_its_path_and_a_break_may_have_no_location() -> None:
    def run(line: int, text: str) -> Report:
        source = Source("s9", "model.py", "file", "/x/model.py", [Segment(10, text)])
        return _report([_break(1, PRINT, Location("s9", line, line, function="g", code="print(x)"))], source)

    changes = run(11, "def g(x):\n    print(x)").diff(run(12, "def g(x):\n    x = -x\n    print(x)"))
    assert changed_lines(changes) == [("moved", 11, 12, "print(x)")]
    assert "model.py:11 -> model.py:12 in g" in changes.to_text()
    report_without_location = _report([_break(1, PRINT, None)])
    assert report_without_location.diff(report_without_location).same == ["b1"]
    assert changed_lines(report_without_location.diff(run(11, "def g(x):\n    print(x)"))) == [
        ("gone", None, None, None),
        ("new", None, 11, "print(x)"),
    ]


@pytest.mark.parametrize("line_count", [1, 7])
def test_lines_added_above_move_every_break_and_change_none(line_count: int) -> None:
    breaks = ((PRINT, "print(x)"), (BRANCH, "y.sum() > 0"), (PRINT, "print(y)"))
    changes = report(CELL, *breaks).diff(report("# note\n" * line_count + CELL, *breaks))
    assert changed_lines(changes) == [
        ("moved", 3, 3 + line_count, "print(x)"),
        ("moved", 5, 5 + line_count, "y.sum() > 0"),
        ("moved", 7, 7 + line_count, "print(y)"),
    ]


def test_compile_times_are_compared() -> None:
    before = report(CELL, timing=Timing(compile_s=0.5))
    after = report(CELL, timing=Timing(compile_s=0.25))
    assert before.diff(after).to_text().split("\n") == [
        "since Cell In[1]: no break then or now",
        "    graphs 1, compiling 0.50 s -> 0.25 s",
    ]


def test_markup_and_control_characters_in_code_are_escaped() -> None:
    code = "<img src=x onerror=alert(1)>\x1b[2J"
    changes = report(code, (PRINT, code)).diff(report("f(x)"))
    assert "\x1b" not in changes.to_text()
    html = changes.to_html()
    assert "<img" not in html
    assert "&lt;img src=x" in html
    assert "\x1b" not in html


def test_changes_are_kept_in_json_and_shown() -> None:
    before = report(CELL, (PRINT, "print(x)"), (PRINT, "print(y)"))
    after = report(CELL, (PRINT, "print(x)"))
    report_with_changes = msgspec.structs.replace(after, changes=before.diff(after))
    assert Report.from_json(report_with_changes.to_json()) == report_with_changes
    assert "since Cell In[1]: 1 break gone" in report_with_changes.to_text()
    assert "Since Cell In[1]: <b>1 break gone</b>" in report_with_changes.to_html()
    assert "<td>line 7 in f</td><td><code>print(y)</code></td>" in report_with_changes.to_html()
