"""What a report says of a resume function that no frame of the run compiles: never more than is known."""

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

#: Earlier releases do not say which frames Dynamo did not begin.
TELLS_SKIPS = hasattr(torch._dynamo.convert_frame.CatchErrorsWrapper, "_handle_skip")
ONES, DOUBLES = torch.ones(3), torch.ones(3, dtype=torch.float64)
WORDS = "ran eagerly|compiled before this run|not reached|not known if it ran"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def recorded(run: Callable[[], object]) -> Report:
    """Record a call as it is: unlike ``explain`` this leaves alone what was compiled before."""
    with recorder.record() as recording:
        run()
    return Report.of(build_report(recording.records))


class Wording(NamedTuple):
    """What a reader sees: in the text, in the break's card and in the table of resume functions."""

    text: str
    card: list[str]
    table: list[str]


def wording(report: Report) -> Wording:
    (text,) = [line for line in report.to_text().split("\n") if "resumes at" in line]
    html = Markup(report.to_html()).striptags()  # noqa: S704 - read, not shown
    card, _, table = html.partition("aftergoes on atframesgraphs")
    return Wording(text, re.findall(rf"goes on at line \d+ in \w+ \(({WORDS})\)", card), re.findall(WORDS, table))


@torch.compile(backend="eager")
def branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x.sin()
    return x.cos()


@torch.compile(backend="eager")
def same_after(x: torch.Tensor) -> torch.Tensor:
    y = x.sin().float()
    torch._dynamo.graph_break()
    return y + 1


@torch.compile(backend="eager")
def number_after(x: torch.Tensor) -> int:
    x.sin()
    print("a break")  # noqa: T201 - it is one
    return 5


def test_one_compiled_by_an_earlier_run_may_have_run_as_it_was() -> None:
    same_after(ONES)
    shown = wording(recorded(lambda: same_after(DOUBLES)))
    assert shown.text.endswith("in same_after (compiled before this run)")
    assert shown.card == shown.table == ["compiled before this run"]


def test_one_without_tensors_runs_eagerly() -> None:
    shown = wording(recorded(lambda: number_after(ONES)))
    words = "ran eagerly" if TELLS_SKIPS else "not known if it ran"
    assert shown.text.endswith(f"in number_after ({words})")
    assert shown.card == shown.table == [words]


def test_a_branch_not_taken_is_not_reached() -> None:
    shown = wording(recorded(lambda: branch(ONES)))
    words = "not reached" if TELLS_SKIPS else "not known if it ran"
    assert shown.text.endswith("the other branch was not taken" if TELLS_SKIPS else "the other branch may have run")
    assert shown.card == shown.table == [words]


def test_nothing_is_claimed_of_one_that_an_earlier_run_may_have_made_run_eagerly() -> None:
    branch(ONES)
    shown = wording(recorded(lambda: branch(DOUBLES)))
    assert shown.text.endswith("the other branch may have run")
    assert shown.card == shown.table == ["not known if it ran"]


def test_what_is_compiled_afresh_owes_nothing_to_earlier_runs() -> None:
    first = wording(jupyter_graphbreak.explain(branch, ONES))
    assert wording(jupyter_graphbreak.explain(branch, ONES)) == first
    other = wording(jupyter_graphbreak.explain(branch, -ONES))
    assert (other.card, other.table) == (first.card, first.table)
