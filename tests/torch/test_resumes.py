"""A report makes no unproven claims about resume functions that no frame of the run compiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import torch
from markupsafe import Markup

import jupyter_graphbreak
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.results import Report

#: Earlier releases do not report the frames that Dynamo did not begin to compile.
REPORTS_SKIPS = hasattr(torch._dynamo.convert_frame.CatchErrorsWrapper, "_handle_skip")
ONES, DOUBLES = torch.ones(3), torch.ones(3, dtype=torch.float64)
STATES = "ran eagerly|compiled before this run|compiled with its caller|not reached|may have run"


@pytest.fixture(autouse=True)
def reset_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def record_call(run: Callable[[], object]) -> Report:
    """Record a call without forgetting earlier compilations, unlike ``explain``."""
    with recorder.record() as recording:
        run()
    return Report.of(build_report(recording.records))


class Wording(NamedTuple):
    """The wording of a report about a resume function: in the text, in the break's card and in the table."""

    text: str
    card: list[str]
    table: list[str]


def wording(report: Report) -> Wording:
    (text,) = [line for line in report.to_text().split("\n") if "resumes at" in line]
    html = Markup(report.to_html()).striptags()  # noqa: S704 - the markup is read, not shown
    card, _, table = html.partition("afterresumes atframesgraphs")
    return Wording(text, re.findall(rf"resumes at line \d+ in \w+ \(({STATES})\)", card), re.findall(STATES, table))


@torch.compile(backend="eager")
def branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x.sin()
    return x.cos()


@torch.compile(backend="eager")
def add_after_break(x: torch.Tensor) -> torch.Tensor:
    y = x.sin().float()
    torch._dynamo.graph_break()
    return y + 1


@torch.compile(backend="eager")
def return_number(x: torch.Tensor) -> int:
    x.sin()
    print("a break")
    return 5


def test_a_resume_function_that_an_earlier_run_compiled_may_have_run() -> None:
    add_after_break(ONES)
    actual = wording(record_call(lambda: add_after_break(DOUBLES)))
    assert actual.text.endswith("in add_after_break (compiled before this run)")
    assert actual.card == actual.table == ["compiled before this run"]


def test_a_resume_function_without_tensors_runs_eagerly() -> None:
    actual = wording(record_call(lambda: return_number(ONES)))
    expected_state = "ran eagerly" if REPORTS_SKIPS else "may have run"
    assert actual.text.endswith(f"in return_number ({expected_state})")
    assert actual.card == actual.table == [expected_state]


def test_a_branch_not_taken_is_not_reached() -> None:
    actual = wording(record_call(lambda: branch(ONES)))
    expected_state = "not reached" if REPORTS_SKIPS else "may have run"
    assert actual.text.endswith("the other branch was not taken" if REPORTS_SKIPS else "the other branch may have run")
    assert actual.card == actual.table == [expected_state]


def test_a_resume_function_that_may_run_eagerly_because_of_an_earlier_run_is_unknown() -> None:
    branch(ONES)
    actual = wording(record_call(lambda: branch(DOUBLES)))
    assert actual.text.endswith("the other branch may have run")
    assert actual.card == actual.table == ["may have run"]


def test_explain_does_not_depend_on_earlier_runs() -> None:
    first = wording(jupyter_graphbreak.explain(branch, ONES))
    assert wording(jupyter_graphbreak.explain(branch, ONES)) == first
    other = wording(jupyter_graphbreak.explain(branch, -ONES))
    assert (other.card, other.table) == (first.card, first.table)


def leaf(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch._dynamo.graph_break()
    y = y * 2
    torch._dynamo.graph_break()
    return y + 3


def middle(x: torch.Tensor) -> torch.Tensor:
    return leaf(x) + 1


def root(x: torch.Tensor) -> torch.Tensor:
    return middle(x) - 1


def branch_on_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sin() if x.sum() > 0 else x.cos()


def choose(x: torch.Tensor) -> torch.Tensor:
    return branch_on_sum(x) * 3


def recurse(x: torch.Tensor, times: int = 2) -> torch.Tensor:
    if times == 0:
        torch._dynamo.graph_break()
        return x + 1
    return recurse(x, times - 1) * 2


def number_of(x: torch.Tensor) -> int:
    x.sin()
    torch._dynamo.graph_break()
    return 5


def number_from(x: torch.Tensor) -> int:
    return number_of(x) + 1


def record_nested(function: Callable[[torch.Tensor], object], *inputs: torch.Tensor) -> Report:
    """Record calls to a function compiled with nested graph breaks, a setting that is off again when the run ends."""

    def run() -> None:
        with torch._dynamo.config.patch(nested_graph_breaks=True):
            compiled = torch.compile(function, backend="eager")
            for value in inputs:
                compiled(value)

    return record_call(run)


def frames_of_resumes(report: Report) -> list[tuple[str, list[str], str | None]]:
    """Return the function, the graphs and the reason for the missing frame of each resume function."""
    return [(resume.function, resume.graphs, resume.no_frame) for resume in report.resumes]


def test_nested_resume_functions_are_in_the_graph_of_their_callers_resume_function() -> None:
    report = record_nested(root, ONES)
    assert frames_of_resumes(report) == [
        ("leaf", ["B"], "inlined"), ("middle", ["B"], "inlined"), ("root", ["B"], None),
        ("leaf", ["C"], "inlined"), ("middle", ["C"], "inlined"), ("root", ["C"], None),
    ]  # fmt: skip
    assert report.config["nested_graph_breaks"] is True
    assert "not reached" not in report.to_text()
    assert "compiled with its caller" in report.to_html()


def test_nested_resume_functions_of_a_branch_not_taken_are_not_reached() -> None:
    expected_state = "not reached" if REPORTS_SKIPS else None
    assert frames_of_resumes(record_nested(choose, ONES)) == [
        ("branch_on_sum", ["B"], "inlined"), ("choose", ["B"], None),
        ("branch_on_sum", [], expected_state), ("choose", [], expected_state),
    ]  # fmt: skip
    torch._dynamo.reset()
    frames_of_both_branches = frames_of_resumes(record_nested(choose, ONES, -ONES))
    assert frames_of_both_branches[2:] == [("branch_on_sum", ["C"], "inlined"), ("choose", ["C"], None)]


def test_nested_resume_functions_of_a_recursive_function_are_inlined() -> None:
    inlined_call, outermost_call = ("recurse", ["A"], "inlined"), ("recurse", ["A"], None)
    assert frames_of_resumes(record_nested(recurse, ONES)) == [inlined_call, inlined_call, outermost_call]


def test_nested_resume_functions_without_a_graph_are_not_reported_as_compiled() -> None:
    report = record_nested(number_from, ONES)
    assert [resume.function for resume in report.resumes] == ["number_of", "number_from"]
    for resume in report.resumes:
        assert resume.graphs == []
        assert resume.frames or resume.no_frame == ("eager" if REPORTS_SKIPS else None)


def test_without_nesting_every_resume_function_has_a_frame() -> None:
    report = record_call(lambda: torch.compile(root, backend="eager")(ONES))
    assert {resume.no_frame for resume in report.resumes} == {None}


def test_the_line_is_right_after_a_comparison_with_none() -> None:
    """Dynamo replaces the instruction of such a comparison with longer ones before it counts offsets."""

    def bias_of(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if bias is None:
            bias = x * 2
        return bias

    def step(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if bias is None:
            bias = bias_of(
                x,
            )
        torch._dynamo.graph_break()
        total = x + bias
        return total.sin()

    report = record_call(lambda: torch.compile(step, backend="eager")(ONES))
    (break_,) = report.breaks
    (resume,) = report.resumes
    assert break_.location is not None
    assert resume.location is not None
    assert resume.location.line == break_.location.line
