"""A break is gone if its line no longer breaks for any cause; breaks on other lines are new."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jupyter_graphbreak.experiments.remedies.run_comparison import (
    BreakComparison,
    EdgeFindings,
    RunBreaks,
    break_summary,
    compare_breaks,
    verdict_of_lost_compilation,
    without_expected_edge_differences,
)
from jupyter_graphbreak.experiments.trial.difference import Difference, DifferenceKind
from jupyter_graphbreak.experiments.trial.outcome import Result
from jupyter_graphbreak.report.location import Location, Source
from jupyter_graphbreak.report.schema import Break, Device, Report
from tests.support.break_problems import location_of

OLD_TEXT = "def f(x):\n    y = x * 2\n    print(y.sum().item())\n    if y.sum() > 0:\n        y = y + 1\n    return y"
FILES = {"s1": "f.py"}


def run(text: str, *breaks: tuple[str, str]) -> RunBreaks:
    """Return a run of a program with breaks; each break is a piece of its code and a cause."""
    reported_breaks = [
        Break(f"b{number}", None, gb_type, location_of(text, code), "resumed")
        for number, (code, gb_type) in enumerate(breaks, start=1)
    ]
    return RunBreaks(Report("ok", Device("cpu", "cpu"), breaks=reported_breaks), FILES)


REPORT_BEFORE = run(OLD_TEXT, ("y.sum().item()", "item"), ("y.sum() > 0", "branch"))


def compare_with_before(new: str, *after: RunBreaks) -> BreakComparison:
    return compare_breaks([REPORT_BEFORE], after, {"f.py": (OLD_TEXT, new)})


def test_a_line_that_breaks_for_a_different_cause_is_not_fixed() -> None:
    comparison = compare_with_before(OLD_TEXT, run(OLD_TEXT, ("print(y.sum().item())", "print")))
    assert comparison.removed_break_ids == {"b2"}
    assert comparison.breaks_with_different_cause["b1"].gb_type == "print"
    assert comparison.new_breaks == []


def test_a_replaced_line_counts_as_the_same_line() -> None:
    new = OLD_TEXT.replace("    print(y.sum().item())", "    import sys\n    sys.stdout.write(str(y.sum().item()))")
    comparison = compare_with_before(new, run(new, ("y.sum().item()", "other")))
    assert comparison.removed_break_ids == {"b2"}


def test_a_break_on_any_input_counts() -> None:
    comparison = compare_with_before(OLD_TEXT, run(OLD_TEXT), run(OLD_TEXT, ("y.sum() > 0", "branch")))
    assert comparison.removed_break_ids == {"b1"}


def test_a_break_on_an_inserted_line_is_new() -> None:
    new = OLD_TEXT.replace("    return y", "    print(y)\n    return y")
    comparison = compare_with_before(new, run(new, ("print(y)\n", "print")))
    assert comparison.removed_break_ids == {"b1", "b2"}
    assert [graph_break.gb_type for graph_break in comparison.new_breaks] == ["print"]


def test_a_break_that_the_program_has_on_other_inputs_is_not_new() -> None:
    other_run = run(OLD_TEXT, ("y = x * 2", "elsewhere"))
    comparison = compare_breaks([REPORT_BEFORE, other_run], [other_run], {})
    assert comparison.removed_break_ids == {"b1", "b2"}
    assert comparison.new_breaks == []


def test_breaks_follow_a_moved_block() -> None:
    body = "    if y.sum() > 0:\n        y = y + 1\n    return y"
    head, _ = OLD_TEXT.split(body)
    new = f"def inner(y):\n{body}\n\n\n{head.replace('print(y.sum().item())', 'return inner(y)')}"
    comparison = compare_with_before(new, run(new, ("y.sum() > 0", "branch")))
    assert comparison.removed_break_ids == {"b1"}
    assert comparison.new_breaks == []


def test_lines_that_are_replaced_together_count_as_one() -> None:
    old = "def f(x, y):\n    if x.any():\n        y[x] = 1\n    print(y)"
    before = run(old, ("x.any()", "branch"), ("y[x]", "mask"), ("print(y)", "print"))
    new = old.replace("    if x.any():\n        y[x] = 1", "    y[x] = 1")
    comparison = compare_breaks([before], [run(new, ("y[x]", "mask"), ("print(y)", "print"))], {"f.py": (old, new)})
    assert comparison.removed_break_ids == frozenset()
    assert comparison.breaks_with_different_cause["b1"].gb_type == "mask"
    assert comparison.new_breaks == []


def test_a_break_in_a_file_is_described_with_the_files_name() -> None:
    cell, file = Source("s1", "Cell In[1]", "cell"), Source("s2", "modeling_bart.py", "library", "a/modeling_bart.py")
    cell_break, library_break = (
        Break(f"b{line}", "GB0170", "Branch", Location(source, line, line, code=code), "resumed")
        for source, line, code in (("s1", 4, "x > 0"), ("s2", 1388, f"f(\n    x,\n    {'y' * 60}) > 0"))
    )
    report = Report("ok", Device("cpu", "cpu"), sources=[cell, file], breaks=[cell_break, library_break])
    run_breaks = RunBreaks(report, {})
    code = f"f(x, {'y' * 55}..."
    summary = break_summary(library_break, [run_breaks], {})
    assert summary == f"on line 1388 of modeling_bart.py, {code}: branch on a tensor's value"
    assert break_summary(cell_break, [run_breaks], {}) == "on line 4, x > 0: branch on a tensor's value"


def test_a_break_in_one_of_several_cells_is_described_with_the_cells_name() -> None:
    cells = [Source("s1", "Cell In[1]", "cell"), Source("s2", "Cell In[2]", "cell")]
    break_ = Break("b1", None, "UnknownError", Location("s1", 25, 25, code="info == 0"), "resumed")
    run_breaks = RunBreaks(Report("ok", Device("cpu", "cpu"), sources=cells, breaks=[break_]), {})
    assert break_summary(break_, [run_breaks], {}) == "on line 25 of Cell In[1], info == 0: UnknownError"


def test_a_break_on_an_unchanged_line_is_described_with_its_number_in_the_original() -> None:
    new = OLD_TEXT.replace("    y = x * 2", "    y = x\n    y = y + x").replace(
        "    return y", "    print(y)\n    return y"
    )
    changed_run = run(new, ("y.sum() > 0", "branch"), ("print(y)\n", "print"))
    unchanged_break, inserted_break = changed_run.report.breaks
    line = OLD_TEXT.split("\n").index("    if y.sum() > 0:") + 1
    texts = {"f.py": (OLD_TEXT, new)}
    assert break_summary(unchanged_break, [changed_run], texts).startswith(f"on line {line}, ")
    line = new.split("\n").index("    print(y)") + 1
    assert break_summary(inserted_break, [changed_run], texts).startswith(f"on line {line} of the changed code, ")


@pytest.mark.parametrize(
    ("kind", "note"), [("zero gradient", "it differs with x requiring gradients"), ("sign of zero", None)]
)
def test_a_zero_gradient_is_noted_but_a_different_sign_of_zero_is_not(kind: DifferenceKind, note: str | None) -> None:
    case: Any = SimpleNamespace(
        input=SimpleNamespace(description="x requiring gradients", different_kind="x requiring gradients", state={})
    )
    findings = EdgeFindings([]).with_inputs([(case, [Difference(kind, "differs")])])
    assert (findings.noted_difference, findings.disqualifying_difference, findings.differences) == (note, None, [])


def _error_of(function: Callable[[], object]) -> Exception:
    try:
        function()
    except Exception as error:  # noqa: BLE001 - the test asserts on it
        return error
    raise AssertionError("nothing raised")


def _raise_error() -> None:
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("operation", "different_kind", "is_difference"),
    [
        (lambda: torch.bincount(torch.tensor([1]), minlength=-1), "", False),
        (lambda: torch.bincount(torch.tensor([1]), minlength=-1), "negative integers", True),
        (lambda: torch.ones(2).item(), "", True),
        (lambda: bool(torch.ones(2)), "", True),
        (_raise_error, "", True),
    ],
)
def test_an_edge_input_that_an_operation_of_the_original_refuses_may_be_accepted(
    operation: Callable[[], object], different_kind: str, *, is_difference: bool
) -> None:
    expected = Result(error=_error_of(operation))
    case: Any = SimpleNamespace(
        expected_result=expected, input=SimpleNamespace(compares_errors_only=False, different_kind=different_kind)
    )
    differences = [Difference("exception", "returns 1, but the original raises")]
    assert without_expected_edge_differences(differences, case, Result(1)) == (differences if is_difference else [])


@pytest.mark.parametrize(
    ("text", "state", "is_noted"),
    [
        ("raises IndexError: index 3 is out of range", {"net.n": 4}, True),
        ("raises KeyError: 3", {"net.n": 4}, True),
        ("raises ZeroDivisionError: by zero", {"net.n": 4}, False),
        ("raises IndexError: index 3 is out of range", {}, False),
    ],
)
def test_a_lookup_error_for_a_changed_number_is_noted(text: str, state: dict[str, int], *, is_noted: bool) -> None:
    case: Any = SimpleNamespace(input=SimpleNamespace(description="net.n = 4", different_kind="", state=state))
    findings = EdgeFindings([]).with_inputs([(case, [Difference("exception", text)])])
    expected = (f"it {text} with net.n = 4", None) if is_noted else (None, f"{text}, on net.n = 4")
    assert (findings.noted_difference, findings.disqualifying_difference) == expected


def test_a_change_that_compiles_a_different_function_must_compile_something() -> None:
    nothing = Report("ok", Device("cpu", "cpu"))
    assert verdict_of_lost_compilation(nothing, nothing) is None
    verdict = verdict_of_lost_compilation(nothing, nothing, compiles_different_function=True)
    assert verdict == ("fails", "then nothing is compiled")
