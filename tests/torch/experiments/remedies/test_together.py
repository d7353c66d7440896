"""What only works together is one remedy, and what Dynamo gave up on before does not count."""

from __future__ import annotations

import sys

import torch

import jupyter_graphbreak
from jupyter_graphbreak.experiments.remedies.change import Change
from jupyter_graphbreak.experiments.remedies.rehearsal import Rehearsal
from jupyter_graphbreak.experiments.trial.entry import Entry
from jupyter_graphbreak.experiments.trial.inputs import Arguments
from jupyter_graphbreak.report.remedies import WORKING
from jupyter_graphbreak.report.schema import Report

TABLE = {}
NAMES = "abcdefg"


def chosen(x: torch.Tensor) -> torch.Tensor:
    with torch.backends.cudnn.flags(enabled=False):
        return x + 1


TABLE["chosen"] = chosen


def sizes(x: torch.Tensor) -> torch.Tensor:
    count = x.sum().item()
    positive = x[x > 0]
    return torch.repeat_interleave(positive, 2).sum() * count


def looked_up(x: torch.Tensor, name: str) -> torch.Tensor:
    return TABLE[name](x * 2)


def guarded(x: torch.Tensor, limit: int | None) -> torch.Tensor:
    if limit is not None and x.max() >= limit:
        raise ValueError("too large")
    return x + 1


def one_step(x: torch.Tensor, name: str) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x + len(name)


def steps(x: torch.Tensor) -> torch.Tensor:
    step = getattr(sys.modules[__name__], "one_" + "step")  # found by no look at the code: it is not copied
    for name in NAMES:
        x = step(x, name)
    return x.sum() * x.max().item()


def furthest(report: Report) -> int:
    assert report.remedies is not None
    return min(each.evidence.breaks_after for each in report.remedies if each.verdict in WORKING and each.evidence)


def test_settings_are_tried_at_once() -> None:
    report = jupyter_graphbreak.try_remedies(sizes, torch.tensor([1.0, -2.0, 3.0]))
    assert report.remedies is not None
    first = report.remedies[0]
    assert first.verdict in WORKING
    assert set(first.breaks) == {listed.id for listed in report.breaks}
    assert len(first.breaks) > 1
    assert set(first.settings) == {
        "torch._dynamo.config.capture_scalar_outputs",
        "torch._dynamo.config.capture_dynamic_output_shape_ops",
    }
    assert furthest(report) == 0


def test_code_that_was_given_up_before_is_compiled_again() -> None:
    x = torch.ones(3)
    with jupyter_graphbreak.capture() as run:
        torch.compile(looked_up, backend="eager")(x, "chosen")
    report = jupyter_graphbreak.try_remedies(looked_up, x, "chosen")
    assert [(each.gb_type, each.location) for each in report.breaks] == [
        (each.gb_type, each.location) for each in run.report.breaks
    ]


def test_a_check_behind_a_test_of_pythons_is_made_after_the_call() -> None:
    report = jupyter_graphbreak.try_remedies(guarded, torch.ones(3), 50)
    assert report.remedies is not None
    best = next(remedy for remedy in report.remedies if remedy.verdict == "works")
    new = "\n".join(edit.new for edit in best.edits)
    assert "later.append((limit is not None, limit, x))" in new, "what the test protects stays behind it"
    assert 'raise ValueError("too large")' in new


def test_what_was_compiled_too_often_meanwhile_is_compiled_in_each_trial() -> None:
    x = torch.ones(3)
    for name in NAMES:
        torch.compile(one_step, backend="eager")(x, name)
    rehearsal = Rehearsal(Entry("steps", None, steps, Arguments(x), "eager", None))
    first = rehearsal.original.report
    assert first.breaks
    for _ in range(3):
        attempt = rehearsal.attempt(Change(), frozenset(listed.id for listed in first.breaks))
        assert attempt.verdict == "break stays"
        assert attempt.report is not None
        assert attempt.report.summary == first.summary


def test_what_dynamo_does_not_compile_is_not_said_to_work() -> None:
    rehearsal = Rehearsal(Entry("sizes", None, sizes, Arguments(torch.tensor([1.0, -2.0, 3.0])), "eager", None))
    goals = frozenset(listed.id for listed in rehearsal.original.report.breaks)
    with torch.compiler.set_stance("force_eager"):
        assert rehearsal.attempt(Change(), goals).verdict == "not tried"
    attempt = rehearsal.attempt(Change(), goals)
    assert attempt.verdict == "break stays"
    assert attempt.evidence is not None
    assert attempt.evidence.inputs == 1, "what does not help on the first input is not run on the others"
